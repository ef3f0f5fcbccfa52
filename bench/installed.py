"""Virtual environments as the owners of the tools would have them: a tool and what it needs."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.errors import BenchError

PROJECT = Path(__file__).resolve().parents[1]


def environment(place: Path, state: str, python: Callable[[], str], wanted: Sequence[str]) -> Path:
    """The bin/ directory of a virtual environment at `place`, in which pip installed `wanted`.

    Made anew where the one that is there was made for another `state`. Raises BenchError.
    """
    done = place / ".installed"  # written last: a broken-off installation is begun anew
    if not done.exists() or done.read_text() != state:
        print(f"Installing {wanted[-1]} into {place}.", flush=True)
        shutil.rmtree(place, ignore_errors=True)
        _do([python(), "-m", "venv", str(place)])
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        _do([*pip, "--disable-pip-version-check", *wanted])
        done.write_text(state)
    return place / "bin"


def ourselves(cache: Path) -> Path:
    """The `pyinfra` program of an environment with sparkfleet and without its development tools.

    Not the one of `make venv`: gevent and pyinfra read the metadata of every installed package at
    each start, and an owner has none of the test tools.
    """
    place = cache / "sparkfleet"
    pins = PROJECT / "requirements.lock"
    needs = PROJECT / "pyproject.toml"
    state = hashlib.sha256(pins.read_bytes() + needs.read_bytes() + str(PROJECT).encode())
    wanted = ["--constraint", str(pins), "--editable", str(PROJECT)]
    return environment(place, state.hexdigest(), lambda: sys.executable, wanted) / "pyinfra"


def _do(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise BenchError(f"`{' '.join(argv)}` failed: {' / '.join(said)}")
