"""A release that serves is watched for a while before it counts: what only load brings to light.

It takes requests meanwhile. An engine that dies, is started again, stops answering or stands still
within that time has failed as one that never came up; so has one that fails the proof at the end,
or in between on a longer watch.
"""

from __future__ import annotations

from sparkfleet.node import wire
from sparkfleet.node.failed import Failed
from sparkfleet.node.layout import Release
from sparkfleet.node.steps import Means, Steps
from sparkfleet.node.watchdog import Pulse, beat, wedged

#: Seconds between two looks, between two questions to the engine, and between two proofs.
LOOK, ASK, PROVE = 1.0, 5.0, 300.0


def soak(steps: Steps, means: Means, release: Release, seconds: float) -> None:
    """Watch the proven `release` for `seconds`, and prove it again. Raises Failed."""
    if seconds <= 0:
        return
    with steps.timed("soak", f"serving, and watched for {seconds:g} s"):
        until = means.clock() + seconds
        pulse = _Beats(release, means)
        prove_at = means.clock() + PROVE
        while (now := means.clock()) < until:
            _runs_on(steps, release)
            pulse.look()
            if now >= prove_at:
                steps.prove(release, quietly=True)
                prove_at = now + PROVE
            means.sleep(min(LOOK, max(0.0, until - means.clock())))
    _runs_on(steps, release)
    steps.prove(release, quietly=True)


def _runs_on(steps: Steps, release: Release) -> None:
    """Raise Failed unless the container that was proven still runs, the very same run of it."""
    container = steps.container()
    if container is None or not container.running:
        how = f" ({container.ending()})" if container else ""
        words = f"The engine died while it was watched{how}."
    elif not steps.state.is_of(container.run):
        words = "The engine died while it was watched, and was started again."
    else:
        return
    raise Failed("soak", words, steps.log_tail(release), NEXT)


NEXT = "Its last lines below say why; mend that, then run the deploy again."


class _Beats:
    """The engine's pulse, taken every few seconds."""

    def __init__(self, release: Release, means: Means) -> None:
        self._release, self._means = release, means
        self._target = wire.Target.of(str(release.probe["url"]))
        self._pulse, self._ask_at = Pulse(means.clock()), means.clock()

    def look(self) -> None:
        """Raises Failed for an engine that stands still."""
        now = self._means.clock()
        if now < self._ask_at:
            return
        self._ask_at = now + ASK
        try:
            metrics: dict[str, float] | None = self._means.metrics(self._target, 5.0)
        except wire.WireError:
            metrics = None
        now = self._means.clock()
        self._pulse = beat(self._pulse, metrics, now)
        why = wedged(self._pulse, metrics, now, self._release.wedge_seconds)
        if why:
            raise Failed("soak", f"The engine stood still while it was watched. {why}")
