"""The hold on a host: who gets it, who is told, and when it is void."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.facts.host import LEASE_SECONDS
from sparkfleet.node.lease import SECONDS, Keeper, serve


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keeper(tmp_path: Path, clock: Clock) -> Keeper:
    return Keeper(tmp_path / "root", clock)


def request(run: str, **more: Any) -> dict[str, Any]:
    return {"run": run, "who": f"{run}@desk", **more}


def test_who_comes_first_has_it_until_it_is_given_back(keeper: Keeper) -> None:
    assert keeper.take(request("a"))["answer"] == "granted"
    told = keeper.take(request("b"))
    assert (told["answer"], told["who"]) == ("held", "a@desk")
    assert keeper.renew("a", last=True)["answer"] == "released"
    assert keeper.take(request("b"))["answer"] == "granted"
    assert keeper.renew("a")["answer"] == "lost"


@pytest.mark.parametrize(("silence", "word"), [(59.9, "held"), (60.1, "granted"), (-61, "granted")])
def test_silence_of_a_minute_ends_it_and_so_does_a_clock_set_back(
    keeper: Keeper, clock: Clock, silence: float, word: str
) -> None:
    keeper.take(request("a"))
    clock.now += 40
    keeper.renew("a")
    clock.now += silence
    assert keeper.take(request("b"))["answer"] == word


def test_the_controller_waits_as_long_as_the_node() -> None:
    """Each says it for itself: the node's program imports nothing of ours."""
    assert LEASE_SECONDS == SECONDS


def test_a_run_that_is_known_to_be_over_holds_nothing(keeper: Keeper) -> None:
    keeper.take(request("a"))
    assert keeper.take(request("b", ended=["x"]))["answer"] == "held"
    assert keeper.take(request("b", ended=["a"]))["answer"] == "granted"


def test_a_host_that_another_run_had_since_the_look_has_moved(keeper: Keeper) -> None:
    """What was found there may be outdated; the same run is not told that of itself."""
    seen = keeper.take(request("a"))["grants"]
    keeper.renew("a", last=True)
    assert keeper.take(request("b", seen=seen - 1))["answer"] == "moved"
    granted = keeper.take(request("b", seen=seen))
    assert granted["answer"] == "granted"
    again = keeper.take(request("b", seen=granted["grants"]))
    assert again["answer"] == "granted" and again["grants"] == granted["grants"]


@pytest.mark.parametrize("left", ["", "{", "[]", "null"])
def test_a_lease_that_cannot_be_read_is_none(tmp_path: Path, keeper: Keeper, left: str) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/lease.json").write_text(left)
    assert keeper.take(request("a"))["answer"] == "granted"


def test_the_end_of_the_talk_is_not_the_end_of_the_lease(tmp_path: Path, clock: Clock) -> None:
    """A connection breaks and comes back; only `release` gives the host back."""
    ask = json.dumps(request("a", root=str(tmp_path)))
    said = io.StringIO()
    serve(io.StringIO(f"{ask}\nrenew\n"), said, clock)
    assert [json.loads(line)["answer"] for line in said.getvalue().splitlines()] == [
        "granted",
        "renewed",
    ]
    assert Keeper(tmp_path, clock).take(request("b"))["answer"] == "held"
    serve(io.StringIO(f"{ask}\nrelease\n"), io.StringIO(), clock)
    assert Keeper(tmp_path, clock).take(request("b"))["answer"] == "granted"
