"""Progress of long steps, as plain lines: one a host every few seconds, more only for news."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

LINE_SECONDS = 5.0
"""At most one progress line a host in this time: a log stays readable, a person sees it move."""

STILL_SECONDS = 30.0
"""A line that says the same as the last one is shown after this time only: it still lives."""

UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Bytes for a person, in powers of 1000 as downloads are counted: `1.2 GB`."""
    for unit in UNITS:
        if abs(count) < 1000 or unit == UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def duration(seconds: float) -> str:
    """Seconds for a person: `42 s`, `3 min 05 s`, `1 h 20 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def progress_line(event: Mapping[str, Any]) -> str:
    """A `progress` event as a line: `fetch: 1.2 of 23.3 GB, 85.0 MB/s, 4 min 20 s left`."""
    done, total, rate = event["done"], event.get("total"), event.get("rate")
    in_bytes = event.get("unit", "B") == "B"
    show = size if in_bytes else lambda count: f"{count:g}"
    text = f"{event['phase']}: {show(done)}"
    if total:
        text += f" of {show(total)}"
    if not in_bytes:
        text += f" {event['unit']}"
    if rate:
        text += f", {show(rate)}/s"
        if total and in_bytes and total > done:
            text += f", {duration((total - done) / rate)} left"
    if event.get("item"):
        text += f" ({event['item']})"
    return text


class ProgressLines:
    """Turns the events of one host's job into lines, thinned out, for `say`."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._last = -STILL_SECONDS
        self._line = ""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Show a phase or a log line at once, progress at most every few seconds."""
        if event["event"] == "progress":
            now, finished = self._clock(), event.get("total") and event["done"] >= event["total"]
            if now - self._last < LINE_SECONDS and not finished:
                return
            line = progress_line(event)
            if line == self._line and now - self._last < STILL_SECONDS:
                return
            self._last, self._line = now, line
            self._say(line)
        elif event["event"] in ("phase", "log"):
            self._say(str(event["text"]))
