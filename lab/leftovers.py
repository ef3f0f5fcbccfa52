"""What a lab has on this machine: the proof that `down` leaves nothing behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from lab import host
from lab.command import run
from lab.settings import Settings


def leftovers(settings: Settings) -> list[str]:
    """Everything of the lab that is on this machine now, one phrase each; the cache is not counted.

    Raises LabError where `ip` can't be asked.
    """
    return [
        *(f"link {name}" for name in links(settings)),
        *(f"address or route {text}" for text in addresses(settings)),
        *(f"rule {rule['priority']}" for rule in ip("rule") if rule.get("iif") == settings.bridge),
        *(f"cgroup of {name}" for name in sorted(host.left_over())),
        *(f"mount {place}" for place in mounts(settings)),
        *(f"process {text}" for text in processes(settings)),
        *([f"directory {settings.run}"] if settings.run.exists() else []),
    ]


def ip(*words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run(["ip", "-json", *words]) or "[]")
    return rows


def links(settings: Settings) -> list[str]:
    names = [path.name for path in Path("/sys/class/net").iterdir()]
    return [name for name in names if name == settings.bridge or name.startswith("vb-spark-")]


def addresses(settings: Settings) -> list[str]:
    """Routes and addresses of the lab's range; the kernel lists an address as a local route."""
    net = str(settings.net.network_address).rsplit(".", 1)[0] + "."
    routes = ip("-4", "route", "show", "table", "all") + ip("-6", "route", "show", "table", "all")
    return [
        f"{route['dst']} {route.get('dev', '')}".strip()
        for route in routes
        if route["dst"].startswith(net) or route.get("dev") in links(settings)
    ]


def mounts(settings: Settings) -> list[str]:
    """Mounts of hosts' roots, or under the run directory, in this process's namespace."""
    rows = [line.split()[:2] for line in Path("/proc/self/mounts").read_text().splitlines()]
    run_directory = str(settings.run)
    return [
        place
        for source, place in rows
        if source.startswith("lab-spark-") or place.startswith(run_directory)
    ]


def processes(settings: Settings) -> list[str]:
    """Processes in the hosts' cgroups, the supervisor, and the services on the lab's address."""
    marks = ("-m lab.supervisor", f"--bind {settings.gateway} ", f"registry serve {settings.run}")
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        if int(directory.name) == os.getpid():
            continue
        try:
            words = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            inside = "/sparkfleet-lab/" in (directory / "cgroup").read_text()
        except OSError:
            continue
        if words and (inside or any(mark in words for mark in marks)):
            found.append(f"{directory.name} {words[:80]}")
    return found
