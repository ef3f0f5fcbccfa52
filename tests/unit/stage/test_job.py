"""Jobs outlive their starter: real processes, a stand-in for systemd."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.node import job as job_module
from sparkfleet.node.faults import Fault
from sparkfleet.node.job import Job

UNIT = "sparkfleet-job-t.service"
PROGRAM = """
import json, sys, time
from pathlib import Path
request = json.loads(Path(sys.argv[1]).read_text())
gate = Path(request["gate"])
events = open(Path(sys.argv[1]).with_suffix(".jsonl"), "a")
def say(**event):
    events.write(json.dumps(event) + "\\n"); events.flush()
say(event="phase", phase="a", text="first")
while not gate.exists():
    time.sleep(0.02)
print("words for the journal")
if request.get("crash"):
    sys.exit(3)
say(event="done", ok=True, result={"n": request["n"]}, error=None)
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "p.py").write_text(PROGRAM)
    monkeypatch.setattr(job_module, "HERE", folder)
    return folder


@pytest.fixture
def job(tmp_path: Path, fake_systemd: Any, programs: Path) -> Job:
    return Job(tmp_path / "root", "t")


def request(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"n": 1, "gate": str(tmp_path / "gate"), **more}


def follow_to_end(job: Job) -> list[dict[str, Any]]:
    offset, events = 0, []
    until = time.monotonic() + 20
    while time.monotonic() < until:
        news = job.follow(offset, 5)
        offset = news["offset"]
        events += news["events"]
        if not news["running"]:
            return events
    raise AssertionError("the job did not end")


def test_a_job_is_started_followed_and_done(job: Job, tmp_path: Path) -> None:
    assert job.start("p.py", request(tmp_path)) == {"state": "started", "unit": UNIT}
    first = job.follow(0, 10)
    assert [event["event"] for event in first["events"]] == ["phase"] and first["running"]
    quiet = job.follow(first["offset"], 0.3)
    assert quiet == {"offset": first["offset"], "events": [], "running": True}
    (tmp_path / "gate").touch()
    last = job.follow(first["offset"], 10)
    assert last["events"][-1]["result"] == {"n": 1} and not last["running"]
    again = job.follow(last["offset"], 10)
    assert again == {"offset": last["offset"], "events": [], "running": False}
    assert (job.request.stat().st_mode & 0o777, job.dir.stat().st_mode & 0o777) == (0o600, 0o700)


def test_news_ends_the_wait_at_once(job: Job, tmp_path: Path) -> None:
    job.start("p.py", request(tmp_path))
    offset = job.follow(0, 10)["offset"]
    threading.Timer(0.2, (tmp_path / "gate").touch).start()
    began = time.monotonic()
    assert job.follow(offset, 30)["events"]
    assert time.monotonic() - began < 10


def test_the_same_request_joins_and_another_is_told(
    job: Job, tmp_path: Path, fake_systemd: Any
) -> None:
    job.start("p.py", request(tmp_path))
    pid = fake_systemd.pid(UNIT)
    assert job.start("p.py", request(tmp_path))["state"] == "joined"
    with pytest.raises(Fault, match=r"step t is busy.*other than this"):
        job.start("p.py", request(tmp_path, n=2), patience=0.2)
    assert fake_systemd.pid(UNIT) == pid
    (tmp_path / "gate").touch()
    assert follow_to_end(job)[-1]["ok"]


def test_another_request_waits_for_the_first_to_end(job: Job, tmp_path: Path) -> None:
    job.start("p.py", request(tmp_path))
    threading.Timer(0.3, (tmp_path / "gate").touch).start()
    assert job.start("p.py", request(tmp_path, n=2), patience=20)["state"] == "started"
    assert follow_to_end(job)[-1]["result"] == {"n": 2}


def test_a_killed_job_is_reported_with_its_journal_and_starts_again(
    job: Job, tmp_path: Path, fake_systemd: Any
) -> None:
    job.start("p.py", request(tmp_path))
    job.follow(0, 10)
    fake_systemd.kill(UNIT)
    last = follow_to_end(job)[-1]
    assert last["error"]["code"] == "died" and not last["ok"]
    (tmp_path / "gate").touch()
    assert job.start("p.py", request(tmp_path))["state"] == "started"
    events = follow_to_end(job)
    assert [event["event"] for event in events] == ["phase", "done"] and events[-1]["ok"]


def test_a_job_that_exits_without_a_result_shows_its_last_words(job: Job, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    job.start("p.py", request(tmp_path, crash=True))
    last = follow_to_end(job)[-1]
    assert last["error"]["code"] == "died" and "words for the journal" in last["error"]["why"]


def test_old_events_are_gone_before_a_new_run_can_be_followed(job: Job, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    job.start("p.py", request(tmp_path))
    end = job.follow(0, 10)["offset"]
    follow_to_end(job)
    (tmp_path / "gate").unlink()
    job.start("p.py", request(tmp_path, n=2), patience=10)
    news = job.follow(end * 5, 10)  # an offset of the run before: read anew, not past the end
    assert news["running"] and news["events"][0]["event"] == "phase"
    assert job.status()["running"]
    (tmp_path / "gate").touch()
    assert follow_to_end(job)[-1]["result"] == {"n": 2}
    assert job.status()["last"]["event"] == "done"


def test_stop_ends_it(job: Job, tmp_path: Path, eventually: Callable[..., None]) -> None:
    job.start("p.py", request(tmp_path))
    assert job.stop() == {"stopped": True}
    eventually(lambda: not job.active())
    assert follow_to_end(job)[-1]["error"]["code"] == "died"


def test_what_systemd_refuses_is_said(job: Job, tmp_path: Path, fake_systemd: Any) -> None:
    fake_systemd.refuse("no room")
    with pytest.raises(Fault, match=r"could not be started.*no room"):
        job.start("p.py", request(tmp_path))


@pytest.mark.parametrize("name", ["", "../x", "a b", "A", "-x"])
def test_odd_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Fault):
        Job(tmp_path, name)


@pytest.mark.parametrize("program", ["/bin/sh", "../p.py", "absent.py"])
def test_only_programs_of_the_folder_run(job: Job, tmp_path: Path, program: str) -> None:
    with pytest.raises(Fault, match="no program"):
        job.start(program, request(tmp_path))


def test_the_command_line(tmp_path: Path, fake_systemd: Any) -> None:
    program = Path(job_module.__file__)

    def call(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(program), args[0], "--root", str(tmp_path), "--name", "t"]
        return subprocess.run(
            [*argv, *args[1:]], input=stdin, capture_output=True, text=True, timeout=60
        )

    missing = call("follow")
    assert missing.returncode == 1 and "no job t" in missing.stderr and not missing.stdout
    assert "not JSON" in call("start", "--program", "events.py", stdin="{").stderr
    started = call("start", "--program", "events.py", stdin="{}")  # a program that says nothing
    assert json.loads(started.stdout)["state"] == "started", started.stderr
    answer = json.loads(call("follow", "--wait", "10").stdout)
    assert not answer["running"] and answer["events"][0]["error"]["code"] == "died"
    assert json.loads(call("status").stdout) == {"running": False, "last": None}
