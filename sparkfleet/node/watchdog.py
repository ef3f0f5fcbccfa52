"""When a running engine counts as wedged. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

RUNNING = "vllm:num_requests_running"
#: What moves while an engine works: a long prompt makes no token for a minute, and counts itself.
TOKENS = ("vllm:generation_tokens", "vllm:prompt_tokens")


@dataclass(frozen=True)
class Pulse:
    """The last sign of life: `at`, in seconds of the caller's clock, and the counters then."""

    at: float
    tokens: float = -1.0


def beat(pulse: Pulse, metrics: Mapping[str, float] | None, now: float) -> Pulse:
    """The pulse after one more reading; None: the engine did not answer.

    Alive is: no request runs, or the token counters moved.
    """
    if metrics is None:
        return pulse
    tokens = sum(metrics.get(name, 0.0) for name in TOKENS)
    if metrics.get(RUNNING, 0.0) > 0 and tokens == pulse.tokens:
        return pulse
    return replace(pulse, at=now, tokens=tokens)


def wedged(pulse: Pulse, metrics: Mapping[str, float] | None, now: float, limit: float) -> str:
    """Why the engine counts as wedged, a sentence; empty while it does not."""
    silent = now - pulse.at
    if silent < limit:
        return ""
    if metrics is None:
        return f"It has not answered for {silent:.0f} s."
    running = metrics.get(RUNNING, 0.0)
    return f"{running:.0f} requests run and no token came for {silent:.0f} s."
