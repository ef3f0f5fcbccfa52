"""Hosts that can't be reached, can't be entered, or go away in the middle."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.faults.kit import Box, trouble
from tests.lab.faults.spy import Spy
from tests.lab.waiting import eventually

pytestmark = pytest.mark.lab

BOUND = 40.0
"""Seconds after which a run must have given an unreachable host up: usually 5, on a busy machine
its own start is to be added."""


def test_a_host_out_of_reach_is_given_up_in_bounded_time(box: Box) -> None:
    with box.untouched():
        began = time.monotonic()
        with box.lab.network_cut(box.host):
            box.fails(f"{box.host} could not be reached.", "It is off", "Ping it from here")
        assert time.monotonic() - began < BOUND
        assert "nothing changed" in box.works().out


def test_a_host_with_another_key_is_not_spoken_to(box: Box, tmp_path: Path) -> None:
    stranger, known = tmp_path / "stranger", tmp_path / "known_hosts"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)]
    subprocess.run(argv, check=True)
    address = box.lab.hosts[box.host].address
    known.write_text(f"{address} {stranger.with_suffix('.pub').read_text()}")
    with box.untouched():
        other = box.on(ssh_known_hosts_file=str(known))
        other.fails("is not the one that is known for it", "ssh-keygen -lf")
        known.write_text("")
        other.fails("is not known yet", "compare the fingerprint")
        assert "nothing changed" in box.works().out


def test_a_host_without_python_is_told(box: Box) -> None:
    with box.untouched():
        box.sh("mv /usr/bin/python3 /usr/bin/python3.away")
        try:
            box.fails(f"There is no python3 on {box.host}.", "Install the distribution's python3")
        finally:
            box.sh("mv /usr/bin/python3.away /usr/bin/python3")
        assert "nothing changed" in box.works().out


def test_a_host_that_vanishes_during_a_fetch_is_found_again(box: Box) -> None:
    repo = "lab/big-31"
    with box.underway(model=repo) as run:
        with trouble(box.hub, "stall", repo, after=5_000_000) as fault:
            eventually(lambda: fault.hits, 60, "the fetch is under way")
            with box.lab.network_cut(box.host):
                run.says("The connection was lost", 40)
        end = run.end(90)
    assert end.code == 0, end.said
    box.serves()


def test_a_session_that_dies_during_a_switch_is_taken_up_again(box: Box) -> None:
    before = box.current()
    with box.underway(tag="2", version="2.0.0") as run:
        eventually(lambda: box.phase == "booting", 60, "the switch is under way")
        # The sessions alone: the daemon goes on listening.
        box.sh("kill $(pgrep -u spark -f '^sshd(-session)?: spark')")
        end = run.end(60)
    assert end.code == 0, end.said
    box.serves()
    assert box.current() != before


def test_ctrl_c_leaves_the_fetch_going_and_the_next_run_joins_it(box: Box) -> None:
    repo = "lab/big-32"
    with trouble(box.hub, "stall", repo, after=5_000_000) as fault:
        with box.underway(model=repo) as run, box.untouched():
            eventually(lambda: fault.hits, 60, "the fetch is under way")
            run.process.send_signal(signal.SIGINT)
            end = run.end(20)
        assert end.code == 130, end.said
        assert "Stopped by Ctrl-C" in end.said and "Traceback" not in end.said
        first = fetch_unit(box)
        assert first["ActiveState"] == "active"
        with box.underway(model=repo) as run:
            run.says("Fetch the models", 60)
            run.says("fetch:", 60)
            assert fetch_unit(box) == first, "the same job goes on"
            box.hub.faults.clear()
            end = run.end(90)
    assert end.code == 0, end.said
    box.serves()


def fetch_unit(box: Box) -> dict[str, str]:
    """Which run of the fetch job systemd has, and whether it still goes on."""
    said = box.sh("systemctl show -p InvocationID -p ActiveState sparkfleet-job-fetch")
    return dict(line.split("=", 1) for line in said.splitlines())


def test_a_controller_killed_during_a_switch_leaves_a_proven_node(box: Box) -> None:
    before = box.current()
    change = {"tag": "2", "version": "2.0.0"}
    with box.underway(**change) as run:
        eventually(lambda: box.phase == "booting", 60, "the switch is under way")
        run.process.kill()
        run.process.wait()
    eventually(lambda: box.current() != before and box.phase == "proven", 60, "proven by itself")
    assert "nothing changed" in box.works(**change).out


PASSWORD = "Correct-Horse-7391"


@pytest.fixture
def sudo_asks(box: Box) -> Iterator[None]:
    box.lab.require_sudo_password(box.host, PASSWORD)
    yield
    box.lab.allow_sudo(box.host)


@pytest.mark.usefixtures("sudo_asks")
def test_a_sudo_that_asks_is_told_and_a_given_password_works_and_stays_secret(box: Box) -> None:
    with box.untouched():
        box.fails("wants a password, and none was given", "--same-sudo-password")
        run = box.deploy("--same-sudo-password", stdin="wrong\n")
        box.told(run, "did not accept the password")
    with Spy(box, PASSWORD) as spy:
        change = {"tag": "2", "version": "2.0.0"}
        run = box.deploy("--same-sudo-password", stdin=f"{PASSWORD}\n", **change)
    assert run.code == 0 and "proven" in run.out, run.said
    assert PASSWORD not in run.said
    assert spy.found == ""
