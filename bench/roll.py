"""What a roll costs beside the engines: the time of each host beyond its drain, stop and boot.

    python -m bench.roll [--rounds N]

The lab's hosts serve the stand-in engine; each round changes one variable of it, which is a new
release, and deploys. A host's time runs from the step that switches it to the next step, by the
clock of the run. What the node's history says of drain, stop and boot is taken off it; the rest,
proof and SSH among it, is the machinery's. Exit code 1 when that is more than WANTED anywhere.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.check import INVENTORY, PROJECT, environment
from bench.errors import BenchError
from bench.installed import ourselves
from lab.api import Lab, LabError

ROUNDS = 3
WANTED = 5.0
"""Seconds a host at most, as the project wants it."""

HISTORY = "/var/lib/sparkfleet/services/llm/history.jsonl"
ENGINE = ("drain", "stop", "boot")
"""Steps of a switch that are the engine's own time."""

STEP = re.compile(r"Starting operation: (Switch batch \d+ of \d+[^:]*: (?P<host>[\w-]+))?")


@dataclass(frozen=True)
class Cost:
    """One host's switch, in seconds."""

    wall: float
    steps: Mapping[str, float]
    """By the node's history."""

    @property
    def machinery(self) -> float:
        """What is left of `wall` without the engine's own time."""
        return self.wall - sum(self.steps.get(name, 0.0) for name in ENGINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 0 when every host's machinery took at most WANTED."""
    parser = argparse.ArgumentParser(prog="python -m bench.roll", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rolls that count (default 3)")
    options = parser.parse_args(arguments)
    try:
        lab = Lab.load()
        pyinfra = ourselves(lab.cache)
        with tempfile.TemporaryDirectory(prefix="sparkfleet-bench-") as place:
            roll(pyinfra, Path(place), 0)  # the engine is deployed, and caches are warm
            costs = [measure(lab, pyinfra, Path(place), one + 1) for one in range(options.rounds)]
    except (BenchError, LabError) as error:
        print(error, file=sys.stderr)
        return 1
    print(report(costs))
    return int(max(cost.machinery for one in costs for cost in one.values()) > WANTED)


def measure(lab: Lab, pyinfra: Path, place: Path, number: int) -> dict[str, Cost]:
    """One roll: each host's cost."""
    took = roll(pyinfra, place, number)
    if set(took) != set(lab.hosts):
        raise BenchError(f"Only {', '.join(took) or 'no host'} was switched.")
    found = {}
    for host, wall in took.items():
        last = json.loads(lab.exec(host, f"tail -n1 {HISTORY}", check=True).stdout)
        found[host] = Cost(wall, last["seconds"])
    return found


def roll(pyinfra: Path, place: Path, number: int) -> dict[str, float]:
    """Deploy the stand-in, changed so that each number is a release; seconds by host."""
    data = {"recipe": "lab-standin", "preset": "shared", "env": json.dumps({"ROUND": str(number)})}
    argv = [str(pyinfra), "-y", INVENTORY, "deploy.py"]
    argv += [word for key, value in data.items() for word in ("--data", f"{key}={value}")]
    process = subprocess.Popen(
        argv,
        cwd=PROJECT,
        env=environment(place) | {"SPARKFLEET_STATE": str(place / "state")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = [(time.monotonic(), line) for line in process.stdout]
    if process.wait() != 0:
        raise BenchError("The deploy failed:\n" + "".join(line for _, line in lines[-40:]))
    return walls(lines)


def walls(lines: Sequence[tuple[float, str]]) -> dict[str, float]:
    """By host: seconds from the step that switches it to the step after. Pure."""
    steps = [(at, found["host"]) for at, line in lines if (found := STEP.search(line))]
    return {host: after - at for (at, host), (after, _) in pairwise(steps) if host is not None}


def report(rolls: Sequence[Mapping[str, Cost]]) -> str:
    """The table, in seconds."""
    names = (*ENGINE, "preflight", "prove")
    lines = ["".join(f"{word:>11}" for word in ("host", "wall", *names, "machinery"))]
    for one in rolls:
        for host, cost in one.items():
            steps = "".join(f"{cost.steps.get(name, 0.0):11.1f}" for name in names)
            lines.append(f"{host:>11}{cost.wall:11.2f}{steps}{cost.machinery:11.2f}")
    every = [cost.machinery for one in rolls for cost in one.values()]
    return "\n".join(
        [
            *lines,
            "",
            f"machinery a host: median {median(every):.2f} s, {min(every):.2f} to {max(every):.2f} "
            f"(wanted: at most {WANTED:.0f})",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
