"""A release that does not come to serve: told by its telling line, and the old one is back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.faults.kit import Box
from tests.lab.faults.recipe import boot

pytestmark = pytest.mark.lab

BAD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "crash": (
        {"tag": "crash"},
        (
            "The engine died while it booted",
            "Something else on the box holds the memory that this service wants.",
            "less than desired GPU memory utilization",
            "Next: Free it, or choose the preset shared",
        ),
    ),
    "exit0": ({"tag": "exit0"}, ("The engine died while it booted", "exit status 0")),
    "never-ready": (
        {"tag": "never-ready", "boot": boot(0.1)},
        ("The engine was not ready within 0.1 minutes.", "It had reached"),
    ),
    "wrong-answer": (
        {"tag": "wrong-answer"},
        ("The proof arithmetic failed", "does not contain", "391"),
    ),
    "missing-name": ({"tag": "missing-name"}, ("The proof names failed", "two")),
    "still-counters": ({"tag": "still-counters"}, ("The proof drafts failed",)),
    "forbidden-log": (
        {"tag": "forbidden-log"},
        ("The proof log failed", "not found in params_dict", "Weights skipped"),
    ),
    "mute": (
        {"tag": "mute"},
        ("The proof arithmetic failed", "no whole answer in 4 s", "proof_timeout"),
    ),
    "wrong-version": ({"tag": "wrong-version"}, ("The proof version failed", "2.0.0")),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_release_is_told_and_the_old_one_is_back(box: Box, name: str) -> None:
    changes, told = BAD[name]
    before = box.current()
    run = box.fails(
        f"Release {before} runs again and is proven.", *told, version="2.0.0", **changes
    )
    assert "FAILED, previous release proven" in run.out
    assert box.current() == before
    box.serves()
    assert "nothing changed" in box.works().out, "what the inventory said before is in place"


def test_a_first_release_that_is_bad_leaves_all_stopped(box: Box) -> None:
    """There is nothing to go back to: nothing counts as proven, and the next run carries on."""
    box.lab.fresh(box.host)
    run = box.fails(
        "It is stopped; there was no release to go back to.",
        "The proof arithmetic failed",
        tag="wrong-answer",
        version="2.0.0",
    )
    assert "proven" not in run.out
    assert box.current() == "" and box.phase == "failed"
    assert box.sh("docker ps -q; systemctl is-enabled sparkfleet-llm || true").strip() == "disabled"
    box.works()
    box.serves()


def test_after_a_bad_host_no_later_one_is_touched(box: Box, sparks: list[str]) -> None:
    """One host after the other: the first fails and goes back, the second is not begun."""
    if len(sparks) < 2:
        pytest.fail("this test wants two hosts")
    second = Box(box.fleet, sparks[1], box.hub, baseline=box.baseline)
    second.settle()
    others: dict[str, dict[str, Any]] = {second.host: {}}
    box.works(others=others)
    before = box.current()
    with second.untouched():
        run = box.fails(
            f"Stopped after {box.host}: the hosts after it were not touched.",
            f"Release {before} runs again and is proven.",
            tag="wrong-answer",
            version="2.0.0",
            others=others,
        )
        assert "not begun" in run.out
        box.serves()
    box.works(tag="2", version="2.0.0", others=others)
    assert second.serves() and second.current() == box.current()
