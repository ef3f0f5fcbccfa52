"""A file under way: it grows at its end, is hashed as it grows, and outlives a kill or a power cut.

The name is fixed by what the file will be, so the next run finds it. Bytes that were written before
a kill are in the page cache and whole; after a power cut only what was synced counts. The kernel
may have kept a longer file with holes, so growth stops for a sync at every `SYNC_STEP`: whatever
lies before the last step below the file's end has then been synced for certain.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from sparkfleet.node.faults import Fault

#: Bytes between two syncs: a power cut costs at most this much of a download.
SYNC_STEP = 32 * 1024 * 1024
#: Bytes read at once when a file is hashed.
READ_STEP = 4 * 1024 * 1024


class Overrun(Exception):
    """More bytes came than the file may have: these are not its bytes."""


class Hasher:
    """The hash that a hub names a file by: SHA-256 of the content, or git's blob id."""

    def __init__(self, size: int, sha256: str | None, git_sha1: str | None) -> None:
        self.wanted = sha256 or git_sha1
        self._state = hashlib.sha256() if sha256 else hashlib.sha1(b"blob %d\0" % size)

    def update(self, data: bytes | memoryview) -> None:
        self._state.update(data)

    @property
    def matches(self) -> bool:
        """Whether everything fed so far is the whole, right content."""
        return self._state.hexdigest() == self.wanted


class PartFile:
    """An unfinished file of `size` bytes. Has just what huggingface_hub's `http_get` wants of a
    file: write, tell, seek to the start, truncate."""

    def __init__(
        self,
        path: Path,
        size: int,
        hasher: Callable[[], Hasher],
        *,
        same_boot: bool,
        seen: Callable[[int], None] = lambda count: None,
        got: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Open or create `path` and hash what is there.

        `same_boot`: the machine has not restarted since the last write. `seen` is told the bytes
        that are read again (and, negative, given up), `got` the bytes that arrive.
        Raises OSError, and Fault where another process has the file open.
        """
        self.path, self.expected = path, size
        self._hasher, self._seen, self._got = hasher, seen, got
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(fd, "r+b", buffering=0)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise Fault(
                "Another download is writing this very file.",
                where=str(path),
                next="Wait for it to end, or stop its container, then run the command again.",
                code="busy",
            ) from None
        self.size = self._trusted(os.fstat(fd).st_size, same_boot)
        self._file.truncate(self.size)
        self.hash = hasher()
        left = self.size
        while left and (data := self._file.read(min(READ_STEP, left))):
            self.hash.update(data)
            left -= len(data)
            seen(len(data))

    def _trusted(self, found: int, same_boot: bool) -> int:
        if found > self.expected:
            return 0
        return found if same_boot else max(0, found - 1) // SYNC_STEP * SYNC_STEP

    def write(self, data: bytes) -> int:
        """Append. Raises Overrun, and OSError when the disk is full."""
        if self.size + len(data) > self.expected:
            raise Overrun
        view = memoryview(data)
        while view:
            step = view[: SYNC_STEP - self.size % SYNC_STEP]
            count = self._file.write(step)
            self.hash.update(step[:count])
            self.size += count
            self._got(count)
            view = view[count:]
            if self.size % SYNC_STEP == 0:
                os.fdatasync(self._file.fileno())
        return len(data)

    def tell(self) -> int:
        return self.size

    def seek(self, offset: int, whence: int = 0) -> int:
        """To the start, which `truncate` must follow: the server sent the file from its start."""
        if offset or whence:
            raise ValueError("a part file grows at its end only")
        self._file.seek(0)
        return 0

    def truncate(self, size: int | None = None) -> int:
        """Give up everything so far."""
        self._file.seek(0)
        self._file.truncate(0)
        self._seen(-self.size)
        self.size, self.hash = 0, self._hasher()
        return 0

    def finish(self, target: Path) -> os.stat_result:
        """Sync, make readable for all and move to `target`; the caller syncs the directory."""
        os.fchmod(self._file.fileno(), 0o644)
        os.fsync(self._file.fileno())
        self._file.close()
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        os.replace(self.path, target)  # noqa: PTH105 - named for what it promises: atomic
        return target.stat()

    def close(self) -> None:
        self._file.close()


def file_matches(path: Path, hasher: Hasher, seen: Callable[[int], None]) -> bool:
    """Whether the content of `path` is the right one; `seen` is told the bytes read."""
    with path.open("rb", buffering=0) as file:
        while data := file.read(READ_STEP):
            hasher.update(data)
            seen(len(data))
    return hasher.matches
