"""leave: take one host out of the gateway, or let it in again, by its owner's word."""

from __future__ import annotations

from typing import Any, Literal

from sparkfleet.connector import SparkConnector
from sparkfleet.console.progress import ProgressLines
from sparkfleet.console.tables import print_failures
from sparkfleet.fleet import Fleet
from sparkfleet.operations.jobs import Outcome, run_job
from sparkfleet.operations.step import at_the_end, say, step
from sparkfleet.runs import whoami
from sparkfleet.spec.options import DrainOptions
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.stages.begin import fail_in_pyinfra, this_fleet, this_host
from sparkfleet.stages.check import show_work
from sparkfleet.stages.hold import let_go
from sparkfleet.stages.look import table_console
from sparkfleet.stages.stage import failure_of
from sparkfleet.stages.verb import bare_wanted, read_all, ready
from sparkfleet.verbs import tools
from sparkfleet.verdict import Failure

MARGIN_SECONDS = 120.0
"""How much longer than its requests a host may take to be heard by its gateways."""

UNBOUNDED_SECONDS = 6 * 3600.0
"""How long is watched where requests are waited for however long they take."""

Action = Literal["out", "in"]

SENTENCES = {
    "out": "Take {service} out of the gateway; it goes on running.",
    "in": "Let {service} into the gateway again.",
}


def leave(action: Action) -> None:
    """Take every service of the chosen host out of the gateway (`out`), or let it `in` again."""
    fleet = this_fleet()
    fleet.once.do("leave", lambda: _plan(fleet, action))
    ready(fleet)
    host = this_host().name
    if host in fleet.work:
        for service in fleet.plans[host].services:
            name = SENTENCES[action].format(service=service.name).rstrip(".")
            step(fleet.verdict, name, do(fleet, service, action))
    let_go(fleet)
    at_the_end(name="Report", work=lambda: fleet.once.do("report", lambda: _report(fleet)))


def do(fleet: Fleet, service: ServicePlan, action: Action) -> Any:
    """The step for one service."""

    def run(connector: SparkConnector) -> Failure | None:
        spec, options = service.spec, fleet.options
        wait = UNBOUNDED_SECONDS if spec.drain_then == "wait" else spec.drain_timeout
        outcome = run_job(
            connector,
            root=service.root,
            name=f"leave-{service.name}",
            program="leave.py",
            request={
                "root": service.root,
                "service": service.name,
                "action": action,
                "reason": options.reason if isinstance(options, DrainOptions) else "",
                "who": whoami(),
                "seconds": wait,
            },
            timeout=wait + MARGIN_SECONDS,
            watch=ProgressLines(say(connector.host)),
        )
        if not outcome.ok:
            return failure_of(outcome.error)
        return (
            _went_out(fleet, service, outcome)
            if action == "out"
            else _is_in(fleet, service, outcome)
        )

    return run


def _went_out(fleet: Fleet, service: ServicePlan, outcome: Outcome) -> Failure | None:
    told = f"{service.host}, {service.name}: out of the gateway until plays/readmit.py"
    count = int(outcome.result["under_way"])
    running = f"{count} request{'s' * (count != 1)} still under way" if count else "idle"
    heard = "" if outcome.result["heard"] else "; not every gateway has asked since"
    fleet.verdict.remarks.append(f"{told}; {running}{heard}.")
    return None


def _is_in(fleet: Fleet, service: ServicePlan, outcome: Outcome) -> Failure | None:
    word = str(outcome.result["word"])
    if word == "down":
        return Failure(
            f"{service.name} takes no requests yet: it is not proven.",
            "The gateway sends requests to a node once it has proven its engine; nobody holds it "
            "out any more, so it joins by itself then.",
            "Look at plays/status.py; pyinfra INVENTORY deploy.py starts and proves what is down.",
        )
    held = "" if outcome.result["held"] else " (nobody held it out)"
    way = " once the switch under way is done" if word == "drain" else ""
    fleet.verdict.remarks.append(
        f"{service.host}, {service.name}: in the gateway again{way}{held}."
    )
    return None


def _plan(fleet: Fleet, action: Action) -> None:
    for name, (plan, facts) in read_all(fleet).items():
        fleet.wanted[name] = wanted = bare_wanted(fleet, plan)
        verbs = [SENTENCES[action].format(service=one.name) for one in plan.services]
        fleet.work[name] = tools(wanted, facts, *verbs)
    show_work(table_console(fleet), fleet)


def _report(fleet: Fleet) -> None:
    console = table_console(fleet)
    print_failures(console, fleet.failures)
    for remark in filter(None, (*fleet.verdict.remarks, fleet.verdict.refused)):
        console.print(remark, highlight=False, soft_wrap=True)
    fail_in_pyinfra(*fleet.verdict.failures)
