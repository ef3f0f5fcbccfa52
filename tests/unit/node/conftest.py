"""Fixtures: Sparks in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .world import World, make_world


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A Spark with nothing on it."""
    return make_world(tmp_path, monkeypatch)


@pytest.fixture
def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], World]:
    """A maker of Sparks, for tests that need many."""
    count = iter(range(10**6))
    return lambda: make_world(tmp_path / str(next(count)), monkeypatch)
