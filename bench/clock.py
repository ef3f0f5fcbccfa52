"""Timing commands side by side: alternating rounds, medians, CPU time."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.errors import BenchError

TIMEOUT = 120.0
"""Seconds for one command; far above what any of them takes."""


@dataclass(frozen=True)
class Took:
    """What one command cost."""

    wall: float
    """Seconds from its start to its end."""
    cpu: float
    """CPU seconds, user and system, of it and its children on this machine; what the simulated
    hosts spend for it is not in this figure, but in `wall`."""


@dataclass(frozen=True)
class Contestant:
    """One way to do the job: commands that are started together and end together."""

    name: str
    argvs: Sequence[Sequence[str]]
    env: Mapping[str, str]
    cwd: str
    judge: Callable[[int, str], str]
    """Exit code and output of a command → what is wrong with it as a run; empty when nothing is.
    A finding about a host is a result; a host that was not reached is none."""

    def run(self) -> Took:
        """Run it once. Raises BenchError when a command did not do its job."""
        before, began = os.times(), time.perf_counter()
        running = [(argv, *self._start(argv)) for argv in self.argvs]
        ended = [(argv, self._wait(process, argv), out) for argv, process, out in running]
        wall, after = time.perf_counter() - began, os.times()
        for argv, code, out in ended:
            out.seek(0)
            said = out.read().decode("utf-8", "replace")
            fault = self.judge(code, said)
            if fault:
                tail = "\n".join(said.strip().splitlines()[-15:])
                raise BenchError(f"{self.name}: {fault}\n$ {' '.join(argv)}\n{tail}")
        # Clock by clock: the rounding of a sum's difference can make nothing less than nothing.
        user = after.children_user - before.children_user
        system = after.children_system - before.children_system
        return Took(wall, user + system)

    def _start(
        self, argv: Sequence[str]
    ) -> tuple[subprocess.Popen[bytes], tempfile._TemporaryFileWrapper[bytes]]:
        # Into a file: a pipe would have to be read meanwhile, on the cores that are measured.
        out = tempfile.NamedTemporaryFile()  # noqa: SIM115 (closed with the last reference)
        try:
            process = subprocess.Popen(
                argv,
                env=self.env,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise BenchError(f"{self.name}: {argv[0]} could not be started: {error}.") from error
        return process, out

    def _wait(self, process: subprocess.Popen[bytes], argv: Sequence[str]) -> int:
        try:
            return process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BenchError(
                f"{self.name}: `{argv[0]}` did not end within {TIMEOUT:.0f} s."
            ) from None


def alternate(contestants: Sequence[Contestant], rounds: int) -> dict[str, list[Took]]:
    """Run all of them in every round, each round beginning with another one.

    One round before the first is not counted: it fills caches of bytecode and files for all.
    """
    took: dict[str, list[Took]] = {one.name: [] for one in contestants}
    for turn in range(-1, rounds):
        start = turn % len(contestants)
        for one in [*contestants[start:], *contestants[:start]]:
            cost = one.run()
            if turn >= 0:
                took[one.name].append(cost)
    return took


def middle(costs: Sequence[Took]) -> Took:
    """The medians."""
    return Took(median(one.wall for one in costs), median(one.cpu for one in costs))
