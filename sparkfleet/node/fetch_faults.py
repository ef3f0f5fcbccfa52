"""What went wrong with a file of a model, in sentences."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sparkfleet.node.faults import Fault
from sparkfleet.node.modeldir import File, ModelDir


def disk_fault(error: OSError, path: Path) -> Fault:
    """The fault of a disk that refused."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    owner = f"uid {os.getuid()}"
    return Fault(
        "The disk is full." if full else f"The file can't be written as {owner}.",
        where=str(error.filename or path),
        why="" if full else f"{error.strerror or error}.",
        next=(
            "Free some space and run the same command again: it goes on from here."
            if full
            else "Look at the owner and the rights of that directory, then run it again."
        ),
        code="disk-full" if full else "disk",
    )


_WHY = {
    "hub-401": "The hub wants a token for it, or the repository does not exist.",
    "hub-403": "The repository is behind a gate that the token does not open.",
    "hub-404": "The hub does not have this file at this commit (any more).",
    "hub-429": "The hub was asked too often.",
    "hub-5xx": "The hub has a fault on its side.",
    "wrong-bytes": "What came, twice, has another hash than the lock names.",
    "short-file": "The hub's file is shorter than the lock says.",
    "unreachable": "The hub can't be reached from this host.",
    "stalled": "The hub stopped sending.",
}
_NEXT = {
    "hub-401": "Log in where you deploy from (hf auth login) and run the same command again.",
    "hub-403": "Accept the repository's terms on the hub, then run the same command again.",
    "hub-404": "Pin another commit in the lock.",
    "wrong-bytes": "If it happens again, pin the commit anew: the lock or a proxy is wrong.",
    "short-file": "If it happens again, pin the commit anew: the lock or a proxy is wrong.",
    "unreachable": "Look at the host's network and at hub_endpoint, then run it again.",
}


def refusal(code: str, model: ModelDir, file: File, size: int, words: str = "") -> Fault:
    """The fault of one file that could not be had."""
    code = "short-file" if code == "short" else code
    why = " ".join(part for part in (_WHY.get(code, ""), f"({words})" if words else "") if part)
    return Fault(
        f"{file.path} of {model.repo} could not be fetched; {size} of {file.size} bytes are here.",
        where=f"{model.repo}@{model.commit[:12]}",
        why=why,
        next=_NEXT.get(code, "Run the same command again later: it goes on from here."),
        code=code,
    )
