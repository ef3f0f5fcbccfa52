"""Repositories of the hub stand-in: directories of files, and a manifest that a commit fixes.

Layout under the data directory: `OWNER/NAME/repo.json` (the manifest) and `OWNER/NAME/COMMIT/…`
(the files of one commit). Hashes are computed when a commit is published, never while serving.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import random
import re
import shutil
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

LFS_PATTERNS = ("*.safetensors", "*.bin", "*.pad")
"""What the real hub keeps in LFS: large binary files. Their ETag is a sha256, not a git blob id."""

BIG_REPO = re.compile(r"lab/big-(\d{1,5})$")
"""`lab/big-200` is made when first asked for: about 200 MB (10^6 bytes) of reproducible noise."""

DEFAULT_DATE = "2026-11-01T00:00:00.000Z"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class RepoFile:
    """One file of a commit; sizes in bytes. `sha256` is None for files outside LFS."""

    path: str
    size: int
    git_sha1: str
    sha256: str | None = None

    @property
    def etag(self) -> str:
        """What the hub calls this content: sha256 in LFS, git's blob id otherwise."""
        return self.sha256 or self.git_sha1


@dataclass(frozen=True)
class Commit:
    """A frozen state of a repository; `date` is RFC 3339 in UTC."""

    id: str
    date: str
    title: str
    files: tuple[RepoFile, ...]

    def file(self, path: str) -> RepoFile | None:
        """The file at `path`, or None where this commit has no such entry."""
        return next((f for f in self.files if f.path == path), None)

    def content(self, sha256: str) -> RepoFile | None:
        """The LFS file of this content, as a content network names it."""
        return next((f for f in self.files if f.sha256 == sha256), None)


@dataclass(frozen=True)
class Repo:
    """A repository: its commits, newest first, and who may read it."""

    id: str
    commits: tuple[Commit, ...]
    gated: Literal[False, "manual"] = False
    private: bool = False
    tags: tuple[str, ...] = field(default=("lab",))

    @property
    def head(self) -> Commit:
        """What `main` points to."""
        return self.commits[0]

    def commit(self, revision: str) -> Commit | None:
        """The commit that a branch name or a full id means, or None."""
        if revision in ("main", "refs/heads/main"):
            return self.head
        return next((c for c in self.commits if c.id == revision), None)


def git_blob_sha1(size: int, blocks: Any) -> str:
    """Git's name for a file's content: sha1 over a header with the size, then the bytes."""
    digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _blocks(path: Path) -> Any:
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            yield block


def describe(root: Path, path: Path) -> RepoFile:
    """Measure one file the way the hub's metadata describes it."""
    name, size = path.relative_to(root).as_posix(), path.stat().st_size
    in_lfs = any(fnmatch.fnmatch(path.name, pattern) for pattern in LFS_PATTERNS)
    if not in_lfs:
        return RepoFile(name, size, git_blob_sha1(size, _blocks(path)))
    digest = hashlib.sha256()
    for block in _blocks(path):
        digest.update(block)
    sha256 = digest.hexdigest()
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
    )
    return RepoFile(name, size, git_blob_sha1(len(pointer), [pointer]), sha256)


class Store:
    """The repositories under one data directory. Safe to use from many request threads."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._lock = threading.RLock()
        self._read: dict[str, tuple[int, Repo]] = {}
        data.mkdir(parents=True, exist_ok=True)

    def repo(self, repo_id: str) -> Repo | None:
        """The repository of exactly this id (ids are case-sensitive), or None."""
        if ".." in repo_id or not re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id):
            return None
        with self._lock:
            if (big := BIG_REPO.fullmatch(repo_id)) and not self._manifest(repo_id).exists():
                self._make_big(repo_id, int(big[1]))
            manifest = self._manifest(repo_id)
            if not manifest.exists():
                return None
            stamp = manifest.stat().st_mtime_ns
            cached = self._read.get(repo_id)
            if cached is None or cached[0] != stamp:
                cached = (stamp, _load(json.loads(manifest.read_text())))
                self._read[repo_id] = cached
            return cached[1]

    def ids(self) -> list[str]:
        """The ids of all repositories that there are."""
        found = self.data.glob("*/*/repo.json")
        return sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in found)

    def path(self, repo: Repo, commit: Commit, file: RepoFile) -> Path:
        """Where the bytes of a file lie."""
        return self.data / repo.id / commit.id / file.path

    def publish(
        self,
        repo_id: str,
        source: Path,
        *,
        date: str = DEFAULT_DATE,
        title: str = "Upload",
        gated: Literal[False, "manual"] = False,
        private: bool = False,
        keep_head: bool = False,
    ) -> str:
        """Make the files under `source` the head of `repo_id` and return the commit's id.

        The id is a hash of the content, date and title: publishing the same again changes nothing.
        With `keep_head`, a commit that is known already stays where it is in the history.
        """
        files = tuple(
            describe(source, path) for path in sorted(source.rglob("*")) if path.is_file()
        )
        identity = json.dumps([repo_id, date, title, [asdict(f) for f in files]], sort_keys=True)
        commit = Commit(
            hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest(), date, title, files
        )
        with self._lock:
            manifest = self._manifest(repo_id)
            known = _load(json.loads(manifest.read_text())).commits if manifest.exists() else ()
            if keep_head and commit.id in {c.id for c in known}:
                return commit.id
            target = self.data / repo_id / commit.id
            if not target.exists():
                partial = target.with_name(target.name + ".partial")
                shutil.rmtree(partial, ignore_errors=True)
                shutil.copytree(source, partial)
                partial.rename(target)
            older = tuple(c for c in known if c.id != commit.id)
            repo = Repo(repo_id, (commit, *older), gated, private)
            self._write(manifest, json.dumps(asdict(repo), indent=1, sort_keys=True))
        return commit.id

    def move_head(self, repo_id: str, *, date: str | None = None) -> str:
        """Put a new commit with the same weights and another README on `main`; returns its id."""
        with self._lock:
            repo = self.repo(repo_id)
            if repo is None:
                raise KeyError(repo_id)
            number = len(repo.commits) + 1
            fresh = self.data / repo_id / f"next-{number}.partial"
            shutil.rmtree(fresh, ignore_errors=True)
            shutil.copytree(self.data / repo_id / repo.head.id, fresh)
            (fresh / "README.md").write_text(f"Revision {number} of {repo_id}.\n")
            when = date or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            try:
                return self.publish(
                    repo_id,
                    fresh,
                    date=when,
                    title=f"Revision {number}",
                    gated=repo.gated,
                    private=repo.private,
                )
            finally:
                shutil.rmtree(fresh, ignore_errors=True)

    def _manifest(self, repo_id: str) -> Path:
        return self.data / repo_id / "repo.json"

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(path)

    def _make_big(self, repo_id: str, megabytes: int) -> None:
        source = self.data / f".{repo_id.replace('/', '--')}.partial"
        source.mkdir(parents=True, exist_ok=True)
        write_noise(source / "model.safetensors", megabytes * 10**6, seed=megabytes)
        (source / "config.json").write_text('{"model_type": "lab-noise"}\n')
        try:
            self.publish(repo_id, source, title="Noise for transfer tests")
        finally:
            shutil.rmtree(source, ignore_errors=True)


def write_noise(path: Path, size: int, *, seed: int) -> None:
    """Write a safetensors file of one tensor of `size` bytes."""
    write_safetensors(path, {"noise": size}, seed=seed)


def write_safetensors(path: Path, tensors: Mapping[str, int], *, seed: int) -> None:
    """Write a valid safetensors file of seeded noise: names of tensors and their bytes."""
    header, at = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    noise = random.Random(seed)
    with path.open("wb") as stream:
        stream.write(len(encoded).to_bytes(8, "little") + encoded)
        while at:
            block = noise.randbytes(min(_BLOCK, at))
            stream.write(block)
            at -= len(block)


def _load(raw: dict[str, Any]) -> Repo:
    commits = tuple(
        Commit(c["id"], c["date"], c["title"], tuple(RepoFile(**f) for f in c["files"]))
        for c in raw["commits"]
    )
    return Repo(raw["id"], commits, raw["gated"], raw["private"], tuple(raw["tags"]))
