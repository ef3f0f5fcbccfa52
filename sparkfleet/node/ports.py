"""Who holds a TCP port of this host."""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sparkfleet.node.docker import DockerApi, DockerError

PROC = Path("/proc")
_LISTEN = "0A"
#: What Docker listens with for a container.
PROXY = "docker-proxy"


@dataclass(frozen=True)
class Holder:
    """A process or a container that holds a port; `project` is the container's compose project."""

    words: str
    project: str = ""
    id: str = ""
    """The container's."""


def is_free(bind: str, port: int) -> bool:
    """Whether an engine could listen on `bind`:`port` now."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Listeners count, connections that linger after a stop do not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError as error:
            return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


def holder(bind: str, port: int, docker: DockerApi) -> Holder | None:
    """Who holds the port, by name as far as it can be told; None when it is free.

    Docker is asked first: a container's port may be held by a proxy, or by packet rules alone.
    """
    try:
        for row in docker.containers():
            if any(number == port and _overlap(bind, address) for address, number in row.ports):
                project = row.labels.get("com.docker.compose.project", "")
                return Holder(f"the container {row.name}", project, row.id)
    except DockerError:
        pass
    if is_free(bind, port):
        return None
    names = sorted(set(_listeners(port)))
    return Holder(", ".join(names) or "a process that can't be told")


def lasting_holder(
    bind: str,
    port: int,
    docker: DockerApi,
    *,
    patience: float = 15.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Holder | None:
    """As `holder`, waiting `patience` seconds for a container that comes or goes just now.

    While one does, Docker's proxy holds the port and Docker names no container for it.
    """
    until = clock() + patience
    while True:
        found = holder(bind, port, docker)
        passing = found is not None and not found.id and found.words.startswith(PROXY)
        if not passing or clock() >= until:
            return found
        sleep(0.5)


def _overlap(one: str, other: str) -> bool:
    wild = {"", "0.0.0.0", "::"}
    return one in wild or other in wild or one == other


def _listeners(port: int) -> Iterator[str]:
    """The processes that listen on `port`, as `name (pid N)`."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = (PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in PROC.glob("[0-9]*") if inodes else ():
        try:
            if any(str(fd.readlink()) in inodes for fd in (process / "fd").iterdir()):
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                yield f"{name} (pid {process.name})"
        except OSError:
            continue


def is_local(bind: str) -> bool:
    """Whether `bind` is an address that this host can listen on."""
    try:
        address = ipaddress.ip_address(bind)
    except ValueError:
        return False
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((bind, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True
