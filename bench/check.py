"""The check of the lab's hosts, from command to table: ours, sparkrun's, and the floor.

    python -m bench.check [--rounds N]

All three reach the same hosts in the same rounds, over cold SSH connections, as the same user with
the same key, and write to a file; each tool is installed with what it needs and no more. sparkrun
reads some 13 things of a host in several connections; ours reads what a deploy of the inventory
needs to know, in one. The floor is a bare `ssh HOST true` to all hosts at once. Exit code 0 when
everything ran, whatever it took.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench import sparkrun
from bench.clock import Contestant, Took, alternate, middle
from bench.errors import BenchError
from bench.installed import ourselves
from lab.api import Host, Lab, LabError

PROJECT = Path(__file__).resolve().parents[1]
INVENTORY = "inventory/simulated.py"
HOSTS = 3
ROUNDS = 7

OURS, THEIRS, FLOOR = "sparkfleet preflight", "sparkrun setup check", "ssh HOST true"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 0 when everything ran."""
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="counted rounds (default 7)")
    options = parser.parse_args(arguments)
    try:
        lab = Lab.load()
        hosts = list(lab.hosts.values())[:HOSTS]
        if len(hosts) < HOSTS:
            raise BenchError(f"The lab has {len(hosts)} hosts; {HOSTS} are measured: make lab-up")
        programs = ourselves(lab.cache), sparkrun.installed(lab.cache)
        with tempfile.TemporaryDirectory(prefix="sparkfleet-bench-") as place:
            contestants = line_up(hosts, *programs, Path(place))
            took = alternate(contestants, max(1, options.rounds))
    except (BenchError, LabError) as error:
        print(error, file=sys.stderr)
        return 1
    print(report(took))
    return 0


def line_up(hosts: Sequence[Host], pyinfra: Path, other: Path, place: Path) -> list[Contestant]:
    """Everyone who takes part; what they need is written below `place`."""
    addresses = [host.address for host in hosts]
    home = place / "home"
    home.mkdir()
    ssh_config = place / "ssh_config"
    ssh_config.write_text("\n".join(map(ssh_stanza, hosts)))
    theirs = sparkrun.configure(home, ssh_config, hosts[0].user)
    env = environment(home)
    limit = [word for host in hosts for word in ("--limit", host.name)]
    return [
        Contestant(
            OURS,
            [[str(pyinfra), "-y", *limit, INVENTORY, "plays/preflight.py"]],
            env,
            str(PROJECT),
            partial(judge_ours, len(hosts)),
        ),
        Contestant(
            THEIRS,
            [sparkrun.argv(other, addresses)],
            {**env, **theirs},
            str(place),
            partial(sparkrun.judge, addresses),
        ),
        Contestant(
            FLOOR,
            [["ssh", "-F", str(ssh_config), address, "true"] for address in addresses],
            env,
            str(place),
            lambda code, said: f"it ended with exit code {code}." if code else "",
        ),
    ]


def ssh_stanza(host: Host) -> str:
    """The host for OpenSSH: the key and the host key that our inventory names too."""
    return f"""Host {host.address}
  Port {host.port}
  User {host.user}
  IdentityFile {host.key}
  IdentitiesOnly yes
  UserKnownHostsFile {host.known_hosts}
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  ControlMaster no
"""


def environment(home: Path) -> dict[str, str]:
    """The same for all: a home of this run's own, no SSH agent, bytecode kept as installed."""
    kept = ("PATH", "LANG", "LC_ALL", "SPARKFLEET_LAB_RUN", "SPARKFLEET_LAB_CACHE")
    return {
        "HOME": str(home),
        "COLUMNS": "120",
        **{name: os.environ[name] for name in kept if name in os.environ},
    }


def judge_ours(count: int, code: int, said: str) -> str:
    """What is wrong with our run. Exit code 1 with a table of findings is a result."""
    if f"Checked {count} hosts" not in said or code not in (0, 1):
        return f"it did not check the hosts (exit code {code})."
    return "it did not reach every host." if "Could not connect" in said else ""


def report(took: Mapping[str, Sequence[Took]]) -> str:
    """The table, the ratio, and the conditions."""
    lines = [f"{'seconds':24}{'median':>8}{'fastest':>9}{'slowest':>9}{'CPU':>8}"]
    for name, costs in took.items():
        walls = [one.wall for one in costs]
        mid = middle(costs)
        lines.append(f"{name:24}{mid.wall:8.2f}{min(walls):9.2f}{max(walls):9.2f}{mid.cpu:8.2f}")
    ours, theirs, floor = (middle(took[name]) for name in (OURS, THEIRS, FLOOR))
    pairs = [mine.wall / other.wall for mine, other in zip(took[OURS], took[THEIRS], strict=True)]
    rounds = len(pairs)
    return "\n".join(
        [
            *lines,
            "",
            f"ratio, ours to sparkrun's: {ours.wall / theirs.wall:.2f} of the medians "
            f"(wanted: at most 0.50); round by round {min(pairs):.2f} to {max(pairs):.2f}; "
            f"CPU {ours.cpu / theirs.cpu:.2f}",
            f"above the floor: ours {ours.wall - floor.wall:.2f} s, "
            f"sparkrun's {theirs.wall - floor.wall:.2f} s",
            f"conditions: {HOSTS} simulated hosts on this machine, {os.cpu_count()} cores, load "
            f"{os.getloadavg()[0]:.1f}, {rounds} rounds after one uncounted, cold SSH connections, "
            f"Python {platform.python_version()}, sparkrun {sparkrun.VERSION}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
