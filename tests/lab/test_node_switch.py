"""The node programs with real systemd, Docker and Compose, and an engine made to misbehave."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab.api import Lab
from tests.lab.bench import AGENT, PORT, PROGRAMS, ROOT, SERVICE, UNIT, Bench
from tests.lab.waiting import eventually

pytestmark = pytest.mark.lab

ONE, TWO = "111111111111", "222222222222"


@pytest.fixture(scope="module")
def installed(lab: Lab) -> Iterator[Bench]:
    bench = Bench(lab, list(lab.hosts)[-1])
    bench.install()
    yield bench
    bench.remove()


@pytest.fixture
def bench(installed: Bench) -> Bench:
    """The service, with nothing deployed and no agent."""
    installed.ensure()
    installed.clear()
    return installed


@pytest.fixture
def serving(installed: Bench) -> Bench:
    """The service with release ONE proven and no agent; as the last test left it, if so."""
    installed.ensure()
    if not installed.serves_alone(ONE):
        installed.clear()
        installed.release(ONE)
        done = installed.switch(ONE)
        assert done["ok"], json.dumps(done)
    return installed


def test_deploy_upgrade_and_again(serving: Bench) -> None:
    assert serving.served() == serving.link("current") == ONE
    assert serving.unit("ActiveState", "UnitFileState") == ["active", "enabled"]
    texts = [event.get("text", "") for event in serving.events()]
    assert any(text.startswith("serving: after ") for text in texts), texts

    serving.release(TWO)
    assert serving.switch(TWO)["result"]["result"] == "switched"
    assert (serving.link("current"), serving.link("previous"), serving.served()) == (TWO, ONE, TWO)
    assert serving.state()["phase"] == "proven"
    container = serving.sh("docker ps -q -f name=bench-engine")
    assert serving.switch(TWO)["result"]["result"] == "unchanged"
    assert serving.sh("docker ps -q -f name=bench-engine") == container

    table = serving.sh(f"python3 {PROGRAMS}/probe.py --root {ROOT} --service bench")
    assert "proven" in table and "arithmetic" in table


def test_a_stop_is_graceful_and_no_failure(serving: Bench) -> None:
    serving.sh(f"systemctl stop {UNIT}")
    assert serving.unit("ActiveState", "Result") == ["inactive", "success"]
    assert serving.sh("docker inspect -f '{{.State.ExitCode}}' bench-engine") == "0"


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (
            {"boot": 30, "die_at": 1, "exit": 3, "log": ["ERROR Free memory on device"]},
            "exit status 3. Too little memory is free.",
        ),
        ({"answer": "390"}, "The proof arithmetic failed"),
        ({"boot": 40, "boot_timeout": 4}, "was not ready within"),
        ({"version": "2.0"}, "the recipe is for 1.0"),
    ],
    ids=["dies", "wrong", "late", "version"],
)
def test_a_bad_release_is_rolled_back(
    serving: Bench, behaviour: dict[str, object], words: str
) -> None:
    serving.release(TWO, **behaviour)  # type: ignore[arg-type]
    done = serving.switch(TWO)
    assert done["result"]["result"] == "rolled_back", done
    assert words in done["result"]["failure"]["detail"]
    assert (serving.link("current"), serving.served()) == (ONE, ONE)
    assert serving.unit("ActiveState", "UnitFileState") == ["active", "enabled"]
    assert serving.sh("ls /run/sparkfleet/bench.trial 2>/dev/null || true") == ""


def test_a_bad_first_release_is_left_stopped_and_disabled(bench: Bench) -> None:
    bench.release(ONE, die_at=1, boot=20, log=["RuntimeError: no kernel image"])
    done = bench.switch(ONE)
    assert done["result"]["result"] == "failed", done
    assert "RuntimeError: no kernel image" in done["result"]["failure"]["log"]
    assert bench.served() == "" and bench.link("current") == ""
    assert bench.unit("ActiveState", "UnitFileState") == ["inactive", "disabled"]


def test_without_the_toolkit_nothing_is_stopped(serving: Bench) -> None:
    serving.release(TWO)
    serving.lab.remove_toolkit(serving.host)
    try:
        done = serving.switch(TWO)
    finally:
        serving.lab.restore_toolkit(serving.host)
    assert done["result"]["result"] == "refused", done
    assert "container toolkit" in done["error"]["why"]
    # Docker was restarted to play this, which is all that has stopped it.
    eventually(lambda: serving.served() == ONE, 60, "the old release runs")
    assert serving.link("current") == ONE


def test_a_stranger_on_the_port_is_named(bench: Bench) -> None:
    bench.release(ONE)
    bench.sh(f"systemd-run -q --unit=bench-stranger python3 -m http.server -b 127.0.0.1 {PORT}")
    try:
        eventually(lambda: f":{PORT} " in bench.sh("ss -ltn"), 15, "the stranger listens")
        done = bench.switch(ONE)
    finally:
        bench.sh("systemctl stop bench-stranger")
    assert f"Port {PORT} is taken by python3 (pid " in done["error"]["why"], done


def test_a_killed_switch_is_ended_by_the_agent(serving: Bench) -> None:
    serving.release(TWO, boot=6)
    serving.sh(f"systemctl start {AGENT}")
    serving.start_switch(TWO)
    eventually(lambda: serving.served() == TWO, 40, "the new release is under trial")
    serving.sh("systemctl kill -s KILL sparkfleet-job-switch-bench.service")
    serving.proven(TWO)
    assert serving.link("current") == TWO
    assert (
        serving.sh(f"ls {SERVICE}/switch.json /run/sparkfleet/bench.trial 2>&1 || true").count(
            "No such file"
        )
        == 2
    )


def test_a_killed_engine_is_started_again_and_proven(serving: Bench) -> None:
    serving.sh(f"systemctl start {AGENT}")
    serving.proven(ONE)
    before = serving.state()["container"]
    serving.sh("docker kill bench-engine")
    eventually(lambda: serving.state()["container"] != before, 40, "another container is watched")
    serving.proven(ONE)
    assert serving.state()["restarts"] == 1


def test_a_restart_of_docker_is_survived(serving: Bench) -> None:
    serving.sh(f"systemctl start {AGENT}")
    serving.lab.restart_docker(serving.host)
    before = serving.state()["container"]
    eventually(lambda: serving.state()["container"] != before, 60, "another container is watched")
    serving.proven(ONE)


def test_a_wedged_engine_is_restarted(bench: Bench) -> None:
    bench.release(ONE, wedge_seconds=12)
    assert bench.switch(ONE)["ok"]
    bench.sh(f"systemctl start {AGENT}")
    before = bench.state()["container"]
    bench.sh(
        f"python3 -c \"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/wedge')\""
    )
    eventually(lambda: bench.state()["container"] != before, 60, "another container is watched")
    bench.proven(ONE)
    assert "1 requests run and no token came" in bench.sh(f"journalctl -u {AGENT} -o cat")


def test_restarts_are_capped_and_told(serving: Bench) -> None:
    serving.sh(f"systemctl start {AGENT}")
    serving.sh(f"touch {PROGRAMS}/doom")
    serving.sh("docker kill bench-engine")
    eventually(lambda: serving.state()["phase"] == "down", 90, "the unit gave up")
    assert serving.unit("ActiveState") == ["failed"]
    assert "restarts are used up" in serving.state()["reason"]


def test_a_power_cut_in_a_switch_returns_to_what_was_proven(serving: Bench) -> None:
    serving.release(TWO, boot=30)
    serving.sh(f"systemctl enable {AGENT}")
    serving.start_switch(TWO)
    eventually(lambda: serving.served() == TWO, 40, "the new release is under trial")
    serving.lab.power_cycle(serving.host)
    serving.proven(ONE, 90)
    assert serving.link("current") == ONE
    eventually(
        lambda: not serving.sh(f"ls {SERVICE}/switch.json 2>/dev/null || true"),
        60,
        "the cut switch is closed",
    )
    assert '"rolled_back"' in serving.sh(f"tail -n1 {SERVICE}/history.jsonl")
