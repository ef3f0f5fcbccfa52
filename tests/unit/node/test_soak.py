"""A release that falters after its proof counts as one that never came up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkfleet.node import drain

from .test_cut import killed_everywhere, live_on, proven, settled
from .world import Engine, World

OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
LOG = [(1.0, "non-default args: {}")]
QUICK = Engine(boots_in=3, log=LOG)


@pytest.fixture
def serving(world: World) -> World:
    """A Spark on which OLD serves."""
    world.release(OLD)
    world.serving(OLD)
    return world


def test_a_release_that_stays_well_becomes_current_after_the_soak(serving: World) -> None:
    serving.release(NEW)
    done = serving.switch(NEW, soak=600)
    assert done["result"]["result"] == "switched" and done["result"]["seconds"]["soak"] >= 600
    assert (serving.current, serving.proofs[NEW]) == (NEW, 3), "at first, in between, at the end"


def test_it_takes_requests_while_it_is_watched(serving: World) -> None:
    words = set()

    def look() -> dict[str, float]:
        if serving.serves == NEW:
            words.add((drain.status(serving.service).word, serving.current))
        return {}

    serving.release(NEW)
    serving.metrics_of = look
    assert serving.switch(NEW, soak=20)["ok"]
    assert words == {("up ready", OLD)}


@pytest.mark.parametrize(
    ("engine", "phase", "words"),
    [
        (Engine(boots_in=3, dies_at=30, exit_code=0), "soak", "died while it was watched"),
        (Engine(proof_fails="arithmetic", proof_fails_at=2), "prove", "arithmetic failed"),
    ],
    ids=["dies", "answers wrong later"],
)
def test_a_release_that_falters_within_the_soak_is_put_back(
    serving: World, engine: Engine, phase: str, words: str
) -> None:
    serving.release(NEW, engine)
    done = serving.switch(NEW, soak=60)
    assert done["result"]["result"] == "rolled_back", done
    assert done["result"]["failure"]["phase"] == phase
    assert words in done["result"]["failure"]["detail"]
    assert (serving.current, serving.previous) == (OLD, None)
    assert serving.state.phase == "proven" and serving.serves == OLD
    assert done["result"]["runs"]["release"] == OLD
    assert drain.status(serving.service).word == "up ready"


def test_an_engine_that_died_and_came_back_within_the_soak_has_failed(serving: World) -> None:
    """systemd starts it again within seconds; that it runs now is no excuse."""
    serving.release(NEW, Engine(boots_in=3, dies_at=30))
    serving.switch(NEW, soak=60)
    [line] = [row for row in serving.history() if row["to"] == NEW]
    assert line["result"] == "rolled_back"


def test_an_engine_that_stands_still_within_the_soak_has_failed(serving: World) -> None:
    serving.release(NEW, wedge_seconds=20)
    hung = {"vllm:num_requests_running": 2.0, "vllm:generation_tokens": 7.0}
    serving.metrics_of = lambda: hung if serving.serves == NEW else {}
    done = serving.switch(NEW, soak=60, drain_timeout=5)
    assert done["result"]["result"] == "rolled_back"
    assert "2 requests run and no token came" in done["result"]["failure"]["detail"]
    assert done["result"]["seconds"]["drain"] >= 5, "who is being answered may finish"


def test_no_soak_is_no_second_proof(serving: World) -> None:
    serving.release(NEW)
    assert serving.switch(NEW)["ok"] and serving.proofs[NEW] == 1


def test_a_switch_killed_anywhere_in_its_soak_ends_proven(worlds: Callable[[], World]) -> None:
    for point, world in killed_everywhere(worlds, QUICK, first=False, soak=6):
        live_on(world)
        assert settled(world) in (proven(OLD), proven(NEW)), point
        assert drain.status(world.service).word == "up ready", point


def test_a_power_cut_in_the_soak_returns_to_what_was_current(worlds: Callable[[], World]) -> None:
    for point, world in killed_everywhere(worlds, QUICK, first=False, soak=6):
        before = world.current
        world.power_cut()
        live_on(world)
        assert before is not None
        assert settled(world) == proven(before), point
