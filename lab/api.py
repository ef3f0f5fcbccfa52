"""The lab as the tests use it: its hosts, and everything that can happen to them."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lab import host, network, runstate
from lab.command import attempt
from lab.errors import LabError
from lab.settings import Settings, from_environment

Outcome = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Host:
    """How to log in to one host: what `lab.json` says of it."""

    name: str
    address: str
    port: int
    user: str
    key: Path
    known_hosts: Path

    def ssh_argv(self, *command: str) -> list[str]:
        """An OpenSSH command line to the host, with its host key checked strictly."""
        options = {
            "UserKnownHostsFile": str(self.known_hosts),
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "10",
        }
        flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        target = f"{self.user}@{self.address}"
        login = ["ssh", "-F", "none", "-i", str(self.key), "-p", str(self.port)]
        return [*login, *flags, target, *command]


class Lab:
    """A running lab. Every method raises LabError, in a sentence, for what can't be done."""

    def __init__(self, settings: Settings, state: dict[str, Any]) -> None:
        self.settings = settings
        self.registry: str = state["registry"]
        self.hub: str = state["hub"]
        self.recipes = Path(state["recipes"])
        self.cache = settings.cache
        self.hosts = {
            row["name"]: Host(
                name=row["name"],
                address=row["address"],
                port=row["port"],
                user=row["user"],
                key=Path(row["key"]),
                known_hosts=Path(row["known_hosts"]),
            )
            for row in state["hosts"]
        }

    @classmethod
    def load(cls, settings: Settings | None = None) -> Self:
        """The lab that is up now, by its run state. Raises LabError when none is."""
        settings = settings or from_environment()
        try:
            state = json.loads(settings.state_file.read_text())
        except OSError as error:
            raise LabError(runstate.DOWN) from error
        return cls(settings, state)

    def host(self, name: str) -> Host:
        if name not in self.hosts:
            raise LabError(f"The lab has no host {name!r}; it has {', '.join(self.hosts)}.")
        return self.hosts[name]

    # Reaching inside

    def leader(self, name: str) -> int | None:
        """The pid, on this machine, of the host's PID 1; None while the host is off."""
        state = runstate.ask(self.settings, "state")["hosts"]
        if name not in state:
            raise LabError(f"The lab has no host {name!r}; it has {', '.join(state)}.")
        return host.leader(state[name]["pid"]) if state[name]["pid"] else None

    def inside_argv(self, name: str, command: Sequence[str]) -> list[str]:
        """The command line, for this machine, that runs `command` as root inside the host."""
        pid = self.leader(name)
        if pid is None:
            raise LabError(f"Host {name} is off, so nothing can run in it.")
        return [*host.enter_argv(pid), *command]

    def exec(
        self,
        name: str,
        command: str | Sequence[str],
        *,
        timeout: float = 60,
        text: str | None = None,
        check: bool = False,
    ) -> Outcome:
        """Run a command as root inside the host, without ssh: a string by its shell, or an argv.

        `text` is its standard input. With `check`, a failure raises LabError.
        """
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        done = attempt(self.inside_argv(name, argv), text=text, timeout=timeout)
        if check and done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise LabError(f"{shlex.join(argv)} failed on {name} ({done.returncode}): {said}")
        return done

    def read(self, name: str, path: str) -> str:
        """The text of a file in the host."""
        return self.exec(name, ["cat", path], check=True).stdout

    def write(self, name: str, path: str, content: str, mode: str = "") -> None:
        """Rewrite a file in the host in place (so that a bind mount of it shows the change)."""
        quoted = shlex.quote(path)
        self.exec(name, f"mkdir -p $(dirname {quoted}) && cat > {quoted}", text=content, check=True)
        if mode:
            self.exec(name, ["chmod", mode, path], check=True)

    # Power

    def power_cycle(self, name: str, timeout: float = 60) -> None:
        """Pull the plug and put it back: all dies at once. Returns when the host is ready."""
        self._gone_and_back(name, lambda: runstate.ask(self.settings, "power-cycle", name=name))
        self.wait_ready(name, timeout)

    def reboot(self, name: str, timeout: float = 90) -> None:
        """Reboot the host in an orderly way; returns when it is ready."""
        self._gone_and_back(name, lambda: self.exec(name, ["systemctl", "reboot"]))
        self.wait_ready(name, timeout)

    def power_off(self, name: str) -> None:
        """Pull the plug and leave the host off."""
        runstate.ask(self.settings, "power-off", name=name, quick=True)

    def power_on(self, name: str, timeout: float = 60) -> None:
        """Switch a host on that is off; returns when it is ready."""
        runstate.ask(self.settings, "power-on", name=name)
        self.wait_ready(name, timeout)

    def fresh(self, name: str, *, docker: bool = False, timeout: float = 60) -> None:
        """Make the host a bare box again: nothing on its disk but what every new host has.

        Images in Docker's store stay, as they cost minutes, and all containers, networks and
        volumes go; with `docker`, the images go too. The SSH host key stays.
        """
        if not docker and self.leader(name):
            self.exec(
                name,
                "docker ps -aq | xargs -r docker rm -f >/dev/null;"
                "docker network prune -f >/dev/null; docker volume prune -af >/dev/null",
                timeout=timeout,
            )
        runstate.ask(self.settings, "fresh", name=name, docker=docker)
        self.wait_ready(name, timeout)

    def wait_ready(self, name: str, timeout: float = 60) -> None:
        """Return once the host has booted, Docker runs and sshd answers."""
        deadline = time.monotonic() + timeout
        state = "off"
        while (left := deadline - time.monotonic()) > 0:
            state = self.state(name, wait=left)
            if state == "ready":
                return
            time.sleep(0.1)
        raise LabError(
            f"Host {name} was not ready after {timeout:.0f} s ({state}); "
            f"its console is in {self.settings.logs}/{name}.log."
        )

    def state(self, name: str, *, wait: float = 0) -> str:
        """`ready`, or what is missing: off, booting, no docker, no sshd. May wait for the boot."""
        if self.leader(name) is None:
            return "off"
        systemctl = ["systemctl", "is-system-running", *(["--wait"] if wait else [])]
        with contextlib.suppress(LabError):  # the host may go down while it is asked
            if self.exec(name, systemctl, timeout=wait or 5).stdout.strip() not in (
                *("running", "degraded"),
            ):
                return "booting"
            if self.exec(name, ["systemctl", "is-active", "-q", "docker"]).returncode != 0:
                return "no docker"
            return "ready" if self._ssh_banner(name) else "no sshd"
        return "booting"

    def _ssh_banner(self, name: str) -> bool:
        target = self.hosts[name]
        try:
            with socket.create_connection((target.address, target.port), timeout=2) as link:
                link.settimeout(2)
                return link.recv(4) == b"SSH-"
        except OSError:
            return False

    def _gone_and_back(self, name: str, action: Callable[[], object], timeout: float = 60) -> None:
        """Do `action` and wait until another PID 1 runs the host than before."""
        before = self.leader(name)
        if before is None:
            raise LabError(f"Host {name} is off.")
        action()
        deadline = time.monotonic() + timeout
        while self.leader(name) in (before, None):
            if time.monotonic() > deadline:
                raise LabError(f"Host {name} did not come back within {timeout:.0f} s.")
            time.sleep(0.05)

    # Network and services

    def cut_network(self, name: str) -> None:
        """Cut the host off silently: its packets vanish, nothing is refused."""
        network.cut(self.settings, name)

    def restore_network(self, name: str) -> None:
        network.restore(self.settings, name)

    @contextlib.contextmanager
    def network_cut(self, name: str) -> Iterator[None]:
        """`cut_network` while the block runs."""
        self.cut_network(name)
        try:
            yield
        finally:
            self.restore_network(name)

    def stop_service(self, service: str) -> None:
        """Stop `registry`, `hub` or `apt`: connections are then refused."""
        runstate.ask(self.settings, "stop-service", name=service)

    def start_service(self, service: str, timeout: float = 15) -> None:
        """Start it again; returns when it answers on its port."""
        runstate.ask(self.settings, "start-service", name=service)
        self.wait_service(service, timeout)

    def stop_registry(self) -> None:
        self.stop_service("registry")

    def start_registry(self) -> None:
        self.start_service("registry")

    def wait_service(self, service: str, timeout: float = 15) -> None:
        """Return once the service accepts connections."""
        deadline = time.monotonic() + timeout
        while not self.service_answers(service):
            if time.monotonic() > deadline:
                raise LabError(
                    f"The lab's {service} did not answer within {timeout:.0f} s; "
                    f"its output is in {self.settings.logs}/{service}.log."
                )
            time.sleep(0.05)

    def service_answers(self, service: str) -> bool:
        from lab.settings import APT_PORT, HUB_PORT, REGISTRY_PORT

        port = {"registry": REGISTRY_PORT, "hub": HUB_PORT, "apt": APT_PORT}[service]
        try:
            socket.create_connection((self.settings.gateway, port), timeout=2).close()
        except OSError:
            return False
        return True
