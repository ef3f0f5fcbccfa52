"""The feature to be known for: a new engine on every Spark under load, and no request is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.lab.conftest import Fleet
from tests.lab.gated import PORT, Gated
from tests.lab.load import fetch
from tests.lab.observe import state
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.engine]


def test_another_engine_under_load(
    fleet: Fleet, sparks: list[str], bare: Callable[..., None], capsys: Any
) -> None:
    bare(*sparks)
    # Two cores for three engines: a request takes its time, and so does what runs at a drain.
    tiny = {"recipe": "lab-tiny", "preset": "shared", "drain_timeout": 240}
    gated = Gated(fleet, sparks, tiny)
    first = gated.deploy()
    assert first.code == 0, first.said
    eventually(gated.all_up, 15, "every node in the gateway")
    assert versions(gated) == {"0.31.0"}
    # Requests of many seconds, however fast the machine: so that some run when a drain begins.
    load = gated.load("tiny", tokens=100)
    seen: dict[str, int] = {}
    with load.running(clients=18) as count:
        eventually(lambda: count.ok >= 18, 120, "a load that runs")
        watch = gated.in_flight_at_drain(seen, 900)
        spanning = [load.long_stream(tokens=250) for _ in sparks]
        rolled = gated.deploy(image="0.32.0")
        assert rolled.code == 0, rolled.said
        watch.join(5)
        for thread in spanning:
            thread.join(240)
        eventually(gated.all_up, 15, "every node in the gateway again")
    with capsys.disabled():
        print(f"\n  0.31.0 to 0.32.0: {count}; in flight when the drain began: {seen}")
    assert count.clean, (count, count.failed[:5], count.cut[:5])
    assert set(seen) == set(sparks) and min(seen.values()) >= 4
    assert versions(gated) == {"0.32.0"}
    assert {state(fleet.lab, name)["phase"] for name in sparks} == {"proven"}


def versions(gated: Gated) -> set[str]:
    """What the nodes say that they run, asked through the gateway."""
    answers = [fetch(gated.address, PORT, "/version") for _ in range(9)]
    assert {status for status, _ in answers} == {200}
    return {json.loads(text)["version"] for _, text in answers}
