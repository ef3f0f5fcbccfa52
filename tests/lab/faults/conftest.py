"""A Spark that serves the stand-in engine, before and after each test of a fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.api import Lab
from lab.hub.server import Hub
from tests.lab.conftest import Fleet
from tests.lab.faults.kit import Box

BASELINE: dict[str, str] = {}


@pytest.fixture(scope="session")
def faults_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pins and key of all these tests, so that the same recipe is the same release."""
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="session")
def hub(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub stand-in of these tests' own, at the lab's side of its bridge."""
    hub = Hub(tmp_path_factory.mktemp("hub"), str(lab.settings.gateway), 0)
    hub.start()
    yield hub
    hub.stop()


@pytest.fixture
def box(lab: Lab, host: str, hub: Hub, faults_dir: Path) -> Box:
    """A host with the baseline proven."""
    box = Box(Fleet(lab, faults_dir), host, hub, baseline=BASELINE)
    box.settle()
    return box
