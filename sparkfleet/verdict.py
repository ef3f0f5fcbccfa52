"""How the run goes: per service its state, per host what failed. Shared by all hosts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Failure:
    """Something asked for that was not done: sentences for the owner of the box."""

    what: str
    why: str = ""
    next: str = ""
    log: tuple[str, ...] = ()
    """Telling lines of the engine's or a program's log."""


@dataclass
class Verdict:
    """What has happened so far. Later steps ask it before they touch a host."""

    failures: dict[str, list[Failure]] = field(default_factory=dict)
    """By host."""
    states: dict[tuple[str, str], str] = field(default_factory=dict)
    """By host and service: the word that the report shows."""
    runs: dict[tuple[str, str], Mapping[str, Any] | None] = field(default_factory=dict)
    """By host and service: what runs since its switch (see node/steps.py); None: nothing."""
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    """By host and service: how long the change took."""
    changed: set[str] = field(default_factory=set)
    """Hosts on which something was changed."""
    refused: str = ""
    """Why nothing may be changed at all; empty while this run holds its hosts."""
    remarks: list[str] = field(default_factory=list)
    """Sentences that the report ends with."""
    stopped: str = ""
    """Why no further batch is begun; empty while the roll goes on."""

    def fail(self, host: str, failure: Failure) -> None:
        """Note a failure; the host is left alone from here on."""
        self.failures.setdefault(host, []).append(failure)

    def good(self, host: str) -> bool:
        """Whether the host may be changed: nothing has failed on it so far."""
        return host not in self.failures and not self.refused
