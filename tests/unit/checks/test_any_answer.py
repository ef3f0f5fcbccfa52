"""Whatever a host answers, the checks say something of it and never break."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkfleet.checks import check_fleet
from sparkfleet.facts.survey import parse_survey

from .samples import BASE, LOCK, plan_of

PLAN = plan_of({})
SECTIONS = [name for name in BASE if name not in ("schema", "time")]

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def answers(draw: st.DrawFn) -> dict[str, object]:
    """A sound answer in which some sections, or keys of sections, are anything at all."""
    answer = dict(BASE)
    for name in draw(st.lists(st.sampled_from(SECTIONS), min_size=1, max_size=3)):
        section = answer[name]
        if isinstance(section, dict) and section and draw(st.booleans()):
            key = draw(st.sampled_from(sorted(section)))
            answer[name] = {**section, key: draw(ANYTHING)}
        else:
            answer[name] = draw(ANYTHING)
    return answer


@settings(deadline=None, max_examples=300)
@given(answers())
def test_any_answer_is_judged(answer: dict[str, object]) -> None:
    line = json.dumps(answer, separators=(",", ":"))
    facts = parse_survey([line], received=BASE["time"])
    for finding in check_fleet({"spark-1": PLAN}, {"spark-1": facts}, LOCK):
        assert finding.what and (finding.level == "ok" or (finding.why and finding.next))


@given(st.lists(st.text(max_size=60), max_size=4))
def test_any_lines_are_read(lines: list[str]) -> None:
    assert parse_survey(lines) is not None


@pytest.mark.parametrize("missing", SECTIONS)
def test_a_section_that_is_missing_is_not_taken_for_good(missing: str) -> None:
    """Nothing that was not read may be reported as ok by the check that needs it."""
    answer = {name: value for name, value in BASE.items() if name != missing}
    facts = parse_survey([json.dumps(answer, separators=(",", ":"))], received=BASE["time"])
    needs = {
        "arch": "arch", "gpu": "gpu", "docker": "docker", "compose": "compose",
        "toolkit": "toolkit", "memory": "memory", "filesystems": "disk", "units": "memory-guard",
        "listeners": "port", "containers": "port", "python": "reachable", "privileged": "reachable",
    }  # fmt: skip
    findings = check_fleet({"spark-1": PLAN}, {"spark-1": facts}, LOCK)
    if missing in needs:
        levels = {one.level for one in findings if one.check == needs[missing]}
        assert levels and "ok" not in levels
