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
from sparkfleet.runs import whoami
from sparkfleet.stages.begin import this_host
from sparkfleet.stages.stage import failure_of
from sparkfleet.verdict import Failure
from sparkfleet.work import HostWork, Switch

MARGIN_SECONDS = 15 * 60
"""How much longer than its boot a switch may take to drain, stop, prove, and go back."""


def batches(work: Sequence[HostWork], size: int) -> list[list[str]]:
    """The hosts that need a switch, in inventory order, as groups that are switched together.

    Where nothing serves yet there is nothing to lose by going on side by side, once one host has
    shown that the release works: so after a first host alone, all such hosts are one group.
    """
    waiting = [one for one in work if one.switches]
    if not waiting:
        return []
    fresh = [one.host for one in waiting if all(switch.first for switch in one.switches)]
    serving = [one.host for one in waiting if one.host not in fresh]
    groups = [serving[i : i + size] for i in range(0, len(serving), size)]
    if fresh:
        groups += [fresh[:1], fresh[1:]] if not groups else [fresh]
    return [group for group in groups if group]


def roll(fleet: Fleet) -> None:
    """Switch every host that needs it, one batch after the other."""
    host = this_host()
    groups = batches(list(fleet.work.values()), fleet.batch)
    for number, group in host.loop(list(enumerate(groups, start=1))):
        if host.name not in group:
            continue
        name = f"Switch batch {number} of {len(groups)}: {', '.join(group)}"
        step(fleet.verdict, name, switch(fleet, fleet.work[host.name]))


def switch(fleet: Fleet, work: HostWork) -> Any:
    """The step that brings every service of a host to its release, one after the other: two
    engines that start at once on one box disturb each other's memory profiling."""

    def run(connector: SparkConnector) -> Failure | None:
        if fleet.verdict.failures and not fleet.partial and not fleet.verdict.stopped:
            fleet.verdict.stopped = (
                f"No host was switched after {', '.join(fleet.verdict.failures)} failed. Mend that "
                "and run again, or add --data partial=true to go on with the others."
            )
        if fleet.verdict.stopped:  # pyinfra calls it a success; nothing was done
            connector.host.log_styled("Not begun: the roll has stopped.", fg="yellow")
            return None
        for one in work.switches:
            failure = _switch(fleet, connector, one)
            if failure:
                fleet.verdict.stopped = (
                    f"Stopped after {work.host}: the hosts after it were not touched. "
                    "The next run carries on from there."
                )
                return failure
        return None

    return run


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
        timeout=2 * boot + MARGIN_SECONDS,
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
    words = {"rolled_back": "FAILED, previous release proven", "down": "DOWN", "failed": "FAILED"}
    result = str(outcome.result.get("result", ""))
    fleet.verdict.states[key] = "proven" if outcome.ok else words.get(result, "FAILED")
