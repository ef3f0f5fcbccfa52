"""The hub's answers as data: pure functions from the store's objects to the contract's JSON."""

from __future__ import annotations

from typing import Any

from lab.hub.store import Commit, Repo, RepoFile


class Refusal(Exception):
    """An answer other than the one asked for."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


def model_info(repo: Repo, commit: Commit, *, blobs: bool) -> dict[str, Any]:
    """What `/api/models/…` answers; with `blobs` each file carries its size and hashes."""
    siblings: list[dict[str, Any]] = []
    for file in commit.files:
        entry: dict[str, Any] = {"rfilename": file.path}
        if blobs:
            entry |= {"size": file.size, "blobId": file.git_sha1}
            if file.sha256:
                lfs = {"sha256": file.sha256, "size": file.size, "pointerSize": 134}
                entry["lfs"] = lfs
        siblings.append(entry)
    return {
        "_id": commit.id[:24], "id": repo.id, "modelId": repo.id, "sha": commit.id,
        "lastModified": commit.date, "createdAt": repo.commits[-1].date, "private": repo.private,
        "gated": repo.gated, "disabled": False, "tags": list(repo.tags), "downloads": 0, "likes": 0,
        "siblings": siblings,
    }  # fmt: skip


def tree_entry(file: RepoFile) -> dict[str, Any]:
    """One row of the tree listing."""
    entry: dict[str, Any] = {
        "type": "file", "path": file.path, "size": file.size, "oid": file.git_sha1,
    }  # fmt: skip
    if file.sha256:
        entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
    return entry


def commit_entry(commit: Commit) -> dict[str, Any]:
    """One row of the commit listing."""
    return {
        "id": commit.id, "title": commit.title, "message": "", "date": commit.date,
        "authors": [{"user": "lab"}],
    }  # fmt: skip


def byte_range(header: str | None, size: int) -> tuple[int, int]:
    """First and last byte (inclusive) that a `Range` header asks for; 416 where that is outside."""
    if not header or not header.startswith("bytes=") or "," in header:
        return 0, size - 1
    start, _, end = header.removeprefix("bytes=").partition("-")
    if not start:
        return max(0, size - int(end)), size - 1
    first, last = int(start), min(int(end) if end else size - 1, size - 1)
    if first >= size or first > last:
        raise Refusal(416, "Range not satisfiable", **{"Content-Range": f"bytes */{size}"})
    return first, last
