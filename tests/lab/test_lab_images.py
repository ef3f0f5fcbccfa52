"""The lab's own images, run without a container: what is inside them does what it must."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.api import Lab
from lab.engine import chroot, oci, plan
from lab.engine.workshop import Workshop
from lab.hub.server import Hub
from lab.hub.store import write_noise

pytestmark = pytest.mark.lab

CLIENT = """
import sys, huggingface_hub as hub
from huggingface_hub.errors import GatedRepoError
endpoint, commit = sys.argv[1:]
get = lambda repo, place: hub.snapshot_download(
    repo, revision=commit, local_dir=place, endpoint=endpoint, token=False)
get("lab/open", "/tmp/got")
try:
    get("lab/gated", "/tmp/no")
except GatedRepoError:
    print(hub.__version__, "gated")
"""


@pytest.fixture
def workshop(lab: Lab) -> Workshop:
    return Workshop(lab.settings.cache)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    running = Hub(tmp_path / "data", "127.0.0.1", 0)
    source = tmp_path / "source"
    source.mkdir()
    write_noise(source / "model.safetensors", 100_000, seed=1)
    running.store.publish("lab/open", source)
    running.store.publish("lab/gated", source, gated="manual")
    running.start()
    yield running
    running.stop()


def test_the_registry_holds_every_image_as_it_is_built(lab: Lab, workshop: Workshop) -> None:
    built = workshop.images(list(plan.IMAGES))
    assert {b.image.name: b.digest for b in built} == {
        b.image.name: oci.remote_digest(lab.registry, b.image) for b in built
    }


@pytest.mark.parametrize(("version", "client"), [("0.31.0", "1.33.0"), ("0.32.0", "2.4.0")])
def test_the_hub_client_of_each_engine_meets_the_stand_in(
    workshop: Workshop, hub: Hub, version: str, client: str
) -> None:
    for repo in ("lab/open", "lab/gated"):
        assert hub.store.repo(repo) is not None
    published = hub.store.repo("lab/open")
    assert published is not None
    said = chroot.run(
        workshop.engine_trees(version),
        ["python3", "-c", CLIENT, hub.endpoint, "main"],
        env={"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"},
    )
    assert said.split() == [client, "gated"]
    sent = hub.journal.counters()["files"]["lab/open/model.safetensors"]["bytes"]
    assert sent == published.head.files[0].size


def test_the_image_of_the_stand_in_carries_what_a_download_needs(workshop: Workshop) -> None:
    trees = workshop.trees("base", "standin")
    assert "2.4.0" in chroot.run(trees, ["hf", "version"])
    assert chroot.run(trees, ["curl", "--version"]).startswith("curl 7.88")
