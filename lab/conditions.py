"""Putting a host into a condition that boxes in the field are in: full, busy, torn, locked."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator

from lab import dress, toolkit
from lab.errors import LabError
from lab.reach import Reach

SUDOERS = f"/etc/sudoers.d/{dress.USER}"
DAEMON_JSON = "/etc/docker/daemon.json"
#: A file system whose filling up harms nobody but the host.
SMALL = "tmpfs"
#: Takes both of dpkg's locks as dpkg does (fcntl, not flock), says so to systemd, and sits on them.
HOLD_LOCK = """
import fcntl, subprocess, sys, time
files = [open(f"/var/lib/dpkg/{name}", "w") for name in ("lock-frontend", "lock")]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
subprocess.run(["systemd-notify", "--ready"], check=True)
time.sleep(float(sys.argv[1]))
"""


class Conditions(Reach):
    """What can be done to a host from inside it, each with its way back."""

    # Memory and GPU

    def set_memory(
        self,
        name: str,
        available_kib: int = dress.MEMORY_AVAILABLE_KIB,
        total_kib: int = dress.MEMORY_TOTAL_KIB,
        swap_kib: int = 0,
    ) -> None:
        """Set what /proc/meminfo says (KiB): a co-tenant, in figures. The defaults undo it."""
        self.write(name, "/etc/lab/meminfo", dress.meminfo(available_kib, total_kib, swap_kib))

    def set_gpu(self, host: str, /, *, present: bool = True, **changes: object) -> None:
        """Make nvidia-smi say something else than an ordinary GB10; no change undoes it.

        Keys: state ("ok", "no-devices", "no-driver"), name, driver, cuda, compute_cap, memory_mib.
        With `present=False` there is no nvidia-smi at all.
        """
        ordinary = dress.gpu(host)
        unknown = set(changes) - set(ordinary)
        if unknown:
            raise LabError(f"The lab's GPU has no {', '.join(unknown)}; it has {list(ordinary)}.")
        self.write(host, "/etc/lab/gpu.json", json.dumps(ordinary | changes) + "\n")
        link = "ln -sf /usr/lib/lab/nvidia-smi" if present else "rm -f"
        self.exec(host, f"{link} /usr/bin/nvidia-smi", check=True)

    # sudo

    def require_sudo_password(self, name: str, password: str) -> None:
        """From now on sudo asks the host's user for this password, each time."""
        self.exec(name, ["chpasswd"], text=f"{dress.USER}:{password}\n", check=True)
        self.write(name, SUDOERS, dress.SUDOERS_PASSWORD)

    def allow_sudo(self, name: str) -> None:
        """Undo `require_sudo_password`."""
        self.write(name, SUDOERS, dress.SUDOERS_OPEN)
        self.exec(name, ["passwd", "--lock", dress.USER], check=True)

    # The container toolkit and the package lock

    def remove_toolkit(self, name: str) -> None:
        """Purge the toolkit and its runtime from the host; Docker is restarted."""
        self.exec(name, "apt-get -q -y purge nvidia-container-toolkit", check=True)
        config = json.loads(self.read(name, DAEMON_JSON))
        config.pop("runtimes", None)
        self.write(name, DAEMON_JSON, json.dumps(config, indent=4) + "\n")
        self.restart_docker(name)

    def restore_toolkit(self, name: str) -> None:
        """Undo `remove_toolkit`, from the host's package sources as an owner would."""
        self.exec(
            name,
            f"apt-get -q update && apt-get -q -y install nvidia-container-toolkit={toolkit.VERSION}"
            " && nvidia-ctk runtime configure --runtime=docker",
            check=True,
            timeout=120,
        )
        self.restart_docker(name)

    def use_containerd_store(self, name: str) -> None:
        """Let Docker keep its images in containerd's store, as some makers' Sparks do.

        The images it had are out of sight until `use_overlay2_store`. Docker is restarted.
        """
        self._set_store(name, {"containerd-snapshotter": True})

    def use_overlay2_store(self, name: str) -> None:
        """Undo `use_containerd_store`."""
        self._set_store(name, {})

    def _set_store(self, name: str, features: dict[str, bool]) -> None:
        config = json.loads(self.read(name, DAEMON_JSON))
        config.pop("features", None)
        if features:
            config["features"] = features
        self.write(name, DAEMON_JSON, json.dumps(config, indent=4) + "\n")
        self.restart_docker(name)

    def restart_docker(self, name: str) -> None:
        # Several restarts in a test must not run into systemd's start limit.
        self.exec(name, "systemctl reset-failed docker; systemctl restart docker", check=True)

    def hold_dpkg_lock(self, name: str, seconds: float) -> None:
        """Hold dpkg's locks for so long, as a background upgrade does; returns once it is held."""
        unit = ["systemd-run", "--quiet", "--collect", "--unit=lab-dpkg-lock"]
        unit += ["--property=Type=notify", "--property=NotifyAccess=all"]
        self.exec(name, [*unit, "python3", "-c", HOLD_LOCK, str(seconds)], check=True)

    def release_dpkg_lock(self, name: str) -> None:
        self.exec(name, ["systemctl", "stop", "lab-dpkg-lock"])

    @contextlib.contextmanager
    def dpkg_locked(self, name: str, seconds: float = 600) -> Iterator[None]:
        """`hold_dpkg_lock` while the block runs, `seconds` at most."""
        self.hold_dpkg_lock(name, seconds)
        try:
            yield
        finally:
            self.release_dpkg_lock(name)

    # Disk

    @contextlib.contextmanager
    def small_disk(self, name: str, path: str, mib: int, *, around: str = "") -> Iterator[None]:
        """While the block runs, `path` in the host is an empty file system of `mib` MiB.

        It hides what was there. `around` names a unit to stop while it is mounted and unmounted
        (`docker` for /var/lib/docker). It lives in this machine's memory, so keep it small.
        """
        self._mount_small(name, path, mib, around)
        try:
            yield
        finally:
            self.exec(name, _around(around, f"umount --lazy {shlex.quote(path)}"))

    def _mount_small(self, name: str, path: str, mib: int, around: str) -> None:
        place = shlex.quote(path)
        mount = f"mkdir -p {place} && mount -t {SMALL} -o size={mib}m,mode=0755 lab-small {place}"
        self.exec(name, _around(around, mount), check=True)

    def fill_disk(self, name: str, path: str, leave_mib: int = 0) -> None:
        """Fill the small disk at `path` but for `leave_mib` MiB; deleting lab-fill undoes it.

        Raises LabError where `path` is not a `small_disk`: it would fill this machine's own.
        """
        row = self.exec(
            name, ["df", "--block-size=1M", "--output=fstype,source,avail", path], check=True
        ).stdout.splitlines()[-1]
        kind, source, free = row.split()
        if (kind, source) != (SMALL, "lab-small"):
            raise LabError(
                f"{path} on {name} is no small_disk; filling it would fill this machine."
            )
        size = int(free) - leave_mib
        if size > 0:
            self.exec(name, ["fallocate", "-l", f"{size}M", f"{path}/lab-fill"], check=True)

    # What the host's sshd saw

    def ssh_sessions(self, name: str, since: float) -> list[str]:
        """The sessions that the host's sshd started from `since` (Unix time) on, one line each.

        Such as `Starting session: command for spark from 10.213.77.1 port 40312 id 0`; file
        transfers are sessions of the subsystem 'sftp'.
        """
        done = self.exec(
            name,
            "journalctl --sync; journalctl --output=cat --no-pager"
            f" --since=@{since:.6f} --identifier=sshd --identifier=sshd-session",
            check=True,
        )
        return [line for line in done.stdout.splitlines() if line.startswith("Starting session:")]

    def count_ssh_sessions(self, name: str, since: float) -> int:
        """How many remote commands and file transfers reached the host since then."""
        return len(self.ssh_sessions(name, since))


def _around(unit: str, command: str) -> str:
    if not unit:
        return command
    sockets = f"{unit}.service {unit}.socket"
    return (
        f"systemctl stop {sockets} && {{ {command}; code=$?; systemctl reset-failed {unit};"
        f" systemctl start {unit}; exit $code; }}"
    )
