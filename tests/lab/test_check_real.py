"""Survey and checks on a simulated Spark, over SSH, in conditions that boxes are found in."""

from __future__ import annotations

import dataclasses
import platform
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lab.api import Lab
from sparkfleet.checks import check_fleet
from sparkfleet.checks.adoption import found_containers
from sparkfleet.checks.case import Case
from sparkfleet.checks.takeover import park, put_back
from sparkfleet.facts.command import survey_command
from sparkfleet.facts.host import HostFacts, Unknown
from sparkfleet.facts.survey import Unreachable, read_answer, survey_request
from sparkfleet.spec.catalog import load_catalog
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.plan import HostPlan
from sparkfleet.spec.resolve import resolve
from tests.lab.hostconditions import changed, gpu, memory, sudo_password, without_toolkit

pytestmark = pytest.mark.lab

PROJECT = Path(__file__).resolve().parents[2]
PORT = 18000
"""A port that no other test's service uses."""

Condition = Callable[[Lab, str], AbstractContextManager[None]]

HELD_BY_HAND = (
    f"systemd-run --quiet --collect --unit=lab-port python3 -m http.server {PORT} && "
    f"until ss -ltn | grep -q :{PORT}; do sleep 0.1; done"
)


def plan_for(name: str, **data: object) -> HostPlan:
    """Recipe A on a simulated Spark: GB10 in everything but the architecture."""
    spec = parse_host(name, {"recipe": "qwen36-35b-heretic", "port": PORT, **data})
    plan = resolve(spec, load_catalog(PROJECT), None)
    here = plan.hardware.model_copy(update={"arch": platform.machine()})
    return dataclasses.replace(plan, hardware=here)


def survey(lab: Lab, plan: HostPlan) -> HostFacts | Unreachable:
    command = survey_command(survey_request(plan))
    argv = lab.hosts[plan.name].ssh_argv(command)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return read_answer(done.returncode, done.stdout, done.stderr)


def findings(lab: Lab, plan: HostPlan) -> dict[str, tuple[str, str]]:
    """Check → level and whole text of every finding that is not ok; the missing guard is usual."""
    found = check_fleet({plan.name: plan}, {plan.name: survey(lab, plan)})
    return {
        one.check: (one.level, " ".join((one.what, one.why, one.next, one.raw)))
        for one in found
        if one.level != "ok" and one.check != "memory-guard"
    }


def test_a_sound_host_is_read_whole_and_left_as_it_was(
    lab: Lab, host: str, bare: Callable[..., None]
) -> None:
    bare(host)  # what runs there changes its own files meanwhile
    plan = plan_for(host)
    survey(lab, plan)  # sudo notes in the owner's home that it was used once
    lab.exec(host, ["touch", "/run/lab-mark"], check=True)
    facts = survey(lab, plan)
    assert isinstance(facts, HostFacts), facts
    unread = {name: value for name, value in facts if isinstance(value, Unknown)}
    assert not unread
    touched = lab.exec(
        host, "find /etc /opt /usr /home /root /var/lib /run/sparkfleet -newer /run/lab-mark 2>&-"
    ).stdout.split()
    assert not [path for path in touched if "/systemd" not in path and "/docker" not in path]
    assert findings(lab, plan) == {}
    assert isinstance(facts.machine_id, str)
    assert facts.machine_id not in lab.read(host, "/etc/machine-id")


def stopped_docker(lab: Lab, host: str) -> AbstractContextManager[None]:
    units = "docker.service docker.socket"
    return changed(lab, host, f"systemctl stop {units}", f"systemctl start {units}")


def moved(path: str) -> Condition:
    """A host on which a file has another name for a while."""
    return lambda lab, host: changed(lab, host, f"mv {path} {path}.away", f"mv {path}.away {path}")


CONDITIONS: list[tuple[str, Condition, dict[str, tuple[str, str]]]] = [
    (
        "torn-driver",
        lambda lab, host: gpu(lab, host, state="no-devices"),
        {"driver": ("fail", "No devices were found")},
    ),
    (
        "driver-not-loaded",
        lambda lab, host: gpu(lab, host, state="no-driver"),
        {"driver": ("fail", "not loaded")},
    ),
    (
        "no-driver",
        lambda lab, host: gpu(lab, host, present=False),
        {"driver": ("fail", "nvidia-smi is missing")},
    ),
    (
        "h200",
        lambda lab, host: gpu(
            lab, host, name="NVIDIA H200", compute_cap="9.0", memory_mib=143771,
            driver="580.159.04",
        ),
        {"gpu": ("fail", "NVIDIA H200 with compute capability 9.0")},
    ),
    ("code-name", lambda lab, host: gpu(lab, host, name="NVIDIA Graphics Device"), {}),
    (
        "driver-595",
        lambda lab, host: gpu(lab, host, driver="595.10"),
        {"driver": ("warn", "outside the supported branch 580")},
    ),
    (
        "co-tenant",
        lambda lab, host: memory(lab, host, 90.0),
        {"memory": ("fail", "121.7 GiB × 0.85 = 103.4; available 90.0")},
    ),
    (
        "no-toolkit",
        without_toolkit,
        {"toolkit": ("mend", "installs it from the host's own package sources")},
    ),
    (
        "sudo-password",
        lambda lab, host: sudo_password(lab, host, "geheim"),
        {"sudo": ("fail", "--same-sudo-password")},
    ),
    (
        "port-taken",
        lambda lab, host: changed(lab, host, HELD_BY_HAND, "systemctl stop lab-port"),
        {"port": ("fail", "is held by process python3")},
    ),
    (
        "docker-stopped",
        stopped_docker,
        {
            "docker": ("fail", "the daemon is not running"),
            "toolkit": ("unknown", "not running"),
            "port": ("unknown", "not running"),
        },
    ),
    (
        "no-compose",
        moved("/usr/libexec/docker/cli-plugins/docker-compose"),
        {"compose": ("fail", "missing")},
    ),
    (
        "full-disk",
        lambda lab, host: lab.small_disk(host, "/var/lib/sparkfleet", 64),
        {"disk": ("fail", "/var/lib/sparkfleet")},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "expected"),
    [pytest.param(condition, expected, id=name) for name, condition, expected in CONDITIONS],
)
def test_condition(
    lab: Lab,
    host: str,
    condition: Condition,
    expected: dict[str, tuple[str, str]],
) -> None:
    with condition(lab, host):
        found = findings(lab, plan_for(host))
    assert set(found) == set(expected), found
    for check, (level, words) in expected.items():
        assert found[check][0] == level and words in found[check][1], found[check]


def test_the_owners_container_is_offered_parked_and_put_back(lab: Lab, host: str) -> None:
    """Made from an empty image: it has the published name, which is what stands in the way."""
    image = lab.exec(host, "tar -cT /dev/null | docker import -", check=True).stdout.strip()
    try:
        lab.exec(host, f"docker create --name qwen36-35b {image} vllm serve /model", check=True)
        level, words = findings(lab, plan_for(host))["adoption"]
        assert level == "fail" and "--data adopt=true" in words

        plan = plan_for(host, adopt=True)
        facts = survey(lab, plan)
        assert isinstance(facts, HostFacts)
        assert findings(lab, plan)["adoption"][0] == "mend"
        boxes = found_containers(Case(plan, facts))
        lab.exec(host, park(boxes), check=True)
        assert "adoption" not in findings(lab, plan)
        lab.exec(host, put_back(boxes), check=True)
        assert "adoption" in findings(lab, plan)
    finally:
        lab.exec(host, f"docker rm -f $(docker ps -aq --filter ancestor={image})")
        lab.exec(host, ["docker", "rmi", "-f", image])


def test_a_host_that_is_off(lab: Lab, host: str) -> None:
    with lab.network_cut(host):
        command = survey_command({"root": "/var/lib/sparkfleet"})
        argv = lab.hosts[host].ssh_argv(command)
        argv[1:1] = ["-o", "ConnectTimeout=2"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        answer = read_answer(done.returncode, done.stdout, done.stderr)
    assert isinstance(answer, Unreachable)
    (finding,) = [
        one for one in check_fleet({host: plan_for(host)}, {host: answer}) if one.level == "fail"
    ]
    assert finding.check == "reachable" and "could not be reached" in finding.what, finding
