"""Each kind of rule: what it lets pass and what it says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from sparkfleet.spec.image import ImageRef
from sparkfleet.spec.judge import Scene, judge
from sparkfleet.spec.rules import Rule

IMAGE = ImageRef("host/owner/engine", "v1", None, None)


def verdict(rule: dict[str, Any], flags: dict[str, Any], env: dict[str, str] | None = None) -> str:
    """What the rule says of the flags; empty where it holds."""
    row = Rule.model_validate({"name": "r", "reason": "so", "source": "s", **rule})
    scene = Scene(flags, env or {}, IMAGE, ("vllm",), 0.5, {})
    return "".join(f"{found.level}: {found.what}" for found in judge([row], scene))


@pytest.mark.parametrize(
    ("rule", "flags", "said"),
    [
        ({"kind": "forbid", "subject": "flag:x"}, {}, ""),
        ({"kind": "forbid", "subject": "flag:x"}, {"x": False}, ""),
        ({"kind": "forbid", "subject": "flag:x"}, {"x": 0}, "fail: --x is set, to 0"),
        ({"kind": "forbid", "subject": "flag:x", "value": "A"}, {"x": "a"}, 'fail: --x is "a"'),
        ({"kind": "forbid", "subject": "flag:x", "value": "a"}, {"x": "b"}, ""),
        ({"kind": "forbid", "subject": "flag:x.y"}, {"x": {"y": 1}},
         'fail: "y" inside --x is set, to 1'),
        ({"kind": "forbid", "subject": "flag:x.y"}, {"x": "text"}, ""),
        ({"kind": "forbid", "subject": "image", "value": "engine:v1"}, {},
         'fail: the image is "host/owner/engine:v1"'),
        ({"kind": "forbid", "subject": "image:tag", "value": "v2"}, {}, ""),
        ({"kind": "require", "subject": "flag:x"}, {}, "fail: --x is missing"),
        ({"kind": "require", "subject": "flag:x", "value": 1}, {"x": True},
         "fail: --x is true, it must be 1"),
        ({"kind": "require", "subject": "flag:x", "value": 1}, {"x": 1}, ""),
        ({"kind": "at_most", "subject": "flag:x", "value": 4}, {"x": 4}, ""),
        ({"kind": "at_most", "subject": "flag:x", "value": 4}, {"x": 5},
         "fail: --x is 5, at most 4 allowed"),
        ({"kind": "at_most", "subject": "flag:x", "value": 4}, {},
         "fail: --x is not set, it must be at most 4"),
        ({"kind": "at_least", "subject": "flag:x", "value": 4}, {"x": "3"},
         'fail: --x is "3", at least 4 allowed'),
        ({"kind": "at_least", "subject": "flag:x", "value": 4}, {"x": "many"},
         'fail: --x is "many", no number'),
        ({"kind": "one_of", "subject": "flag:x", "value": ["a", "b"]}, {"x": "B"}, ""),
        ({"kind": "one_of", "subject": "flag:x", "value": ["a", "b"]}, {"x": "c"},
         'fail: --x is "c", it must be one of ["a", "b"]'),
        ({"kind": "pair", "subject": "flag:x", "partner": "flag:y"}, {"x": 1},
         "fail: --x is 1, which needs --y beside it"),
        ({"kind": "pair", "subject": "flag:x", "value": 2, "partner": "flag:y"}, {"x": 1}, ""),
        ({"kind": "pair", "subject": "flag:x", "partner": "flag:y", "partner_value": 3},
         {"x": 1, "y": 3}, ""),
        ({"kind": "at_most", "subject": "utilization", "value": 0.4}, {},
         "fail: the utilization is 0.5, at most 0.4 allowed"),
    ],
)  # fmt: skip
def test_kinds(rule: dict[str, Any], flags: dict[str, Any], said: str) -> None:
    assert verdict(rule, flags) == said


ROOM = {"kind": "drafting_room", "subject": "flag:max-num-batched-tokens", "value": 1, "warn": 8192}


@pytest.mark.parametrize(
    ("batched", "seqs", "tokens", "level"),
    [(16384, 64, 11, ""), (8192, 1, 2, "warn"), (100, 10, 11, "fail"), (101, 10, 11, "warn"),
     (None, 64, 11, "unknown"), (16384, None, 11, "unknown"), (10, 64, None, "")],
)  # fmt: skip
def test_drafting_room(
    batched: int | None, seqs: int | None, tokens: int | None, level: str
) -> None:
    flags: dict[str, Any] = {"max-num-batched-tokens": batched, "max-num-seqs": seqs}
    if tokens is not None:
        flags["speculative-config"] = {"method": "dflash", "num_speculative_tokens": tokens}
    assert verdict(ROOM, flags).partition(":")[0] == level


def test_environment() -> None:
    rule = {"kind": "forbid", "subject": "env:X"}
    assert verdict(rule, {}, {"X": "0"}) == 'fail: environment variable X is set, to "0"'
