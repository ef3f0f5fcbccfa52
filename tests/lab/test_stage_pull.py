"""Pulling with a real Docker from a real registry: by digest, kept, and each failure a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.api import Lab

from .stage_kit import Kit, Outcome, push_noise
from .waiting import eventually

pytestmark = pytest.mark.lab

NOISE = "stage/noise"


@pytest.fixture
def kit(lab: Lab, host: str) -> Iterator[Kit]:
    kit = Kit(lab, host)
    kit.install()
    forget(kit)
    yield kit
    forget(kit)
    kit.remove()


def forget(kit: Kit) -> None:
    name = f"{kit.lab.registry}/{NOISE}"
    kit.sh(f"docker images -q --digests {name} | sort -u | xargs -r docker rmi -f >/dev/null")


def pull(kit: Kit, reference: str) -> Outcome:
    return kit.run("pull", "pull.py", {"reference": reference, "platform": "linux/amd64"})


def test_an_image_comes_by_digest_with_its_bytes_shown_and_outlives_a_prune(kit: Kit) -> None:
    repository = f"{kit.lab.registry}/{NOISE}"
    digest = push_noise(kit.lab, NOISE, "1", 24)
    outcome = pull(kit, f"{repository}@{digest}")
    assert outcome.result["digest"] == digest
    assert outcome.result["reference"] == f"{repository}@{digest}"
    done = [event["done"] for event in outcome.progress]
    assert done == sorted(done) and done[-1] >= 24_000_000
    assert outcome.progress[-1]["item"] == "2 of 2 layers unpacked"
    kit.sh("docker image prune -f")
    digests = kit.sh(f"docker images --digests --format '{{{{.Digest}}}}' {repository}")
    assert digest in digests
    again = pull(kit, f"{repository}@{digest}")
    assert again.result == outcome.result and not again.progress


def test_a_tag_is_pulled_to_the_digest_it_means(kit: Kit) -> None:
    digest = push_noise(kit.lab, NOISE, "2", 1)
    assert pull(kit, f"{kit.lab.registry}/{NOISE}:2").result["digest"] == digest


def test_the_registry_is_down(kit: Kit) -> None:
    digest = push_noise(kit.lab, NOISE, "1", 24)
    kit.lab.stop_registry()
    try:
        error = pull(kit, f"{kit.lab.registry}/{NOISE}@{digest}").error
    finally:
        kit.lab.start_registry()
    assert error["code"] == "registry-down" and NOISE in error["where"] and error["next"]
    assert pull(kit, f"{kit.lab.registry}/{NOISE}@{digest}").result


@pytest.mark.parametrize("name", [f"{NOISE}@sha256:{'0' * 64}", f"{NOISE}:absent", "stage/absent"])
def test_there_is_no_such_image(kit: Kit, name: str) -> None:
    push_noise(kit.lab, NOISE, "2", 1)
    error = pull(kit, f"{kit.lab.registry}/{name}").error
    assert error["code"] in ("digest-absent", "auth"), error


def test_a_killed_pull_is_taken_up_by_the_next_run(kit: Kit) -> None:
    digest = push_noise(kit.lab, NOISE, "1", 24)
    request = {"reference": f"{kit.lab.registry}/{NOISE}@{digest}"}
    kit.start("pull", "pull.py", request)
    kit.sh("systemctl kill --signal=KILL sparkfleet-job-stage-pull.service")
    unit = "systemctl is-active sparkfleet-job-stage-pull.service || true"
    eventually(lambda: "inactive" in kit.sh(unit), 15, "the end of the killed pull")
    assert kit.run("pull", "pull.py", request).result["digest"] == digest


@pytest.mark.full
def test_the_disk_is_full(kit: Kit) -> None:
    digest = push_noise(kit.lab, NOISE, "1", 24)
    reference = f"{kit.lab.registry}/{NOISE}@{digest}"
    with kit.lab.small_disk(kit.host, "/var/lib/docker", 32, around="docker"):
        error = pull(kit, reference).error
    assert error["code"] == "disk-full" and "no space left" in error["why"]
    assert pull(kit, reference).result


@pytest.mark.full
def test_the_other_image_store_gives_the_same_digest(kit: Kit) -> None:
    digest = push_noise(kit.lab, NOISE, "1", 24)
    reference = f"{kit.lab.registry}/{NOISE}@{digest}"
    kit.lab.use_containerd_store(kit.host)
    try:
        outcome = pull(kit, reference)
        kit.sh(f"docker rmi -f {reference} >/dev/null")
    finally:
        kit.lab.use_overlay2_store(kit.host)
    assert outcome.result["digest"] == digest
    assert outcome.progress[-1]["done"] >= 24_000_000
