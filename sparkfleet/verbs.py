"""What the verbs beside the deploy have to do on a host: back, again, out and in. Pure.

Each gives the same kind of work as the deploy, so that it is held, rolled and reported in the same
way. Where there is nothing to do, a sentence says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkfleet.facts.host import HostFacts, Runs, Service, known
from sparkfleet.work import HostWork, Switch, Wanted, lacks_agent, lacks_programs


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing to do for a service."""

    why: str
    """A sentence."""
    amiss: bool = True
    """What was asked for can't be done, rather than being done already."""


Find = Callable[[Wanted, str, Service], Switch | Nothing]
"""Of a service by its name, and as found on the host: what to do."""


def back(wanted: Wanted, name: str, found: Service) -> Switch | Nothing:
    """Back from the inventory's release to the one before it.

    A host on another release stays there: it has gone back already, or was never brought forward.
    So the same command again carries on where a first one ended, and goes no further back.
    """
    asked = wanted.releases[name].hash
    if found.current is None:
        return Nothing(f"{name} was never deployed here.")
    if found.current != asked:
        return Nothing(
            f"{name} stays at release {found.current}: it is not on {asked}, which the inventory "
            "says and which is what would be left.",
            amiss=False,
        )
    if found.previous is None or found.previous not in found.releases:
        return Nothing(f"{name} has no release before {asked} to go back to.")
    why = f"Go back with {name} from release {asked} to {found.previous}."
    return Switch(name, found.previous, "release", why)


def again(wanted: Wanted, name: str, found: Service) -> Switch | Nothing:
    """The same release, started again."""
    if found.current is None:
        return Nothing(f"{name} was never deployed here.")
    return Switch(name, found.current, "start", f"Restart {name}, release {found.current}.")


def work_of(wanted: Wanted, facts: HostFacts, find: Find) -> tuple[HostWork, list[Nothing]]:
    """What `find` gives for every service of a host, with what those steps need on it."""
    images, services = known(facts.images, {}), known(facts.services, {})
    switches: list[Switch] = []
    nothing: list[Nothing] = []
    pulls: dict[str, None] = {}
    for service in wanted.plan.services:
        there = services.get(service.name) or Service()
        found = find(wanted, service.name, there)
        if isinstance(found, Nothing):
            nothing.append(found)
            continue
        switches.append(found)
        image = (there.releases.get(found.release) or Runs()).image
        if image and image not in images:
            pulls[image] = None
    if not switches:
        return HostWork(wanted.plan.name), nothing
    work = tools(wanted, facts)
    return HostWork(
        work.host, work.programs, work.agent, pulls=tuple(pulls), switches=tuple(switches)
    ), nothing


def tools(wanted: Wanted, facts: HostFacts, *verbs: str) -> HostWork:
    """Bring our programs up to date for `verbs`, a sentence each."""
    return HostWork(
        wanted.plan.name,
        programs=lacks_programs(wanted, facts),
        agent=lacks_agent(wanted, facts),
        verbs=verbs,
    )
