"""A missing container toolkit, mended with real apt, dpkg and Docker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from lab.api import Lab

from .stage_kit import Kit, Outcome, digest_of

pytestmark = pytest.mark.lab

DAEMON_JSON = "/etc/docker/daemon.json"
IMAGE = ("sparkfleet/standin", "1")


@pytest.fixture
def kit(lab: Lab, host: str) -> Iterator[Kit]:
    kit = Kit(lab, host)
    kit.install()
    before = lab.read(kit.host, DAEMON_JSON)
    yield kit
    lab.release_dpkg_lock(kit.host)
    kit.remove()
    if lab.read(kit.host, DAEMON_JSON) != before or not kit.sh("command -v nvidia-ctk || true"):
        lab.restore_toolkit(kit.host)
    kit.sh(f"rm -f {DAEMON_JSON}.sparkfleet.bak")


def test_a_missing_toolkit_is_mended_while_another_holds_the_package_lock(
    kit: Kit, lab: Lab
) -> None:
    lab.remove_toolkit(kit.host)
    config = json.loads(lab.read(kit.host, DAEMON_JSON))
    lab.hold_dpkg_lock(kit.host, 120)
    kit.start("toolkit", "toolkit.py", {"restart_docker": True, "lock_wait": 100})
    outcome, offset = Outcome(), 0
    while not any(event.get("phase") == "wait" for event in outcome.events):
        news = kit.job("follow", "toolkit", "--offset", str(offset), "--wait", "10")
        assert news["running"], news
        offset = news["offset"]
        outcome.events += news["events"]
    assert "python3 (process " in outcome.events[-1]["text"]
    threading.Timer(0.5, lab.release_dpkg_lock, (kit.host,)).start()
    result = kit.follow("toolkit", outcome, offset).result
    assert result["changed"] and result["restarted"] and result["version"]
    after = json.loads(lab.read(kit.host, DAEMON_JSON))
    assert {key: value for key, value in after.items() if key != "runtimes"} == {
        key: value for key, value in config.items() if key != "runtimes"
    }
    assert "nvidia" in kit.sh("docker info -f '{{json .Runtimes}}'")
    again = kit.run("toolkit", "toolkit.py", {"restart_docker": False})
    assert again.result["changed"] is False and again.result["restarted"] is False


def test_a_lock_that_is_not_released_ends_the_wait(kit: Kit, lab: Lab) -> None:
    lab.remove_toolkit(kit.host)
    lab.hold_dpkg_lock(kit.host, 120)
    error = kit.run("toolkit", "toolkit.py", {"restart_docker": True, "lock_wait": 2}).error
    assert error["code"] == "apt-lock" and "python3" in error["what"]
    assert not kit.sh("command -v nvidia-ctk || true")


def test_a_strangers_container_is_named_before_anything_is_changed(kit: Kit, lab: Lab) -> None:
    image = f"{lab.registry}/{IMAGE[0]}@{digest_of(lab, *IMAGE)}"
    assert kit.run("pull", "pull.py", {"reference": image}).result
    lab.remove_toolkit(kit.host)
    kit.sh(f"docker run -d --rm --name stage-stranger --entrypoint sleep {image} 600")
    try:
        error = kit.run("toolkit", "toolkit.py", {"restart_docker": False}).error
        assert error["code"] == "would-stop" and "stage-stranger" in error["what"]
        assert "restart_docker=true" in error["next"]
        assert not kit.sh("command -v nvidia-ctk || true")
        assert kit.sh("docker ps -q --filter name=stage-stranger")
    finally:
        kit.sh("docker rm -f stage-stranger")
    assert kit.run("toolkit", "toolkit.py", {"restart_docker": False}).result["changed"]
    shown = kit.sh(f"docker run --rm --gpus all --entrypoint nvidia-smi {image} -L")
    assert "GPU 0" in shown
