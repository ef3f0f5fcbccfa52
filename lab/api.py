"""The lab as the tests use it: its hosts, and everything that can happen to them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

from lab import network
from lab.conditions import Conditions
from lab.errors import LabError
from lab.reach import Host, Outcome
from lab.settings import APT_PORT, HUB_PORT, REGISTRY_PORT

__all__ = ["Host", "Lab", "LabError", "Outcome"]
PORTS = {"registry": REGISTRY_PORT, "hub": HUB_PORT, "apt": APT_PORT}


class Lab(Conditions):
    """A running lab: `Lab.load()`. Every method raises LabError, in a sentence."""

    # Power

    def power_cycle(self, name: str, timeout: float = 60) -> None:
        """Pull the plug and put it back: all dies at once. Returns when the host is ready."""
        self._gone_and_back(name, lambda: self.ask("power-cycle", name=name))
        self.wait_ready(name, timeout)

    def reboot(self, name: str, timeout: float = 90) -> None:
        """Reboot the host in an orderly way; returns when it is ready."""
        self._gone_and_back(name, lambda: self.exec(name, ["systemctl", "reboot"]))
        self.wait_ready(name, timeout)

    def power_off(self, name: str) -> None:
        """Pull the plug and leave the host off."""
        self.ask("power-off", name=name, quick=True)

    def power_on(self, name: str, timeout: float = 60) -> None:
        """Switch a host on that is off; returns when it is ready."""
        self.ask("power-on", name=name)
        self.wait_ready(name, timeout)

    def fresh(self, name: str, *, docker: bool = False, timeout: float = 60) -> None:
        """Make the host a bare box again: nothing on its disk but what every new host has.

        Images in Docker's store stay, as they cost minutes, and all containers, networks and
        volumes go; with `docker`, the images go too. The SSH host key stays.
        """
        self.ask("fresh", name=name, docker=docker)
        self.wait_ready(name, timeout)
        if not docker:
            # Only now: before, a unit of the old root would have started them again.
            self.exec(
                name,
                "docker ps -aq | xargs -r docker rm -f >/dev/null &&"
                "docker network prune -f >/dev/null && docker volume prune -af >/dev/null",
                timeout=timeout,
                check=True,
            )

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
        self.ask("stop-service", name=service)

    def start_service(self, service: str, timeout: float = 15) -> None:
        """Start it again; returns when it answers on its port."""
        self.ask("start-service", name=service)
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
        """Does `registry`, `hub` or `apt` accept connections?"""
        try:
            socket.create_connection((self.settings.gateway, PORTS[service]), timeout=2).close()
        except OSError:
            return False
        return True
