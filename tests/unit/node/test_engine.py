"""What a unit runs: one engine in the foreground, ended gracefully, one boot at a time."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sparkfleet.node import engine
from sparkfleet.node.disk import hold_lock
from sparkfleet.node.docker import Container, Listed
from sparkfleet.node.faults import CONFIG, FAILED, OK, Fault
from sparkfleet.node.layout import Service

from .world import World

COMPOSE = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / "started").write_text("x")
while not (here / "stop").exists():
    time.sleep(0.02)
sys.exit(int((here / "stop").read_text()))
"""


class Docker:
    """Docker with the one container of the compose project that runs."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self.stopped: list[str] = []

    def containers(self, labels: dict[str, str] | None = None) -> list[Listed]:
        started = (self.here / "started").exists()
        return [Listed("c0", "qwen36-35b", "running", labels or {}, ())] if started else []

    def container(self, name: str) -> Container | None:
        if not (self.here / "stop").exists():
            return None
        return Container("c0", name, False, "exited", "", exit_code=137, oom_killed=True)

    def stop(self, container: str, seconds: float) -> None:
        self.stopped.append(container)
        (self.here / "stop").write_text("0")

    def remove(self, container: str) -> None:
        raise AssertionError("nothing was left to remove")

    def logs(self, *args: object, **kwargs: object) -> object:
        raise AssertionError("not asked for")


@pytest.fixture
def here(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in for Compose looks; a release is current."""
    world.release("a" * 12)
    world.serving("a" * 12)
    argv = [sys.executable, "-c", COMPOSE, str(tmp_path)]
    monkeypatch.setattr(engine, "compose", lambda release: argv)
    return tmp_path


def when(condition: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Do `act` once `condition` holds; after 20 s without it, act all the same."""

    def waiting() -> None:
        until = time.monotonic() + 20
        while not condition() and time.monotonic() < until:
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=waiting, daemon=True)
    thread.start()
    return thread


def test_a_stop_goes_through_docker_and_is_no_failure(here: Path, world: World) -> None:
    docker, said = Docker(here), list[str]()
    when((here / "started").exists, lambda: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    assert engine.run(world.service, docker, said.append) == OK  # type: ignore[arg-type]
    assert docker.stopped == ["c0"]
    assert "requests under way may finish" in said[-1]
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_engine_that_dies_is_named_and_is_a_failure_even_with_status_0(
    here: Path, world: World
) -> None:
    said: list[str] = []
    when((here / "started").exists, lambda: (here / "stop").write_text("0"))
    assert engine.run(world.service, Docker(here), said.append) == FAILED  # type: ignore[arg-type]
    assert "exit status 137, killed for want of memory" in said[-1]


def test_the_second_service_waits_until_the_first_is_ready(here: Path, world: World) -> None:
    said: list[str] = []
    lock = hold_lock(world.run_dir / ".boot.lock")
    lock.__enter__()
    release = when(lambda: said, lambda: lock.__exit__(None, None, None))
    when((here / "started").exists, lambda: (here / "stop").write_text("0"))
    engine.run(world.service, Docker(here), said.append)  # type: ignore[arg-type]
    release.join(20)
    assert "Another service of this host boots" in said[0]
    assert "Starting release" in said[1]


def test_by_hand_it_says_why_it_will_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv: Sequence[str] = ["run", "--root", str(tmp_path), "--service", "llm"]
    assert engine.main(list(argv)) == CONFIG
    assert "llm has nothing to run" in capsys.readouterr().err


def test_an_unknown_trial_is_not_run(world: World) -> None:
    world.run_dir.mkdir()
    world.service.trial.write_text("../../etc\n")
    with pytest.raises(Fault):
        engine.to_run(Service(world.root, "llm", world.run_dir))
