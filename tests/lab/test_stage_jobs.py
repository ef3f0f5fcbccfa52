"""Jobs under a real systemd: they outlive their starter, and their death is told."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab.api import Lab

from .stage_kit import PROGRAMS, ROOT, Kit, Outcome
from .waiting import eventually

pytestmark = pytest.mark.lab

UNIT = "sparkfleet-job-stage-t.service"
PROGRAM = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from sparkfleet.node.events import Events
events = Events.for_request(sys.argv[1])
events.phase("a", "first")
gate = Path(json.loads(Path(sys.argv[1]).read_text())["gate"])
while not gate.exists():
    time.sleep(0.05)
events.done(True, {"gate": str(gate)})
"""
GATE = f"{ROOT}/gate"


@pytest.fixture
def kit(lab: Lab, host: str) -> Iterator[Kit]:
    kit = Kit(lab, host)
    kit.install()
    lab.write(kit.host, f"{PROGRAMS}/waits.py", PROGRAM)
    yield kit
    kit.remove()


def test_a_job_outlives_its_ssh_session_and_is_joined(kit: Kit, lab: Lab) -> None:
    assert kit.start("t", "waits.py", {"gate": GATE}) == "started"
    first = kit.job("follow", "t", "--offset", "0", "--wait", "10")
    assert first["events"][0]["text"] == "first"
    pid = kit.sh(f"systemctl show -p MainPID --value {UNIT}")
    assert kit.start("t", "waits.py", {"gate": GATE}) == "joined"
    assert kit.sh(f"systemctl show -p MainPID --value {UNIT}") == pid
    kit.sh(f"touch {GATE}")
    assert kit.follow("t", Outcome(), first["offset"]).result == {"gate": GATE}
    eventually(lambda: "inactive" in kit.sh(f"systemctl is-active {UNIT} || true"), 10, "its end")


def test_a_killed_job_is_told_with_its_journal(kit: Kit) -> None:
    kit.start("t", "waits.py", {"gate": GATE})
    kit.job("follow", "t", "--offset", "0", "--wait", "10")
    kit.sh(f"systemctl kill --signal=KILL {UNIT}")
    error = kit.follow("t", Outcome()).error
    assert error["code"] == "died" and "status=9/KILL" in error["why"]
    kit.sh(f"touch {GATE}")
    assert kit.run("t", "waits.py", {"gate": GATE}).result


def test_a_power_cut_leaves_a_job_that_can_be_started_again(kit: Kit, lab: Lab) -> None:
    kit.start("t", "waits.py", {"gate": GATE})
    kit.job("follow", "t", "--offset", "0", "--wait", "10")
    lab.power_cycle(kit.host)
    assert kit.follow("t", Outcome()).error["code"] == "died"
    kit.sh(f"touch {GATE}")
    assert kit.run("t", "waits.py", {"gate": GATE}).result


def test_the_request_is_for_root_only(kit: Kit) -> None:
    kit.sh(f"touch {GATE}")
    kit.run("t", "waits.py", {"gate": GATE})
    assert json.loads(kit.sh(f"cat {ROOT}/jobs/stage-t.json")) == {"gate": GATE}
    modes = kit.sh(f"stat -c %a {ROOT}/jobs {ROOT}/jobs/stage-t.json {ROOT}/jobs/stage-t.jsonl")
    assert modes.split() == ["700", "600", "600"]
