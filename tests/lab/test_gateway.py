"""The gateway: a roll under load that loses no request, and a drain that is not forgotten."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab.conftest import Fleet, Run
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
STATS_PORT = 8404
PORT = 8080


@dataclass
class Gated:
    """A deployed fleet of stand-ins behind a gateway on its first host."""

    fleet: Fleet
    sparks: list[str]
    common: dict[str, Any]

    @property
    def door(self) -> str:
        return self.sparks[0]

    @property
    def address(self) -> str:
        return self.fleet.lab.hosts[self.door].address

    @property
    def gateway(self) -> dict[str, dict[str, Any]]:
        return {self.door: {"bind": "0.0.0.0", "port": PORT, "stats": f"0.0.0.0:{STATS_PORT}"}}

    def deploy(self, *words: str, **changes: Any) -> Run:
        self.common = {**self.common, **changes}
        hosts: dict[str, dict[str, Any]] = {name: {} for name in self.sparks}
        return self.fleet.deploy(hosts, *words, gateway=self.gateway, **self.common)

    def load(self, model: str = "lab-standin", tokens: int = 60) -> Load:
        return Load(self.address, PORT, model, key_of(self.fleet.dir), tokens)

    def stat(self) -> Mapping[str, dict[str, str]]:
        return servers(fetch(self.address, STATS_PORT, "/;csv")[1])

    def status(self, name: str) -> str:
        row = self.stat().get(name)
        return row["status"] if row else "absent"

    def in_flight(self, name: str) -> int:
        return int(self.stat()[name]["scur"])

    def all_up(self) -> bool:
        return all(self.status(name) == "UP" for name in self.sparks)

    def sh(self, command: str, host: str | None = None) -> str:
        return self.fleet.lab.exec(host or self.door, command, check=True).stdout


@pytest.fixture(scope="module")
def gated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gated]:
    """Three stand-ins behind a gateway, from bare boxes; one deployment for the whole module."""
    lab = request.getfixturevalue("lab")
    import os

    chosen = os.environ.get("SPARKFLEET_TEST_HOSTS", "")
    sparks = chosen.split(",") if chosen else list(lab.hosts)[:3]
    for name in sparks:
        lab.fresh(name)
    fleet = Fleet(lab, tmp_path_factory.mktemp("gated"))
    one = Gated(fleet, sparks, dict(STANDIN))
    first = one.deploy()
    assert first.code == 0, first.said
    yield one


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


def test_a_roll_under_load_loses_no_request(gated: Gated, capsys: Any) -> None:
    eventually(gated.all_up, 15, "every node in the gateway")
    load = gated.load()
    least: dict[str, int] = {}
    with load.running(clients=15) as count:
        long = load.long_stream(tokens=600)
        watch = threading.Thread(target=_in_flight_at_drain, args=(gated, least), daemon=True)
        watch.start()
        eventually(lambda: count.ok >= 15, 60, "a load that runs")
        rolled = gated.deploy(image="2")
        assert rolled.code == 0, rolled.said
        long.join(120)
        eventually(gated.all_up, 15, "every node in the gateway again")
    with capsys.disabled():
        print(f"\n  roll under load: {count}; in flight when the drain began: {least}")
    assert count.clean, (count, count.failed[:5], count.cut[:5])
    assert set(least) == set(gated.sparks) and max(least.values()) >= 4
    for name in gated.sparks:
        assert state(gated.fleet.lab, name)["phase"] == "proven"
    versions = {fetch(gated.address, PORT, "/version")[1] for _ in range(6)}
    assert {json.loads(one)["version"] for one in versions} == {"2.0.0"}


def _in_flight_at_drain(gated: Gated, seen: dict[str, int]) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until and set(seen) != set(gated.sparks):
        for name, row in gated.stat().items():
            if row["status"].startswith("DRAIN") and name not in seen:
                seen[name] = int(row["scur"])
        time.sleep(0.1)
