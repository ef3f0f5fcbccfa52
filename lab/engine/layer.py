"""A tree as an image layer: a tar whose bytes depend on the content alone, compressed by zstd."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lab.engine import plan
from lab.errors import LabError


@dataclass(frozen=True)
class Layer:
    """What a manifest says of a layer; sizes in bytes."""

    digest: str
    """sha256 of the compressed bytes."""
    diff_id: str
    """sha256 of the tar."""
    size: int


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


class _Tee:
    """A writer that hashes what passes through it."""

    def __init__(self, target: object, digest: _Hash) -> None:
        self._write = target.write  # type: ignore[attr-defined]
        self._digest = digest

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self._write(data)
        return len(data)


def pack(tree: Path, blobs: Path) -> Layer:
    """Write the layer into `blobs` under its digest's name and describe it.

    Raises LabError where zstd is absent or fails.
    """
    blobs.mkdir(parents=True, exist_ok=True)
    partial = blobs / f"{tree.name}.partial"
    plain = hashlib.sha256()
    try:
        with partial.open("wb") as out:
            # One thread per core is deterministic too, but only for one number of cores.
            zstd = subprocess.Popen(["zstd", "-q", "-1", "-c"], stdin=subprocess.PIPE, stdout=out)
            assert zstd.stdin is not None
            with tarfile.open(
                fileobj=_Tee(zstd.stdin, plain),  # type: ignore[call-overload]
                mode="w|",
                bufsize=1 << 20,
                format=tarfile.GNU_FORMAT,
            ) as archive:
                _add(archive, tree)
            zstd.stdin.close()
            if zstd.wait() != 0:
                raise LabError(f"zstd failed on the layer {tree.name}; is the disk full?")
    except FileNotFoundError as error:
        raise LabError("The program zstd is not installed; run `python -m lab install`.") from error
    digest = _sha256(partial)
    partial.replace(blobs / digest)
    size = (blobs / digest).stat().st_size
    return Layer(f"sha256:{digest}", f"sha256:{plain.hexdigest()}", size)


def _add(archive: tarfile.TarFile, tree: Path) -> None:
    seen: dict[tuple[int, int], str] = {}
    for directory, folders, files in os.walk(tree):
        folders.sort()
        links = [f for f in folders if (Path(directory) / f).is_symlink()]
        for name in sorted([*files, *links, "."]):
            path = Path(directory) if name == "." else Path(directory) / name
            if path == tree:
                continue
            inside = path.relative_to(tree).as_posix()
            entry = archive.gettarinfo(str(path), inside)
            if entry is None:  # a socket
                continue
            entry.mtime, entry.uname, entry.gname = plan.MTIME, "", ""
            if entry.islnk() or entry.isreg():
                # Hard links by our own sorted order: tarfile's hangs on the order of its calls.
                entry.type, entry.linkname = tarfile.REGTYPE, ""
                entry.size = path.stat().st_size
                key = (path.stat().st_dev, path.stat().st_ino)
                if path.stat().st_nlink > 1 and key in seen:
                    entry.type, entry.linkname, entry.size = tarfile.LNKTYPE, seen[key], 0
                seen.setdefault(key, inside)
            if entry.isreg():
                with path.open("rb") as stream:
                    archive.addfile(entry, stream)
            else:
                archive.addfile(entry)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
