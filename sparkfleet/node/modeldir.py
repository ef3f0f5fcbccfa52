"""One repository at one commit on disk: the files, what was verified of them, what is under way.

MODELS/o--name/COMMIT/…                        the files, each there only once it is verified
MODELS/o--name/COMMIT/.sparkfleet-stamp.json   written last: all of it is whole
MODELS/.partial/o--name/COMMIT/*.part          files under way
MODELS/.partial/o--name/COMMIT/verified.jsonl  what was verified before the stamp
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sparkfleet.node import disk
from sparkfleet.node.faults import Fault
from sparkfleet.node.partfile import Hasher, file_matches

STAMP = ".sparkfleet-stamp.json"
STAMP_SCHEMA = 1
PARTIAL = ".partial"
#: Ends of files that an engine may load by a glob: a stray one changes what is served.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
#: The longest header of a safetensors file that is believed, bytes.
MAX_HEADER = 100 * 1024 * 1024


@dataclass(frozen=True)
class File:
    """A file as the lock names it."""

    path: str
    size: int
    sha256: str | None = None
    git_sha1: str | None = None

    @classmethod
    def of(cls, raw: dict[str, Any]) -> File:
        """From the request; ValueError for a path that leaves its directory or an absent hash."""
        file = cls(str(raw["path"]), int(raw["size"]), raw.get("sha256"), raw.get("git_sha1"))
        parts = PurePosixPath(file.path).parts
        if not parts or file.path.startswith("/") or ".." in parts or file.path == STAMP:
            raise ValueError(f"{file.path!r} is not a path inside a repository")
        if not (file.sha256 or file.git_sha1):
            raise ValueError(f"{file.path} has no hash to be verified by")
        return file

    def hasher(self) -> Hasher:
        return Hasher(self.size, self.sha256, self.git_sha1)

    @property
    def hashes(self) -> dict[str, str]:
        """The hash under its name, as a stamp holds it."""
        if self.sha256:
            return {"sha256": self.sha256}
        return {"git_sha1": self.git_sha1 or ""}


class ModelDir:
    """The directory of one model of a request, and its place under `.partial`."""

    def __init__(self, models_dir: Path, raw: dict[str, Any]) -> None:
        self.repo, self.commit = str(raw["repo"]), str(raw["commit"])
        self.dir = Path(raw["dir"])
        self.tensors: dict[str, Any] = raw.get("tensors") or {}
        self.files = [File.of(entry) for entry in raw["files"]]
        self.partial = models_dir / PARTIAL / self.dir.relative_to(models_dir)
        self.journal = self.partial / "verified.jsonl"
        self.verified: dict[str, dict[str, Any]] = {}

    def part(self, file: File) -> Path:
        """Where `file` grows: one name for one path and one content."""
        digest = (file.sha256 or file.git_sha1 or "")[:16]
        return self.partial / f"{file.path.replace('/', '--')}.{digest}.part"

    def target(self, file: File) -> Path:
        return self.dir / file.path

    def part_size(self, file: File) -> int:
        """Bytes of it that are on disk already."""
        try:
            return min(self.part(file).stat().st_size, file.size)
        except OSError:
            return 0

    # ---- what is known to be good

    def load(self) -> None:
        """Read what earlier runs verified, and keep what has not been touched since."""
        stamp = disk.read_json(self.dir / STAMP)
        known: dict[str, Any] = {}
        if isinstance(stamp, dict) and stamp.get("schema") == STAMP_SCHEMA:
            known.update(stamp.get("files") or {})
        known.update(self._journalled())
        for file in self.files:
            entry = known.get(file.path)
            if entry and self._entry(file) == entry:
                self.verified[file.path] = entry

    def _journalled(self) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        try:
            lines = self.journal.read_text(encoding="utf-8").splitlines()
        except OSError:
            return entries
        for line in lines:
            try:
                entries.update(json.loads(line))
            except ValueError:
                continue  # the last line, cut by a kill
        return entries

    def _entry(self, file: File) -> dict[str, Any] | None:
        try:
            status = self.target(file).stat()
        except OSError:
            return None
        return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, **file.hashes}

    def missing(self) -> list[File]:
        """Files that nothing vouches for yet."""
        return [file for file in self.files if file.path not in self.verified]

    def accept(self, file: File) -> None:
        """Note that `file` is in place and verified; outlives a kill."""
        entry = self._entry(file)
        if entry is None:
            raise OSError(f"{self.target(file)} is gone again")
        self.verified[file.path] = entry
        disk.append_line(self.journal, {file.path: entry})

    def check_present(self, file: File, seen: Callable[[int], None]) -> str:
        """Hash a file that lies there unvouched for: "ok", "absent", or what is wrong with it."""
        path = self.target(file)
        try:
            size = path.stat().st_size
            if size != file.size:
                return f"has {size} bytes instead of {file.size}"
            return "ok" if file_matches(path, file.hasher(), seen) else "has other content"
        except FileNotFoundError:
            return "absent"
        except OSError as error:
            return f"can't be read ({error.strerror})"

    # ---- what does not belong

    def clear_orphans(self) -> Iterator[str]:
        """Remove what no run will finish: parts of other content, and other commits' parts."""
        keep = {self.part(file).name for file in self.files} | {self.journal.name}
        for path in sorted(self.partial.glob("*")):
            if path.name not in keep:
                path.unlink(missing_ok=True)
                yield f"Removed {path}, a piece of a file that is not wanted any more."

    def strangers(self) -> list[Path]:
        """Weights in the directory that the lock does not name: an engine may load them."""
        wanted = {self.target(file) for file in self.files}
        found = (path for path in self.dir.rglob("*") if path.name.endswith(WEIGHTS))
        return sorted(path for path in found if path not in wanted)

    # ---- the end

    def check_tensors(self) -> None:
        """Look at the weights' tensor names, which tell some broken uploads from good ones.

        Raises Fault. Only the header of each file is read.
        """
        require = list(self.tensors.get("require") or [])
        forbid = list(self.tensors.get("forbid") or [])
        if not (require or forbid):
            return
        names: list[str] = []
        for file in self.files:
            if file.path.endswith(".safetensors"):
                names += tensor_names(self.target(file))
        bad = [name for prefix in forbid for name in names if name.startswith(prefix)][:1]
        absent = [p for p in require if not any(name.startswith(p) for name in names)]
        if bad or absent:
            said = f"has the tensor {bad[0]}" if bad else f"has no tensor {absent[0]}…"
            raise Fault(
                f"The weights of {self.repo} are not what the recipe wants: {said}.",
                where=str(self.dir),
                why=str(self.tensors.get("reason") or ""),
                next="Pin another commit of the repository in the lock.",
                code="wrong-tensors",
            )

    def stamp(self) -> None:
        """Say that all of it is whole; nothing under way is left."""
        disk.sync_dir(self.dir)
        text = {
            "schema": STAMP_SCHEMA,
            "repo": self.repo,
            "commit": self.commit,
            "files": {file.path: self.verified[file.path] for file in self.files},
        }
        disk.write_whole(self.dir / STAMP, json.dumps(text, indent=1) + "\n")
        shutil.rmtree(self.partial, ignore_errors=True)


def tensor_names(path: Path) -> list[str]:
    """Names in the header of a safetensors file: 8 bytes of length, then JSON. Raises Fault."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, MAX_HEADER)))
        return [name for name in header if name != "__metadata__"]
    except (OSError, struct.error, ValueError, TypeError) as error:
        raise Fault(
            f"The header of {path.name} can't be read as safetensors.",
            where=str(path),
            why=str(error),
            next="Pin another commit of the repository in the lock.",
            code="wrong-tensors",
        ) from None
