"""Waiting until an engine can be stopped without cutting anyone off.

First until every gateway that asks has been told (see drain.py), and one interval more: a request
can be handed over between the word and the check. Then until no request runs or waits, seen twice:
one may be on its way from the engine's HTTP server to its scheduler at the first look. Everything
is bounded, and a gateway that is down holds up nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from sparkfleet.node import wire
from sparkfleet.node.drain import KNOWN_SECONDS, Heard

Then = Literal["wait", "proceed", "abort"]
THEN: tuple[Then, ...] = ("wait", "proceed", "abort")

#: Seconds to wait for a gateway that asks and is told the old word all the same.
HEARING = 30.0
#: Seconds between two looks; and between two sentences on what is waited for.
LOOK, TELL = 0.5, 30.0
#: What the engine counts as under way. A request that came round the gateway is among them.
UNDER_WAY = ("vllm:num_requests_running", "vllm:num_requests_waiting")


@dataclass(frozen=True)
class Waiting:
    """How to look, sleep and tell."""

    clock: Callable[[], float]
    """time.monotonic, which the agent stamps its words with."""
    sleep: Callable[[float], None]
    tell: Callable[[str], None]


def until_heard(load: Callable[[], Heard], by: Waiting) -> bool:
    """Wait until each gateway that asks knows the word; whether all of the inventory's do."""
    heard = load()
    if not heard.interval:
        return True
    begun = by.clock()
    shown_up_by = begun + max(3 * heard.interval, KNOWN_SECONDS)
    while True:
        now = by.clock()
        deaf, known = heard.deaf(now), heard.known(now)
        complete = len(known) >= heard.gateways
        if not deaf and (complete or now >= shown_up_by):
            break
        if now >= begun + HEARING:
            break
        by.sleep(min(LOOK, heard.interval))
        heard = load()
    if deaf:
        by.tell(f"The gateway at {', '.join(deaf)} has not heard of the drain; going on.")
    elif not complete:
        by.tell(
            f"{len(known)} of {heard.gateways} gateways ask this node; one that is down is not "
            "waited for."
        )
    by.sleep(heard.interval)
    return complete and not deaf


def until_idle(
    target: wire.Target,
    metrics: Callable[[wire.Target, float], Mapping[str, float]],
    by: Waiting,
    *,
    seconds: float,
    then: Then = "proceed",
) -> int:
    """Wait until no request is under way; how many are, when `seconds` are up.

    With `wait` they are waited for however long they take.
    """
    until, tell_at = by.clock() + seconds, by.clock() + TELL
    quiet = 0
    while True:
        count = under_way(target, metrics)
        quiet = 0 if count else quiet + 1
        if quiet == 2:
            return 0
        now = by.clock()
        if now >= until and then != "wait" and count:
            return count
        if now >= tell_at:
            by.tell(f"{_requests(count)} still under way after {now - until + seconds:.0f} s.")
            tell_at = now + TELL
        by.sleep(LOOK)


def under_way(
    target: wire.Target, metrics: Callable[[wire.Target, float], Mapping[str, float]]
) -> int:
    """How many requests the engine has; 0 where nothing listens, 1 where it does not say."""
    try:
        read = metrics(target, 5.0)
    except wire.WireError as error:
        # Nothing that listens has nothing to lose; one that is too busy to answer may have.
        return 0 if error.kind == "refused" else 1
    return round(sum(read.get(name, 0.0) for name in UNDER_WAY))


def _requests(count: int) -> str:
    return "1 request is" if count == 1 else f"{count} requests are"
