"""Can this machine hold the lab, and what does it lack?"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from lab.command import attempt
from lab.errors import CannotRun, LabError
from lab.settings import Settings

#: Program the lab calls → Debian package that brings it.
PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "rsync": "rsync",
    "iptables": "iptables",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "dpkg-deb": "dpkg",
    "zstd": "zstd",
    "strip": "binutils",
}
#: Needed by path, not by program: the keys that sign Debian's archive (absent on Ubuntu).
FILES = {"/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring"}


def missing_packages() -> list[str]:
    """Debian packages that the lab needs and this machine lacks."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacking = {package for name, package in PROGRAMS.items() if not shutil.which(name, path=path)}
    lacking |= {package for file, package in FILES.items() if not Path(file).exists()}
    return sorted(lacking)


def unified_cgroup() -> Path | None:
    """Where cgroup v2 is mounted (a pure or a hybrid layout), or None."""
    for place in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (place / "cgroup.procs").exists() and (place / "cgroup.subtree_control").exists():
            return place
    return None


def check_kernel() -> None:
    """Raise CannotRun, with the reason, where no lab can ever run."""
    if platform.system() != "Linux":
        raise CannotRun(
            f"The simulated lab needs Linux (this is {platform.system()}); "
            "`make unit` and the deploy itself run here all the same."
        )
    if os.geteuid() != 0:
        raise CannotRun(
            "The simulated lab starts machines and a network bridge, so it needs root: "
            "run it again with sudo. The unit tests (`make unit`) need no root."
        )
    if "overlay" not in Path("/proc/filesystems").read_text() and (
        not shutil.which("modprobe") or attempt(["modprobe", "overlay"]).returncode != 0
    ):
        raise CannotRun("The simulated lab needs the overlay file system, which this kernel lacks.")
    if unified_cgroup() is None:
        raise CannotRun("The simulated lab needs cgroup v2, which is not mounted on this machine.")


def check_programs() -> None:
    """Raise CannotRun naming the packages to install, if any program is missing."""
    lacking = missing_packages()
    if lacking:
        raise CannotRun(
            f"The simulated lab lacks these packages here: {' '.join(lacking)}; "
            "`python -m lab install` installs them with apt-get."
        )


def check_overlay(settings: Settings) -> None:
    """Raise CannotRun if the cache directory can't hold overlay layers."""
    trial = settings.cache / "overlay-trial"
    for name in ("lower", "upper", "work", "merged"):
        (trial / name).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={trial}/lower,upperdir={trial}/upper,workdir={trial}/work"
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, f"{trial}/merged"]
    # In a mount namespace of its own, so that the trial leaves no mount behind.
    done = attempt(["unshare", "--mount", "--propagation", "private", "--", *mount])
    shutil.rmtree(trial, ignore_errors=True)
    if done.returncode != 0:
        raise CannotRun(
            f"The simulated lab can't mount an overlay over {settings.cache}: "
            f"{done.stderr.strip()}; point SPARKFLEET_LAB_CACHE at an ordinary local disk."
        )


def install() -> None:
    """Install the missing Debian packages with apt-get, saying so. Raises LabError if it fails."""
    lacking = missing_packages()
    if not lacking:
        print("Every package that the simulated lab needs is installed.")
        return
    if not shutil.which("apt-get"):
        raise CannotRun(
            f"The simulated lab needs {' '.join(lacking)}, and this machine has no apt-get: "
            "install them with its own package manager."
        )
    if os.geteuid() != 0:
        raise CannotRun(f"Installing {' '.join(lacking)} needs root: run it again with sudo.")
    print(f"Installing with apt-get: {' '.join(lacking)}", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # The Debian package of the registry would start one of its own on port 5000 of this machine.
    with NoServiceStarts():
        for argv in (
            ["apt-get", "update", "-q"],
            ["apt-get", "install", "-q", "-y", "--no-install-recommends", *lacking],
        ):
            if subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, check=False).returncode:
                raise LabError(f"`{' '.join(argv)}` failed; what it printed above says why.")


class NoServiceStarts:
    """While held, package installation starts no service (Debian's own policy-rc.d mechanism)."""

    path = Path("/usr/sbin/policy-rc.d")

    def __enter__(self) -> None:
        self.ours = not self.path.exists()
        if self.ours:
            self.path.write_text("#!/bin/sh\nexit 101\n")
            self.path.chmod(0o755)

    def __exit__(self, *_: object) -> None:
        if self.ours:
            self.path.unlink(missing_ok=True)
