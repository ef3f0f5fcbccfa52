"""roll: batch by batch, each host switches itself; the first failure stops what comes after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkfleet.checks.adoption import found_containers
from sparkfleet.checks.case import Case
from sparkfleet.checks.takeover import park, put_back
from sparkfleet.connector import SparkConnector
from sparkfleet.console.progress import ProgressLines
from sparkfleet.facts.host import HostFacts
from sparkfleet.fleet import Fleet
from sparkfleet.operations.jobs import Outcome, run_job
from sparkfleet.operations.step import say, step
from sparkfleet.rolling import batches, out_of_service, too_many_out
from sparkfleet.runs import whoami
from sparkfleet.stages.begin import this_host
from sparkfleet.stages.stage import failure_of
from sparkfleet.verdict import Failure
from sparkfleet.work import HostWork, Switch

MARGIN_SECONDS = 15 * 60
"""How much longer than its boot a switch may take to drain, stop, prove, and go back."""


def roll(fleet: Fleet) -> None:
    """Switch every host that needs it, one batch after the other."""
    host = this_host()
    groups = batches(list(fleet.work.values()), fleet.policy)
    for number, group in host.loop(list(enumerate(groups, start=1))):
        if host.name not in group:
            continue
        canary = ", the canary" if group == [fleet.policy.canary] else ""
        name = f"Switch batch {number} of {len(groups)}{canary}: {', '.join(group)}"
        step(fleet.verdict, name, switch(fleet, fleet.work[host.name], group))


def switch(fleet: Fleet, work: HostWork, group: Sequence[str]) -> Any:
    """The step that brings every service of a host to its release, one after the other: two
    engines that start at once on one box disturb each other's memory profiling."""

    def run(connector: SparkConnector) -> Failure | None:
        # Asked once a batch: the hosts of it are begun together, whatever becomes of one of them.
        why_not = fleet.once.do(f"batch of {group}", lambda: begin_batch(fleet, group))
        if why_not:
            connector.host.log_styled("Not begun: the roll has stopped.", fg="yellow")
            for one in work.switches:
                fleet.verdict.states[work.host, one.service] = "not begun"
            return why_not if isinstance(why_not, Failure) else None
        for one in work.switches:
            failure = _switch(fleet, connector, one)
            if failure:
                fleet.verdict.stopped = stopped_after(work.host, group)
                return failure
        return None

    return run


def begin_batch(fleet: Fleet, group: Sequence[str]) -> Failure | str:
    """Why the batch is not begun: a sentence of what happened before, or a failure of its own;
    empty where it is."""
    verdict = fleet.verdict
    if verdict.failures and not fleet.partial and not verdict.stopped:
        verdict.stopped = (
            f"No host was switched after {', '.join(verdict.failures)} failed. Mend that "
            "and run again, or add --data partial=true to go on with the others."
        )
    if verdict.stopped:
        return verdict.stopped
    exceeds = too_many_out(group, fleet.work, out_now(fleet), fleet.policy)
    if not exceeds:
        return ""
    verdict.stopped = "The roll has stopped; the next run carries on from there."
    return Failure("The batch was not begun.", *exceeds)


def out_now(fleet: Fleet) -> dict[str, set[str]]:
    """By service the hosts on which it is out of service: as surveyed, and as this run left it."""
    out: dict[str, set[str]] = {}
    for name, plan in fleet.plans.items():
        facts = fleet.facts.get(name)
        for service in plan.services:
            state = fleet.verdict.states.get((name, service.name))
            known = facts if isinstance(facts, HostFacts) else None
            gone = state in GONE if state else out_of_service(service.name, known)
            if gone:
                out.setdefault(service.name, set()).add(name)
    return out


def stopped_after(host: str, group: Sequence[str]) -> str:
    """Where the roll stands once `host` has failed."""
    if len(group) == 1:
        rest = f"Stopped after {host}: the hosts after it were not touched."
    else:
        rest = (
            f"Stopped after {host}: the batches after its own ({', '.join(group)}) were not begun; "
            "a host of that batch that has proven the new release keeps it."
        )
    return f"{rest} The next run carries on from there."


WORDS = {
    "rolled_back": "FAILED, previous release proven",
    "refused": "FAILED, untouched",
    "down": "DOWN",
    "failed": "FAILED",
}
"""What the report calls the end of a switch."""

GONE = ("DOWN", "FAILED")
"""Of these, the ones that leave nothing to serve."""


def switch_request(fleet: Fleet, host: str, one: Switch) -> dict[str, Any]:
    """What node/switch.py is asked for."""
    plan = fleet.plans[host]
    return {
        "root": plan.root,
        "service": one.service,
        "release": one.release,
        "gpu_check": True,
        "drain_timeout": plan.service(one.service).spec.drain_timeout,
        "drain_then": plan.service(one.service).spec.drain_then,
        "soak": plan.spec.soak,
        "keep": plan.spec.keep,
        # What runs was started from files that are not as they were written.
        "restart": one.kind == "start",
        "adopt": adopt_request(fleet, host),
        "who": whoami(),
    }


def adopt_request(fleet: Fleet, host: str) -> dict[str, Any]:
    """The owner's own containers that are to make way, where he said so; else nothing."""
    plan, facts = fleet.plans[host], fleet.facts[host]
    if not plan.spec.adopt or not isinstance(facts, HostFacts):
        return {}
    boxes = found_containers(Case(plan, facts, fleet.lock))
    if not boxes:
        return {}
    return {"ids": [box.id for box in boxes], "park": park(boxes), "put_back": put_back(boxes)}


def _switch(fleet: Fleet, connector: SparkConnector, one: Switch) -> Failure | None:
    host = connector.host
    service = fleet.plans[host.name].service(one.service)
    boot = service.recipe.boot.timeout_minutes * 60
    outcome = run_job(
        connector,
        root=service.root,
        name=f"switch-{one.service}",
        program="switch.py",
        request=switch_request(fleet, host.name, one),
        timeout=2 * boot + fleet.specs[host.name].soak + MARGIN_SECONDS,
        watch=ProgressLines(say(host)),
    )
    _note(fleet, host.name, one, outcome)
    if outcome.ok:
        return None
    details = outcome.result.get("failure") or {}
    return failure_of(outcome.error, tuple(details.get("log") or ()))


def _note(fleet: Fleet, host: str, one: Switch, outcome: Outcome) -> None:
    key = (host, one.service)
    seconds = (outcome.result.get("seconds") or {}).get("total")
    if seconds is not None:
        fleet.verdict.seconds[key] = float(seconds)
    result = str(outcome.result.get("result", ""))
    fleet.verdict.states[key] = "proven" if outcome.ok else WORDS.get(result, "FAILED")
    if result:
        fleet.verdict.runs[key] = outcome.result.get("runs")
