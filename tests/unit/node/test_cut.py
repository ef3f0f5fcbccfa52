"""A switch that is cut, at any point, ends in a proven state all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sparkfleet.node.watch import Watch

from .world import Engine, Killed, World

OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
LOG = [(1.0, "non-default args: {}")]
GOOD, BAD = Engine(boots_in=3, log=LOG), Engine(dies_at=2, log=LOG)


def prepared(worlds: Callable[[], World], new: Engine, *, first: bool) -> World:
    """A Spark just before the switch to NEW: bare, or serving OLD."""
    world = worlds()
    if not first:
        world.release(OLD, GOOD)
        world.serving(OLD)
    world.release(NEW, new)
    return world


def killed_everywhere(
    worlds: Callable[[], World], new: Engine, *, first: bool, soak: float = 0
) -> Iterator[tuple[int, World]]:
    """The same switch, killed at its first, second, ... and last act or look."""
    whole = prepared(worlds, new, first=first)
    whole.switch(NEW, soak=soak)
    assert whole.points > 40
    for point in range(1, whole.points + 1):
        world = prepared(worlds, new, first=first)
        world.kill_at = point
        with pytest.raises(Killed):
            world.switch(NEW, soak=soak)
        world.kill_at = 0
        yield point, world


def live_on(world: World, seconds: float = 90.0) -> None:
    """Let the agent look after the service for a while."""
    agent = Watch(world.service, world.means(), lambda text: None)
    until = world.now + seconds
    while world.now < until:
        world.now += max(agent.look(), 0.5)
        world.run_jobs()


def settled(world: World) -> tuple[object, ...]:
    """How the service stands."""
    ends = world.service.switch.exists(), world.service.trial.exists()
    return world.serves, world.current, world.enabled, world.state.phase, *ends


def proven(release: str) -> tuple[object, ...]:
    return release, release, True, "proven", False, False


@pytest.mark.parametrize("first", [True, False], ids=["first", "upgrade"])
def test_the_same_request_again_carries_on(worlds: Callable[[], World], first: bool) -> None:
    for point, world in killed_everywhere(worlds, GOOD, first=first):
        done = world.switch(NEW)
        assert done["ok"], (point, done)
        assert settled(world) == proven(NEW), point
        assert world.previous == (None if first else OLD), point


@pytest.mark.parametrize("first", [True, False], ids=["first", "upgrade"])
def test_the_agent_ends_it_without_a_controller(worlds: Callable[[], World], first: bool) -> None:
    untouched = (None, None, False, "stopped", False, False) if first else proven(OLD)
    seen = set()
    for point, world in killed_everywhere(worlds, GOOD, first=first):
        live_on(world)
        ends = settled(world)
        assert ends in (untouched, proven(NEW)), point
        seen.add(ends)
    assert seen == {untouched, proven(NEW)}


def test_a_bad_release_is_left_behind_without_a_controller(worlds: Callable[[], World]) -> None:
    for point, world in killed_everywhere(worlds, BAD, first=False):
        live_on(world)
        assert settled(world) == proven(OLD), point


def test_a_bad_first_release_is_left_stopped(worlds: Callable[[], World]) -> None:
    for point, world in killed_everywhere(worlds, BAD, first=True):
        live_on(world)
        serves, current, enabled, phase, *left = settled(world)
        assert (serves, current, enabled, left) == (None, None, False, [False, False]), point
        assert phase in ("failed", "stopped"), point


@pytest.mark.parametrize("new", [GOOD, BAD], ids=["good", "bad"])
def test_a_power_cut_returns_to_what_was_proven(worlds: Callable[[], World], new: Engine) -> None:
    for point, world in killed_everywhere(worlds, new, first=False):
        before = world.current
        world.power_cut()
        live_on(world)
        assert before is not None
        assert settled(world) == proven(before), point


def test_a_power_cut_in_the_first_deploy_leaves_it_stopped_or_proven(
    worlds: Callable[[], World],
) -> None:
    for point, world in killed_everywhere(worlds, GOOD, first=True):
        world.power_cut()
        live_on(world)
        ends = settled(world)
        if world.current is None:
            assert ends[0] is None and ends[2:] in (
                (False, "failed", False, False),
                (False, "stopped", False, False),
            ), point
            assert world.switch(NEW)["ok"], point
        assert settled(world) == proven(NEW), point


def test_a_switch_that_keeps_being_cut_is_given_up(worlds: Callable[[], World]) -> None:
    world = prepared(worlds, Engine(boots_in=100), first=False)
    for point in (40, 20, 20):
        world.points, world.kill_at = 0, point
        with pytest.raises(Killed):
            world.switch(NEW)
    world.kill_at = 0
    done = world.switch(NEW)
    assert done["result"]["result"] == "rolled_back"
    assert settled(world) == proven(OLD)
