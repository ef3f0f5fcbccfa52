"""A switch ends in a proven state, whatever happens on the way."""

from __future__ import annotations

import pytest

from sparkfleet.node.commands import Outcome
from sparkfleet.node.disk import hold_lock
from sparkfleet.node.docker import Container, Listed

from .world import IMAGE, Engine, World

OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


def test_first_deploy_is_proven_before_it_is_current_and_starts_at_boot(world: World) -> None:
    world.release(NEW)
    done = world.switch(NEW)
    assert done["ok"] and done["result"]["result"] == "switched"
    assert (world.current, world.previous, world.serves) == (NEW, None, NEW)
    assert world.enabled and not world.service.trial.exists()
    state = world.state
    assert (state.phase, state.release, state.marker) == ("proven", NEW, "weights loaded")
    [line] = world.history()
    assert (line["who"], line["from"], line["to"]) == ("owner@desk", None, NEW)
    assert line["result"] == "switched" and line["seconds"]["boot"] >= 30


def test_upgrade_keeps_what_ran_as_previous(world: World) -> None:
    world.release(OLD)
    world.release(NEW)
    world.serving(OLD)
    done = world.switch(NEW)
    outcome = {key: done["result"][key] for key in ("result", "from", "to", "runs")}
    runs = {"release": NEW, "image": IMAGE, "version": "0.23.0"}
    assert outcome["runs"].items() >= runs.items()
    assert outcome | {"runs": 0} == {"result": "switched", "from": OLD, "to": NEW, "runs": 0}
    assert (world.current, world.previous, world.serves) == (NEW, OLD, NEW)


def test_landmarks_are_told_with_their_usual_time(world: World) -> None:
    world.release(NEW)
    told = [event["text"] for event in world.switch(NEW)["events"] if event["event"] == "phase"]
    assert "weights loaded: after 20 s (usually after about 240 s)" in told


def test_same_release_again_touches_nothing(world: World) -> None:
    world.release(NEW)
    world.serving(NEW)
    world.said.clear()
    done = world.switch(NEW)
    assert done["ok"] and done["result"]["result"] == "unchanged"
    assert [argv for argv in world.said if argv[1] != "show"] == []
    assert len(world.history()) == 1


def test_a_start_that_is_asked_for_is_one(world: World) -> None:
    world.release(NEW)
    world.serving(NEW)
    assert world.switch(NEW, restart=True)["result"]["result"] == "started"
    assert world.made == 2 and world.state.phase == "proven"


def test_a_start_that_could_not_succeed_stops_nothing(world: World) -> None:
    world.release(NEW)
    world.serving(NEW)
    world.gpu = Outcome(1, err="No devices were found")
    done = world.switch(NEW, restart=True)
    assert done["error"]["code"] == "refused" and "torn from its firmware" in done["error"]["why"]
    assert world.serves == NEW and world.made == 1


def test_a_running_engine_that_fails_its_proof_is_started_again(world: World) -> None:
    world.release(NEW)
    world.serving(NEW)
    world.state_is("failed")
    assert world.switch(NEW)["result"]["result"] == "started" and world.made == 1
    world.state_is("failed")
    world.engines[NEW].proof_fails = "arithmetic"
    done = world.switch(NEW)
    assert done["result"]["result"] == "failed" and world.made == 2
    assert "nothing to go back to" in done["error"]["what"]
    assert world.state.phase == "failed" and "arithmetic" in world.state.reason
    assert world.serves == world.current == NEW


def test_same_release_that_was_stopped_is_started_and_proven(world: World) -> None:
    world.release(NEW)
    world.serving(NEW)
    world.run(["systemctl", "stop", "x"], 1)
    done = world.switch(NEW)
    assert done["result"]["result"] == "started" and world.serves == NEW
    assert world.state.phase == "proven"


@pytest.mark.parametrize(
    ("engine", "phase", "words"),
    [
        (
            Engine(dies_at=12, exit_code=137, log=[(2, "x"), (11, "ERROR Free memory on device")]),
            "boot",
            "exit status 137. Too little memory.",
        ),
        (Engine(boots_in=10**6), "boot", "not ready within 30 minutes. It had reached: weights"),
        (Engine(never_starts=True), "boot", "ended"),
        (Engine(proof_fails="arithmetic"), "prove", "The proof arithmetic failed: it answered 17"),
        (Engine(dies_in_proof=True), "prove", "died while it was asked"),
    ],
    ids=["dies", "late", "no container", "wrong answer", "dies in proof"],
)
def test_a_release_that_does_not_serve_gives_way_to_the_old_one(
    world: World, engine: Engine, phase: str, words: str
) -> None:
    world.release(OLD)
    world.release(NEW, engine)
    world.serving(OLD)
    done = world.switch(NEW)
    assert not done["ok"] and done["result"]["result"] == "rolled_back"
    assert done["result"]["failure"]["phase"] == phase
    assert words in done["result"]["failure"]["detail"]
    assert done["error"]["code"] == "rolled_back" and OLD in done["error"]["what"]
    assert (world.current, world.serves, world.state.phase) == (OLD, OLD, "proven")
    assert not world.service.trial.exists() and world.enabled
    assert world.history()[-1]["result"] == "rolled_back"


def test_a_dead_engine_is_noticed_at_once_with_its_telling_lines(world: World) -> None:
    log = [(2.0, "loading"), (11.0, "ERROR Free memory on device is less"), (11.5, "bye")]
    world.release(NEW, Engine(dies_at=12, log=log))
    begun = world.now
    done = world.switch(NEW)
    assert world.now - begun < 20
    assert done["result"]["result"] == "failed"
    assert done["result"]["failure"]["log"] == ["ERROR Free memory on device is less"]
    assert done["error"]["next"] == "Wait."
    assert world.serves is None and not world.enabled and world.current is None
    assert world.state.phase == "failed" and "Too little memory" in world.state.reason
    world.power_cut()
    assert world.serves is None


def test_down_is_said_when_the_old_release_does_not_come_back(world: World) -> None:
    world.release(OLD)
    world.serving(OLD)
    world.engines[OLD].proof_fails = "names"
    world.release(NEW, Engine(dies_at=3))
    done = world.switch(NEW)
    assert done["result"]["result"] == done["error"]["code"] == "down"
    assert "names" in done["result"]["failure"]["detail"]
    assert world.state.phase == "down" and world.enabled


def test_nothing_is_stopped_when_the_gpu_is_refused(world: World) -> None:
    world.release(OLD)
    world.release(NEW)
    world.serving(OLD)
    made = world.made
    world.gpu = Outcome(125, err="docker: could not select device driver with capabilities")
    done = world.switch(NEW)
    assert done["result"]["result"] == done["error"]["code"] == "refused"
    assert "toolkit is missing" in done["error"]["why"]
    assert (world.made, world.serves, world.state.phase) == (made, OLD, "proven")
    assert not world.service.switch.exists()


@pytest.mark.parametrize("fault", ["compose", "weights", "port", "name"])
def test_refusals_name_what_is_in_the_way(world: World, fault: str) -> None:
    models = {"model": {"dir": str(world.root / "nowhere")}} if fault == "weights" else {}
    world.release(OLD)
    world.release(NEW, models=models)
    world.serving(OLD)
    words = {"weights": "The model is not staged", "compose": "no such key", "port": "jupyter"}
    if fault == "compose":
        world.config = Outcome(15, err="no such key")
    if fault == "port":
        row = Listed("f" * 64, "jupyter", "running", {}, (("127.0.0.1", 18123),))
        world.strangers.append((Container("f" * 64, "jupyter", True, "running", ""), row))
    if fault == "name":
        world.service.release_dir(NEW).joinpath("release.json").write_text("{")
        words["name"] = "release.json"
    done = world.switch(NEW)
    assert done["result"]["result"] == "refused"
    assert words[fault] in done["error"]["why"]
    assert world.serves == OLD


def test_running_requests_are_waited_for_within_the_limit(world: World) -> None:
    world.release(OLD)
    world.release(NEW)
    world.serving(OLD)
    world.busy = [3.0, 3.0, 1.0]
    seconds = world.switch(NEW)["result"]["seconds"]
    assert not world.busy and seconds["drain"] == 2.0  # quiet is what is quiet twice
    world.busy = [1.0] * 1000
    assert world.switch(OLD, drain_timeout=20)["result"]["seconds"]["drain"] == 20


def test_two_switches_of_one_service_do_not_meet(world: World) -> None:
    world.release(NEW)
    with hold_lock(world.service.lock):
        done = world.switch(NEW)
    assert done["error"]["code"] == "busy" and world.made == 0


ADOPT = {"ids": ["f" * 64], "park": "park the owner's", "put_back": "start the owner's"}


def scripts(world: World) -> list[str]:
    """What was done about the owner's own containers, in order, beside our own starts."""
    shell = {"sh": lambda argv: argv[2], "systemctl": lambda argv: argv[1]}
    told = [shell[argv[0]](argv) for argv in world.said if argv[0] in shell]
    return [word for word in told if word in ("start", ADOPT["park"], ADOPT["put_back"])]


def test_what_the_owner_runs_by_hand_makes_way_and_stays_away(world: World) -> None:
    row = Listed("f" * 64, "mine", "running", {}, (("127.0.0.1", 18123),))
    world.strangers.append((Container("f" * 64, "mine", True, "running", ""), row))
    world.release(NEW)
    assert world.switch(NEW)["result"]["result"] == "refused"
    assert world.switch(NEW, adopt=ADOPT)["ok"]
    assert scripts(world) == [ADOPT["park"], "start"]


@pytest.mark.parametrize("first", [True, False], ids=["first", "upgrade"])
def test_what_the_owner_runs_by_hand_comes_back_when_ours_does_not_serve(
    world: World, first: bool
) -> None:
    if not first:
        world.release(OLD)
        world.serving(OLD)
        world.said.clear()
    world.release(NEW, Engine(dies_at=3))
    done = world.switch(NEW, adopt=ADOPT)
    assert done["result"]["result"] == ("failed" if first else "rolled_back")
    assert scripts(world) == [
        ADOPT["park"],
        "start",
        *([] if first else ["start"]),
        ADOPT["put_back"],
    ]
