"""Memory arithmetic of unified memory: fractions of what the system reports, floored to 0.01.

The engine refuses to start unless what is available (MemAvailable; an integrated GPU has no other
"free") is at least total × utilization. All sizes here are GiB (2**30 bytes).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

GIB = 2**30

LEAST = 0.05
"""Below this a utilization is not worth suggesting: weights alone need more."""


def floor_hundredth(value: float) -> float:
    """Floor to 0.01; a value that is a hundredth but for float noise stays as it is."""
    return math.floor(round(value * 100, 6)) / 100


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What one service claims. All sizes in GiB (2**30 bytes)."""

    total_gib: float
    """What the system reports in all; 121.7 on a GB10."""
    utilization: float
    """Resolved fraction of the total, floored to 0.01."""
    origin: str
    """Where it came from: `preset shared`, `utilization`, `reserve_gib 30`."""

    @property
    def claim_gib(self) -> float:
        """What the engine takes."""
        return self.total_gib * self.utilization


def of_reserve(reserve_gib: float, total_gib: float) -> float:
    """The utilization that leaves `reserve_gib` to others, never rounded up; may be below zero."""
    return floor_hundredth((total_gib - reserve_gib) / total_gib)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the claims of a box fit into what is available."""

    fits: bool
    claim_gib: float
    """What all services that are to be started take together."""
    room_gib: float
    """Available now and what our own running services give back."""
    line: str
    """The arithmetic on one line."""
    suggestion: Mapping[str, float]
    """Service → the utilization that would fit; empty when it fits, or when none does."""

    @property
    def advice(self) -> str:
        """A sentence for the owner, empty when it fits."""
        if self.fits:
            return ""
        if not self.suggestion:
            return "No utilization would fit; free memory on the box first."
        return (
            "It would fit with "
            + ", ".join(
                f"{name}: utilization {value:.2f}" for name, value in self.suggestion.items()
            )
            + "; or stop what else holds memory on the box."
        )


def judge(
    claims: Mapping[str, float],
    total_gib: float,
    available_gib: float,
    give_back_gib: Iterable[float] = (),
) -> Verdict:
    """Weigh the services of a box against its memory, as the engine will at start.

    `claims` is service → utilization of all services that will be (re)started; one that keeps
    running belongs in neither `claims` nor `give_back_gib`, MemAvailable knows of it already.
    `give_back_gib` is what each of the services that will be stopped for it holds now.
    """
    back = sum(give_back_gib)
    room = available_gib + back
    claim = total_gib * sum(claims.values())
    share = floor_hundredth(room / total_gib) if total_gib > 0 else 0.0
    fits = claim <= room
    suggestion: dict[str, float] = {}
    if not fits:
        scale = share / sum(claims.values())
        smaller = {name: floor_hundredth(value * scale) for name, value in claims.items()}
        if all(value >= LEAST for value in smaller.values()):
            suggestion = smaller
    parts = " + ".join(f"{value:.2f}" for value in claims.values())
    parts = f"({parts})" if len(claims) > 1 else parts
    line = f"{total_gib:.1f} GiB × {parts} = {claim:.1f}; available {available_gib:.1f}"
    if back:
        line += f" + {back:.1f} that our own running service gives back"
    return Verdict(fits, claim, room, line, suggestion)
