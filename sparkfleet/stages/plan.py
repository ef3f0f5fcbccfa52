"""plan: the memory arithmetic of the whole fleet, before anything is planned to be changed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from sparkfleet.checks.case import Case
from sparkfleet.checks.memory import least_free, weigh
from sparkfleet.console.memory import BoxMemory, Share, memory_lines
from sparkfleet.facts.host import HostFacts, Unknown
from sparkfleet.facts.survey import Unreachable
from sparkfleet.fleet import Fleet
from sparkfleet.render import build_release
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.estimate import Seen, Spent, spend
from sparkfleet.spec.plan import HostPlan, ServicePlan
from sparkfleet.stages.begin import fail_in_pyinfra, this_fleet
from sparkfleet.stages.look import look, table_console


def plan() -> None:
    """Read every host with one command, show who gets what of its memory, and end the run.

    Changes nothing, neither on the hosts nor on the controller, and asks no hub. Exit code 1 where
    the services of a host do not fit into what is available there, else 0.
    """
    fleet = this_fleet()
    fleet.once.do("plan", lambda: _plan(fleet))


def _plan(fleet: Fleet) -> None:
    look(fleet)
    boxes = [box_memory(fleet, one) for one in fleet.plans.values()]
    console = table_console(fleet)
    for box in boxes:
        for line in memory_lines(box):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(LEGEND, highlight=False, soft_wrap=True)
    short = [box.host for box in boxes if box.short]
    if fleet.json:
        fail_in_pyinfra(*short)
    else:
        sys.exit(1 if short else 0)


LEGEND = "≈ is an estimate; = is what the engine's own boot log said. Sizes are GiB."


def box_memory(fleet: Fleet, host: HostPlan) -> BoxMemory:
    """One host's memory as planned and as found."""
    facts = fleet.facts.get(host.name, Unreachable("it was not asked"))
    total, verdict, unknown = host.hardware.memory_gib, None, ""
    if isinstance(facts, Unreachable):
        unknown = facts.raw.strip().splitlines()[-1] if facts.raw.strip() else "no answer"
    elif isinstance(facts.memory, Unknown):
        unknown = facts.memory.unknown
    else:
        total = facts.memory.total_gib
        verdict = weigh(Case(host, facts, fleet.lock), facts.memory)
    shares = [
        Share(
            one.name,
            one.recipe.name
            if one.spec.variant is None
            else f"{one.recipe.name}+{one.spec.variant}",
            one.memory.origin,
            one.utilization,
            _spent(fleet, one, facts, total),
        )
        for one in host.services
    ]
    cap = host.hardware.max_utilization.value
    return BoxMemory(host.name, total, shares, cap, verdict, unknown, least_free(host))


def _spent(
    fleet: Fleet, service: ServicePlan, facts: HostFacts | Unreachable, total: float
) -> Spent:
    figures: Mapping[str, Any] | None = None
    config: Mapping[str, Any] | None = None
    if isinstance(facts, HostFacts):
        if not isinstance(facts.services, Unknown) and service.name in facts.services:
            figures = facts.services[service.name].figures
        if not isinstance(facts.models, Unknown):
            found = facts.models.get(service.models[0].dir)
            config = found.config if found else None
    seen = Seen.of(figures, service)
    release = None
    if seen is not None:
        with suppress(SpecError):  # not pinned yet: nothing that ran is this release
            release = build_release(service, key_id=fleet.key.id).hash
    return spend(service, total, lock=fleet.lock, config=config, seen=seen, release=release)
