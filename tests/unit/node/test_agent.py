"""The resident: proves what starts, restarts what is wedged, says what is down."""

from __future__ import annotations

import json

import pytest

from sparkfleet.node.disk import hold_lock
from sparkfleet.node.watch import Watch
from sparkfleet.node.watchdog import Pulse, beat, wedged

from .world import Engine, World

ONE = "aaaaaaaaaaaa"


@pytest.fixture
def spark(world: World) -> World:
    """A Spark that serves."""
    world.release(ONE)
    world.serving(ONE)
    return world


class Agent:
    """An agent and what it said."""

    def __init__(self, world: World) -> None:
        self.said: list[str] = []
        self.world = world
        self.watch = Watch(world.service, world.means(), self.said.append)

    def live(self, seconds: float) -> None:
        until = self.world.now + seconds
        while self.world.now < until:
            self.world.now += max(self.watch.look(), 0.5)


def test_what_a_switch_has_proven_is_not_asked_again(spark: World) -> None:
    before = spark.state
    agent = Agent(spark)
    agent.live(120)
    assert spark.state == before and agent.said == []


def test_a_look_at_a_running_engine_spawns_nothing(spark: World) -> None:
    agent = Agent(spark)
    agent.live(20)
    spark.said.clear()
    agent.live(120)
    assert spark.said == []


def test_after_a_power_cut_the_service_is_proven_without_a_run(spark: World) -> None:
    spark.power_cut()
    assert spark.serves == ONE
    agent = Agent(spark)
    agent.live(10)
    assert spark.state.phase == "booting"
    agent.live(60)
    state = spark.state
    assert (state.phase, state.marker, state.restarts) == ("proven", "weights loaded", 1)
    assert state.proof["ok"] and spark.box is not None and state.container == spark.box.id
    assert any("weights loaded: after 20 s" in line for line in agent.said)


def test_an_engine_that_fails_its_proof_is_asked_again_ever_more_seldom(spark: World) -> None:
    spark.engines[ONE].proof_fails = "arithmetic"
    spark.power_cut()
    agent = Agent(spark)
    agent.live(60)
    assert spark.state.phase == "failed"
    assert "The proof arithmetic failed" in spark.state.reason
    spark.engines[ONE].proof_fails = ""
    agent.live(30)
    assert spark.state.phase == "failed"
    agent.live(60)
    assert spark.state.phase == "proven" and spark.state.reason == ""


def test_running_requests_without_a_token_are_a_wedge_and_a_restart(spark: World) -> None:
    stuck = {"vllm:num_requests_running": 2.0, "vllm:generation_tokens": 500.0}
    agent = Agent(spark)
    agent.live(20)
    first = spark.box
    spark.metrics_of = lambda: stuck
    agent.live(290)
    assert spark.box is first and spark.state.phase == "proven"
    agent.live(30)
    assert spark.box is not first and spark.serves == ONE
    assert any("2 requests run and no token came for" in line for line in agent.said)
    spark.metrics_of = None
    agent.live(60)
    assert spark.state.phase == "proven" and spark.state.restarts == 1


def test_an_engine_that_no_longer_answers_is_restarted(spark: World) -> None:
    agent = Agent(spark)
    agent.live(20)
    first = spark.box
    spark.engines[ONE].boots_in = 400.0  # the port is silent from now on
    agent.live(330)
    assert spark.box is not first
    assert any("has not answered for" in line for line in agent.said)


def test_restarts_stay_within_the_cap(spark: World) -> None:
    spark.engines[ONE] = Engine(dies_at=5)
    spark.power_cut()
    agent = Agent(spark)
    agent.live(120)
    assert spark.made == 1 + 3
    assert spark.state.phase == "down" and "its restarts are used up" in spark.state.reason
    assert "exit status 1" in spark.state.reason
    said = len(agent.said)
    agent.live(120)
    assert len(agent.said) == said


def test_a_service_that_nobody_wants_is_stopped_not_down(spark: World) -> None:
    agent = Agent(spark)
    agent.live(20)
    spark.run(["systemctl", "disable", "x"], 1)
    spark.run(["systemctl", "stop", "x"], 1)
    agent.live(20)
    assert spark.state.phase == "stopped"


def test_docker_that_does_not_answer_is_said_once_and_changes_nothing(spark: World) -> None:
    agent = Agent(spark)
    agent.live(20)
    spark.answers_docker = False
    agent.live(60)
    assert agent.said == ["llm: Docker does not answer: nothing listens"]
    assert spark.state.phase == "proven"
    spark.answers_docker = True
    agent.live(30)
    assert spark.state.phase == "proven"


def test_a_service_that_is_being_switched_is_left_alone(spark: World) -> None:
    spark.power_cut()
    agent = Agent(spark)
    before = spark.state
    with hold_lock(spark.service.lock):
        agent.live(60)
    assert spark.state == before


def test_a_state_that_is_not_whole_is_made_anew(spark: World) -> None:
    spark.service.state.write_text('{"schema": 1, "phase"')
    agent = Agent(spark)
    agent.live(60)
    assert spark.state.phase == "proven"
    assert json.loads(spark.service.state.read_text())["service"] == "llm"


def test_a_pulse_is_idleness_or_new_tokens() -> None:
    busy = {"vllm:num_requests_running": 1.0, "vllm:generation_tokens": 10.0}
    pulse = beat(Pulse(0.0), busy, 10.0)
    assert pulse.at == 10.0
    assert beat(pulse, busy, 20.0).at == 10.0
    assert beat(pulse, busy | {"vllm:generation_tokens": 11.0}, 20.0).at == 20.0
    assert beat(pulse, busy | {"vllm:prompt_tokens": 5.0}, 20.0).at == 20.0
    assert beat(pulse, busy | {"vllm:num_requests_running": 0.0}, 20.0).at == 20.0
    assert beat(pulse, None, 20.0).at == 10.0
    assert wedged(pulse, busy, 309.0, 300.0) == ""
    assert "1 requests run" in wedged(pulse, busy, 310.0, 300.0)
