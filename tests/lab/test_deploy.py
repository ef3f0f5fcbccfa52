"""The main job, on the real engine: from bare boxes to answering nodes, and then again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.lab.conftest import Fleet
from tests.lab.observe import ask, complete, key_of, snapshot, state
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.engine]

TINY = {"recipe": "lab-tiny", "preset": "shared"}


def test_from_bare_boxes_to_answers_and_again(
    fleet: Fleet, sparks: list[str], bare: Callable[..., None]
) -> None:
    """One story, as each part costs an engine's boot: deploy, repeat, change one, power-cycle."""
    lab = fleet.lab
    first_host, second, third = sparks
    bare(*sparks)
    hosts: dict[str, dict[str, object]] = {name: {} for name in sparks}

    first = fleet.deploy(hosts, **TINY)
    assert first.code == 0, first.said
    assert first.out.count("proven") >= 3
    key = key_of(fleet.dir)
    assert key not in first.said, "the key stays out of everything that is printed"
    for name in sparks:
        assert complete(lab, name, "tiny", key)
        assert ask(lab, name, "/v1/models").status == 401, "closed without the key"
        assert ask(lab, name, "/health").status == 200, "health stays open"
        for place in ("ps axww", "docker inspect $(docker ps -q)", "cat /proc/[0-9]*/environ"):
            assert key not in lab.exec(name, place).stdout, place
        logs = lab.exec(name, "docker logs $(docker ps -q) 2>&1; journalctl --no-pager")
        assert key not in logs.stdout

    before = {name: snapshot(lab, name) for name in sparks}
    began = time.time()
    again = fleet.deploy(hosts, **TINY)
    assert again.code == 0, again.said
    assert "nothing changed" in again.out
    for name in sparks:
        assert snapshot(lab, name) == before[name]
        commands = lab.ssh_sessions(name, since=began)
        assert len(commands) <= 6, commands

    hosts[second] = {"preset": None, "utilization": 0.5}
    changed = fleet.deploy(hosts, **TINY)
    assert changed.code == 0, changed.said
    assert snapshot(lab, second) != before[second]
    argv = lab.exec(second, "docker inspect -f '{{json .Args}}' $(docker ps -q)").stdout
    assert '"--gpu-memory-utilization","0.5"' in argv
    for name in (first_host, third):
        assert snapshot(lab, name) == before[name], "a change of one host touches that host only"

    old = state(lab, third)["container"]
    lab.power_cycle(third)

    def proven_anew() -> bool:
        now = state(lab, third)
        return bool(now.get("phase") == "proven" and now["container"] != old)

    eventually(proven_anew, 300, "proven after the power loss, without a run")
    assert complete(lab, third, "tiny", key)
    settled = fleet.deploy(hosts, **TINY)
    assert settled.code == 0 and "nothing changed" in settled.out, settled.said


def test_dry_shows_what_would_happen_and_changes_nothing(
    fleet: Fleet, host: str, bare: Callable[..., None]
) -> None:
    lab = fleet.lab
    bare(host)
    before = snapshot(lab, host)
    run = fleet.deploy({host: {}}, "--dry", **TINY)
    assert run.code == 0, run.said
    assert "for the first time" in run.out
    assert snapshot(lab, host) == before
    assert not (fleet.dir / "recipes.lock").exists()
    assert not (fleet.dir / "state").exists()
