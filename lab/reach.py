"""Reaching into a running lab: what its state file says, and commands run inside its hosts."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lab import host, runstate
from lab.command import attempt
from lab.errors import LabError
from lab.settings import Settings, from_environment

#: timeout(1)'s own exit code.
TIMED_OUT = 124
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


class Reach:
    """A running lab. Every method raises LabError, in a sentence, for what can't be done."""

    def __init__(self, settings: Settings, state: dict[str, Any]) -> None:
        self.settings = settings
        self.registry: str = state["registry"]
        self.hub: str = state["hub"]
        self.catalog = Path(state["catalog"])
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
        settings = runstate.recorded(settings or from_environment())
        try:
            state = json.loads(settings.state_file.read_text())
        except OSError as error:
            raise LabError(runstate.DOWN) from error
        return cls(settings, state)

    def host(self, name: str) -> Host:
        """The host of that name. Raises LabError, naming those there are."""
        if name not in self.hosts:
            raise LabError(f"The lab has no host {name!r}; it has {', '.join(self.hosts)}.")
        return self.hosts[name]

    def ask(self, verb: str, **words: object) -> dict[str, Any]:
        """Send one request to the supervisor."""
        return runstate.ask(self.settings, verb, timeout=120, **words)

    def leader(self, name: str) -> int | None:
        """The pid, on this machine, of the host's PID 1; None while the host is off."""
        self.host(name)
        pid = self.ask("state")["hosts"][name]["pid"]
        return host.leader(pid) if pid else None

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
        # The host ends it, with all that it started: killing nsenter would leave it running there.
        bound = ["timeout", "--kill-after=2", f"{timeout:.3f}"]
        done = attempt(self.inside_argv(name, [*bound, *argv]), text=text, timeout=timeout + 10)
        if done.returncode == TIMED_OUT:
            raise LabError(f"{shlex.join(argv)} did not end within {timeout:.0f} s on {name}.")
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
