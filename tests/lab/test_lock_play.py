"""plays/lock.py against hub and registry: what is pinned moves on the owner's word, not else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
import yaml

from lab.hub.store import Store
from tests.lab.conftest import Fleet, Run
from tests.lab.faults.recipe import HARDWARE, recipe

pytestmark = pytest.mark.lab

REPO = "lab/moving"
FIRST, LATER, EARLIER = (f"2026-{month}-01T00:00:00.000Z" for month in ("08", "09", "07"))


class Upstream:
    """A repository of this test's own, in the hub that the lab runs."""

    def __init__(self, data: Path, work: Path) -> None:
        self.store, self.work = Store(data), work

    def publish(self, words: str, when: str) -> str:
        """Put a commit on its branch; returns the id."""
        self.work.mkdir(exist_ok=True)
        (self.work / "model.safetensors").write_bytes(words.encode() * 100_000)
        return self.store.publish(REPO, self.work, date=when)


@pytest.fixture
def upstream(fleet: Fleet, tmp_path: Path) -> Iterator[Upstream]:
    data = fleet.lab.settings.cache / "hub"
    yield Upstream(data, tmp_path / "repo")
    shutil.rmtree(data / REPO)


@pytest.fixture
def inventory(fleet: Fleet, host: str, tmp_path: Path) -> Path:
    """One host that serves a model out of that repository, none older than its first commit."""
    said = recipe(fleet.lab.registry)
    said["models"]["model"] |= {"repo": REPO, "not_before": date.fromisoformat(FIRST[:10])}
    for folder, content in (("recipes", said), ("hardware", HARDWARE)):
        (tmp_path / "catalog" / folder).mkdir(parents=True)
        file = tmp_path / "catalog" / folder / f"{content['name']}.yaml"
        file.write_text(yaml.safe_dump(content))
    return fleet.write({host: {}}, recipe="standin", catalog=str(tmp_path / "catalog"))


def pinned(fleet: Fleet) -> str:
    """The commit that the lock names."""
    lock = yaml.safe_load((fleet.dir / "recipes.lock").read_text())
    return str(lock["recipes"]["standin"]["models"]["model"]["commit"])


def test_pins_move_on_the_owners_word(fleet: Fleet, inventory: Path, upstream: Upstream) -> None:
    def lock(*data: str) -> Run:
        words = [word for pair in data for word in ("--data", pair)]
        return fleet.run(inventory, *words, play="plays/lock.py")

    first = upstream.publish("first", FIRST)
    assert lock().code == 0
    assert pinned(fleet) == first
    again = lock()
    assert again.code == 0 and "nothing was written" in again.out, again.said
    assert "Nothing has moved upstream" in lock("check=true").out

    later = upstream.publish("later", LATER)
    assert "nothing was written" in lock().out, "a pin that stands is not looked up"
    moved = lock("check=true")
    assert moved.code == 0 and later[:12] in moved.out and LATER[:10] in moved.out, moved.said
    assert pinned(fleet) == first, "a check writes nothing"
    assert lock("update=standin").code == 0
    assert pinned(fleet) == later

    upstream.publish("earlier", EARLIER)
    refused = lock("update=standin")
    assert refused.code == 1 and f"takes no model from before {FIRST[:10]}" in refused.said
    assert "recipes.lock is as it was" in refused.said and pinned(fleet) == later

    nobody = lock("update=other")
    assert nobody.code == 1 and "Served here: standin" in nobody.said
    assert [path.name for path in fleet.dir.glob("state/*")] == [], "no key is made"
