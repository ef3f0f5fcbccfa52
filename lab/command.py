"""Running a program on the lab machine, with a sentence when it fails."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from lab.errors import LabError


def run(argv: Sequence[str], *, text: str | None = None, timeout: float = 600) -> str:
    """Run `argv` and return what it printed. Raises LabError with its last words when it fails."""
    done = attempt(argv, text=text, timeout=timeout)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise LabError(
            f"`{' '.join(argv[:8])}` failed with exit code {done.returncode}: "
            + (" / ".join(said) or "it said nothing")
        )
    return done.stdout


def attempt(
    argv: Sequence[str], *, text: str | None = None, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run `argv` and return the outcome whatever it is. Raises LabError only if it can't run."""
    try:
        return subprocess.run(
            argv,
            input=text,
            stdin=None if text is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise LabError(
            f"The program {argv[0]!r} is not installed here; run `python -m lab install` first."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{' '.join(argv[:8])}` did not end within {timeout:.0f} s.") from error
