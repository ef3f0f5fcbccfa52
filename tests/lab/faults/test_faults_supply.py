"""Images that can't be had, and disks that are full."""

from __future__ import annotations

import pytest

from tests.lab.faults.kit import Box, trouble
from tests.lab.faults.recipe import STANDIN
from tests.lab.stage_kit import digest_of
from tests.lab.waiting import eventually

pytestmark = pytest.mark.lab

NO_DIGEST = f"sha256:{'0' * 64}"


def test_a_registry_that_is_down(box: Box) -> None:
    """At pin time, where a tag's digest is asked for, and while a host pulls."""
    digest = digest_of(box.lab, STANDIN, "slow")
    box.sh(f"docker image rm -f $(docker image ls -q {box.lab.registry}/{STANDIN}@{digest}); true")
    with box.untouched():
        box.lab.stop_registry()
        try:
            run = box.fails(
                "Recipe standin could not be pinned.", f"{STANDIN}:2", "connection refused",
                "Look at the registry", tag="2", version="2.0.0",
            )  # fmt: skip
            assert "Nothing was changed" in run.said
            assert "nothing changed" in box.works().out, "what is pinned and there needs none"
            box.fails(
                "The image could not be pulled.", f"{STANDIN}@{digest}",
                "The registry can't be reached from this host", "Look at the registry",
                tag="slow", version="2.0.0", digest=digest,
            )  # fmt: skip
        finally:
            box.lab.start_registry()
    box.works(tag="2", version="2.0.0")


def test_an_image_that_the_registry_lacks(box: Box) -> None:
    with box.untouched():
        box.fails(
            "Recipe standin could not be pinned",
            f"{STANDIN}:9",
            "The registry has no such image",
            tag="9",
        )
        box.fails(
            "The image could not be pulled.", f"{STANDIN}@{NO_DIGEST}",
            "The registry has no such image", "Compare the reference letter by letter",
            tag="9", digest=NO_DIGEST,
        )  # fmt: skip
        assert "nothing changed" in box.works().out


def test_a_disk_that_is_too_small_is_told_before_anything_comes(box: Box) -> None:
    with box.untouched(), box.lab.small_disk(box.host, "/srv/models", 64):
        small = box.on(models_dir="/srv/models")
        run = small.fails("/srv/models", "GiB free and needs", "lab/big-2", "models_dir")
        assert "Nothing was changed" in run.said


def test_a_disk_that_fills_up_on_the_way(box: Box) -> None:
    repo = "lab/big-51"
    with box.lab.small_disk(box.host, "/srv/models", 4096):  # of which nothing is taken
        elsewhere = box.on(models_dir="/srv/models")
        with box.untouched(), trouble(box.hub, "stall", repo, after=4_000_000) as fault:
            with elsewhere.underway(model=repo) as underway:
                eventually(lambda: fault.hits, 60, "the fetch is under way")
                box.sh("mount -o remount,size=20m /srv/models")
                box.hub.faults.clear()
                end = underway.end(60)
            box.told(end, "The disk is full.", "/srv/models", "Free some space")
        box.sh("mount -o remount,size=4g /srv/models")
        run = elsewhere.works(model=repo)
        assert "going on at" in run.said
        sent = box.hub.journal.counters()["files"][f"{repo}/model.safetensors"]["bytes"]
        assert sent < 60_000_000
        box.works()  # away from that disk before it goes
