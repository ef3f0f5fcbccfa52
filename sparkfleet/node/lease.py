"""Hold this host for one run, as long as the run gives signs of life.

    python3 lease.py < requests      the request as JSON; then `renew` ..., at last `release`

One JSON line answers each. The lease is a file below the root: who runs, since when, the last sign
of life, and how many leases were given so far, by which a run knows that nobody changed the host
between its look and its first act. A lease without a sign of life for SECONDS is void; the end of
the input is none, because a connection may break and come back.

The program travels with the request, as the survey does: a bare host has none of ours yet. So it
imports nothing of ours.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

#: Seconds without a sign of life after which a lease is void.
SECONDS = 60.0

Lease = dict[str, Any]


def read(path: Path) -> Lease:
    """The lease on disk; a free one where there is none or it can't be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    free = {"grants": 0, "run": "", "who": "", "since": 0.0, "renewed": 0.0}
    return {**free, **found} if isinstance(found, dict) else free


def is_live(lease: Lease, now: float) -> bool:
    """Whether a run holds it. A clock that was set back does not make it eternal."""
    return bool(lease["run"]) and abs(now - float(lease["renewed"])) < SECONDS


def decide(lease: Lease, request: dict[str, Any], now: float) -> tuple[str, Lease]:
    """What becomes of a request: `granted`, `held` by another run, or `moved`: somebody has held
    the host since the asker looked. With it the lease as it stands then."""
    mine = lease["run"] == request["run"]
    if not mine and is_live(lease, now) and lease["run"] not in (request.get("ended") or ()):
        return "held", lease
    if not mine and request.get("seen") is not None and lease["grants"] != request["seen"]:
        return "moved", lease
    if mine:
        return "granted", {**lease, "renewed": now}
    granted = {"grants": lease["grants"] + 1, "run": request["run"], "who": request["who"]}
    return "granted", {**granted, "since": now, "renewed": now}


class Keeper:
    """The lease of one host, for one run."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = root / "lease.json", clock

    def take(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take it, unless somebody else has it or had it since the asker looked."""
        with self._alone():
            now = self._clock()
            answer, lease = decide(read(self._path), request, now)
            if answer == "granted":
                self._write(lease)
        return {"answer": answer, **lease, "now": now}

    def renew(self, run: str, *, last: bool = False) -> dict[str, Any]:
        """Give a sign of life, or the lease back; `lost` where another run has taken it."""
        with self._alone():
            lease = read(self._path)
            if lease["run"] != run:
                return {"answer": "lost", **lease, "now": self._clock()}
            change = {"run": ""} if last else {}
            self._write({**lease, **change, "renewed": self._clock()})
        return {"answer": "released" if last else "renewed"}

    def _write(self, lease: Lease) -> None:
        part = self._path.with_name(f".lease.{os.getpid()}.part")
        part.write_text(json.dumps(lease) + "\n", encoding="utf-8")
        part.replace(self._path)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fd = os.open(self._path.with_name(".lease.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def serve(lines: TextIO, answers: TextIO, clock: Callable[[], float] = time.time) -> int:
    """Answer requests until the lease is given back, lost, or the input ends."""

    def say(answer: dict[str, Any]) -> str:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        return str(answer["answer"])

    request = json.loads(lines.readline())
    keeper = Keeper(Path(request["root"]), clock)
    if say(keeper.take(request)) != "granted":
        return 0
    # Not `for line in lines`: that reads ahead, and a sign of life is one line.
    while word := lines.readline().strip():
        if say(keeper.renew(request["run"], last=word == "release")) != "renewed":
            break
    return 0


def main(request: Any = None) -> None:
    """The program."""
    try:
        sys.exit(serve(sys.stdin, sys.stdout))
    except OSError as error:
        sys.exit(f"{error.filename or 'the lease'}: {error.strerror or error}")


if __name__ == "__main__":
    main()
