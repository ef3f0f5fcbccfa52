"""Fixtures of the lab tests: the lab itself, and runs of the real `pyinfra` command on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.api import Lab
from lab.errors import LabError

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

HOSTS = 3


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The running lab. Started, and taken down again, where it does not run yet.

    A lab that can't start is an error, not a skip: under CI these tests are the point.
    """
    try:
        running = Lab.load()
    except LabError:
        running = None
    if running is None or len(running.hosts) < HOSTS:
        argv = [sys.executable, "-m", "lab", "up", "--hosts", str(HOSTS)]
        argv += ["--tie-to", str(os.getpid())]
        subprocess.run(argv, cwd=PROJECT, check=True, timeout=1500)
        yield Lab.load()
        if running is None:
            subprocess.run([sys.executable, "-m", "lab", "down"], cwd=PROJECT, check=True)
        return
    yield running


@pytest.fixture(scope="session")
def sparks(lab: Lab) -> list[str]:
    """Names of the simulated hosts to test on: all, or those of SPARKFLEET_TEST_HOSTS."""
    chosen = os.environ.get("SPARKFLEET_TEST_HOSTS", "")
    return chosen.split(",") if chosen else list(lab.hosts)[:HOSTS]


@pytest.fixture(scope="session")
def host(sparks: list[str]) -> str:
    """The name of one simulated host."""
    return sparks[0]


@dataclass(frozen=True)
class Run:
    """How a run of pyinfra ended."""

    code: int
    out: str
    """Standard output: the tables."""
    said: str
    """Everything it said, output and log."""


Hosts = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Fleet:
    """A fleet of simulated hosts with an inventory of its own."""

    lab: Lab
    dir: Path

    def reached(self, name: str) -> dict[str, Any]:
        """The connection data of one host."""
        target = self.lab.hosts[name]
        return {
            "ssh_hostname": target.address,
            "ssh_port": target.port,
            "ssh_user": target.user,
            "ssh_key": str(target.key),
            "ssh_known_hosts_file": str(target.known_hosts),
            "ssh_strict_host_key_checking": "yes",
        }

    def write(self, hosts: Hosts, gateway: Hosts | None = None, **common: Any) -> Path:
        """An inventory file of these hosts: per host its data, `common` for all of them; and of
        the hosts of the gateway, where there is one."""
        rows = []
        for name, data in hosts.items():
            rows.append(
                (
                    name,
                    {
                        **self.reached(name),
                        "hub_endpoint": self.lab.hub,
                        "catalog": str(self.lab.catalog),
                        "lock": str(self.dir / "recipes.lock"),
                        "hardware": "gb10-lab",
                        # Services of their own say it themselves.
                        **({} if "services" in data else {"bind": "0.0.0.0"}),
                        **common,
                        **data,
                    },
                )
            )
        path = self.dir / "fleet.py"
        path.write_text(
            "from sparkfleet.inventory import fleet\n"
            f"import json\nsparks = fleet(*map(tuple, json.loads({json.dumps(rows)!r})))\n"
        )
        if gateway:
            doors = [(name, {**self.reached(name), **data}) for name, data in gateway.items()]
            with path.open("a") as file:
                file.write("from sparkfleet.inventory import gateways\n")
                file.write(f"gateway = gateways(*map(tuple, json.loads({json.dumps(doors)!r})))\n")
        return path

    def run(
        self,
        inventory: Path,
        *words: str,
        play: str = "deploy.py",
        timeout: float = 1200,
        stdin: str = "",
    ) -> Run:
        """`pyinfra -y INVENTORY deploy.py WORDS`, as an owner runs it, or another play."""
        done = subprocess.run(
            [str(BIN / "pyinfra"), "-y", str(inventory), play, *words],
            cwd=PROJECT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=os.environ | {"COLUMNS": "160", "SPARKFLEET_STATE": str(self.dir / "state")},
        )
        return Run(done.returncode, done.stdout, done.stdout + done.stderr)

    def deploy(self, hosts: Hosts, *words: str, gateway: Hosts | None = None, **common: Any) -> Run:
        """Write the inventory and run the deploy on it."""
        return self.run(self.write(hosts, gateway, **common), *words)


@pytest.fixture
def fleet(lab: Lab, tmp_path: Path) -> Fleet:
    """A fleet whose pins and keys are this test's own."""
    return Fleet(lab, tmp_path)


@pytest.fixture
def bare(lab: Lab) -> Callable[..., None]:
    """Makes hosts bare boxes again: `bare("spark-1")`."""

    def fresh(*names: str, docker: bool = False) -> None:
        for name in names:
            lab.fresh(name, docker=docker)

    return fresh
