"""Whose is it: which containers are ours, which the owner started by hand, who holds a port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sparkfleet.facts.host import Container, HostFacts, Listener, known
from sparkfleet.spec.plan import ServicePlan

ANY = ("0.0.0.0", "::", "*")
PROXY = "docker-proxy"


def containers(facts: HostFacts) -> tuple[Container, ...]:
    """The containers as far as they are known."""
    return known(facts.containers, ())


def ours(facts: HostFacts, service: ServicePlan) -> Container | None:
    """The running container of one of our services."""
    mine = (box for box in containers(facts) if box.running and box.service == service.name)
    return next(mine, None)


def by_hand(facts: HostFacts, service: ServicePlan) -> list[Container]:
    """Containers that the owner started from the published command, running or not.

    They carry a name of the recipe, or run the recipe's image on the service's port. A container
    of that name that has exited counts too: ours could not be made beside it.
    """
    names = {service.container, service.recipe.container}
    return [
        box
        for box in containers(facts)
        if box.service is None
        and box.job is None
        and (
            box.name in names
            or (box.running and runs_image(box, service) and uses_port(box, service))
        )
    ]


def runs_image(box: Container, service: ServicePlan) -> bool:
    """Whether a container runs some version of the recipe's image."""
    wanted = {service.image.repository, service.recipe.image.repository}
    found = {digest.partition("@")[0] for digest in box.digests}
    image = (box.image or "").partition("@")[0]
    name, colon, tag = image.rpartition(":")
    found.add(name if colon and "/" not in tag else image)
    return bool(wanted & found)


def uses_port(box: Container, service: ServicePlan) -> bool:
    """Whether a container publishes the service's port, or shares the host's network."""
    return box.network == "host" or any(port == service.port for port, _ in box.ports)


def utilization(box: Container) -> float | None:
    """The memory fraction that an engine was started with, from its command line."""
    words = [word for argument in box.cmd for word in argument.replace("=", " ").split()]
    for flag, value in pairwise(words):
        if flag == "--gpu-memory-utilization":
            try:
                return float(value)
            except ValueError:
                return None
    return None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a port."""

    name: str
    """For a sentence: `container web`, `process nginx (pid 812)`."""
    container: Container | None = None


def holders(facts: HostFacts, service: ServicePlan) -> Iterator[Holder]:
    """Everyone who holds the service's port on an address that overlaps its own."""
    named: set[str] = set()
    for listener in known(facts.listeners, ()):
        if listener.port == service.port and overlaps(listener.addr, service.bind):
            holder = of_listener(facts, listener)
            if holder.name not in named:
                named.add(holder.name)
                yield holder
    # Docker can publish a port by packet filter alone: then no process listens on it.
    for box in containers(facts):
        if box.running and any(port == service.port for port, _ in box.ports):
            holder = Holder(f"container {box.name}", box)
            if holder.name not in named:
                named.add(holder.name)
                yield holder


def overlaps(one: str, other: str) -> bool:
    """Whether two listening addresses get in each other's way."""
    one, other = (address.removeprefix("::ffff:") for address in (one, other))
    return one == other or one in ANY or other in ANY


def of_listener(facts: HostFacts, listener: Listener) -> Holder:
    """The container behind a listening process, or the process."""
    for box in containers(facts):
        behind_proxy = listener.process == PROXY and any(
            port == listener.port for port, _ in box.ports
        )
        if box.running and (listener.container == box.id or behind_proxy):
            return Holder(f"container {box.name}", box)
    if listener.pid is None:
        return Holder("a process that could not be seen")
    return Holder(f"process {listener.process or '?'} (pid {listener.pid})")
