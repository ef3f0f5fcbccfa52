"""Watching an engine boot: its landmarks with their usual times, and its death at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sparkfleet.node import wire
from sparkfleet.node.docker import Container, DockerApi, DockerError
from sparkfleet.node.figures import Figures
from sparkfleet.node.layout import Release
from sparkfleet.node.probe import alive
from sparkfleet.node.systemd import Unit
from sparkfleet.node.telling import NOTHING, Telling, hide, telling, text_of

#: Lines of log kept for the moment in which the engine dies.
KEPT = 400


class UnitReader(Protocol):
    """What a boot watch needs of systemd."""

    def show(self, unit: str) -> Unit:
        """State of the unit."""

    def journal(self, unit: str, since: float, lines: int = 60) -> list[str]:
        """Its last lines since then."""


@dataclass(frozen=True)
class Boot:
    """How a boot stands. `outcome` is waiting, ready, dead or late."""

    outcome: str
    seconds: float
    marker: str = ""
    """Label of the last landmark."""
    detail: str = ""
    """What happened, a sentence, when dead or late."""
    telling: Telling = NOTHING


class BootWatch:
    """One boot, followed step by step; each step takes well under a second.

    `unit` is asked only while no container runs, so that following a boot spawns nothing. Without
    it (None), the absence of a container is left to the caller.
    """

    def __init__(
        self,
        release: Release,
        docker: DockerApi,
        *,
        unit: UnitReader | None = None,
        begun: float,
        secret: str = "",
        tell: Callable[[str, str], None] = lambda name, text: None,
        clock: Callable[[], float] = time.time,
        health: Callable[[wire.Target, float], int] = alive,
    ) -> None:
        """`begun`: when the start was asked for, seconds since 1970; a container that ended
        before is a leftover. `tell` gets a name and a sentence at each landmark."""
        self._release, self._docker, self._unit = release, docker, unit
        self._begun, self._secret, self._tell, self._clock = begun, secret, tell, clock
        self._health = health
        self._target = wire.Target.of(str(release.probe["url"]))
        self._seen: Container | None = None
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._last = ""
        self._marks = list(release.markers)
        self._marker = ""
        self._restarts = -1
        self._figures = Figures()

    @property
    def container(self) -> Container | None:
        """The container that is booting, once it has been seen running."""
        return self._seen

    def step(self) -> Boot:
        """Look once. A question that Docker does not answer is asked again at the next step."""
        try:
            container = self._docker.container(self._release.container)
            if container is not None and self._is_ours(container):
                ended = self._follow(container)
            else:
                ended = self._absent(container)
        except DockerError as error:
            ended = None
            late_words = f" {error}"
        else:
            late_words = ""
        if ended is not None:
            return ended
        if self._seen is not None and self._is_ready():
            self._figures.keep(self._release)
            return self._now("ready")
        if self._seconds() > self._release.boot_timeout:
            minutes = self._release.boot_timeout / 60
            reached = f"It had reached: {self._marker}." if self._marker else "It said nothing."
            return self._now(
                "late",
                f"The engine was not ready within {minutes:g} minutes. {reached}{late_words}",
                self._tell_tales(),
            )
        return self._now("waiting")

    def _is_ours(self, container: Container) -> bool:
        """Whether it is of this start. Until it has been made anew, the one of the release before
        stands there, perhaps ended a moment ago."""
        if container.release != self._release.hash:
            return False
        return container.running or container.started_at >= self._begun

    def _follow(self, container: Container) -> Boot | None:
        if self._seen is None:
            self._seen = container
        if container.run != self._seen.run:
            return self._dead("The engine died while it booted, and was started again.")
        self._read(container)
        if not container.running:
            self._seen = container
            return self._dead(f"The engine died while it booted: {container.ending()}.")
        return None

    def _absent(self, leftover: Container | None) -> Boot | None:
        if self._seen is not None:
            return self._dead("The engine's container went away while it booted.")
        if self._unit is None:
            return None
        unit = self._unit.show(self._release.unit)
        self._restarts = unit.restarts if self._restarts < 0 else self._restarts
        if unit.restarts > self._restarts:
            return self._dead(f"{self._release.unit} ended before a container ran.")
        if unit.active in ("active", "reloading", "unknown"):
            return None
        if unit.active == "activating" and unit.sub != "auto-restart":
            return None
        if unit.active == "inactive" and self._seconds() < 10:
            return None  # the start was asked for without waiting
        why = f"{self._release.unit} is {unit.words()}"
        if unit.sub == "auto-restart":
            why = f"{self._release.unit} ended and will be tried again"
        return self._dead(f"The engine's container did not start: {why}.")

    def _read(self, container: Container) -> None:
        """Take in what the log has gained; the stamps tell old lines from new."""
        for stamp, line in self._docker.logs(container.id, since=self._last or container.started):
            if stamp <= self._last:
                continue
            self._last = stamp
            self._lines.append(hide(line, self._secret))
            self._figures.read(line)
            self._mark(line)

    def _mark(self, line: str) -> None:
        for index, row in enumerate(self._marks):
            if text_of(row) in line:
                # Those before it were skipped or reworded by another version: no longer awaited.
                del self._marks[: index + 1]
                self._marker = str(row.get("label") or row["text"])
                usual = row.get("usual_seconds")
                about = f" (usually after about {usual:.0f} s)" if usual else ""
                self._tell("boot", f"{self._marker}: after {self._seconds():.0f} s{about}")
                return

    def _is_ready(self) -> bool:
        try:
            return self._health(self._target, 2.0) == 200
        except wire.WireError:
            return False

    def _dead(self, detail: str) -> Boot:
        return self._now("dead", detail, self._tell_tales())

    def _tell_tales(self) -> Telling:
        lines = list(self._lines)
        if not lines and self._unit is not None:
            said = self._unit.journal(self._release.unit, self._begun)
            lines = [hide(line, self._secret) for line in said]
        return telling(lines, self._release.logs.get("fatal") or ())

    def _seconds(self) -> float:
        started = self._seen.started_at if self._seen is not None else 0.0
        return self._clock() - (started or self._begun)

    def _now(self, outcome: str, detail: str = "", tales: Telling | None = None) -> Boot:
        seconds = round(self._seconds(), 1)
        return Boot(outcome, seconds, self._marker, detail, tales or NOTHING)
