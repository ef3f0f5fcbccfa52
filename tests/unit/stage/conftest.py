"""A stand-in for systemd's three programs, so that real processes run without a real systemd."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from .hub_server import HubServer

FAKE = """#!{python}
import os, subprocess, sys
from pathlib import Path
base, me, args = Path({base!r}), Path(sys.argv[0]).name, sys.argv[1:]
def alive(unit):
    try:
        pid = (base / unit).read_text()
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
if me == "systemd-run":
    unit = [a for a in args if a.startswith("--unit=")][0][7:]
    if (base / "refuse").exists():
        sys.exit("Failed to start transient service unit: " + (base / "refuse").read_text())
    if alive(unit):
        sys.exit("Unit " + unit + " was already loaded or has a fragment file.")
    while args and args[0].startswith("-"):
        args.pop(0)
    with open(base / (unit + ".journal"), "ab") as log:
        child = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 start_new_session=True)
    (base / unit).write_text(str(child.pid))
elif me == "systemctl" and args[0] == "show":
    print("active" if alive(args[-1]) else "inactive")
elif me == "systemctl" and args[0] == "stop" and alive(args[-1]):
    os.killpg(int((base / args[-1]).read_text()), 15)
elif me == "journalctl":
    sys.stdout.write((base / (args[1] + ".journal")).read_text())
"""


@dataclass
class FakeSystemd:
    """Where the stand-in keeps its pids and journals."""

    base: Path

    def pid(self, unit: str) -> int:
        return int((self.base / unit).read_text())

    def kill(self, unit: str) -> None:
        """SIGKILL to a job and its children, as a power cut or the memory killer would."""
        os.killpg(self.pid(unit), signal.SIGKILL)

    def refuse(self, why: str) -> None:
        (self.base / "refuse").write_text(why)


@pytest.fixture
def fake_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSystemd]:
    base, bin_dir = tmp_path / "systemd", tmp_path / "bin"
    base.mkdir()
    bin_dir.mkdir()
    for name in ("systemd-run", "systemctl", "journalctl"):
        program = bin_dir / name
        program.write_text(FAKE.format(python=sys.executable, base=str(base)))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")
    yield FakeSystemd(base)
    for left in base.glob("*.service"):
        with suppress(ProcessLookupError):
            os.killpg(int(left.read_text()), signal.SIGKILL)


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Return once `true()`; fail when it is not within `seconds`."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def eventually() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def hub() -> Iterator[HubServer]:
    server = HubServer()
    yield server
    server.close()
