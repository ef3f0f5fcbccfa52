"""Fetch a service's models, in the engine image, as the owner of the box. A job of job.py.

    python3 fetch.py /var/lib/sparkfleet/jobs/NAME.json

The engine image carries the hub client, so nothing is installed on the host. This program, as root,
makes the directories the owner's, hands over the token in a file, and passes on what download.py
tells from inside. The container has a fixed name: what an earlier run left is removed first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node import disk
from sparkfleet.node.docker import Docker, DockerApi, DockerError
from sparkfleet.node.events import Events
from sparkfleet.node.faults import Fault
from sparkfleet.node.fetch_faults import disk_fault
from sparkfleet.node.modeldir import PARTIAL

#: Where this folder and the token stand inside the container.
PROGRAMS, TOKEN = "/opt/sparkfleet/node", "/run/sparkfleet-token"
HERE = Path(__file__).absolute().parent
RUN = Path("/run/sparkfleet")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Starts of the container, should it be lost on the way (Docker restarted): each goes on where the
#: one before was.
STARTS, PAUSE = 3, 5.0
#: Exit codes of `docker run` that starting again does not mend: the daemon refused, no python3.
HOPELESS = (125, 126, 127)

ENVIRONMENT = {
    "HF_HUB_DISABLE_XET": "1",  # its chunks can't be resumed in a file of ours
    "HF_HUB_ENABLE_HF_TRANSFER": "0",  # nor can these, in the releases that still have it
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_OFFLINE": "0",  # an engine image may well say 1
    "HF_HUB_DOWNLOAD_TIMEOUT": "20",
    "HF_HOME": "/tmp/hf",
    "HOME": "/tmp",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Fetch:
    """One fetch job."""

    def __init__(
        self,
        request: dict[str, Any],
        events: Events,
        *,
        name: str,
        docker: DockerApi,
        run_dir: Path = RUN,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.request, self.events, self.docker, self.sleep = request, events, docker, sleep
        self.uid, self.gid = int(request["uid"]), int(request["gid"])
        self.models_dir = Path(request["models_dir"])
        self.container = f"sparkfleet-fetch-{name}"
        self.run_dir = run_dir
        self.tail: deque[str] = deque(maxlen=15)

    def run(self) -> dict[str, Any]:
        """Fetch everything. Raises Fault."""
        self._make_directories()
        inner = {
            **{key: value for key, value in self.request.items() if key != "image"},
            "same_boot": self._same_boot(),
            "token_file": TOKEN if self.request.get("token_file") else None,
        }
        try:
            done = self._contained(inner)
        finally:
            # Whoever asked may be gone by now, and would have removed it.
            if source := self.request.get("token_file"):
                Path(source).unlink(missing_ok=True)
        if not done["ok"]:
            raise Fault(**{k: v for k, v in done["error"].items() if k in _FAULT_KEYS})
        return dict(done["result"])

    # ---- what has to stand before

    def _make_directories(self) -> None:
        """Every directory that the owner's download writes in, the owner's."""
        self.models_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        for model in self.request["models"]:
            place = Path(model["dir"]).relative_to(self.models_dir)
            for base in (self.models_dir, self.models_dir / PARTIAL):
                for depth in range(len(place.parts) + 1):
                    self._own(base.joinpath(*place.parts[:depth]))
            for part in (self.models_dir / PARTIAL / place).iterdir():
                os.chown(part, self.uid, self.gid, follow_symlinks=False)

    def _own(self, directory: Path) -> None:
        if not directory.is_dir():
            directory.mkdir(mode=0o755)
        # The models directory itself may be a mount point or shared; it stays whose it is, unless
        # nothing but root could write there.
        status = directory.stat()
        if status.st_uid != self.uid and (directory != self.models_dir or status.st_uid == 0):
            os.chown(directory, self.uid, self.gid)

    def _same_boot(self) -> bool:
        """Whether the machine ran through since the last fetch: unsynced bytes are then whole."""
        note = self.models_dir / PARTIAL / ".boot"
        now = BOOT_ID.read_text(encoding="ascii").strip()
        try:
            before = note.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            before = ""
        if before != now:
            disk.write_whole(note, now + "\n")
        return before == now

    @contextmanager
    def _token(self) -> Iterator[Path | None]:
        """The token where the container's user, and nobody else, may read it."""
        source = self.request.get("token_file")
        if not source:
            yield None
            return
        folder = self.run_dir / "tokens"
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        copy = folder / self.container
        copy.unlink(missing_ok=True)
        try:
            fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(Path(source).read_bytes())
                os.fchown(file.fileno(), self.uid, self.gid)
            yield copy
        finally:
            copy.unlink(missing_ok=True)

    # ---- the container

    def argv(self, token: Path | None) -> list[str]:
        """The command line: it holds no secret, and no more rights than a download needs."""
        argv = ["docker", "run", "--rm", "--interactive", "--init", "--pull", "never"]
        argv += ["--name", self.container, "--label", "sparkfleet.job=fetch"]
        argv += ["--user", f"{self.uid}:{self.gid}", "--network", "host", "--log-driver", "none"]
        argv += ["--read-only", "--tmpfs", "/tmp:mode=1777", "--cap-drop", "ALL"]
        argv += ["--security-opt", "no-new-privileges", "--workdir", "/tmp"]
        argv += ["--volume", f"{self.models_dir}:{self.models_dir}"]
        argv += ["--volume", f"{HERE}:{PROGRAMS}:ro"]
        if token:
            argv += ["--volume", f"{token}:{TOKEN}:ro"]
        for key, value in ENVIRONMENT.items():
            argv += ["--env", f"{key}={value}"]
        argv += ["--entrypoint", "python3", self.request["image"]]
        return [*argv, f"{PROGRAMS}/download.py"]

    def _contained(self, inner: dict[str, Any]) -> dict[str, Any]:
        """The `done` of the download."""
        for left in reversed(range(STARTS)):
            try:
                self.docker.remove(self.container)
                with self._token() as token:
                    code, done = self._once(inner, token)
            except DockerError as error:
                code, done = 125, None
                self.tail.append(str(error))
            if done:
                return done
            if not left or (code in HOPELESS and left == STARTS - 1):
                break
            self.events.log(f"The download's container is gone (exit status {code}): once more.")
            inner["same_boot"] = self._same_boot()
            self.sleep(PAUSE)
        why = {127: "The image has no python3.", 137: "It was killed."}.get(code, "")
        raise Fault(
            f"The download's container ended without a result (exit status {code}).",
            where=str(self.request["image"]),
            why=" ".join([why, "It said:", *(self.tail or ["nothing"])]).strip(),
            next="Look at `docker ps` and `journalctl -u docker`, then run the same command again.",
            code="container",
        )

    def _once(self, inner: dict[str, Any], token: Path | None) -> tuple[int, dict[str, Any] | None]:
        process = subprocess.Popen(
            self.argv(token),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
        )
        assert process.stdin and process.stdout
        with suppress(BrokenPipeError):  # its last words say why
            process.stdin.write(json.dumps(inner))
            process.stdin.close()
        done = None
        for line in process.stdout:
            event = _event(line)
            if event is None:
                self.tail.append(line.strip())
                continue
            if token:  # read by now: the mount keeps it for the container, the host loses it
                token.unlink(missing_ok=True)
            if event["event"] == "done":
                done = event
            else:
                self.events.write(event.pop("event"), event)
        return process.wait(), done


_FAULT_KEYS = ("what", "where", "why", "next", "code")


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def main(argv: list[str]) -> int:
    """Do the job of the request file `argv[0]`."""
    path = Path(argv[0])
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # tidy up first
    with Events.for_request(path) as events:
        try:
            request = json.loads(path.read_text(encoding="utf-8"))
            events.done(True, Fetch(request, events, name=path.stem, docker=Docker()).run())
        except Fault as fault:
            events.done(False, error=fault.as_error())
        except (KeyError, TypeError, ValueError) as error:
            what = f"The request of the fetch can't be used: {error!r}."
            events.done(False, error=Fault(what, where=str(path), code="request").as_error())
        except OSError as error:
            events.done(False, error=disk_fault(error, path).as_error())
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
