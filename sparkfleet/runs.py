"""The runs of this controller: which of them live, told by a lock that ends with its process.

A run that was killed holds its hosts for another minute. Where this very controller can see that
the run is gone, the next one need not wait for that.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import secrets
import socket
import time
from pathlib import Path

DAY = 24 * 3600


def whoami() -> str:
    """Who runs this, for the lease and for the history on the node: user and machine."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


class Run:
    """This run: a name that no other has, and a file that is locked while it lives."""

    def __init__(self, state: Path) -> None:
        """`state`: where the controller keeps what is its own. Nothing is written yet."""
        self.id = secrets.token_hex(8)
        self._directory = state / "runs"
        self._lock: int | None = None

    def begin(self) -> None:
        """Show other runs of this controller that this one lives."""
        if self._lock is not None:
            return
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._path(self.id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def end(self, *, told: bool = True) -> None:
        """Leave nothing behind; or, where not every host was `told`, what shows the next run of
        this controller that this one is over."""
        if self._lock is not None:
            if told:
                self._path(self.id).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def has_ended(self, run: str) -> bool:
        """Whether `run` was one of this controller's and lives no more.

        False for a run of another controller: of that one nothing is known here.
        """
        if not run.isalnum():
            return False
        try:
            fd = os.open(self._path(run), os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # two may ask at once
        except OSError:
            return False
        else:
            return True
        finally:
            os.close(fd)

    def sweep(self) -> None:
        """Remove the files of runs that went long ago: no lease can name them any more."""
        for path in self._directory.glob("*"):
            if time.time() - path.stat().st_mtime > DAY and self.has_ended(path.name):
                path.unlink(missing_ok=True)

    def _path(self, run: str) -> Path:
        return self._directory / run
