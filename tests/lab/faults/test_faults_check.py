"""What the check finds stops the run before anything is changed; what it can mend, it mends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from lab.api import Lab
from tests.lab.faults.kit import Box, words
from tests.lab.hostconditions import changed, gpu, memory
from tests.lab.waiting import eventually

pytestmark = pytest.mark.lab


def process_on(port: int) -> Callable[[Lab, str], AbstractContextManager[None]]:
    start = (
        f"systemd-run --quiet --collect --unit=lab-port python3 -m http.server {port} && "
        f"until ss -ltn | grep -q :{port}; do sleep 0.1; done"
    )
    return lambda lab, host: changed(lab, host, start, "systemctl stop lab-port")


def stranger(options: str = "") -> Callable[[Lab, str], AbstractContextManager[None]]:
    """A container of the owner's own, of an image that is not the engine's."""
    start = (
        "box=$(docker create $(docker inspect -f '{{.Image}}' standin) true) && "
        "docker commit $box owners/own:1 && docker rm $box && "
        f"docker run -d --name owners-own {options} --entrypoint sleep owners/own:1 infinity"
    )
    stop = "docker rm -f owners-own; docker image rm owners/own:1"
    return lambda lab, host: changed(lab, host, start, stop)


Condition = Callable[[Lab, str], AbstractContextManager[None]]

REFUSED: dict[str, tuple[Condition, dict[str, Any], tuple[str, ...]]] = {
    "h200": (
        lambda lab, host: gpu(lab, host, name="NVIDIA H200", compute_cap="9.0"),
        {},
        ("NVIDIA H200 with compute capability 9.0", "gb10-lab has 12.1", "out of the inventory"),
    ),
    "torn-driver": (
        lambda lab, host: gpu(lab, host, state="no-devices"),
        {},
        ("No devices were found", "torn the driver from the firmware", "never touches the driver"),
    ),
    "old-driver": (
        lambda lab, host: gpu(lab, host, driver="570.124.06"),
        {},
        ("is 570.124.06; 580 or newer is needed", "never touches the driver"),
    ),
    "memory-short": (
        lambda lab, host: memory(lab, host, 10.0),
        {"preset": "alone"},
        ("Not enough free memory", "121.7 GiB × 0.85 = 103.4", "available 10.0"),
    ),
    "port-of-a-process": (
        process_on(8001),
        {"port": 8001},
        ("Port 8001 on", "is held by process python3", "give service llm another port"),
    ),
    "port-of-a-container": (
        stranger("-p 8001:9"),
        {"port": 8001},
        ("Port 8001 on", "is held by container owners-own", "give service llm another port"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_finding_stops_the_run_before_any_change(box: Box, name: str) -> None:
    condition, data, told = REFUSED[name]
    with box.untouched():
        with condition(box.lab, box.host):
            run = box.on(**data).fails("Nothing was changed", *told)
            assert "Starting operation" not in run.said
        assert "nothing changed" in box.works().out


def test_an_image_that_does_not_meet_a_floor_stops_nothing(box: Box) -> None:
    """Known only once the image is there: the stand-in has no vLLM in it."""
    floors = {"vllm": "0.19"}
    with box.untouched():
        told = "does not tell its version of vLLM", 'overrides: {"image-floors": "…"}'
        box.fails("Nothing was stopped or changed", *told, floors=floors)
    reason = "no engine at all, as we know"
    overridden = box.on(overrides={"image-floors": reason})
    with box.untouched():
        for _ in range(2):
            assert f"override image-floors: {reason}" in words(overridden.works(floors=floors).out)


def test_a_code_named_gpu_passes(box: Box) -> None:
    with gpu(box.lab, box.host, name="NVIDIA Graphics Device"):
        assert "nothing changed" in box.works().out


def test_two_addresses_of_one_box(box: Box, sparks: list[str], tmp_path: Path) -> None:
    """Known before any connection where the addresses are the same, else by what the box says."""
    other = another(box, sparks)
    here = box.lab.hosts[box.host]
    with box.untouched():
        told = f"Hosts {box.host} and {other} are the same box", "keep one of them"
        box.fails(*told, others={other: {"ssh_hostname": here.address}})
        alias = f"{here.address.rpartition('.')[0]}.{ALIAS}"
        known = tmp_path / "known_hosts"
        known.write_text(here.known_hosts.read_text().replace(here.address, alias))
        with changed(
            box.lab,
            box.host,
            *(f"ip address {verb} {alias}/24 dev host0" for verb in ("add", "delete")),
        ):
            box.fails(
                f"{box.host} and {other} are one and the same machine",
                "Keep one of the names",
                others={other: {"ssh_hostname": alias, "ssh_known_hosts_file": str(known)}},
            )


ALIAS = 94
"""The last number of an address in the lab's network that no host has."""


def test_cloned_disks_are_warned_of(box: Box, sparks: list[str]) -> None:
    other = another(box, sparks)
    own = box.sh("cat /etc/machine-id")
    box.write("/etc/machine-id", box.lab.exec(other, "cat /etc/machine-id", check=True).stdout)
    try:
        run = box.deploy("--dry", others={other: {}})
    finally:
        box.write("/etc/machine-id", own)
    assert run.code == 0, run.said
    assert f"{box.host} and {other} have the same machine id." in words(run.said)


def another(box: Box, sparks: list[str]) -> str:
    """A second host's name; the host itself need not be asked."""
    names: list[str] = [*sparks, *box.lab.hosts]
    return next(name for name in names if name != box.host)


def test_partial_goes_on_with_the_hosts_that_passed(box: Box, sparks: list[str]) -> None:
    other = another(box, sparks)
    change: dict[str, Any] = {"tag": "2", "version": "2.0.0", "others": {other: {"ssh_port": 9}}}
    with box.untouched():
        box.fails(f"Nothing was changed: {other} failed the checks", "partial=true", **change)
    run = box.fails(f"{other} ", "left out", options=("--data", "partial=true"), **change)
    assert box.phase == "proven" and "proven" in run.out
    assert "nothing changed" in box.works(tag="2", version="2.0.0").out


def test_a_missing_toolkit_is_mended_and_other_peoples_containers_are_asked_for(box: Box) -> None:
    """With the package lock held for a while, as by the nightly upgrade."""
    with stranger("--restart always")(box.lab, box.host):
        box.lab.remove_toolkit(box.host)
        up = "docker ps -q --filter name=owners-own"
        eventually(lambda: box.sh(up), 30, "the owner's container is back after Docker's restart")
        box.fails(
            "Nothing was changed", "The NVIDIA container toolkit is not installed",
            "would stop owners-own", "--data restart_docker=true",
        )  # fmt: skip
        box.lab.hold_dpkg_lock(box.host, 60)
        with box.underway("--data", "restart_docker=true") as run:
            run.says("python3 (process", 60)
            box.lab.release_dpkg_lock(box.host)
            end = run.end(120)
    assert end.code == 0, end.said
    assert "nvidia" in box.sh("docker info -f '{{json .Runtimes}}'")
    assert "owner.example/asset=rack-7" in box.sh("cat /etc/docker/daemon.json"), "merged"
    box.serves()
