"""What is known of a running lab from outside: its state file, its supervisor, how to ask it."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from lab import disk, host, network
from lab.errors import LabError
from lab.settings import Settings

DOWN = "The lab is not up: `python -m lab up` starts it."


def start_ticks(pid: int) -> str | None:
    """When process `pid` started, in the kernel's ticks, or None if it has ended.

    With the pid it names one process.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else fields[18]


def write_pid(settings: Settings) -> None:
    """Record the calling process as the supervisor."""
    pid = os.getpid()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record = {"pid": pid, "start": start_ticks(pid), "boot": boot}
    record |= {"net": str(settings.net), "cache": str(settings.cache)}
    settings.pid_file.write_text(json.dumps(record) + "\n")


def recorded(settings: Settings) -> Settings:
    """The settings that the lab in this run directory was started with, where there is one.

    Whoever takes a lab down must remove its range, not the one of today's environment.
    """
    try:
        known = json.loads(settings.pid_file.read_text())
        return replace(settings, net=IPv4Network(known["net"]), cache=Path(known["cache"]))
    except (OSError, ValueError, KeyError):
        return settings


def supervisor(settings: Settings) -> int | None:
    """The running supervisor's pid, or None; a pid taken by another process is none."""
    try:
        known = json.loads(settings.pid_file.read_text())
    except (OSError, ValueError):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    alive = known["boot"] == boot and start_ticks(known["pid"]) == known["start"]
    return int(known["pid"]) if alive else None


def ask(settings: Settings, verb: str, *, timeout: float = 120, **words: object) -> dict[str, Any]:
    """Send one request to the supervisor and return its answer. Raises LabError."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(timeout)
            link.connect(str(settings.socket))
            link.sendall(json.dumps({"verb": verb, **words}).encode() + b"\n")
            line = link.makefile().readline()
    except TimeoutError as error:
        raise LabError(f"The supervisor did not answer {verb!r} within {timeout:.0f} s.") from error
    except OSError as error:
        raise LabError(DOWN) from error
    if not line:
        raise LabError(f"The supervisor ended while it was asked for {verb!r}.")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise LabError(str(answer["error"]))
    return answer


def wait_end(pid: int, timeout: float) -> bool:
    """True once process `pid` has ended, False after `timeout` seconds."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], timeout)[0])
    finally:
        os.close(handle)


def write(settings: Settings, names: list[str], owner: tuple[int, int] | None) -> None:
    """Write keys and `lab.json` into the run directory, for inventory/simulated.py and the tests.

    `owner` is the user who called sudo, if so: the secret key must be readable to their ssh.
    """
    ssh = settings.run / "ssh"
    ssh.mkdir(exist_ok=True)
    files: Mapping[str, tuple[str, int]] = {
        "id_ed25519": (disk.client_key(settings)[0], 0o600),
        "known_hosts": (disk.known_hosts(settings, names), 0o644),
    }
    for name, (content, mode) in files.items():
        path = ssh / name
        path.touch(mode=mode)
        path.write_text(content)
        if owner:
            os.chown(path, *owner)
    state = {
        "hosts": [
            {
                "name": name,
                "address": settings.address(name),
                "port": 22,
                "user": "spark",
                "key": str(ssh / "id_ed25519"),
                "known_hosts": str(ssh / "known_hosts"),
            }
            for name in names
        ],
        "net": str(settings.net),
        "bridge": settings.bridge,
        "registry": settings.registry,
        "hub": settings.hub,
        "apt": settings.apt,
        "cache": str(settings.cache),
        "catalog": str(settings.catalog),
        "recipes": str(settings.catalog / "recipes"),
    }
    partial = settings.state_file.with_suffix(".partial")
    partial.write_text(json.dumps(state, indent=2) + "\n")
    partial.rename(settings.state_file)


def claim(settings: Settings) -> socket.socket:
    """Hold the machine's one place for a lab until the socket is closed or its process ends.

    Raises LabError where another lab is up, under another run directory: bridge, cgroups and
    cables have the same names in every lab.
    """
    place = socket.socket(socket.AF_UNIX)
    try:
        place.bind(f"\0{settings.bridge}")
    except OSError as error:
        place.close()
        raise LabError(
            f"Another lab is up on this machine (not under {settings.run}): take it down first, "
            "with the SPARKFLEET_LAB_RUN it was started with."
        ) from error
    return place


def clean(settings: Settings) -> None:
    """Remove what a supervisor that was killed left behind; hosts may still run in it."""
    with claim(settings):
        for name in {*disk.existing(settings), *host.left_over()}:
            host.clear(name)
        network.remove(settings)
    shutil.rmtree(settings.run, ignore_errors=True)
