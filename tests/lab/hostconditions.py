"""Conditions of a simulated host, each put back at the end: a GPU, its memory, what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lab.api import Lab


@contextmanager
def gpu(lab: Lab, host: str, **changes: Any) -> Iterator[None]:
    """The GPU tools print something else than a healthy GB10 does."""
    lab.set_gpu(host, **changes)
    try:
        yield
    finally:
        lab.set_gpu(host)


@contextmanager
def memory(lab: Lab, host: str, available_gib: float) -> Iterator[None]:
    """So much of the host's memory is available, GiB."""
    lab.set_memory(host, available_kib=int(available_gib * 2**20))
    try:
        yield
    finally:
        lab.set_memory(host)


@contextmanager
def without_toolkit(lab: Lab, host: str) -> Iterator[None]:
    """The container toolkit is not installed."""
    lab.remove_toolkit(host)
    try:
        yield
    finally:
        lab.restore_toolkit(host)


@contextmanager
def sudo_password(lab: Lab, host: str, password: str) -> Iterator[None]:
    """sudo asks for a password."""
    lab.require_sudo_password(host, password)
    try:
        yield
    finally:
        lab.allow_sudo(host)


@contextmanager
def changed(lab: Lab, host: str, command: str, undo: str) -> Iterator[None]:
    """What a shell command does to the host, and the one that takes it back."""
    lab.exec(host, command, check=True)
    try:
        yield
    finally:
        lab.exec(host, undo, check=True)
