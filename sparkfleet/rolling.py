"""In which order hosts are switched, how many at once, and when no more may be begun. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkfleet.facts.host import HostFacts, Service, Unknown
from sparkfleet.work import HostWork


@dataclass(frozen=True, slots=True)
class Policy:
    """How the owner wants a fleet to be rolled."""

    batch: int = 1
    """Hosts that are switched at once."""
    max_unavailable: int | None = None
    """Hosts of one service that may be out of service at once, those that are so already among
    them; None: no bound but the batch."""
    canary: str | None = None
    """The host that goes first, alone."""


def batches(work: Sequence[HostWork], policy: Policy) -> list[list[str]]:
    """The hosts that need a switch, in inventory order, as groups that are switched together.

    The canary is a group of its own, before all others. Where nothing serves yet there is nothing
    to lose by going on side by side, once one host has shown that the release works: so after a
    first host alone, all such hosts are one group.
    """
    waiting = [one for one in work if one.switches]
    canary = [one.host for one in waiting if one.host == policy.canary]
    rest = [one for one in waiting if one.host != policy.canary]
    fresh = [one.host for one in rest if all(switch.first for switch in one.switches)]
    serving = [one.host for one in rest if one.host not in fresh]
    size = policy.batch
    groups = [canary, *(serving[i : i + size] for i in range(0, len(serving), size))]
    groups += [fresh] if any(groups) else [fresh[:1], fresh[1:]]
    return [group for group in groups if group]


def out_of_service(name: str, facts: HostFacts | None) -> bool:
    """Whether a host that has served `name` does not do so now.

    One that can't be read counts as out: it may be. One on which the service never ran does not:
    nobody misses it.
    """
    if facts is None or isinstance(facts.services, Unknown):
        return True
    found = facts.services.get(name) or Service()
    if found.current is None:
        return False
    return bool(found.drain) or not proven(found, facts)


def proven(found: Service, facts: HostFacts) -> bool:
    """Whether a container runs that is the one that the node's state calls proven."""
    state = found.state or {}
    if isinstance(facts.containers, Unknown):
        return False
    running = {one.id for one in facts.containers if one.state == "running"}
    return state.get("phase") == "proven" and state.get("container") in running


def too_many_out(
    group: Sequence[str],
    work: Mapping[str, HostWork],
    out: Mapping[str, set[str]],
    policy: Policy,
) -> tuple[str, str] | None:
    """Why `group` may not be begun, and the next step; None where it may.

    `out`: by service the hosts on which it is out of service now. A group that takes no serving
    host out is begun in any case: it can only bring some back.
    """
    bound = policy.max_unavailable
    if bound is None:
        return None
    for service in dict.fromkeys(one.service for host in group for one in work[host].switches):
        down = out.get(service, set())
        taken = [
            host
            for host in group
            if host not in down
            and any(one.service == service and one.disturbs for one in work[host].switches)
        ]
        count = len(down | set(taken))
        if taken and count > bound:
            already = f"{', '.join(sorted(down))} already, " if down else ""
            return (
                f"{count} hosts would be out of service {service} at once ({already}"
                f"{', '.join(taken)} by this batch), and max_unavailable is {bound}.",
                f"Bring back what is out first (--limit {min(down)}), or raise max_unavailable."
                if down
                else "Make the batch smaller, or raise max_unavailable.",
            )
    return None
