"""The compose file of each recipe is the one that was reviewed (tests/cases/compose)."""

from __future__ import annotations

import difflib

import pytest
import yaml

from tests.golden import CASES, rendered

RENDERED = rendered()


@pytest.mark.parametrize("case", RENDERED)
def test_renders_what_was_reviewed(case: str) -> None:
    path = CASES / f"{case}.yaml"
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    changed = difflib.unified_diff(kept.splitlines(), RENDERED[case].splitlines(), lineterm="")
    assert kept == RENDERED[case], "\n".join(
        ["Review this, then write it down with `make golden`:", *changed]
    )


def test_no_case_is_left_over() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == set(RENDERED)


@pytest.mark.parametrize("case", RENDERED)
def test_is_yaml_with_one_engine_by_digest(case: str) -> None:
    engine = yaml.safe_load(RENDERED[case])["services"]["engine"]
    assert "@sha256:" in engine["image"]
