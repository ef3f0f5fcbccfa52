"""Start, follow and stop a long step that outlives the SSH session that asked for it.

    python3 job.py start  --root R --name NAME --program fetch.py   < request.json
    python3 job.py follow --root R --name NAME --offset N --wait 20
    python3 job.py status --root R --name NAME
    python3 job.py stop   --root R --name NAME

A job is a program of this folder under a transient unit, with its request in R/jobs/NAME.json and
its events in R/jobs/NAME.jsonl. Starting what runs already joins it, following is one bounded
wait: so a lost connection loses nothing, and whoever comes back reads on where he was.
Each command answers with one line of JSON; what can't be done is a sentence on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Not resolved: on a Spark this folder is a link, and its own path is what makes the package.
HERE = Path(os.path.abspath(__file__)).parent  # noqa: PTH100
sys.path.insert(0, str(HERE.parents[1]))

from sparkfleet.node import commands, disk  # noqa: E402
from sparkfleet.node.events import failure  # noqa: E402
from sparkfleet.node.faults import BUSY, FAILED, Fault  # noqa: E402

#: Seconds between two looks at the events file, and between two questions to systemd.
LOOK, ASK = 0.1, 1.0
#: The longest single wait, seconds: an SSH session that waits longer may be cut by a middle box.
MAX_WAIT = 60.0
#: The most bytes of events in one answer; the rest comes with the next.
MAX_BYTES = 256 * 1024
#: A job that runs longer than this many seconds is ended: each has tighter bounds of its own.
MAX_RUNTIME = 24 * 3600
JOURNAL_LINES = 15


@dataclass(frozen=True)
class Job:
    """One named job below `root`, and the means to ask systemd about it."""

    root: Path
    name: str
    run: commands.Runner = commands.run
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,99}", self.name):
            raise Fault(f"{self.name!r} is no name for a job.", code="bad-name")

    @property
    def dir(self) -> Path:
        return self.root / "jobs"

    @property
    def request(self) -> Path:
        return self.dir / f"{self.name}.json"

    @property
    def events(self) -> Path:
        return self.dir / f"{self.name}.jsonl"

    @property
    def unit(self) -> str:
        return f"sparkfleet-job-{self.name}.service"

    # ---- what is true now

    def active(self) -> bool:
        """Whether systemd runs it. A silent systemd counts as yes: nothing is started twice."""
        asked = self.run(["systemctl", "show", "-p", "ActiveState", "--value", self.unit], 20)
        return not asked.ok or asked.out.strip() not in ("inactive", "failed", "")

    def last(self) -> dict[str, Any] | None:
        """The newest event; None where there is none."""
        try:
            with self.events.open("rb") as file:
                file.seek(max(0, self.events.stat().st_size - MAX_BYTES))
                lines = file.read().splitlines()
            event = json.loads(lines[-1])
        except (OSError, ValueError, IndexError):
            return None
        return event if isinstance(event, dict) else None

    def finished(self) -> bool:
        """Whether the events end with `done`."""
        return (self.last() or {}).get("event") == "done"

    # ---- commands

    def start(self, program: str, request: Any, patience: float = 15.0) -> dict[str, Any]:
        """Start `program` on `request`, or join the run of just that; waits `patience` seconds
        for another run of this name to end. Raises Fault."""
        path = HERE / program
        if "/" in program or not path.is_file():
            raise Fault(f"There is no program {program} in {HERE}.", code="no-program")
        self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with disk.hold_lock(self.dir / f"{self.name}.lock", patience=patience):
                return self._start(path, request, patience)
        except disk.Busy:
            raise self._busy("Someone else is starting it just now.") from None

    def _start(self, program: Path, request: Any, patience: float) -> dict[str, Any]:
        until = self.clock() + patience
        while self.active():
            if not self.finished() and disk.read_json(self.request) == request:
                return {"state": "joined", "unit": self.unit}
            if self.clock() >= until:
                raise self._busy("It still runs, on a request other than this one.")
            self.sleep(LOOK)
        # What an earlier run left behind would be taken for news of this one.
        self.run(["systemctl", "reset-failed", self.unit], 20)
        disk.write_whole(self.events, "", 0o600)
        disk.write_whole(self.request, json.dumps(request, indent=1), 0o600)
        started = self.run(self._argv(program), 60)
        if not started.ok:
            raise Fault(
                f"The step {self.name} could not be started.",
                why=f"systemd-run: {started.words()}.",
                next="Look at systemctl status on the host, then run the same command again.",
                code="start",
            )
        return {"state": "started", "unit": self.unit}

    def _argv(self, program: Path) -> list[str]:
        return [
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={self.unit}",
            f"--description=sparkfleet: {self.name}",
            "--service-type=exec",
            f"--property=RuntimeMaxSec={MAX_RUNTIME}",
            "--setenv=LC_ALL=C.UTF-8",
            "--setenv=PYTHONUNBUFFERED=1",
            sys.executable,
            str(program),
            str(self.request),
        ]

    def _busy(self, why: str) -> Fault:
        return Fault(
            f"The step {self.name} is busy.",
            why=why,
            next="Wait for it to end, then run the same command again.",
            code="busy",
            exit=BUSY,
        )

    def follow(self, offset: int, wait: float) -> dict[str, Any]:
        """Events from `offset` bytes on, as soon as there are any, else after `wait` seconds.

        `running` is False once `done` has been handed out. A job that ended without a word gets a
        `done` here, with the end of its journal.
        """
        if not self.request.exists():
            raise Fault(f"There is no job {self.name} on this host.", code="no-job")
        until = self.clock() + min(max(wait, 0.0), MAX_WAIT)
        ask_at, first = self.clock(), True
        while True:
            now = self.clock()
            ended = now >= ask_at and not self.active()  # asked before reading: nothing is missed
            events, offset = self.read(offset)
            if events:
                running = all(event.get("event") != "done" for event in events)
                return {"offset": offset, "events": events, "running": running}
            if (ended or first) and self.finished():  # all was read already
                return {"offset": offset, "events": [], "running": False}
            if ended:
                return {"offset": offset, "events": [self.silent_end()], "running": False}
            if now >= until:
                return {"offset": offset, "events": [], "running": True}
            if now >= ask_at:
                ask_at = now + ASK
            first = False
            self.sleep(LOOK)

    def read(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        """The whole lines from `offset` on, and the offset behind them."""
        try:
            size = self.events.stat().st_size
            offset = 0 if offset > size else offset  # begun anew since the last look
            with self.events.open("rb") as file:
                file.seek(offset)
                data = file.read(MAX_BYTES)
        except OSError:
            return [], 0
        # A line that fills a whole answer is none of ours; better cut than waited on for ever.
        whole = (
            data if len(data) == MAX_BYTES and b"\n" not in data else data[: data.rfind(b"\n") + 1]
        )
        events = []
        for line in whole.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": "log", "text": line.decode("utf-8", "backslashreplace")}
            events.append(event)
        return events, offset + len(whole)

    def silent_end(self) -> dict[str, Any]:
        """A `done` for a job that ended without one: killed, out of memory, or the host restarted.

        The journal of that run says most about it; it lives where the unit no longer does.
        """
        since = int(self.request.stat().st_mtime)
        argv = ["journalctl", "-u", self.unit, "-n", str(JOURNAL_LINES), "--no-pager", "-o", "cat"]
        said = self.run([*argv, f"--since=@{since}"], 20)
        tail = said.out.strip() if said.ok else f"(its journal can't be read: {said.words(200)})"
        error = failure(
            f"The step {self.name} ended without a result.",
            why=f"It was killed, or the host restarted. Its journal ends: {tail or '(nothing)'}",
            next="Run the same command again: it goes on from what is there.",
            code="died",
        )
        return {"t": time.time(), "event": "done", "ok": False, "result": {}, "error": error}

    def status(self) -> dict[str, Any]:
        """Whether it runs, and its last event (None where there is none)."""
        running = self.request.exists() and not self.finished() and self.active()
        return {"running": running, "last": self.last()}

    def stop(self) -> dict[str, Any]:
        """End it; what it fetched so far stays for the next run."""
        stopped = self.run(["systemctl", "stop", self.unit], 120)
        return {"stopped": stopped.ok or not self.active()}


def main(argv: list[str]) -> int:
    """Run one command; 0 and JSON on standard output, or a sentence on standard error."""
    parser = argparse.ArgumentParser(description="Start, follow, show or stop a job of this host.")
    parser.add_argument("command", choices=("start", "follow", "status", "stop"))
    parser.add_argument("--root", type=Path, required=True, help="sparkfleet's directory here")
    parser.add_argument("--name", required=True)
    parser.add_argument("--program", help="a program of this folder (start)")
    parser.add_argument("--offset", type=int, default=0, help="bytes of events already read")
    parser.add_argument("--wait", type=float, default=20.0, help="seconds to wait for news")
    args = parser.parse_args(argv)
    try:
        job = Job(args.root, args.name)
        if args.command == "start":
            if not args.program:
                raise Fault("start needs --program.", code="usage")
            answer = job.start(args.program, json.load(sys.stdin))
        elif args.command == "follow":
            answer = job.follow(args.offset, args.wait)
        else:
            answer = job.status() if args.command == "status" else job.stop()
    except Fault as fault:
        print(fault, file=sys.stderr)
        return fault.exit
    except ValueError as error:
        print(f"The request on standard input is not JSON: {error}.", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"{args.root}: {error.strerror or error}: {error.filename or ''}", file=sys.stderr)
        return FAILED
    print(json.dumps(answer, ensure_ascii=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
