"""Which fault the stand-in plays, and where it was told to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LIVE = Path("/run/standin-fault")
KNOWN = (
    *("slow", "crash", "exit0", "never-ready", "mute", "missing-name", "still-counters"),
    *("forbidden-log", "wrong-answer", "wrong-version", "dead", "dies", "dies-0", "wedges"),
)
DEFAULTS = {"slow": 90.0, "crash": 1.0, "dead": 8.0, "dies": 8.0, "dies-0": 8.0, "wedges": 8.0}


@dataclass(frozen=True)
class Fault:
    """A fault's name and its number: seconds, an exit code, or completions until it strikes."""

    name: str = ""
    number: float = 0

    def __bool__(self) -> bool:
        return bool(self.name)


def parse(text: str) -> Fault:
    """`wedges:3` → that fault; "" → none. Raises ValueError for a fault that does not exist."""
    name, _, number = text.strip().partition(":")
    if not name:
        return Fault()
    if name not in KNOWN:
        raise ValueError(f"the stand-in knows no fault {name!r}, only {', '.join(KNOWN)}")
    return Fault(name, float(number) if number else DEFAULTS.get(name, 0))


def at_boot(model: str, env: Mapping[str, str] = os.environ) -> Fault:
    """The fault that the environment or the model directory asks for."""
    if text := env.get("SPARKFLEET_STANDIN_FAULT"):
        return parse(text)
    asked = Path(model) / "standin-fault.json"
    return parse(json.loads(asked.read_text())["fault"]) if asked.exists() else Fault()


def now(boot: Fault, live: Path = LIVE) -> Fault:
    """The fault in force at this moment: the live file's, else the boot's."""
    try:
        return parse(live.read_text())
    except (OSError, ValueError):
        return boot
