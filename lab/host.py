"""One simulated host as processes of the lab machine: how it boots, and how to reach inside."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from lab import disk, root
from lab.command import attempt, run
from lab.errors import LabError
from lab.machine import unified_cgroup
from lab.settings import Settings


def cgroup(name: str) -> Path:
    """The host's own cgroup. Two hosts in one would manage each other's services."""
    top = unified_cgroup()
    if top is None:
        raise LabError("cgroup v2 is not mounted on this machine any more.")
    return top / "sparkfleet-lab" / name


def mountpoint(settings: Settings, name: str) -> Path:
    """Where the supervisor mounts the host's root, in a mount namespace of its own."""
    return settings.run / "root" / name


def mount(settings: Settings, name: str) -> None:
    """Mount the host's root overlay (in the caller's mount namespace); does nothing twice."""
    target = mountpoint(settings, name)
    target.mkdir(parents=True, exist_ok=True)
    if not os.path.ismount(target):
        own = settings.disk(name) / "root"
        lower = ":".join(str(layer) for layer in root.layers(settings))
        options = f"lowerdir={lower},upperdir={own}/upper,workdir={own}/work"
        run(["mount", "-t", "overlay", f"lab-{name}", "-o", options, str(target)])


def unmount(settings: Settings, name: str) -> None:
    """Unmount it again. Raises LabError while something still uses it."""
    target = mountpoint(settings, name)
    if os.path.ismount(target):
        run(["umount", str(target)])


def boot_argv(settings: Settings, name: str) -> list[str]:
    """The command line that boots the host; it enters the host's cgroup, then becomes nspawn."""
    enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    return [
        *("sh", "-c", enter, str(cgroup(name))),
        # cgroup v2 in the host, also where the machine itself has a hybrid layout.
        *("env", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1", "systemd-nspawn"),
        "--quiet",
        f"--directory={mountpoint(settings, name)}",
        f"--machine={name}",
        "--register=no",
        "--keep-unit",
        "--boot",
        f"--network-bridge={settings.bridge}",
        "--capability=all",
        # Without keyctl every container start fails: "unable to join session keyring".
        "--system-call-filter=add_key keyctl bpf",
        *(f"--bind={settings.disk(name)}/{store}:/var/lib/{store}" for store in disk.STORES),
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--console=read-only",
    ]


def clear(name: str) -> None:
    """Remove what a boot of the host left on the machine: its cable and its cgroups."""
    attempt(["ip", "link", "delete", f"vb-{name}"])
    # On a hybrid layout nspawn mirrors the host's cgroups into the old systemd hierarchy.
    for path in (cgroup(name), Path("/sys/fs/cgroup/systemd/sparkfleet-lab") / name):
        remove_cgroup(path)
        with contextlib.suppress(OSError):
            path.parent.rmdir()
    for place in ("propagate", "unix-export"):
        with contextlib.suppress(OSError):
            (Path("/run/systemd/nspawn") / place / name).rmdir()


def left_over() -> set[str]:
    """Names of the hosts that still have a cgroup or a cable on this machine."""
    cables = {path.name.removeprefix("vb-") for path in Path("/sys/class/net").glob("vb-spark-*")}
    return cables | {path.name for path in cgroup("x").parent.glob("spark-*")}


def remove_cgroup(path: Path, patience: float = 20) -> None:
    """Remove a cgroup and those below it, ending what still runs in them."""
    if not path.exists():
        return
    with contextlib.suppress(OSError):
        (path / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + patience
    while True:
        for below, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                Path(below).rmdir()
        if not path.exists():
            return
        if time.monotonic() > deadline:
            raise LabError(f"The cgroup {path} is still in use {patience:.0f} s after its end.")
        time.sleep(0.02)


def leader(nspawn: int) -> int | None:
    """The process that is PID 1 inside the host, as this machine numbers it; None while booting."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(
                line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line
            )
        except OSError:
            continue
        inside = lines.get("NSpid", "").split()
        if lines.get("PPid") == str(nspawn) and len(inside) > 1 and inside[-1] == "1":
            return int(status.parent.name)
    return None


def enter_argv(pid: int) -> list[str]:
    """The prefix that runs a command inside the host whose PID 1 is `pid`, as its root."""
    return [
        *("nsenter", "--target", str(pid), "--mount", "--uts", "--ipc", "--net", "--pid"),
        *("--cgroup", "--root", "--wd", "--"),
        *("env", "-i", "HOME=/root", "USER=root", "LANG=C.UTF-8", "TERM=dumb"),
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ]
