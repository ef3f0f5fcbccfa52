"""What goes wrong at the hub, as rows: which requests, which fault, how often.

A fault is set with `POST /_lab/faults`, for example
`{"kind": "429", "repo": "lab/tiny-qwen3", "where": "resolve", "count": 2, "retry_after": 1}`.
"""

from __future__ import annotations

import fnmatch
import itertools
import threading
import time
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

Kind = Literal[
    "401", "403", "404", "429", "500", "503",  # an answer instead of the right one
    "wrong-bytes",  # same size, one byte changed in the middle of the file
    "short-file",  # the connection ends after `after` bytes of a body
    "stall",  # nothing more after `after` bytes of a body, until the fault is cleared
    "rate",  # all bodies together at most `rate` bytes a second
    "no-range",  # ranges are ignored: 200 with the whole body
]  # fmt: skip
Where = Literal["any", "api", "resolve", "cdn", "body"]

STATUS_KINDS = ("401", "403", "404", "429", "500", "503")


@dataclass
class Fault:
    """One row. `repo` and `file` are shell patterns; `count` None means until cleared."""

    kind: Kind
    repo: str = "*"
    file: str = "*"
    where: Where = "any"
    count: int | None = None
    after: int = 0
    rate: int = 0
    retry_after: int | None = None
    code: str | None = None
    """Value of `X-Error-Code` for a status fault; a fitting one is chosen where it is None."""
    id: int = 0
    hits: int = 0

    @classmethod
    def parse(cls, raw: Any) -> Fault:
        """Build a row from JSON; raises ValueError with a sentence about what is wrong."""
        if not isinstance(raw, dict):
            raise ValueError("a fault is a JSON object with at least a `kind`")
        known = {f.name for f in fields(cls)} - {"id", "hits"}
        if unknown := sorted(set(raw) - known):
            raise ValueError(f"unknown keys {unknown}; known are {sorted(known)}")
        if raw.get("kind") not in get_args(Kind):
            raise ValueError(f"kind must be one of {list(get_args(Kind))}, not {raw.get('kind')!r}")
        if raw.get("where", "any") not in get_args(Where):
            raise ValueError(f"where must be one of {list(get_args(Where))}, not {raw['where']!r}")
        return cls(**raw)

    def fits(self, where: Where, repo: str, file: str) -> bool:
        """Whether this row is about such a request."""
        return (
            self.count != 0
            and self.where in ("any", where)
            and fnmatch.fnmatchcase(repo, self.repo)
            and fnmatch.fnmatchcase(file, self.file)
        )


class Faults:
    """The rows in force. `take` uses a row up; `peek` only asks."""

    def __init__(self) -> None:
        self._rows: list[Fault] = []
        self._ids = itertools.count(1)
        self._changed = threading.Condition()

    def add(self, fault: Fault) -> int:
        """Put a row in force and return its number."""
        with self._changed:
            fault.id = next(self._ids)
            self._rows.append(fault)
            self._changed.notify_all()
            return fault.id

    def clear(self) -> None:
        """Take every row away; stalled bodies go on."""
        with self._changed:
            self._rows.clear()
            self._changed.notify_all()

    def listing(self) -> list[dict[str, Any]]:
        """The rows with how often each was hit."""
        with self._changed:
            return [asdict(row) for row in self._rows]

    def take(
        self, kinds: tuple[str, ...], where: Where, repo: str = "", file: str = ""
    ) -> Fault | None:
        """The first row that fits this request, counted as used; None when nothing is wrong."""
        with self._changed:
            for row in self._rows:
                if row.kind in kinds and row.fits(where, repo, file):
                    row.hits += 1
                    if row.count is not None:
                        row.count -= 1
                    return row
        return None

    def peek(self, kind: str) -> Fault | None:
        """A row of this kind that is in force, without using it up."""
        with self._changed:
            return next((r for r in self._rows if r.kind == kind and r.count != 0), None)

    def wait_cleared(self, fault: Fault, limit: float) -> None:
        """Hold until this row is taken away, at most `limit` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: fault not in self._rows, timeout=limit)


class Throttle:
    """A bandwidth that all bodies share, in bytes a second; 0 is no limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free_at = 0.0

    def pace(self, size: int, rate: int) -> None:
        """Wait until `size` more bytes fit under `rate`."""
        if rate <= 0:
            return
        with self._lock:
            now = time.monotonic()
            start = max(now, self._free_at)
            self._free_at = start + size / rate
        time.sleep(max(0.0, start - now))
