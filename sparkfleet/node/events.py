"""Progress of a long step, as JSON lines in a file that anyone may follow.

One line per event, flushed at once, so that a reader sees it in the same second and a killed
program leaves whole lines behind. The kinds: `progress`, `phase`, `log` and, last of all, `done`.

How the programs of this folder find each other: on a Spark they lie in /opt/sparkfleet/node, which
is the same path as this package's below its root. A program that is run as a file puts that root
on sys.path (`sys.path.insert(0, str(Path(__file__).absolute().parents[2]))`; absolute, not
resolved: the folder may be a link) and imports `sparkfleet.node.events` here as there: one name in
the checkout, for the type checker and on a box.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

#: Error of a `done` event: what happened, where, why, the next step, and a code for programs.
ERROR_KEYS = ("what", "where", "why", "next", "code")


def failure(
    what: str, *, where: str = "", why: str = "", next: str = "", code: str = "error"
) -> dict[str, str]:
    """The `error` of a `done` event, every key present."""
    return {"what": what, "where": where, "why": why, "next": next, "code": code}


class Events:
    """Writer of one job's events. Safe to use from several threads."""

    def __init__(self, path: str | Path | None, clock: Callable[[], float] = time.time) -> None:
        """Append to `path` (made 0600 if absent); None writes nowhere, for use by hand."""
        self.path = Path(path) if path is not None else None
        self._clock = clock
        self._lock = threading.Lock()
        self._file = None
        if self.path is not None:
            self.path.touch(mode=0o600, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8", errors="replace")

    @classmethod
    def for_request(cls, request: str | Path) -> Events:
        """The events file beside a job's request: NAME.json -> NAME.jsonl."""
        return cls(Path(request).with_suffix(".jsonl"))

    def progress(
        self,
        phase: str,
        done: float,
        total: float | None,
        *,
        rate: float | None = None,
        unit: str = "B",
        item: str = "",
    ) -> None:
        """How far `phase` is: `done` of `total` `unit`s, `rate` units a second, now at `item`."""
        self.write(
            "progress",
            {
                "phase": phase,
                "done": done,
                "total": total,
                "rate": rate,
                "unit": unit,
                "item": item,
            },
        )

    def phase(self, name: str, text: str) -> None:
        """A step begins or a landmark is reached; `text` is a sentence for a person."""
        self.write("phase", {"phase": name, "text": text})

    def log(self, text: str) -> None:
        """A line worth keeping that is neither progress nor a step."""
        self.write("log", {"text": text})

    def done(
        self,
        ok: bool,
        result: Mapping[str, Any] | None = None,
        error: Mapping[str, str] | None = None,
    ) -> None:
        """The end of the job. `error` is made by `failure()`; nothing may follow."""
        self.write(
            "done",
            {
                "ok": ok,
                "result": dict(result or {}),
                "error": dict(error) if error is not None else None,
            },
        )

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """Append one event; a full disk must not end the job that it reports on."""
        line = json.dumps(
            {"t": round(self._clock(), 3), "event": event, **fields}, ensure_ascii=False
        )
        with self._lock:
            if self._file is None:
                return
            try:
                self._file.write(line + "\n")
                self._file.flush()
            except OSError:
                return

    def close(self) -> None:
        """Close the file; later events are dropped."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
