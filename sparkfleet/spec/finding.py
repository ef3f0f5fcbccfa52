"""What a check says of one host: a level and a few sentences, the raw text kept beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail", "unknown", "mend"]
"""ok: as it should be. warn: goes on, shown. fail: stops the run. unknown: could not be read,
neither pass nor fail. mend: a fault that the run itself can put right."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the findings table."""

    level: Level
    host: str
    check: str
    """Identifier of the check or rule, such as `driver` or `memory`; stable, for scripts."""
    what: str
    """A sentence: what was found."""
    why: str = ""
    """A sentence: why it matters."""
    next: str = ""
    """A sentence: what the owner does about it."""
    raw: str = ""
    """The text that the verdict was read from, as the host printed it."""
