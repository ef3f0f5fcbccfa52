"""Running a program of the host, bounded, with its words in English."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What a program left: exit code (124 ran out of time, 127 absent), output, errors."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.code == 0

    def words(self, limit: int = 600) -> str:
        """The end of what it said, errors first, for a sentence."""
        return (self.err.strip() or self.out.strip())[-limit:]


#: argv, seconds -> Outcome. Everything that spawns takes one, so that tests give their own.
Runner = Callable[[Sequence[str], float], Outcome]


def run(argv: Sequence[str], seconds: float) -> Outcome:
    """Run `argv` without a shell for at most `seconds`. Never raises for what the program does."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            check=False,
        )
    except FileNotFoundError:
        return Outcome(127, err=f"the program {argv[0]} is not installed")
    except subprocess.TimeoutExpired as late:
        return Outcome(
            124,
            (late.stdout or b"").decode("utf-8", "backslashreplace"),
            f"{argv[0]} did not end within {seconds:g} s",
        )
    except OSError as error:
        return Outcome(126, err=f"{argv[0]} could not be started: {error}")
    return Outcome(
        done.returncode,
        done.stdout.decode("utf-8", "backslashreplace"),
        done.stderr.decode("utf-8", "backslashreplace"),
    )
