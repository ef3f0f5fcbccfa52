"""A hub that refuses, errs, lies or stalls: at pin time and while a host fetches."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.hub.faults import Fault, Kind
from lab.hub.server import OTHER_TOKEN, TOKEN
from tests.lab.faults.kit import ROOT, Box, trouble
from tests.lab.faults.spy import Spy
from tests.lab.waiting import eventually

pytestmark = pytest.mark.lab


@dataclass(frozen=True)
class Case:
    """A fault of the hub, and what the run must say of it."""

    kind: Kind
    told: tuple[str, ...]
    more: dict[str, Any] = field(default_factory=dict)


PIN = (
    Case("401", ("or it is private (without a token)", "hf auth login")),
    Case("403", ("behind a gate", "Accept its terms", "hf auth login")),
    Case("404", ("the hub has no such repository", "case counts")),
    Case("429", ("it was asked too often (429", "Wait some minutes"), {"retry_after": 0}),
    Case("500", ("the hub answered 500", "run the same command again later")),
)


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever runs the tests may be logged in at a hub."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))


@pytest.mark.parametrize("case", PIN, ids=lambda case: case.kind)
def test_at_pin_time(box: Box, case: Case) -> None:
    """Nothing is pinned and nothing touched; the repository, its role and the recipe are named."""
    lock = box.lock()
    with box.untouched(), trouble(box.hub, case.kind, "lab/big-41", where="api", **case.more):
        run = box.fails("lab/big-41", "standin", *case.told, model="lab/big-41")
    assert "Nothing was changed" in run.said
    assert box.lock() == lock


def test_at_pin_time_an_id_in_the_wrong_case_is_told_with_the_right_one(box: Box) -> None:
    box.hub.store.repo("lab/big-42")
    with box.untouched():
        box.fails("lab/Big-42", "The hub has lab/big-42", model="lab/Big-42")


def test_at_pin_time_a_hub_that_is_down(box: Box) -> None:
    with box.untouched():
        down = box.on(hub_endpoint=f"http://{box.hub.bind}:9")
        down.fails("can't be reached", f"http://{box.hub.bind}:9", model="lab/big-41")
        assert "nothing changed" in down.works().out, "a pinned recipe asks no hub"


RESOLVE = {"where": "resolve"}
FETCH: dict[str, tuple[Case, ...]] = {
    "refused": (
        Case("401", ("The hub wants a token for it", "hf auth login"), RESOLVE),
        Case("403", ("behind a gate", "Accept the repository's terms"), RESOLVE),
        Case("404", ("does not have this file at this commit", "Pin another commit"), RESOLVE),
    ),
    "429": (Case("429", ("asked too often",), RESOLVE | {"retry_after": 0}),),
    "500": (Case("500", ("The hub has a fault on its side",), RESOLVE),),
    "wrong-bytes": (Case("wrong-bytes", ("has another hash than the lock names",)),),
    "short-file": (Case("short-file", ("of 43000088 bytes are here",), {"after": 0}),),
}


PATIENCE = ("429", "500", "short-file")
"""Faults that may pass, so a host is patient with them: minutes, too long for every run."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.full] * (name in PATIENCE)) for name in FETCH],
)
def test_while_a_host_fetches(box: Box, name: str) -> None:
    """What serves goes on, nothing counts as staged, and the next run fetches and switches."""
    repo = "lab/big-43"
    box.forget(repo)
    with box.untouched():
        for case in FETCH[name]:
            with trouble(box.hub, case.kind, repo, file="model.safetensors", **case.more):
                told = ("model.safetensors of lab/big-43", *case.told, "Next:")
                run = box.fails(*told, model=repo)
            assert "FAILED" in run.out
            assert box.stamps(repo) == []
    box.works(model=repo)
    assert len(box.stamps(repo)) == 1


def test_a_hub_that_errs_now_and_then_is_borne_with(box: Box) -> None:
    repo = "lab/big-45"
    with trouble(box.hub, "429", repo, where="resolve", retry_after=1, count=2) as busy:
        box.hub.faults.add(Fault("500", repo, where="resolve", count=2))
        box.hub.faults.add(Fault("short-file", repo, after=9_000_000))
        run = box.works(model=repo)
        assert busy.hits == 2
    assert "Rate limited" in run.said
    sent = box.hub.journal.counters()["files"][f"{repo}/model.safetensors"]["bytes"]
    assert sent < 50_000_000, "each connection went on where the one before ended"


def test_a_connection_that_stalls_once_is_taken_up_where_it_was(box: Box) -> None:
    repo = "lab/big-44"
    with trouble(box.hub, "stall", repo, after=20_000_000, count=1):
        box.works(model=repo)
    sent = box.hub.journal.counters()["files"][f"{repo}/model.safetensors"]["bytes"]
    assert sent < 50_000_000, "what had come was not fetched twice"


def gated(box: Box, source: Path) -> str:
    """A repository that one token opens, with a model file of noise."""
    source.mkdir()
    (source / "config.json").write_text("{}")
    (source / "model.safetensors").write_bytes(bytes(range(256)) * 8000)
    box.hub.store.publish("lab/gated", source, gated="manual")
    return "lab/gated"


def test_a_gate_wants_a_token_which_stays_secret(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = gated(box, tmp_path / "source")
    with box.untouched():
        box.fails(repo, "behind a gate, without a token", "hf auth login", model=repo)
        monkeypatch.setenv("HF_TOKEN", OTHER_TOKEN)
        box.fails(repo, "behind a gate, with the stored token", "Accept its terms", model=repo)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    rights = f"find {ROOT}/secrets /run/sparkfleet/tokens -type f -printf '%m %u\\n'"
    fetching = "docker inspect $(docker ps -q --filter label=sparkfleet.job=fetch)"
    with (
        Spy(box, TOKEN) as spy,
        trouble(box.hub, "stall", repo, after=1_000_000) as fault,
        box.underway(model=repo) as run,
    ):
        eventually(lambda: fault.hits, 60, "the fetch is under way")
        assert box.sh(rights).split("\n") == ["600 root", ""], "the container's copy is gone"
        assert TOKEN not in box.sh(fetching)
        box.hub.faults.clear()
        end = run.end(60)
    assert end.code == 0, end.said
    assert TOKEN not in end.said
    assert spy.found == ""
    assert box.sh(rights) == "", "the token's files are gone"
    box.serves()
