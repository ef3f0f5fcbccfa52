"""The published recipe A, whole, on a simulated Spark: the stand-in in the place of its engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lab.conftest import Fleet
from tests.lab.test_shared_box import words

pytestmark = pytest.mark.lab

A = {"recipe": "qwen36-35b-heretic"}
EAGER = {"flags": {"enforce-eager": True}}
REASON = "kernels fault here, ticket 12"
TAKEN_ON = "you take full responsibility for its outputs"


def test_eager_passes_only_by_a_named_override_and_every_report_shows_it(
    fleet: Fleet, host: str, bare: Callable[..., None]
) -> None:
    """And what the owner takes on is said in the run that pins the recipe, and in no other."""
    bare(host)
    refused = fleet.deploy({host: EAGER}, **A)
    assert refused.code == 1
    assert "Rule no-enforce-eager: CUDA graphs are worth about 30%" in words(refused.said)
    assert "Connecting" not in refused.said

    allowed = {**EAGER, "overrides": {"no-enforce-eager": REASON}}
    first = fleet.deploy({host: allowed}, **A)
    assert first.code == 0, first.said
    again = fleet.deploy({host: allowed}, **A)
    assert again.code == 0 and "nothing changed" in again.out, again.said
    for run in (first, again):
        assert f"{host}, llm: override no-enforce-eager: {REASON}" in words(run.out)
    assert TAKEN_ON in words(first.out)
    assert "wedge.seconds: 300. No source gives a limit" in words(first.out)
    assert TAKEN_ON not in words(again.out)
    argv = fleet.lab.exec(host, "docker inspect -f '{{json .Args}}' qwen36-35b", check=True).stdout
    assert '"--enforce-eager"' in argv
