"""Fetch and verify the files of a request, inside the engine image: it carries huggingface_hub.

    python3 download.py < request.json        (started by fetch.py, in a container, as the owner)

The hub client says where a file is and may be had (`hf_hub_url`, its headers, its errors) and its
`http_get` moves the bytes: it takes the offset to go on from and writes to a file that we own, so a
killed run goes on at the byte, which `hf_hub_download` does not (each attempt of it has a new
temporary name). No program of the image is needed: curl is not in every engine image.
Events go to standard output as JSON lines, the last is `done`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node.events import Events
from sparkfleet.node.faults import Fault
from sparkfleet.node.fetch_faults import disk_fault, refusal
from sparkfleet.node.modeldir import File, ModelDir
from sparkfleet.node.partfile import Overrun, PartFile
from sparkfleet.node.reuse import link_from_other_commits
from sparkfleet.node.transfer import Hub, Lost, Refused, Tally

#: Files under way at once: more do not fill a line better, and each needs its own buffers.
PARALLEL = 3
#: Seconds between two progress events.
TICK = 1.0
#: Tries of one file without news before it is given up, and the longest pause between two.
TRIES, MAX_PAUSE = 5, 30.0
#: The longest pause that a hub may ask for, seconds: its windows are five minutes long.
MAX_RETRY_AFTER = 330.0
#: Bytes that must have come for a try to count as news.
NEWS = 1024 * 1024
#: Seconds without a byte of any file after which the whole download is given up.
STALL = 180.0
#: Seconds that the other files get to end once one has failed for good.
GRACE = 3.0
#: Bytes that are left free on the file system, for the system itself.
RESERVE = 1024**3


class StdoutEvents(Events):
    """Events for the process that started this one."""

    def __init__(self) -> None:
        super().__init__(None)
        self._out = threading.Lock()

    def write(self, event: str, fields: Any) -> None:
        with self._out:
            print(json.dumps({"event": event, **fields}), flush=True)


class Download:
    """One request: models with their directories and files."""

    def __init__(self, request: dict[str, Any], hub: Hub, events: Events) -> None:
        self.models_dir = Path(request["models_dir"])
        self.models = [ModelDir(self.models_dir, raw) for raw in request["models"]]
        self.same_boot = bool(request.get("same_boot"))
        self.verify = bool(request.get("verify"))
        self.tries = int(request.get("tries") or TRIES)
        self.pause = float(request.get("pause") or 1.0)
        self.stall = float(request.get("stall") or STALL)
        self.reserve = int(request.get("reserve", RESERVE))
        self.hub, self.events = hub, events
        self.tally = Tally()
        self.stop = threading.Event()
        self.faults: list[Fault] = []
        self.fetched: list[str] = []

    def run(self) -> dict[str, Any]:
        """Bring every file in place, verified. Raises Fault."""
        wanted = []
        for model in self.models:
            model.dir.mkdir(mode=0o755, parents=True, exist_ok=True)
            model.partial.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not self.verify:
                model.load()
            for line in (*model.clear_orphans(), *link_from_other_commits(model)):
                self.events.log(line)
            wanted += [(model, file) for file in model.missing()]
        self.tally.total = sum(file.size for _, file in wanted)
        # Biggest first: the last minutes then belong to small files, not to one that fills no line.
        wanted.sort(key=lambda pair: (-pair[1].size, pair[1].path))
        if wanted:
            self.events.phase("fetch", f"{len(wanted)} files, {_size(self.tally.total)} to have")
            self._all(self._check, wanted)
            wanted = [pair for pair in wanted if pair[1].path not in pair[0].verified]
            self._room(wanted)
            self._all(self._fetch, wanted)
        if self.faults:
            raise self._joined()
        for model in self.models:
            model.check_tensors()
            model.stamp()
            for path in model.strangers():
                self.events.log(f"{path} is not a file of this commit; an engine may load it.")
        return {"files": sum(len(m.files) for m in self.models), "fetched": self.fetched,
                "bytes": self.tally.came}  # fmt: skip

    def _joined(self) -> Fault:
        first, more = self.faults[0], self.faults[1:]
        others = "; ".join(fault.what for fault in more)
        why = f"{first.why} Also: {others}" if more else first.why
        return Fault(first.what, where=first.where, why=why, next=first.next, code=first.code)

    # ---- running several at once, with progress

    def _all(self, work: Any, pairs: list[tuple[ModelDir, File]]) -> None:
        pool = ThreadPoolExecutor(max_workers=PARALLEL)
        futures = {pool.submit(self._guarded, work, *pair) for pair in pairs}
        self.tally.alive()
        while futures:
            ended, futures = wait(futures, timeout=TICK)
            for future in ended:
                self._settle(future)
            self.events.progress(
                "fetch",
                self.tally.done,
                self.tally.total,
                rate=self.tally.rate(),
                item=self.tally.item,
            )
            silent = self.tally.silent()
            if futures and self.stop.is_set() and silent > GRACE:
                break  # they wait for a hub that no longer matters; the process ends without them
            if futures and silent > self.hub.patience(self.stall):
                self.stop.set()
                raise self.hub.stalled(silent, str(self.models_dir))
        pool.shutdown(wait=False)

    def _settle(self, future: Future[None]) -> None:
        error = future.exception()
        if error is None:
            return
        if not isinstance(error, Fault):
            raise error
        self.faults.append(error)
        if error.code not in ("wrong-bytes", "short-file"):
            self.stop.set()  # what ails one will ail all; bad bytes are one file's own matter

    def _guarded(self, work: Any, model: ModelDir, file: File) -> None:
        if self.stop.is_set():
            return
        try:
            work(model, file)
        except OSError as error:
            raise disk_fault(error, model.target(file)) from None

    # ---- one file

    def _check(self, model: ModelDir, file: File) -> None:
        """Take a file that lies there already, if its content is right."""
        read = 0

        def seen(count: int) -> None:
            nonlocal read
            read += count
            self.tally.seen(count)

        verdict = model.check_present(file, seen)
        if verdict == "ok":
            if model.target(file).stat().st_nlink == 1:  # else it is the owner's own file, too
                model.target(file).chmod(0o644)
            model.accept(file)
            return
        self.tally.seen(-read)
        if verdict != "absent":
            self.events.log(f"{model.target(file)} {verdict}: it is fetched again.")

    def _room(self, wanted: list[tuple[ModelDir, File]]) -> None:
        need = sum(file.size - model.part_size(file) for model, file in wanted)
        free = shutil.disk_usage(self.models_dir).free - self.reserve
        if need > free:
            raise Fault(
                f"The disk is too small: {_size(need)} are still to come, and "
                f"{_size(max(0, free))} can be used ({_size(self.reserve)} stay for the system).",
                where=str(self.models_dir),
                why=f"{_size(need - free)} are missing.",
                next="Free that much, or set models_dir to a bigger file system.",
                code="disk-full",
            )

    def _fetch(self, model: ModelDir, file: File) -> None:
        part = PartFile(
            model.part(file),
            file.size,
            file.hasher,
            same_boot=self.same_boot,
            seen=self.tally.seen,
            got=lambda count: self._got(count, file.path),
        )
        try:
            if part.size:
                self.events.log(
                    f"{file.path}: going on at {_size(part.size)} of {_size(file.size)}."
                )
            self._fill(model, file, part)
            part.finish(model.target(file))
        finally:
            part.close()
        model.accept(file)
        self.fetched.append(file.path)

    def _got(self, count: int, item: str) -> None:
        self.tally.got(count)
        self.tally.item = item
        if self.stop.is_set():
            raise Lost("stopped", "another file failed")

    def _fill(self, model: ModelDir, file: File, part: PartFile) -> None:
        """Bring `part` to its full, right content. Raises Fault."""
        quiet, again = 0, False
        while part.size < file.size or not part.hash.matches:
            before, pause = part.size, min(self.pause * 2**quiet, MAX_PAUSE)
            try:
                if part.size == file.size:
                    raise Overrun  # full, and not the right content
                self.hub.move(model.repo, model.commit, file.path, part)
                trouble = Lost("short", f"the hub's file ends at {part.size} bytes")
                if part.size == file.size:
                    continue
            except Overrun:
                if again:
                    raise refusal("wrong-bytes", model, file, part.size) from None
                again = True
                part.truncate()
                self.events.log(f"{file.path}: the bytes that came are not its own; once more.")
                continue
            except Refused as refused:
                if not refused.passing:
                    raise refusal(refused.code, model, file, part.size, str(refused)) from None
                trouble, pause = refused, min(refused.retry_after or pause, MAX_RETRY_AFTER)
            except Lost as lost:
                trouble = lost
            if self.stop.is_set():
                raise Fault(f"{file.path} was left unfinished.", code="stopped")
            quiet = 0 if part.size - before >= NEWS else quiet + 1
            if quiet >= self.tries:
                raise refusal(trouble.code, model, file, part.size, str(trouble)) from None
            self.events.log(f"{file.path}: {trouble}; going on at byte {part.size}.")
            self.stop.wait(pause)


def _size(count: float) -> str:
    """Bytes for a sentence, in the decimal units that hubs and disks are sold in."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def perform(request: dict[str, Any], events: Events) -> bool:
    """Do the request and say how it ended; True when all is in place."""
    try:
        hub = Hub.of(request, events)
        try:
            download = Download(request, hub, events)
        except (KeyError, TypeError, ValueError) as error:
            raise Fault("The request can't be used.", why=str(error), code="request") from None
        result = download.run()
    except Fault as fault:
        events.done(False, error=fault.as_error())
        return False
    except OSError as error:
        events.done(False, error=disk_fault(error, Path(error.filename or "")).as_error())
        return False
    events.done(True, result)
    return True


if __name__ == "__main__":
    done = perform(json.load(sys.stdin), StdoutEvents())
    sys.stdout.flush()
    os._exit(0 if done else 1)  # a thread that waits for a silent hub must not keep this alive
