"""Files that are whole or absent, also after a power cut; and the lock of one service."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def sync_dir(path: Path) -> None:
    """Make names just written in `path` outlive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace `path` by `text` in one step; a reader sees the old file or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.fchmod(fd, mode)
        with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)  # noqa: PTH105 - named for what it promises: atomic
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_dir(path.parent)


def point_link(link: Path, target: str) -> None:
    """Make `link` a symbolic link to `target` in one step; it is never absent meanwhile."""
    part = link.with_name(f".{link.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    os.replace(part, link)  # noqa: PTH105
    sync_dir(link.parent)


def remove(path: Path) -> None:
    """Remove `path` if it is there, for good."""
    if path.exists() or path.is_symlink():
        path.unlink(missing_ok=True)
        sync_dir(path.parent)


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Append one JSON line and keep it through a power cut."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_json(path: Path) -> Any:
    """The file as JSON, or None when it is absent or not whole."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class Busy(Exception):
    """Someone else holds the lock."""


@contextmanager
def hold_lock(
    path: Path,
    *,
    patience: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold `path` alone, waiting `patience` seconds for it; raises Busy.

    A flock ends with its holder, so a killed program leaves nothing to clean up.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        until = clock() + patience
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock() >= until:
                    raise Busy(str(path)) from None
                sleep(0.2)
        yield
    finally:
        os.close(fd)
