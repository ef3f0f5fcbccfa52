"""The node programs as they are installed on a Spark."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files


@cache
def node_programs() -> dict[str, bytes]:
    """File name → content of every program and module that stands on a node."""
    return {
        entry.name: entry.read_bytes()
        for entry in files("sparkfleet.node").iterdir()
        if entry.name.endswith(".py")
    }


def program_digests() -> dict[str, str]:
    """File name → sha256, to compare with what a survey read."""
    return {name: hashlib.sha256(text).hexdigest() for name, text in node_programs().items()}
