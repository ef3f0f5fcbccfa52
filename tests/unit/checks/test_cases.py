"""Every captured host in tests/cases/survey gives exactly the findings that its file names.

A case says what differs from `_base.json`: `answer` replaces sections, `merge` changes keys of
sections, `unreachable` is the raw text of a host without an answer, `offset` is our clock minus the
host's, `host` is inventory data, `lock: false` leaves the pins out. `expect` lists
[level, check, words]; a finding that is neither ok nor expected fails the case.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkfleet.checks import check_fleet
from sparkfleet.spec.finding import Finding

from .samples import CASES, LOCK, facts_of, plan_of, read


def whole(finding: Finding) -> str:
    return " ".join((finding.what, finding.why, finding.next, finding.raw))


@pytest.mark.parametrize("path", sorted(CASES.glob("[!_]*.json")), ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    case = read(path)
    lock = LOCK if case.get("lock", True) else None
    findings = check_fleet({"spark-1": plan_of(case)}, {"spark-1": facts_of(case)}, lock)
    wrong = [finding for finding in findings if finding.level != "ok"]
    said = {(finding.level, finding.check): whole(finding) for finding in wrong}
    assert sorted((one.level, one.check) for one in wrong) == sorted(
        (level, check) for level, check, _ in case["expect"]
    ), wrong
    for level, check, words in case["expect"]:
        assert words in said[level, check]
    for finding in findings:
        assert finding.host == "spark-1" and finding.check and finding.what.endswith(".")
        if finding.level != "ok":
            assert finding.why.endswith(".") and finding.next.endswith(".")
        if finding.level == "unknown":
            assert finding.raw


def test_there_are_cases() -> None:
    assert len(list(CASES.glob("[!_]*.json"))) > 80


def test_no_finding_suggests_installing_a_driver() -> None:
    for path in CASES.glob("driver-*.json"):
        case = read(path)
        for finding in check_fleet({"spark-1": plan_of(case)}, {"spark-1": facts_of(case)}):
            assert "install" not in finding.next.lower() or finding.check != "driver"
