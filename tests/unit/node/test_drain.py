"""Leaving the gateway and coming back: who was told what, and what is waited for."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sparkfleet.node import answer, drain, quiesce, watch
from sparkfleet.node.drain import DOWN, DRAIN, READY, Heard, Peer
from sparkfleet.node.state import PHASES, State

from .world import Engine, Killed, World

OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


@pytest.fixture
def spark(world: World) -> World:
    """A Spark that serves, with a release to go to."""
    world.release(OLD)
    world.release(NEW)
    world.serving(OLD)
    return world


def told(world: World, *gateways: str, word: str | None = None) -> None:
    """Each gateway asks now, and hears `word`, or what the agent would say."""
    for name in gateways:
        now = drain.status(world.service).word if word is None else word
        before = drain.load_heard(world.service)
        heard = answer.hearing(before, name, now, world.now, interval=1.0, gateways=len(gateways))
        answer.write_heard(world.service, heard)


@pytest.mark.parametrize("phase", PHASES)
def test_only_a_proven_engine_is_given_requests(phase: str) -> None:
    state = State("llm", phase=phase)
    word = drain.word(state, out=False, same_run=True)
    assert word == {"proven": READY, "draining": DRAIN}.get(phase, DOWN)
    assert drain.word(state, out=True, same_run=True) != READY
    assert drain.word(state, out=False, same_run=False) != READY


def test_each_hand_takes_back_what_it_did_itself(spark: World) -> None:
    drain.mark(spark.service, "new fan", who="ada@desk")
    drain.mark(spark.service, "a switch", by="switch")
    assert drain.status(spark.service).word == DRAIN
    assert drain.clear(spark.service, by="switch")
    assert drain.status(spark.service).word == DRAIN
    owner = drain.status(spark.service).owner
    assert owner is not None and (owner["reason"], owner["who"]) == ("new fan", "ada@desk")
    drain.mark(spark.service, "another reason")
    assert drain.status(spark.service).owner == owner, "the first mark is kept"
    assert drain.clear(spark.service) and not drain.clear(spark.service)
    assert drain.status(spark.service).word == READY


def test_a_mark_that_cannot_be_read_holds_as_well(spark: World) -> None:
    spark.service.drained.write_text("{")
    assert drain.status(spark.service).word == DRAIN


def test_after_a_switch_the_node_is_in(spark: World) -> None:
    assert spark.switch(NEW)["ok"]
    assert drain.status(spark.service).word == READY
    spark.release("cccccccccccc", Engine(proof_fails="exact"))
    assert spark.switch("cccccccccccc")["result"]["result"] == "rolled_back"
    assert spark.serves == NEW and drain.status(spark.service).word == READY


def test_an_owners_drain_outlives_a_switch_and_a_power_cut(spark: World) -> None:
    drain.mark(spark.service, "new fan")
    assert spark.switch(NEW)["ok"]
    assert drain.status(spark.service).word == DRAIN
    spark.power_cut()
    assert drain.status(spark.service).word == DOWN, "nothing was proven in this boot"
    one = watch.Watch(spark.service, spark.means(), lambda text: None)
    for _ in range(60):
        spark.now += max(one.look(), 0.5)
    assert spark.state.phase == "proven" and drain.status(spark.service).word == DRAIN


def test_a_switchs_own_drain_does_not_outlive_a_power_cut(spark: World) -> None:
    spark.busy = [1.0] * 1000
    spark.kill_at = 14
    with pytest.raises(Killed):
        spark.switch(NEW, drain_timeout=600)
    assert drain.status(spark.service).word == DRAIN
    spark.kill_at = 0
    spark.power_cut()
    spark.busy = []
    assert drain.status(spark.service).word != READY
    one = watch.Watch(spark.service, spark.means(), lambda text: None)
    for _ in range(30):
        spark.now += max(one.look(), 0.5)
        spark.run_jobs()
    assert spark.serves == OLD and drain.status(spark.service).word == READY


def test_a_switch_that_came_to_nothing_leaves_no_drain_behind(world: World) -> None:
    world.release(NEW, Engine(proof_fails="exact"))
    assert world.switch(NEW)["result"]["result"] == "failed"
    assert drain.status(world.service).switch is None
    assert drain.status(world.service).word == DOWN


def test_abort_leaves_the_node_as_it_was(spark: World) -> None:
    before, made = spark.state, spark.made
    spark.busy = [2.0] * 1000
    done = spark.switch(NEW, drain_timeout=20, drain_then="abort")
    assert done["result"]["result"] == "refused"
    assert "2 requests still ran after 20 s" in done["error"]["why"]
    assert "Nothing was stopped" in done["error"]["what"]
    assert spark.serves == OLD and spark.made == made and spark.state.phase == before.phase
    assert drain.status(spark.service).word == READY
    assert not spark.service.switch.exists()


def test_waiting_on_however_long_it_takes(spark: World) -> None:
    spark.busy = [1.0] * 500
    done = spark.switch(NEW, drain_timeout=20, drain_then="wait")
    assert done["ok"] and done["result"]["seconds"]["drain"] > 240
    said = [event["text"] for event in done["events"] if event["event"] == "log"]
    assert any("1 request is still under way after" in text for text in said)


def test_proceeding_says_what_it_leaves_to_the_engine(spark: World) -> None:
    spark.busy = [3.0] * 1000
    done = spark.switch(NEW, drain_timeout=20)
    said = [event["text"] for event in done["events"] if event["event"] == "log"]
    assert done["ok"] and any(text.startswith("3 requests still run") for text in said)


# What is waited for until every gateway has heard


class Clock:
    """Time that moves when someone sleeps, and what happens at each moment."""

    def __init__(self, at: Callable[[float], None] = lambda now: None) -> None:
        self.now, self.said, self._at = 1000.0, list[str](), at

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._at(self.now)

    @property
    def waiting(self) -> quiesce.Waiting:
        return quiesce.Waiting(lambda: self.now, self.sleep, self.said.append)


def test_without_a_gateway_nothing_is_waited_for() -> None:
    clock = Clock()
    assert quiesce.until_heard(Heard, clock.waiting) and clock.now == 1000.0


def test_the_last_gateway_to_hear_and_one_interval_more() -> None:
    def peers() -> Heard:
        second = DRAIN if clock.now >= 1002.4 else READY
        return Heard(1.0, 2, {"a": Peer(DRAIN, 1000, clock.now), "b": Peer(second, 0, clock.now)})

    clock = Clock()
    assert quiesce.until_heard(peers, clock.waiting)
    assert 1003.4 <= clock.now <= 1004.0 and clock.said == []


def test_a_gateway_that_went_down_is_not_waited_for() -> None:
    def peers() -> Heard:
        return Heard(1.0, 2, {"a": Peer(DRAIN, 1000, clock.now), "down": Peer(READY, 0, 999.0)})

    clock = Clock()
    assert not quiesce.until_heard(peers, clock.waiting)
    assert clock.now <= 1000 + drain.KNOWN_SECONDS + 1.5
    assert "1 of 2 gateways" in clock.said[0]


def test_one_that_asks_and_is_told_the_old_word_does_not_hold_it_up_for_ever() -> None:
    clock = Clock()
    assert not quiesce.until_heard(
        lambda: Heard(1.0, 1, {"odd": Peer(READY, 0, clock.now)}), clock.waiting
    )
    assert clock.now <= 1000 + quiesce.HEARING + 2
    assert "odd has not heard" in clock.said[0]


def test_a_switch_waits_until_it_was_heard(spark: World) -> None:
    """The engine is stopped only after the gateway has read the word, and an interval more."""
    told(spark, "10.0.0.9")
    stopped_at: list[float] = []
    begun = spark.now
    run = spark.run

    def watched(argv, seconds):  # type: ignore[no-untyped-def]
        if argv[:2] == ["systemctl", "stop"]:
            stopped_at.append(spark.now)
        if spark.now - begun >= 3.0:
            told(spark, "10.0.0.9")
        return run(argv, seconds)

    sleep = spark.sleep

    def slept(seconds: float) -> None:
        sleep(seconds)
        if spark.now - begun >= 3.0:
            told(spark, "10.0.0.9")
        else:
            told(spark, "10.0.0.9", word=READY)

    spark.run, spark.sleep = watched, slept  # type: ignore[method-assign]
    assert spark.switch(NEW)["ok"]
    assert stopped_at and stopped_at[0] - begun >= 4.0


def test_what_was_heard_is_read_back_as_it_was_written(world: World) -> None:
    told(world, "10.0.0.9", "10.0.0.10")
    heard = drain.load_heard(world.service)
    assert heard.gateways == 2 and set(heard.peers or {}) == {"10.0.0.9", "10.0.0.10"}
    world.service.heard.write_text(json.dumps({"interval": 1}))
    assert drain.load_heard(world.service) == Heard()
