"""Whether a run of this controller lives, told by a lock that ends with its process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from sparkfleet.runs import DAY, Run


def test_a_run_lives_until_it_ends_and_leaves_nothing(tmp_path: Path) -> None:
    one, other = Run(tmp_path), Run(tmp_path)
    one.begin()
    assert not other.has_ended(one.id)
    one.end()
    assert list((tmp_path / "runs").iterdir()) == []
    assert not other.has_ended(one.id), "nothing shows that it was of this controller"


def test_a_run_that_could_not_say_goodbye_is_known_to_be_over(tmp_path: Path) -> None:
    one, other = Run(tmp_path), Run(tmp_path)
    one.begin()
    one.end(told=False)
    assert other.has_ended(one.id)


def test_a_killed_run_is_known_to_be_over(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, signal, sys; from sparkfleet.runs import Run; "
        "run = Run(pathlib.Path(sys.argv[1])); run.begin(); print(run.id, flush=True); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    argv = [sys.executable, "-c", script, str(tmp_path)]
    id = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
    assert Run(tmp_path).has_ended(id)


def test_a_run_of_another_controller_is_not_judged(tmp_path: Path) -> None:
    assert not Run(tmp_path).has_ended("feed")
    assert not Run(tmp_path).has_ended("../runs")


def test_what_ended_days_ago_is_swept_and_what_lives_is_not(tmp_path: Path) -> None:
    old, young, living = Run(tmp_path), Run(tmp_path), Run(tmp_path)
    for one in (old, young, living):
        one.begin()
    for one in (old, young):
        one.end(told=False)
    for one in (old, living):
        os.utime(tmp_path / "runs" / one.id, (0, time.time() - 2 * DAY))
    Run(tmp_path).sweep()
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {young.id, living.id}
