"""What a check looks at, and how it speaks.

A check is a pure function from a `Case` to findings. One that can't tell says `unknown` with the
raw text: never `ok`, never `fail`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sparkfleet.facts.host import HostFacts, Unknown
from sparkfleet.spec.finding import Finding, Level
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.plan import HostPlan

UNKNOWN_WHY = "What could not be read is neither good nor bad, so the run does not build on it."


class Speaker:
    """One host that was read, Spark or not, and how a check speaks of it."""

    __slots__ = ()
    facts: HostFacts

    @property
    def host(self) -> str:
        """The inventory's name of the host."""
        raise NotImplementedError

    def finding(
        self, level: Level, check: str, what: str, why: str = "", next: str = "", raw: str = ""
    ) -> Finding:
        """A finding about this host."""
        return Finding(level, self.host, check, what, why, next, raw)

    def ok(self, check: str, what: str, raw: str = "") -> Finding:
        """As it should be."""
        return self.finding("ok", check, what, raw=raw)

    def warn(self, check: str, what: str, why: str, next: str, raw: str = "") -> Finding:
        """Shown; the run goes on."""
        return self.finding("warn", check, what, why, next, raw)

    def fail(self, check: str, what: str, why: str, next: str, raw: str = "") -> Finding:
        """Stops the run."""
        return self.finding("fail", check, what, why, next, raw)

    def mend(self, check: str, what: str, why: str, next: str, raw: str = "") -> Finding:
        """A fault that the run puts right itself."""
        return self.finding("mend", check, what, why, next, raw)

    def unknown(self, check: str, subject: str, raw: Unknown | str, next: str = "") -> Finding:
        """Could not be read; `subject` begins the sentence, such as "The driver's version"."""
        text = raw.unknown if isinstance(raw, Unknown) else raw
        what = f"{subject} could not be read on {self.host}."
        return self.finding("unknown", check, what, UNKNOWN_WHY, next or LOOK, text)


@dataclass(frozen=True, slots=True)
class Case(Speaker):
    """One Spark: what is wanted there, and what was found."""

    plan: HostPlan
    facts: HostFacts
    lock: Lock | None = None
    """Sizes of what is still to be fetched; without it the recipe's own figures count."""

    @property
    def host(self) -> str:
        """The inventory's name of the host."""
        return self.plan.name


LOOK = "Look at the host's own words, and run again."

Check = Callable[[Case], Iterator[Finding]]
"""One check: everything that it has to say of a host."""


def gib(size: float) -> str:
    """Bytes as GiB for a sentence."""
    return f"{size / 2**30:.1f} GiB"
