"""check: every host, every fault found at once, nothing changed yet."""

from __future__ import annotations

import sys
from dataclasses import replace

from pyinfra.context import ctx_state
from rich.console import Console

from sparkfleet.facts.host import HostFacts
from sparkfleet.fleet import Fleet
from sparkfleet.pins import fill_lock
from sparkfleet.programs import program_digests
from sparkfleet.render import agent_unit, build_release
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.plan import HostPlan
from sparkfleet.stages.begin import fail_in_pyinfra, stop, this_fleet
from sparkfleet.stages.gateway import wanted_gateway
from sparkfleet.stages.hold import refuse_held
from sparkfleet.stages.introduce import introduce_newcomers
from sparkfleet.stages.look import (
    failed_hosts,
    judge,
    look,
    show_findings,
    table_console,
)
from sparkfleet.stages.report import report_now
from sparkfleet.verdict import Failure
from sparkfleet.work import HostWork, Wanted, decide
from sparkfleet.work_gateway import decide_gateway


def check() -> Fleet:
    """Read every host, show what was found, decide what is to be done.

    Ends the run when a host failed a check, before anything is changed anywhere; with
    `--data partial=true` the run goes on with the hosts that passed.
    """
    fleet = this_fleet()
    fleet.once.do("check", lambda: _check(fleet))
    return fleet


def _check(fleet: Fleet) -> None:
    console = table_console(fleet)
    look(fleet)
    refuse_held(fleet)
    failed = failed_hosts(fleet)
    passed = {name: plan for name, plan in fleet.plans.items() if name not in failed}
    try:
        if passed and (not failed or fleet.partial):
            before = fleet.lock
            fleet.use_lock(fill_lock(before, passed, ctx_state.get().inventory))
            introduce_newcomers(console, fleet, before)
            judge(fleet)
            failed = failed_hosts(fleet)
    except SpecError as error:
        show_findings(console, fleet)
        stop(f"{error}\nNothing was changed.")
    show_findings(console, fleet)
    stop_or_leave_out(fleet, failed)
    for name, plan in fleet.plans.items():
        facts = fleet.facts[name]
        if name not in failed and isinstance(facts, HostFacts):
            fleet.work[name] = _decide(fleet, plan, facts)
    for name in fleet.gateways:
        facts = fleet.facts[name]
        if name not in failed and isinstance(facts, HostFacts):
            work = decide_gateway(name, wanted_gateway(fleet, name), facts)
            # A Spark has its programs from its own work.
            fleet.gateway_work[name] = replace(
                work, programs=work.programs and name not in fleet.work
            )
    show_work(console, fleet)
    if fleet.nothing:
        if not fleet.dry:  # the hosts are as they should be; pins that were missing are not
            fleet.save()
        report_now(fleet)
        if not fleet.json:  # pyinfra would ask whether to make no changes
            sys.exit(1 if fleet.verdict.failures else 0)


def stop_or_leave_out(fleet: Fleet, failed: set[str]) -> None:
    """End the run for the hosts that failed, or leave them out where the owner said `partial`."""
    if not failed:
        return
    names = ", ".join(name for name in fleet.hosts if name in failed)
    if not fleet.partial or failed >= set(fleet.plans):
        stop(
            f"Nothing was changed: {names} failed the checks (see the table above). "
            "Mend that and run the same command again"
            + (
                "."
                if failed >= set(fleet.plans)
                else ", or add --data partial=true to go on with the others."
            )
        )
    for name in sorted(failed):
        first = next(row for row in fleet.findings if row.host == name and row.level == "fail")
        fleet.verdict.fail(name, Failure(first.what, first.why, first.next))
    fail_in_pyinfra(*failed)


def _decide(fleet: Fleet, plan: HostPlan, facts: HostFacts) -> HostWork:
    findings = [finding for finding in fleet.findings if finding.host == plan.name]
    fleet.wanted[plan.name] = wanted = wanted_of(fleet, plan)
    return decide(wanted, facts, findings)


def wanted_of(fleet: Fleet, plan: HostPlan, *, releases: bool = True) -> Wanted:
    """What the controller holds ready for a host; without `releases`, only what is the same for
    all of them. Raises SpecError where something is not pinned."""
    key = fleet.key
    services = plan.services if releases else ()
    return Wanted(
        plan=plan,
        releases={one.name: build_release(one, key_id=key.id) for one in services},
        models={
            (service.name, role): model
            for service in services
            for role, model in fleet.lock.recipes[service.lock_key].models.items()
        },
        programs=program_digests(),
        agent_unit=agent_unit(plan.root, fleet.answers.get(plan.name)),
        key_file={one.name: key.engine_file for one in services if one.auth == "key"},
    )


def show_work(console: Console, fleet: Fleet) -> None:
    """What would happen, a line a step."""
    steps = [(name, work.sentences()) for name, work in fleet.work.items()]
    steps += [(name, work.sentences()) for name, work in fleet.gateway_work.items()]
    for name, sentences in steps:
        for sentence in sentences:
            console.print(f"  {name}: {sentence}", highlight=False, soft_wrap=True)
