"""Who gets what of a box's memory, in lines of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparkfleet.spec.estimate import Spent
from sparkfleet.spec.memory import Verdict

WIDTH = 80


@dataclass(frozen=True, slots=True)
class Share:
    """One service's row."""

    name: str
    recipe: str
    origin: str
    """Where its utilization came from, such as `preset shared`."""
    utilization: float
    spent: Spent


@dataclass(frozen=True, slots=True)
class BoxMemory:
    """One host. All sizes in GiB."""

    host: str
    total_gib: float
    shares: Sequence[Share]
    cap: float
    """The highest sum of all utilizations."""
    verdict: Verdict | None = None
    """The claims against what is available now; None where that is not known."""
    unknown: str = ""
    """Why it is not known."""
    least: float = 0.0
    """What a recipe wants free at start; 0: none says."""

    @property
    def short(self) -> bool:
        """Whether something is known not to fit."""
        verdict = self.verdict
        return verdict is not None and (not verdict.fits or verdict.room_gib < self.least)


def memory_lines(box: BoxMemory) -> Iterator[str]:
    """The box, each service with its arithmetic, the sum, and what is left."""
    indent = max(len(name) for name in ("together", *(share.name for share in box.shares))) + 4
    yield box.host
    for share in box.shares:
        yield from _row(share.name, f"{share.recipe}, {share.origin}", indent)
        alone = len(box.shares) == 1
        for text in _arithmetic(box, share, box.verdict if alone else None):
            yield from _row("", text, indent)
    yield from _sum(box, indent)


def _arithmetic(box: BoxMemory, share: Share, verdict: Verdict | None) -> Iterator[str]:
    spent = share.spent
    text = f"{box.total_gib:.1f} GiB × {share.utilization:.2f} = {spent.claim_gib:.1f}"
    if verdict is not None:
        text = verdict.line
    if spent.kv_gib is not None:
        text += f"; KV room {spent.kv_gib.sign} {spent.kv_gib.value:.1f} ({spent.kv_gib.origin})"
    else:
        text += "; KV room not known before the first boot"
    yield text
    if spent.weights is not None:
        yield f"weights {spent.weights.sign} {spent.weights.value:.1f} ({spent.weights.origin})"
    if spent.kv_tokens is not None:
        tokens = f"KV cache {spent.kv_tokens.sign} {spent.kv_tokens.value:,.0f} tokens"
        if spent.sequences is not None:
            tokens += f", {spent.sequences:.1f} sequences of {spent.length:,}"
        yield f"{tokens} ({spent.kv_tokens.origin})"


def _sum(box: BoxMemory, indent: int) -> Iterator[str]:
    together = sum(share.utilization for share in box.shares)
    claim = sum(share.spent.claim_gib for share in box.shares)
    if len(box.shares) > 1:
        parts = " + ".join(f"{share.utilization:.2f}" for share in box.shares)
        text = f"{box.total_gib:.1f} GiB × ({parts}) = {claim:.1f}"
        if box.verdict is not None:
            text = box.verdict.line
        yield from _row("together", text, indent)
        yield from _row("", f"{together:.2f} of at most {box.cap:.2f}", indent)
    yield from _row("", f"left to everything else: {box.total_gib - claim:.1f} GiB", indent)
    if box.verdict is None:
        yield from _row("", f"available: not known, {box.unknown}", indent)
    elif not box.verdict.fits:
        yield from _row("", f"DOES NOT FIT. {box.verdict.advice}", indent)
    elif box.short:
        room = f"{box.verdict.room_gib:.1f} GiB will be free at start"
        text = f"DOES NOT FIT. {room}; the recipe wants {box.least:.0f}."
        yield from _row("", text, indent)


def _row(label: str, text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {label}".ljust(indent),
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )
