"""What going back and starting again come to, on a host as it is found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkfleet.facts.host import Service
from sparkfleet.verbs import Nothing, again, back
from sparkfleet.work import Switch, Wanted

NEW, OLD, OTHER = "2" * 12, "1" * 12, "3" * 12

WANTED = cast(Wanted, SimpleNamespace(releases={"llm": SimpleNamespace(hash=NEW)}))


def found(**about: Any) -> Service:
    known = {"image": "registry/engine@sha256:1"}
    return Service.model_validate({"releases": {OLD: known, NEW: known}, **about})


def test_back_leads_from_the_inventorys_release_to_the_one_before() -> None:
    switch = back(WANTED, "llm", found(current=NEW, previous=OLD))
    assert isinstance(switch, Switch)
    assert (switch.release, switch.kind) == (OLD, "release")
    assert NEW in switch.why and OLD in switch.why


def test_back_goes_no_further_than_one_release() -> None:
    """The same command again, after a first one that stopped half-way."""
    stays = back(WANTED, "llm", found(current=OLD, previous=NEW))
    assert isinstance(stays, Nothing) and not stays.amiss


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({}, "never deployed"),
        ({"current": NEW}, "no release before"),
        ({"current": NEW, "previous": OTHER}, "no release before"),
    ],
    ids=["nothing", "first", "pruned"],
)
def test_where_there_is_no_way_back_that_is_amiss(about: dict[str, Any], why: str) -> None:
    nothing = back(WANTED, "llm", found(**about))
    assert isinstance(nothing, Nothing) and nothing.amiss and why in nothing.why


def test_again_is_the_release_that_runs_whatever_the_inventory_says() -> None:
    switch = again(WANTED, "llm", found(current=OLD))
    assert isinstance(switch, Switch) and (switch.release, switch.kind) == (OLD, "start")
    assert isinstance(again(WANTED, "llm", found()), Nothing)
