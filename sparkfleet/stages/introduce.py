"""What is said once of each recipe that enters the lock."""

from __future__ import annotations

from rich.console import Console

from sparkfleet.fleet import Fleet
from sparkfleet.spec.introduction import introduce, newcomers
from sparkfleet.spec.lock import Lock


def introduce_newcomers(console: Console, fleet: Fleet, before: Lock) -> None:
    """Say once of each recipe that enters the lock what its owner takes on with it."""
    served = (service.recipe for plan in fleet.plans.values() for service in plan.services)
    for recipe in newcomers(before, fleet.lock, served):
        for line in introduce(recipe):
            console.print(line, highlight=False, soft_wrap=True, markup=False)
