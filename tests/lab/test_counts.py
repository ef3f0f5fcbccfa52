"""What a run costs, counted at the hosts' sshd: remote commands, file transfers included."""

import time

import pytest

from lab.api import Lab
from tests.lab.conftest import Fleet

pytestmark = pytest.mark.lab

PREFLIGHT = "plays/preflight.py"


def sessions(lab: Lab, since: float) -> dict[str, int]:
    return {name: lab.count_ssh_sessions(name, since) for name in list(lab.hosts)[-2:]}


def test_the_checks_cost_one_command_a_host(lab: Lab, fleet: Fleet) -> None:
    names = list(lab.hosts)[-2:]
    inventory = fleet.write({name: {} for name in names}, recipe="lab-tiny", port=8765)
    since = time.time()
    run = fleet.run(inventory, play=PREFLIGHT)
    assert "Checked 2 hosts: " in run.out, run.said
    assert run.code == (0 if "2 passed." in run.out else 1), run.said
    assert sessions(lab, since) == dict.fromkeys(names, 1)
    # The checks alone: nothing is pinned, no key is made.
    assert [path.name for path in fleet.dir.iterdir()] == [inventory.name]


def test_a_failed_check_costs_no_more(lab: Lab, fleet: Fleet) -> None:
    names = list(lab.hosts)[-2:]
    other = {"recipe": "qwen36-35b-heretic", "hardware": "gb10"}  # the lab's hosts are no Arm
    inventory = fleet.write({name: {} for name in names}, port=8765, **other)
    since = time.time()
    run = fleet.run(inventory, play=PREFLIGHT)
    assert "Checked 2 hosts: 0 passed." in run.out, run.said
    assert run.code == 1
    assert sessions(lab, since) == dict.fromkeys(names, 1)


def test_a_host_that_is_not_there_costs_the_others_nothing_more(lab: Lab, fleet: Fleet) -> None:
    first, second = list(lab.hosts)[-2:]
    nobody = {"ssh_port": 9}  # sshd does not listen there: refused at once
    inventory = fleet.write({first: {}, second: nobody}, recipe="lab-tiny", port=8765)
    since = time.time()
    run = fleet.run(inventory, play=PREFLIGHT)
    assert run.code == 1, run.said
    assert "Checked 2 hosts: " in run.out and second in run.out, run.said
    assert sessions(lab, since) == {first: 1, second: 0}
