"""Watching a boot: landmarks, deaths, and a Docker that is away for a while."""

from __future__ import annotations

from typing import Any

import pytest

from sparkfleet.node.boot import Boot, BootWatch
from sparkfleet.node.layout import Release, load_release

from .world import Engine, Running, World

ONE, OTHER = "a" * 12, "b" * 12


@pytest.fixture
def release(world: World) -> Release:
    """A release whose unit was just started."""
    release = load_release(world.service.release_dir(world.release(ONE)))
    world.service.trial.parent.mkdir()
    world.service.trial.write_text(f"{release.dir}\n")
    world.run(["systemctl", "start", "x"], 1)
    return release


def watch(world: World, release: Release, **more: Any) -> BootWatch:
    means = world.means()
    return BootWatch(
        release,
        world,  # type: ignore[arg-type]
        unit=means.systemd,
        begun=world.now,
        clock=means.clock,
        health=means.health,
        **more,
    )


def until(boot: BootWatch, world: World, seconds: float) -> Boot:
    """The first outcome that is not waiting, or the last within `seconds`."""
    end = world.now + seconds
    while (step := boot.step()).outcome == "waiting" and world.now < end:
        world.now += 1
    return step


def test_landmarks_are_told_once_each_in_order(world: World, release: Release) -> None:
    told: list[str] = []
    boot = watch(world, release, tell=lambda name, text: told.append(text))
    step = until(boot, world, 60)
    assert (step.outcome, step.seconds, step.marker) == ("ready", 30.0, "weights loaded")
    assert [text.partition(":")[0] for text in told] == ["arguments read", "weights loaded"]


def test_a_landmark_that_was_skipped_is_not_awaited(world: World, release: Release) -> None:
    world.engines[ONE].log = [(3.0, "Model loading took 21 GiB"), (4.0, "non-default args")]
    told: list[str] = []
    until(watch(world, release, tell=lambda name, text: told.append(text)), world, 60)
    assert [text.partition(":")[0] for text in told] == ["weights loaded"]


def test_an_engine_that_was_started_again_has_died(world: World, release: Release) -> None:
    world.engines[ONE] = Engine(dies_at=5, log=[(4.0, "RuntimeError: no kernel image")])
    boot = watch(world, release)
    world.now += 4
    assert boot.step().outcome == "waiting"
    world.now += 2
    assert world.serves is None
    world.now += 11
    assert world.serves == ONE  # died and was started again between two looks
    step = boot.step()
    assert step.outcome == "dead" and "was started again" in step.detail
    assert step.telling.lines == ("RuntimeError: no kernel image",)


def test_a_container_that_goes_away_has_died(world: World, release: Release) -> None:
    boot = watch(world, release)
    boot.step()
    world.box = None
    assert "container went away" in boot.step().detail


@pytest.mark.parametrize(("left", "running"), [(ONE, False), (OTHER, False), (OTHER, True)])
def test_what_stood_there_before_is_not_judged(
    world: World, release: Release, left: str, running: bool
) -> None:
    """A release that dies at once makes way for the one before it in less than a second."""
    new, world.box = world.box, Running("old", left, world.now - 0.4, running=running, exit_code=1)
    world.release(OTHER)
    boot = watch(world, release)
    assert boot.step().outcome == "waiting"
    world.box = new
    assert until(boot, world, 60).outcome == "ready"


def test_a_docker_that_is_away_for_a_while_is_asked_again(world: World, release: Release) -> None:
    boot = watch(world, release)
    world.answers_docker = False
    assert until(boot, world, 20).outcome == "waiting"
    world.answers_docker = True
    assert until(boot, world, 60).outcome == "ready"


def test_a_docker_that_stays_away_is_said_at_the_end(world: World, release: Release) -> None:
    boot = watch(world, release)
    world.answers_docker = False
    step = until(boot, world, 2000)
    assert step.outcome == "late" and "Docker does not answer" in step.detail


def test_a_unit_that_gives_up_before_a_container_is_told_from_its_journal(
    world: World, release: Release
) -> None:
    world.run(["systemctl", "stop", "x"], 1)
    world.box = None
    world.engines[ONE].never_starts = True
    world.run(["systemctl", "start", "x"], 1)
    step = until(watch(world, release), world, 60)
    assert step.outcome == "dead" and "did not start" in step.detail
    assert step.telling.lines == ("no release",)


def test_the_key_does_not_reach_the_telling_lines(world: World, release: Release) -> None:
    world.engines[ONE] = Engine(dies_at=3, log=[(1.0, "ERROR api_key=sk-very-secret")])
    step = until(watch(world, release, secret="sk-very-secret"), world, 60)
    assert step.telling.lines == ("ERROR api_key=•••",)
