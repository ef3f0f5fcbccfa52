"""Memory arithmetic of unified memory: fractions of what the system reports, floored to 0.01."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What one service claims. All sizes in GiB (2**30 bytes)."""

    total_gib: float
    """What the system reports in all; 121.7 on a GB10."""
    utilization: float
    """Resolved fraction of the total, floored to 0.01."""
    origin: str
    """Where it came from: `preset shared`, `utilization`, `reserve_gib 30`."""
    weights_gib: float | None = None
    """Estimate of weights and drafter in memory, until the boot log tells."""
    kv_bytes_per_token: int | None = None
    """Estimate, bytes a token."""
