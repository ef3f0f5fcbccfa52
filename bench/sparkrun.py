"""sparkrun, the tool that our check is measured against: its installation and its configuration."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.errors import BenchError
from bench.installed import environment

VERSION = "0.4.2"

OLDEST = (3, 12)
"""The oldest Python that this version runs on."""

NAMES = ("python3.12", "python3.13", "python3.14", "python3")


def installed(cache: Path) -> Path:
    """The `sparkrun` program of a virtual environment below `cache`, made where it is missing.

    Raises BenchError where there is no Python for it, or where it can't be installed.
    """
    place = cache / f"sparkrun-{VERSION}"
    return environment(place, VERSION, find_python, [f"sparkrun=={VERSION}"]) / "sparkrun"


def find_python() -> str:
    """A Python that is new enough. Raises BenchError, saying what is missing."""
    for candidate in _candidates():
        ask = f"import sys; sys.exit(sys.version_info < {OLDEST})"
        # pyenv puts a program of every version on PATH; it runs only where that version is chosen.
        if subprocess.run([candidate, "-c", ask], capture_output=True, check=False).returncode == 0:
            return candidate
    raise BenchError(
        f"sparkrun {VERSION} needs Python {OLDEST[0]}.{OLDEST[1]} or newer, and there is none on "
        f"PATH (looked for {', '.join(NAMES)}) nor in pyenv. Install one, for example with the "
        "Debian package python3.12 or `pyenv install 3.12`, and try again."
    )


def _candidates() -> Iterator[str]:
    yield from filter(None, map(shutil.which, NAMES))
    pyenv = shutil.which("pyenv")
    if pyenv:
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False).stdout
        for name in NAMES[:-1]:
            yield from map(str, Path(root.strip(), "versions").glob(f"*/bin/{name}"))


def configure(home: Path, ssh_config: Path, user: str) -> Mapping[str, str]:
    """Write its settings below `home`, and return what its environment needs.

    It reaches hosts with OpenSSH, which takes the home directory from the user database and not
    from HOME: so the SSH settings are given to it as options.
    """
    settings = home / ".config" / "sparkrun" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'ssh:\n  user: "{user}"\n  options: ["-F", "{ssh_config}"]\n')
    return {"SPARKRUN_NO_TELEMETRY": "1"}  # nothing of a measurement leaves this machine


def argv(program: Path, addresses: Sequence[str]) -> list[str]:
    """Its check of these hosts."""
    return [str(program), "setup", "check", "--hosts", ",".join(addresses)]


def judge(addresses: Sequence[str], code: int, said: str) -> str:
    """What is wrong with its run. It exits with 1 for findings: that is a result."""
    if f"Setup check for {len(addresses)} host(s)" not in said or code not in (0, 1):
        return f"it did not check the hosts (exit code {code})."
    lost = [line for line in said.splitlines() if ": SSH connectivity" in line]
    return f"it did not reach every host: {lost[0].strip()}" if lost else ""
