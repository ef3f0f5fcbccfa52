"""Five hosts, two at once: in which order they are switched, and where a roll stops."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from lab.api import Lab
from tests.lab.conftest import PROJECT, Fleet, Run
from tests.lab.observe import state

pytestmark = pytest.mark.lab

COUNT = 5


@pytest.fixture(scope="module")
def five(lab: Lab) -> Lab:
    """The lab with as many hosts as this file wants."""
    if len(lab.hosts) < COUNT:
        up = [sys.executable, "-m", "lab", "up", "--hosts", str(COUNT)]
        subprocess.run(up, cwd=PROJECT, check=True, timeout=300)
    return Lab.load()


@pytest.fixture(scope="module")
def fleet(five: Lab, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Five hosts that serve the stand-in, from bare boxes, in one run."""
    fleet = Fleet(five, tmp_path_factory.mktemp("five"))
    for name in hosts(fleet):
        five.fresh(name)
    run = deploy(fleet)
    assert run.code == 0, run.said
    one, *rest = hosts(fleet)
    assert groups(run) == [[one], rest], "nothing serves yet: one shows that it works, then all"
    return fleet


def hosts(fleet: Fleet) -> list[str]:
    return list(fleet.lab.hosts)[:COUNT]


def deploy(fleet: Fleet, *words: str, **common: object) -> Run:
    common = {"recipe": "lab-standin", "preset": "shared", "batch": 2, **common}
    return fleet.deploy({name: {} for name in hosts(fleet)}, *words, **common)


def groups(run: Run) -> list[list[str]]:
    """The batches in the order in which they were begun."""
    step = r"Starting operation: Switch batch (\d+) of \d+(?:, the canary)?: ([\w, -]+?)\s*$"
    said = re.findall(step, run.said, re.M)
    return [names.split(", ") for _, names in dict.fromkeys(said)]


def row_of(run: Run, host: str) -> str:
    """The host's line of the report."""
    lines = run.out.rpartition("Fleet")[2].splitlines()
    return next(line for line in lines if f"│ {host} " in line)


def containers(fleet: Fleet) -> dict[str, str]:
    """The proven engine of each host."""
    found = {name: state(fleet.lab, name) for name in hosts(fleet)}
    assert {one["phase"] for one in found.values()} == {"proven"}, found
    return {name: str(one["container"]) for name, one in found.items()}


def test_a_bad_batch_is_put_back_whole_and_the_next_is_not_begun(fleet: Fleet) -> None:
    before = containers(fleet)
    run = deploy(fleet, env={"SPARKFLEET_STANDIN_FAULT": "wrong-answer"})
    assert run.code == 1, run.said
    one, two, *rest = hosts(fleet)
    assert groups(run)[0] == [one, two]
    after = containers(fleet)
    assert {name: after[name] for name in rest} == {name: before[name] for name in rest}
    assert all(after[name] != before[name] for name in (one, two)), "both had begun"
    for name in (one, two):
        assert "FAILED, previous release proven" in row_of(run, name)
    for name in rest:
        assert "not begun" in row_of(run, name)


def test_the_canary_goes_alone_and_the_rest_two_at_once(fleet: Fleet) -> None:
    one, two, three, four, five = hosts(fleet)
    run = deploy(fleet, image="2", canary=three)
    assert run.code == 0, run.said
    assert groups(run) == [[three], [one, two], [four, five]], run.said
    containers(fleet)


def test_no_more_are_out_of_service_than_the_owner_allows(fleet: Fleet) -> None:
    """A host that is down already counts; the batch that would be one too many is not begun."""
    *others, last = hosts(fleet)
    before = containers(fleet)
    fleet.lab.exec(last, "systemctl stop sparkfleet-llm", check=True)
    run = deploy(fleet, image="2", env={"ROUND": "3"}, max_unavailable=2)
    assert run.code == 1 and "max_unavailable is 2" in run.said, run.said
    for name in others:
        assert state(fleet.lab, name)["container"] == before[name]
    run = deploy(fleet, "--limit", last, image="2", env={"ROUND": "3"}, max_unavailable=2)
    assert run.code == 0, run.said
    run = deploy(fleet, image="2", env={"ROUND": "3"}, max_unavailable=2)
    assert run.code == 0, run.said
    containers(fleet)
