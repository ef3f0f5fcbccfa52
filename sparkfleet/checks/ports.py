"""The port of each service: free, held by ours, or by a stranger."""

from __future__ import annotations

from collections.abc import Iterator

from sparkfleet.checks.case import Case
from sparkfleet.checks.holders import Holder, by_hand, holders
from sparkfleet.facts.host import Unknown
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.plan import ServicePlan


def port(case: Case) -> Iterator[Finding]:
    """One finding for each service's port."""
    for unread in (case.facts.listeners, case.facts.containers):
        if isinstance(unread, Unknown):
            yield case.unknown("port", "Who listens on the services' ports", unread)
            return
    for service in case.plan.services:
        adoptable = {box.id for box in by_hand(case.facts, service)}
        found = [
            holder
            for holder in holders(case.facts, service)
            # The owner's own engine is the adoption check's to speak of.
            if holder.container is None or holder.container.id not in adoptable
        ]
        yield verdict(case, service, found)


def verdict(case: Case, service: ServicePlan, found: list[Holder]) -> Finding:
    """Judge whoever holds one service's port."""
    where = f"Port {service.port} on {case.host}"
    strangers = [holder for holder in found if holder.container is None or not mine(holder)]
    if strangers:
        names = ", ".join(holder.name for holder in strangers)
        return case.fail(
            "port",
            f"{where} is held by {names}.",
            f"Service {service.name} wants it; a container that can't have its port ends with a "
            "bare exit code.",
            f"Stop that, or give service {service.name} another port.",
        )
    planned = {other.name for other in case.plan.services}
    left_over = [holder for holder in found if service_of(holder) not in planned]
    if left_over:
        name = service_of(left_over[0])
        return case.fail(
            "port",
            f"{where} is held by service {name}, which is ours but no longer in the inventory.",
            f"Service {service.name} wants the port.",
            f"Stop {name} first: pyinfra INVENTORY plays/stop.py --data service={name}.",
        )
    if found:
        return case.ok("port", f"{where} is held by our own service {service_of(found[0])}.")
    return case.ok("port", f"{where} is free.")


def mine(holder: Holder) -> bool:
    """Whether a holder is one of our services."""
    return service_of(holder) is not None


def service_of(holder: Holder) -> str | None:
    """The name of our service that holds a port."""
    return holder.container.service if holder.container else None
