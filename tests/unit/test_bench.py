"""The measuring itself: what counts as a run, who begins, what the report says."""

import sys
from pathlib import Path

import pytest

from bench import roll, sparkrun
from bench.check import FLOOR, OURS, THEIRS, judge_ours, report
from bench.clock import Contestant, Took, alternate
from bench.errors import BenchError


def contestant(name: str, log: Path, code: int = 0) -> Contestant:
    script = f"open({str(log)!r}, 'a').write({name!r}); print('words of', {name!r})"
    script += f"; raise SystemExit({code})"
    return Contestant(
        name,
        [[sys.executable, "-S", "-c", script]],
        {},
        str(log.parent),
        lambda code, said: f"it ended with {code}." if code else "",
    )


def test_each_round_begins_with_another_and_the_first_is_not_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    took = alternate([contestant("a", log), contestant("b", log)], rounds=2)
    assert log.read_text() == "ba" + "ab" + "ba"
    assert {name: len(costs) for name, costs in took.items()} == {"a": 2, "b": 2}
    assert all(cost.wall > 0 and cost.cpu >= 0 for cost in took["a"])


def test_what_did_not_run_is_said_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"b: it ended with 3\.(.|\n)*words of b"):
        contestant("b", tmp_path / "log", code=3).run()
    gone = Contestant("gone", [[str(tmp_path / "none")]], {}, str(tmp_path), lambda *_: "")
    with pytest.raises(BenchError, match="could not be started"):
        gone.run()


@pytest.mark.parametrize(
    ("code", "said", "fault"),
    [
        (1, "Setup check for 3 host(s)\n10.0.0.1\n  [FAIL] Docker", ""),
        (1, "Setup check for 3 host(s)\n10.0.0.1: SSH connectivity — no", "not reach"),
        (2, "Error: No such option", "did not check"),
        (1, "Setup check for 2 host(s)", "did not check"),
    ],
)
def test_a_finding_of_sparkruns_is_a_result_and_a_lost_host_is_none(
    code: int, said: str, fault: str
) -> None:
    judged = sparkrun.judge(["10.0.0.1", "10.0.0.2", "10.0.0.3"], code, said)
    assert fault in judged and bool(judged) == bool(fault)


def test_a_finding_of_ours_is_a_result() -> None:
    assert judge_ours(3, 1, "Checked 3 hosts: 2 passed.") == ""
    assert judge_ours(3, 1, "Refused: there is no inventory file") != ""
    assert judge_ours(3, 0, "Checked 2 hosts: 2 passed.") != ""


def test_without_a_python_that_is_new_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BenchError, match=r"needs Python 3\.12 or newer"):
        sparkrun.find_python()


def test_the_ratio_is_that_of_the_medians() -> None:
    took = {
        OURS: [Took(1.0, 0.5), Took(9.0, 0.5), Took(1.2, 0.5)],
        THEIRS: [Took(3.0, 1.0), Took(2.9, 1.0), Took(30.0, 1.0)],
        FLOOR: [Took(0.3, 0.1)] * 3,
    }
    text = report(took)
    assert "0.40 of the medians" in text and "CPU 0.50" in text
    assert "round by round 0.04 to 3.10" in text
    assert "ours 0.90 s, sparkrun's 2.70 s" in text


def test_a_hosts_time_runs_from_its_switch_to_the_next_step() -> None:
    said = [
        (1.0, "--> Starting operation: Write the release "),
        (2.0, "--> Starting operation: Switch batch 1 of 2, the canary: spark-2 "),
        (3.0, "    [spark-2] booting, 1 min at most"),
        (7.5, "--> Starting operation: Switch batch 2 of 2: spark-1 "),
        (9.0, "--> Starting operation: Let go of the hosts "),
    ]
    assert roll.walls(said) == {"spark-2": 5.5, "spark-1": 1.5}
    steps = {"drain": 1.0, "stop": 0.5, "boot": 2.0, "prove": 1.0, "total": 5.0}
    assert roll.Cost(5.5, steps).machinery == 2.0
