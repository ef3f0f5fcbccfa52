"""Files that need not be fetched, because another commit on this host has the same ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparkfleet.node import disk
from sparkfleet.node.modeldir import STAMP, ModelDir


def link_from_other_commits(model: ModelDir) -> Iterator[str]:
    """Link the files that another commit of the repository has in common, and vouch for them.

    A commit that edits a README would else mean the weights once more. The other commit's stamp
    says what was verified; a link shares size and time with what it links to, so both hold here.
    """
    stamps = (disk.read_json(path) for path in sorted(model.dir.parent.glob(f"*/{STAMP}")))
    verified: dict[str, tuple[Path, dict[str, Any]]] = {}
    for stamp in stamps:
        if not isinstance(stamp, dict) or stamp.get("repo") != model.repo:
            continue
        for path, entry in dict(stamp.get("files") or {}).items():
            source = model.dir.parent / str(stamp.get("commit")) / path
            verified[_digest(entry)] = (source, entry)
    for file in model.missing():
        source, entry = verified.get(_digest(file.hashes), (Path(), {}))
        if not entry or model.target(file).exists() or not _untouched(source, entry):
            continue
        if _link(source, model.target(file)):
            model.accept(file)
            yield f"{file.path} is the same as in another commit here: linked."


def _digest(entry: dict[str, Any]) -> str:
    return str(entry.get("sha256") or entry.get("git_sha1"))


def _untouched(path: Path, entry: dict[str, Any]) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (entry.get("size"), entry.get("mtime_ns"))


def _link(source: Path, target: Path) -> bool:
    try:
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        os.link(source, target)
    except OSError:
        return False
    return True
