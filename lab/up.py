"""Bringing the lab up and down: the story behind `python -m lab up` and `down`."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import disk, machine, root, runstate
from lab.api import Lab
from lab.errors import LabError
from lab.leftovers import leftovers
from lab.settings import Settings, host_names

DEFAULT_HOSTS = 3
PROJECT = Path(__file__).resolve().parent.parent


def up(
    settings: Settings,
    *,
    hosts: int | None = None,
    fresh: bool = False,
    images: bool = True,
    tie_to: int | None = None,
) -> Lab:
    """Bring the lab up, or complete it, and return it when every host is ready.

    `hosts` is how many to have at least (3 where none are up); more that are up stay up.
    Raises CannotRun where this machine can't, LabError for other faults.
    """
    machine.check_kernel()
    machine.check_programs()
    host_names(DEFAULT_HOSTS if hosts is None else hosts)
    with locked(settings):
        if fresh and runstate.supervisor(settings):
            _down(settings, quick=True)
        running = runstate.supervisor(settings)
        if running is None:
            runstate.clean(settings)
            machine.check_overlay(settings)
            if fresh:
                throw_away_disks(settings)
            root.build(settings)
            old = disk.stale(settings, host_names(hosts or DEFAULT_HOSTS))
            if old:
                print(f"New disks, as the lab's root has changed: {', '.join(old)}.", flush=True)
            start_supervisor(settings, tie_to)
        now = list(runstate.ask(settings, "state")["hosts"])
        names = host_names(max(hosts or len(now) or DEFAULT_HOSTS, len(now)))
        # First the keys, which this makes where they are missing: the hosts need them to boot.
        runstate.write(settings, names, sudo_caller())
        runstate.ask(settings, "up", hosts=json.dumps(names))
        lab = Lab.load(settings)
        for service in runstate.ask(settings, "state")["services"]:
            lab.wait_service(service)
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(lab.wait_ready, names))
        if images and (PROJECT / "lab/engine/__init__.py").exists():
            # By name: the images are another part, which `up` can do without.
            engine = importlib.import_module("lab.engine")
            engine.ensure(settings.cache, settings.registry)
    return lab


def down(settings: Settings, *, purge: bool = False) -> None:
    """Switch the hosts off and remove everything but the cache; `purge` throws their disks away.

    Raises LabError naming what could not be removed.
    """
    machine.check_kernel()
    with locked(settings):
        _down(settings, quick=purge)
        left = leftovers(settings)
        if left:
            raise LabError(f"The lab is down, but left on this machine: {'; '.join(left)}.")
        if purge:
            throw_away_disks(settings)


def _down(settings: Settings, *, quick: bool) -> None:
    pid = runstate.supervisor(settings)
    if pid is not None:
        with contextlib.suppress(LabError):
            runstate.ask(settings, "down", quick=quick, timeout=10)
        if not runstate.wait_end(pid, 60):
            print("The supervisor did not end by itself within 60 s; killing it.", flush=True)
            os.kill(pid, 9)
            runstate.wait_end(pid, 10)
    runstate.clean(settings)


def throw_away_disks(settings: Settings) -> None:
    shutil.rmtree(settings.cache / "hosts", ignore_errors=True)


def start_supervisor(settings: Settings, tie_to: int | None) -> None:
    """Start it in a mount namespace of its own, and wait until it answers. Raises LabError."""
    settings.run.mkdir(parents=True, exist_ok=True)
    settings.logs.mkdir(exist_ok=True)
    log = settings.logs / "supervisor.log"
    env = {
        **os.environ,
        "SPARKFLEET_LAB_NET": str(settings.net),
        "SPARKFLEET_LAB_RUN": str(settings.run.absolute()),
        "SPARKFLEET_LAB_CACHE": str(settings.cache.absolute()),
        "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin",
    }
    argv = ["unshare", "--mount", "--propagation", "private", "--", sys.executable]
    argv += ["-m", "lab.supervisor", *([str(tie_to)] if tie_to else [])]
    with log.open("ab") as out:
        process = subprocess.Popen(
            argv,
            cwd=PROJECT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    deadline = time.monotonic() + 15
    while True:
        with contextlib.suppress(LabError):
            runstate.ask(settings, "state", timeout=5)
            return
        if process.poll() is not None:
            said = log.read_text().strip() or f"no word in {log}"
            runstate.clean(settings)
            raise LabError(f"The lab's supervisor did not start. {said.splitlines()[-1]}")
        if time.monotonic() > deadline:
            raise LabError(f"The lab's supervisor does not answer; its output is in {log}.")
        time.sleep(0.05)


@contextlib.contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """One `up` or `down` at a time, waiting for the other."""
    settings.cache.mkdir(parents=True, exist_ok=True)
    with (settings.cache / "lab.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another `python -m lab` to finish ...", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sudo_caller() -> tuple[int, int] | None:
    """uid and gid of the user who called sudo, or None."""
    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    return (int(uid), int(gid)) if uid and gid else None
