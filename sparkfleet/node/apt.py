"""Installing one package from the host's own sources, without taking anything else along.

The driver of a Spark and its firmware belong together, and a plain upgrade has torn them: so what
apt would do is read first, and refused when it touches a driver, a kernel or Docker.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path

from sparkfleet.node import commands
from sparkfleet.node.events import Events
from sparkfleet.node.faults import Fault

#: Files whose lock apt and dpkg take, in the order in which they do.
LOCKS = (
    Path("/var/lib/dpkg/lock-frontend"),
    Path("/var/lib/dpkg/lock"),
    Path("/var/lib/apt/lists/lock"),
    Path("/var/cache/apt/archives/lock"),
)
#: Never installed, upgraded or removed by us, whatever a dependency says.
UNTOUCHED = re.compile(
    r"^(lib)?nvidia-(?!container)|^linux-|^cuda|^xserver-xorg-video-nvidia|dkms|^dgx-|^mft"
    r"|^docker|^containerd|^runc$"
)
#: Seconds that apt may take for a simulation, for its lists, for an installation.
SIMULATE, UPDATE, INSTALL = 60.0, 300.0, 900.0
NVIDIA_SOURCES = (
    "Add NVIDIA's repository for DGX OS, or install the toolkit by hand; then run the same command "
    "again."
)
_FLOCK = "hhqqi4x"  # struct flock, 64 bits: type, whence, start, length, pid


class Apt:
    """apt-get and dpkg-query of this host."""

    def __init__(
        self,
        events: Events,
        *,
        lock_wait: float,
        run: commands.Runner = commands.run,
        holder: Callable[[], str | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`lock_wait`: seconds to wait, each time, for whoever works with packages now."""
        self.events, self.lock_wait, self._run = events, lock_wait, run
        self._holder, self._clock, self._sleep = holder or lock_holder, clock, sleep

    def version(self, package: str) -> str | None:
        """The installed version; None where it is not (wholly) installed."""
        said = self._run(
            ["dpkg-query", "-W", "-f=${db:Status-Abbrev}|${Version}", package], SIMULATE
        )
        state, _, version = said.out.partition("|")
        return version.strip() if said.ok and state.strip() == "ii" else None

    def install(self, package: str, *, missing: str = NVIDIA_SOURCES) -> None:
        """Install `package` and what it needs, nothing else; `missing` is the next step where the
        sources have none. Raises Fault."""
        plan = self._simulate(package)
        if plan is None:
            self.update()
            plan = self._simulate(package)
        if plan is None:
            raise Fault(
                f"The host's package sources have no {package}.",
                next=missing,
                code="no-package",
            )
        self.refuse_more(package, plan)
        self.events.phase("install", f"Installing {', '.join(name for _, name in plan)}.")
        done = self._apt(INSTALL, "install", "--no-install-recommends", package)
        if not done.ok and ("404 " in done.err or "Unable to fetch" in done.err):
            self.update()  # the lists named files that the source has replaced since
            self.refuse_more(package, self._simulate(package) or [])
            done = self._apt(INSTALL, "install", "--no-install-recommends", package)
        if not done.ok:
            raise self._fault(done, f"{package} could not be installed.")

    def update(self) -> None:
        """Read the sources anew. Raises Fault."""
        self.events.phase("update", "Reading the host's package sources anew.")
        done = self._apt(UPDATE, "update")
        if not done.ok:
            raise self._fault(done, "The host's package sources could not be read.")

    def _simulate(self, package: str) -> list[tuple[str, str]] | None:
        """What an installation would do, as (Inst or Remv, package); None: no such package."""
        done = self._apt(SIMULATE, "--simulate", "install", "--no-install-recommends", package)
        if done.ok:
            return [(line.split()[0], line.split()[1]) for line in planned(done.out)]
        if "Unable to locate" in done.err or "no installation candidate" in done.err:
            return None
        raise self._fault(done, f"apt can't say how it would install {package}.")

    @staticmethod
    def refuse_more(package: str, plan: list[tuple[str, str]]) -> None:
        """Raise Fault when the plan touches what is not ours to touch."""
        bad = [name for act, name in plan if act == "Remv" or UNTOUCHED.search(name)]
        if bad:
            raise Fault(
                f"Installing {package} would also change {', '.join(bad)}; nothing was done.",
                why="Driver, kernel, firmware and Docker of a Spark are not changed by this run: "
                "a part of them upgraded alone leaves a box without a GPU.",
                next="Bring the system up to date with NVIDIA's own update, then run it again.",
                code="would-touch-driver",
            )

    def _apt(self, seconds: float, *words: str) -> commands.Outcome:
        left = self._wait_for_lock()
        # needrestart, where it is installed, would restart Docker under the owner's containers.
        argv = ["env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1", "apt-get", "-q"]
        argv += ["-y", "-o", f"DPkg::Lock::Timeout={max(int(left), 1)}", *words]
        return self._run(argv, seconds + left)

    def _wait_for_lock(self) -> float:
        """Wait until nobody else works with packages; the seconds that are left to wait."""
        until, told = self._clock() + self.lock_wait, ""
        while who := self._holder():
            if self._clock() >= until:
                raise _locked(who, self.lock_wait)
            if who != told:
                self.events.phase("wait", f"Waiting for the package lock, held by {who}.")
                told = who
            self._sleep(1.0)
        return max(0.0, until - self._clock())

    def _fault(self, done: commands.Outcome, what: str) -> Fault:
        for marks, code, why, step in MEANINGS:
            if any(mark in done.err for mark in marks):
                if code == "apt-lock":
                    return _locked(self._holder() or "another program", self.lock_wait)
                return Fault(what, why=f"{why} apt says: {done.words()}", next=step, code=code)
        step = "Look at what apt says; then run the same command again."
        return Fault(what, why=f"apt says: {done.words()}", next=step, code="apt")


#: Words in apt's errors, code, meaning and next step.
MEANINGS = (
    (("Could not get lock", "Unable to acquire"), "apt-lock", "", ""),
    (("dpkg was interrupted",), "dpkg-broken", "An earlier installation was cut short.",
     "Run `dpkg --configure -a` on the host, then the same command again."),
    (("No space left", "enough free space"), "disk-full", "The disk is full.",
     "Free some space, then run the same command again."),
    (("Failed to fetch", "Unable to fetch", "Could not resolve", "Temporary failure resolving"),
     "sources-down", "A package source can't be reached.",
     "Look at the host's network and /etc/apt, then run the same command again."),
)  # fmt: skip


def planned(out: str) -> list[str]:
    """The lines of a simulation that change something."""
    return [line for line in out.splitlines() if line.startswith(("Inst ", "Remv "))]


def lock_holder() -> str | None:
    """Who holds a lock of apt or dpkg, such as `apt-get (process 812)`; None: nobody.

    Asked without taking it, so nobody is disturbed.
    """
    for path in LOCKS:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, question))
        finally:
            os.close(fd)
        if kind != fcntl.F_UNLCK:
            try:
                name = Path("/proc", str(pid), "comm").read_text(encoding="utf-8").strip()
            except OSError:
                name = "a program"
            return f"{name} (process {pid})"
    return None


def _locked(who: str, seconds: float) -> Fault:
    return Fault(
        f"The package lock was held by {who} for {seconds:.0f} seconds and more.",
        why="An automatic update may be running.",
        next="Wait for it to end, then run the same command again.",
        code="apt-lock",
    )
