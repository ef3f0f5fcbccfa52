"""The gateway: a roll under load that loses no request, and a drain that is not forgotten."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from lab.api import Lab
from tests.lab.conftest import Fleet
from tests.lab.gated import PORT, STATS_PORT, Gated
from tests.lab.load import Load, fetch, servers
from tests.lab.observe import key_of, state
from tests.lab.waiting import eventually

pytestmark = pytest.mark.lab

STANDIN = {
    "recipe": "lab-standin",
    "preset": "shared",
    "flags": {"max-num-seqs": 8},
    "env": {"SPARKFLEET_STANDIN_RATE": "30"},
}


@pytest.fixture(scope="module")
def gated(lab: Lab, sparks: list[str], tmp_path_factory: pytest.TempPathFactory) -> Gated:
    """Three stand-ins behind a gateway, from bare boxes; one deployment for the whole module."""
    for name in sparks:
        lab.fresh(name)
    fleet = Fleet(lab, tmp_path_factory.mktemp("gated"))
    one = Gated(fleet, sparks, dict(STANDIN))
    first = one.deploy()
    assert first.code == 0, first.said
    return one


def test_a_node_is_in_once_it_is_proven_and_a_second_run_changes_nothing(gated: Gated) -> None:
    eventually(gated.all_up, 15, "every node in the gateway")
    began = time.time()
    again = gated.deploy()
    assert again.code == 0 and "nothing changed" in again.out, again.said
    for name in gated.sparks:
        commands = gated.fleet.lab.ssh_sessions(name, since=began)
        assert len(commands) <= 1, commands
    load = gated.load()
    for stream in (True, False):
        load.ask(stream=stream)
    assert load.count.clean, load.count
    status, metrics = fetch(gated.address, STATS_PORT, "/metrics")
    assert status == 200 and "haproxy_server_status" in metrics
    with_wrong_key = Load(gated.address, PORT, "lab-standin", "wrong")
    with_wrong_key.ask(stream=False)
    assert "401" in with_wrong_key.count.failed[0], "the key is the engines' to judge"


@pytest.mark.parametrize("change", [{"image": "2"}, {"preset": "alone"}], ids=["image", "preset"])
def test_a_roll_under_load_loses_no_request(
    gated: Gated, change: dict[str, Any], capsys: Any
) -> None:
    eventually(gated.all_up, 15, "every node in the gateway")
    load = gated.load()
    least: dict[str, int] = {}
    # With the long streams below as many as there are places: each node is full when it drains.
    with load.running(clients=21) as count:
        eventually(lambda: count.ok >= 21, 60, "a load that runs")
        gated.in_flight_at_drain(least)
        long = [load.long_stream(tokens=600) for _ in gated.sparks]
        rolled = gated.deploy(**change)
        assert rolled.code == 0, rolled.said
        for thread in long:
            thread.join(120)
        eventually(gated.all_up, 15, "every node in the gateway again")
    with capsys.disabled():
        print(f"\n  {change}: {count}; in flight when the drain began: {least}")
    assert count.clean, (count, count.failed[:5], count.cut[:5])
    assert set(least) == set(gated.sparks) and min(least.values()) >= 4
    for name in gated.sparks:
        assert state(gated.fleet.lab, name)["phase"] == "proven"
    versions = {fetch(gated.address, PORT, "/version")[1] for _ in range(6)}
    assert {json.loads(one)["version"] for one in versions} == {"2.0.0"}


@pytest.mark.parametrize("fault", ["crash", "wrong-answer", "still-counters"])
def test_a_bad_canary_under_load_is_put_back_and_the_rest_not_touched(
    gated: Gated, fault: str, capsys: Any
) -> None:
    eventually(gated.all_up, 15, "every node in the gateway")
    canary, *others = gated.sparks[1], gated.sparks[0], gated.sparks[2]
    before = {name: state(gated.fleet.lab, name)["container"] for name in others}
    load = gated.load()
    good = dict(gated.common)
    with load.running(clients=10) as count:
        eventually(lambda: count.ok >= 10, 60, "a load that runs")
        faulty = {**STANDIN["env"], "SPARKFLEET_STANDIN_FAULT": fault}
        rolled = gated.deploy(env=faulty, canary=canary)
        gated.common = good
        eventually(gated.all_up, 30, "every node in the gateway again")
    with capsys.disabled():
        print(f"\n  {fault} on the canary: {count}")
    assert rolled.code == 1 and f"Stopped after {canary}" in rolled.said, rolled.said
    assert "FAILED, previous release proven" in rolled.out and "not begun" in rolled.out
    assert count.clean, (count, count.failed[:5], count.cut[:5])
    assert {name: state(gated.fleet.lab, name)["container"] for name in others} == before
    assert state(gated.fleet.lab, canary)["phase"] == "proven"


def test_a_host_taken_out_by_hand_stays_out_through_a_reboot_and_a_deploy(gated: Gated) -> None:
    eventually(gated.all_up, 15, "every node in the gateway")
    out = gated.sparks[2]
    run = gated.play("drain", "--limit", out, "--data", "reason=a new fan")
    assert run.code == 0 and f"{out}, llm: out of the gateway" in run.out, run.said
    assert gated.status(out).startswith("DRAIN")

    gated.fleet.lab.power_cycle(out)
    eventually(lambda: state(gated.fleet.lab, out)["phase"] == "proven", 90, "proven after the cut")
    deployed = gated.deploy(env={**STANDIN["env"], "OUT": "1"})
    assert deployed.code == 0, deployed.said
    # HAProxy calls it down while it has not heard `up` since the cut; either way it gets nothing.
    total = gated.stat()[out]["stot"]
    load = gated.load(tokens=5)
    for _ in range(9):
        load.ask(stream=True)
    assert load.count.clean and gated.stat()[out]["stot"] == total

    run = gated.play("readmit", "--limit", out)
    assert run.code == 0 and f"{out}, llm: in the gateway again" in run.out, run.said
    eventually(gated.all_up, 15, "every node in the gateway again")
    run = gated.play("readmit", "--limit", out)
    assert run.code == 0 and "nobody held it out" in run.out, run.said


@pytest.mark.parametrize("act", ["reload", "restart", "kill"])
def test_a_gateway_that_starts_anew_in_a_drain_forgets_and_loses_nothing(
    gated: Gated, act: str, capsys: Any
) -> None:
    """The agent of the drained node is silent meanwhile: only the gateway's memory can tell."""
    eventually(gated.all_up, 15, "every node in the gateway")
    out = gated.sparks[1]
    load = gated.load(tokens=30)
    with load.running(clients=8) as count:
        eventually(lambda: count.ok >= 8, 60, "a load that runs")
        left = gated.leave(out, "out")
        assert left == {"heard": True, "under_way": 0, "word": "drain"}
        assert gated.status(out).startswith("DRAIN") and gated.in_flight(out) == 0
        gated.sh("systemctl stop sparkfleet-agent", out)
        try:
            start_anew(gated, act)
            done = count.ok
            eventually(lambda: count.ok >= done + 16, 60, "requests through the new process")
            assert gated.status(out).startswith("DRAIN")
            assert gated.stat()[out]["stot"] == "0", "the new process sent it nothing"
        finally:
            gated.sh("systemctl start sparkfleet-agent", out)
            back = gated.leave(out, "in")
        assert back["held"]
        eventually(gated.all_up, 30, "every node in the gateway again")
        eventually(lambda: gated.stat()[out]["stot"] != "0", 30, "requests to it again")
    with capsys.disabled():
        print(f"\n  {act} in a drain: {count}")
    if act != "kill":  # which cuts what was under way, and must not do more than that
        assert count.clean, (count, count.failed[:5], count.cut[:5])
    assert count.lost == 0


def start_anew(gated: Gated, act: str) -> None:
    """Have the gateway start another process; killed, it has saved what the last reload did."""
    before = gated.pid()
    if act == "kill":
        gated.sh("systemctl reload sparkfleet-gateway")
        eventually(lambda: gated.anew(before), 20, "a new process")
        before = gated.pid()
        gated.sh("systemctl kill --signal=KILL sparkfleet-gateway")
    else:
        gated.sh(f"systemctl {act} sparkfleet-gateway")
    eventually(lambda: gated.anew(before), 60, "a new process")


def test_a_gateway_that_is_down_holds_up_no_switch(gated: Gated) -> None:
    eventually(gated.all_up, 15, "every node in the gateway")
    first = gated.sparks[0]
    downs: list[float] = []

    def fell() -> None:
        eventually(lambda: state(gated.fleet.lab, first)["phase"] == "draining", 60, "a drain")
        gated.sh("systemctl stop sparkfleet-gateway.socket sparkfleet-gateway")
        downs.append(time.monotonic())

    thread = threading.Thread(target=fell)
    thread.start()
    run = gated.deploy(env={**STANDIN["env"], "NOTHING": "1"})
    thread.join()
    assert run.code == 0, run.said
    assert downs and time.monotonic() - downs[0] < 120
    assert gated.sh("systemctl is-active sparkfleet-gateway || true").strip() == "inactive"
    again = gated.deploy()
    assert again.code == 0 and "Start the gateway: it does not run." in again.out, again.said
    eventually(gated.all_up, 15, "every node in the gateway again")


def test_a_node_whose_engine_is_dead_is_out(gated: Gated) -> None:
    eventually(gated.all_up, 15, "every node in the gateway")
    dead = gated.sparks[2]
    gated.sh("docker exec lab-standin sh -c 'echo dead:0 > /run/standin-fault'", dead)
    victim = Load(gated.fleet.lab.hosts[dead].address, 8000, "lab-standin", key_of(gated.fleet.dir))
    victim.ask(stream=False)
    assert "500" in victim.count.failed[0]
    eventually(lambda: gated.status(dead).startswith("DOWN"), 25, "the dead engine out")
    load = gated.load(tokens=10)
    with load.running(clients=4) as count:
        eventually(lambda: count.ok >= 20, 60, "answers from the others")
    assert count.clean, (count, count.failed[:5])
    gated.sh("systemctl restart sparkfleet-llm", dead)
    eventually(gated.all_up, 90, "it is in again once it is proven")


def test_an_engine_that_ends_by_itself_comes_back_only_with_a_proof(gated: Gated) -> None:
    """systemd starts it again within seconds; a gateway must not take its health for a proof."""
    eventually(gated.all_up, 15, "every node in the gateway")
    name = gated.sparks[1]
    gated.sh("docker kill lab-standin", name)
    words: list[tuple[str, str]] = []

    def back() -> bool:
        now = state(gated.fleet.lab, name)["phase"]
        words.append((now, gated.status(name)))
        return words[-1] == ("proven", "UP") and len(words) > 3

    eventually(lambda: not gated.status(name).startswith("UP"), 25, "out of the gateway")
    eventually(back, 90, "in again")


def test_what_is_beyond_the_places_waits_in_the_gateway(gated: Gated) -> None:
    eventually(gated.all_up, 15, "every node in the gateway")
    waited: list[int] = []

    def queue() -> int:
        rows = fetch(gated.address, STATS_PORT, "/;csv")[1].splitlines()
        names = rows[0].lstrip("# ").split(",")
        backend = next(row.split(",") for row in rows if row.startswith("llm,BACKEND"))
        waited.append(int(backend[names.index("qcur")]))
        return waited[-1]

    load = gated.load(tokens=20)
    with load.running(clients=40) as count:
        eventually(queue, 30, "a queue: 40 clients, 24 places")
        eventually(lambda: count.ok >= 80, 60, "answers to those that waited")
        assert max(gated.in_flight(name) for name in gated.sparks) <= 8
    assert count.clean, (count, count.failed[:5])


def test_who_waits_too_long_is_told_so(gated: Gated) -> None:
    gated.doors = {gated.door: {"queue_timeout": 1}}
    run = gated.deploy()
    assert run.code == 0 and "reload it" in run.out, run.said
    load = gated.load(tokens=150)
    with load.running(clients=26) as count:
        eventually(lambda: count.failed, 30, "a request that waited for more than a second")
    assert all("503" in text and "No node is free" in text for text in count.failed)
    assert not count.cut and not count.lost
    gated.doors = {}
    assert gated.deploy().code == 0


def test_a_drain_is_heard_by_every_gateway_and_one_that_is_gone_holds_up_nobody(
    gated: Gated,
) -> None:
    first, second, out = gated.sparks
    gated.doors = {first: {}, second: {}}
    run = gated.deploy()
    assert run.code == 0, run.said
    eventually(gated.all_up, 15, "every node in the gateway")
    address = gated.fleet.lab.hosts[second].address
    assert fetch(address, PORT, "/version")[0] == 200
    assert gated.leave(out, "out")["heard"]
    for one in (gated.address, address):
        assert servers(fetch(one, STATS_PORT, "/;csv")[1])[out]["status"].startswith("DRAIN")
    gated.leave(out, "in")
    # Else it would know of the drain, having heard nothing else since the last one.
    rows = lambda: servers(fetch(address, STATS_PORT, "/;csv")[1])  # noqa: E731
    eventually(lambda: rows()[out]["status"] == "UP", 15, "the second gateway sends requests again")
    gated.sh("systemctl stop sparkfleet-gateway.socket sparkfleet-gateway", second)
    began = time.monotonic()
    assert not gated.leave(out, "out")["heard"], "one of two can't have heard"
    assert time.monotonic() - began < 15
    gated.leave(out, "in")
    gated.doors = {}
    assert gated.deploy().code == 0
