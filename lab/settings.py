"""Where the lab lives and which addresses it uses. Pure, but for reading the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from lab.errors import LabError

DEFAULT_NET = "10.213.77.0/24"
#: Last octet of the first host; host N of the lab is FIRST_HOST + N - 1.
FIRST_HOST = 11
#: The most hosts that a /24 leaves room for here; memory ends it long before.
MAX_HOSTS = 200
REGISTRY_PORT = 5000
#: The hub stand-in serves large files from the next port, as the real one from another origin.
HUB_PORT = 8090
APT_PORT = 8099


@dataclass(frozen=True)
class Settings:
    """One lab: its address range and its two directories.

    `net` is an IPv4 /24; the machine's own side is `.1`, hosts start at `.11`.
    `run` holds what lives while the lab is up; `down` removes it.
    `cache` holds what is worth keeping: root file systems, host disks, registry, hub data.
    """

    net: IPv4Network
    run: Path
    cache: Path
    bridge: str = "br-sparkfleet"

    @property
    def gateway(self) -> str:
        """The machine's own address on the bridge; no host routes through it."""
        return str(self.net.network_address + 1)

    @property
    def registry(self) -> str:
        return f"{self.gateway}:{REGISTRY_PORT}"

    @property
    def hub(self) -> str:
        return f"http://{self.gateway}:{HUB_PORT}"

    @property
    def apt(self) -> str:
        return f"http://{self.gateway}:{APT_PORT}"

    def address(self, name: str) -> str:
        """The address of host `spark-N`."""
        return str(self.net.network_address + FIRST_HOST - 1 + number(name))

    def disk(self, name: str) -> Path:
        """The directory that is host `name`'s disk: root overlay and Docker's directory."""
        return self.cache / "hosts" / name

    @property
    def state_file(self) -> Path:
        """`lab.json`, which inventory/simulated.py and `lab.api` read."""
        return self.run / "lab.json"

    @property
    def catalog(self) -> Path:
        """The lab's own recipes/ and hardware/, made with its model and engine images."""
        return self.cache / "catalog"

    @property
    def socket(self) -> Path:
        return self.run / "control.sock"

    @property
    def pid_file(self) -> Path:
        return self.run / "supervisor.json"

    @property
    def logs(self) -> Path:
        return self.run / "log"


def number(name: str) -> int:
    """3 for `spark-3`. Raises LabError for a name the lab does not use."""
    prefix, _, digits = name.rpartition("-")
    if prefix != "spark" or not digits.isdigit() or not 1 <= int(digits) <= MAX_HOSTS:
        raise LabError(f"The lab has no host called {name!r}: hosts are spark-1, spark-2, ...")
    return int(digits)


def host_names(count: int) -> list[str]:
    """`spark-1` to `spark-count`. Raises LabError for a count that can't be."""
    if not 1 <= count <= MAX_HOSTS:
        raise LabError(f"The lab can have 1 to {MAX_HOSTS} hosts, not {count}.")
    return [f"spark-{n}" for n in range(1, count + 1)]


def from_environment(env: Mapping[str, str] = os.environ) -> Settings:
    """Settings from SPARKFLEET_LAB_NET, SPARKFLEET_LAB_RUN and SPARKFLEET_LAB_CACHE.

    Raises LabError where the range is not a private IPv4 /24.
    """
    text = env.get("SPARKFLEET_LAB_NET", DEFAULT_NET)
    try:
        net = IPv4Network(text)
    except ValueError as error:
        raise LabError(f"SPARKFLEET_LAB_NET={text!r} is not an IPv4 range: {error}.") from error
    if net.prefixlen != 24 or not net.is_private:
        raise LabError(
            f"SPARKFLEET_LAB_NET={text!r} must be a private /24 such as {DEFAULT_NET}, "
            "so that nothing sent to a simulated host can mean a real one."
        )
    caches = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", "/root")) / ".cache")
    return Settings(
        net=net,
        run=Path(env.get("SPARKFLEET_LAB_RUN", "/run/sparkfleet-lab")),
        cache=Path(env.get("SPARKFLEET_LAB_CACHE") or caches / "sparkfleet-lab"),
    )
