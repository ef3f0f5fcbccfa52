"""Engines that die or hang while they serve: back by themselves, within the cap."""

from __future__ import annotations

import contextlib
import threading
from http.client import HTTPException

import pytest

from tests.lab.faults.kit import Box
from tests.lab.faults.recipe import ARITHMETIC
from tests.lab.observe import ask, key_of
from tests.lab.waiting import eventually

pytestmark = pytest.mark.lab

STARTS = 3
"""Within the window; then the unit stays down (the recipe's `restart.burst`)."""


def play(box: Box, fault: str) -> threading.Thread:
    """Let the running engine play a fault of the stand-in's at the next request, and make that."""
    box.sh(f"docker exec standin sh -c 'echo {fault} > /run/standin-fault'")
    client = threading.Thread(target=asks, args=(box,), daemon=True)
    client.start()
    return client


def test_an_engine_that_ends_with_status_0_comes_back_until_the_cap(box: Box) -> None:
    """Restarted and proven each time without a run; after the last start it is down, for a run."""
    # A start of our own begins the count.
    box.sh("for verb in stop reset-failed start; do systemctl $verb sparkfleet-llm; done")
    for _ in range(STARTS):
        box.recovers()
        play(box, "dies-0:0")
        eventually(lambda: not box.well(), 20, "its death is seen")
    eventually(lambda: box.phase == "down", 60, "down for good")
    assert "exit status 0" in box.state["reason"], box.state
    run = box.works()
    assert "Start llm" in run.out


def test_an_engine_that_hangs_is_restarted(box: Box) -> None:
    change = {"wedge": {"seconds": 6}}
    box.works(**change)
    first = box.serves()
    client = play(box, "wedges:0")
    eventually(lambda: box.state["container"] != first, 90, "restarted")
    box.recovers()
    assert box.serves() != first
    journal = box.sh("journalctl -u sparkfleet-agent --no-pager -n 50")
    assert "requests run and no token came" in journal and "It is restarted." in journal
    assert "nothing changed" in box.works(**change).out
    client.join(10)


def asks(box: Box) -> None:
    """A client whose request fails, or hangs until the engine is gone."""
    with contextlib.suppress(OSError, HTTPException):
        body = {"model": "one", "messages": ARITHMETIC["messages"], "max_tokens": 256}
        ask(box.lab, box.host, "/v1/chat/completions", body, key_of(box.fleet.dir))
