"""A roll that is cut, watched, undone or asked for twice: each ends with a release proven."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lab.conftest import Run
from tests.lab.faults.kit import ROOT, Box
from tests.lab.faults.recipe import boot
from tests.lab.waiting import eventually

pytestmark = pytest.mark.lab

CHANGE = {"tag": "2", "version": "2.0.0"}

#: What a run says when its switch comes to each of its points.
POINTS = {
    "preflight": "checking all that needs no stop",
    "drain": "waiting until no request runs",
    "stop": "stopping what runs",
    "boot": "booting, 1 min at most",
    "prove": "proving that it answers",
    "soak": "serving, and watched for 4 s",
}


def points(*always: str) -> list[Any]:
    """All of them, those that are not tried `always` in the full matrix alone."""
    full = pytest.mark.full
    return [pytest.param(one, marks=[full] * (one not in always)) for one in POINTS]


@pytest.fixture
def watched(box: Box) -> Box:
    """The box, whose new release is watched for a while before it counts."""
    return box.on(soak=4)


@pytest.mark.parametrize("point", points("drain", "boot", "soak"))
def test_a_controller_killed_at_any_point_leaves_a_proven_node(watched: Box, point: str) -> None:
    """The node ends its switch by itself, and the next run finds or completes the roll."""
    with watched.underway(**CHANGE) as run:
        run.says(POINTS[point], 60)
        run.process.kill()
        run.process.wait()
    switch_ended(watched)
    assert watched.well()
    watched.works(**CHANGE)
    watched.serves()
    assert watched.current() != watched.baseline[watched.host]


@pytest.mark.parametrize("point", points("boot", "soak"))
def test_a_power_cut_at_any_point_returns_to_a_proven_release(watched: Box, point: str) -> None:
    with watched.underway(**CHANGE) as run:
        run.says(POINTS[point], 60)
        watched.lab.power_cycle(watched.host)
        watched.recovers()
        end = run.end(120)
    assert "Traceback" not in end.said
    switch_ended(watched)
    assert watched.current() == watched.baseline[watched.host], "nothing moved before its proof"
    watched.works(**CHANGE)
    watched.serves()
    assert watched.current() != watched.baseline[watched.host]


def test_a_network_that_is_cut_in_a_switch_is_waited_for(box: Box) -> None:
    """Packets are dropped, no connection ends: the controller has to find out and come back."""
    with box.underway(**CHANGE) as run:
        run.says(POINTS["boot"], 60)
        with box.lab.network_cut(box.host):
            run.says("The connection was lost", 60)
        end = run.end(90)
    assert end.code == 0, end.said
    box.serves()
    assert box.current() != box.baseline[box.host]


def test_docker_restarted_in_a_switch_ends_with_a_proven_release(box: Box) -> None:
    with box.underway(**CHANGE, boot=boot(2)) as run:
        run.says("booting, 2 min at most", 60)
        box.lab.restart_docker(box.host)
        end = run.end(120)
    assert end.code in (0, 1) and "Traceback" not in end.said, end.said
    assert end.code == 0 or "previous release proven" in end.out, end.said
    box.recovers()
    box.works(**CHANGE)
    box.serves()


def test_a_release_that_falters_while_it_is_watched_is_put_back(box: Box) -> None:
    before = box.current()
    with box.on(soak=30).underway(**CHANGE) as run:
        run.says("serving, and watched for 30 s", 60)
        box.sh("docker kill standin")
        end = run.end(60)
    box.told(end, "The engine died while it was watched", f"Release {before} runs again")
    assert "FAILED, previous release proven" in end.out
    assert box.current() == before
    box.serves()


def test_of_two_runs_one_goes_and_one_is_told(box: Box) -> None:
    with box.on(soak=4).underway(**CHANGE) as first:
        first.says(POINTS["boot"], 60)
        second = box.deploy(tag="wrong-answer", version="2.0.0")
        box.told(second, "is being changed by another run: ", "Nothing was changed.", "Wait for")
        end = first.end(60)
    assert end.code == 0, end.said
    box.serves()
    assert box.current() != box.baseline[box.host]
    assert json.loads(box.sh(f"cat {ROOT}/lease.json"))["run"] == "", "it let go"


def test_a_run_of_another_machine_holds_for_a_minute_after_its_last_sign(box: Box) -> None:
    """Of a run that is not this controller's nothing is known but its signs of life."""
    with box.untouched():
        lease(box, ago=5)
        box.fails("is being changed by another run: ann@desk", "Nothing was changed.", **CHANGE)
    lease(box, ago=61)
    box.works(**CHANGE)
    assert box.current() != box.baseline[box.host]


def lease(box: Box, ago: float) -> None:
    """A lease of another controller's run, whose last sign of life was so many seconds ago."""
    known = json.loads(box.sh(f"cat {ROOT}/lease.json"))
    now = float(box.sh("date +%s.%N"))
    new = {"grants": known["grants"] + 1, "run": "feed", "who": "ann@desk"}
    box.write(f"{ROOT}/lease.json", json.dumps(new | {"since": now - 70, "renewed": now - ago}))


def play(box: Box, name: str, *options: str, **changes: object) -> Run:
    """Another play than the deploy, of the inventory as it would be deployed."""
    return box.fleet.run(box.inventory(**changes), *options, play=f"plays/{name}.py", timeout=240)


def test_rollback_goes_back_once_and_the_next_deploy_comes_forward(box: Box) -> None:
    before = box.current()
    box.works(**CHANGE)
    new = box.current()

    back = play(box, "rollback", **CHANGE)
    assert back.code == 0, back.said
    assert f"from release {new} to {before}" in back.said
    assert "the next deploy brings it again" in back.out
    box.serves()
    assert box.current() == before

    with box.untouched():
        again = play(box, "rollback", **CHANGE)
    assert again.code == 0 and "nothing changed" in again.out, again.said
    box.works(**CHANGE)
    assert box.current() == new


def test_restart_proves_the_same_release_anew(box: Box) -> None:
    before, release = box.serves(), box.current()
    run = play(box, "restart")
    assert run.code == 0, run.said
    assert box.serves() != before and box.current() == release
    assert "nothing changed" in box.works().out


def test_plays_for_one_host_want_it_named(box: Box) -> None:
    with box.untouched():
        for name in ("drain", "readmit"):
            run = play(box, name)
            assert run.code == 1 and f"--limit {box.host}" in run.said, run.said


def switch_ended(box: Box) -> None:
    """Wait until the node has no switch under way."""
    pending = f"ls {ROOT}/services/llm/switch.json || true"
    eventually(lambda: not box.sh(pending), 60, "the switch has ended")


def history(box: Box) -> list[dict[str, object]]:
    """What the node wrote down of its switches."""
    return [
        json.loads(row) for row in box.sh(f"cat {ROOT}/services/llm/history.jsonl").splitlines()
    ]


def test_the_node_keeps_who_when_from_to_result_and_seconds(box: Box) -> None:
    before = box.current()
    box.works(**CHANGE)
    last = history(box)[-1]
    assert {"who", "when", "from", "to", "result", "seconds"} <= last.keys()
    assert (last["from"], last["to"], last["result"]) == (before, box.current(), "switched")


def test_old_releases_go_but_never_the_current_or_the_previous_one(box: Box) -> None:
    kept = box.on(keep=2)
    kept.works(**CHANGE)
    second = box.current()
    kept.fails(tag="wrong-answer", version="2.0.0")
    # The image of the first release carries another tag than ours: it is somebody's.
    run = kept.on(env={"ROUND": "3"}).works(**CHANGE)
    assert "Cleared away: 2 old releases and 1 image" in run.said, run.said
    left = box.sh(f"ls {ROOT}/services/llm/releases").split()
    assert sorted(left) == sorted([box.current(), second])
    box.serves()
