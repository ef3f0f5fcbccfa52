"""Bring up the gateway of this host, or have it take up new files. A job.

    python3 gateway.py JOB.json

HAProxy comes from the host's own package sources where it is missing. New files are judged by
HAProxy itself before they take the place of the old ones; a running gateway is reloaded, which cuts
no request; and where the new files do not come to serve, the old ones are put back, so that the
next run finds the difference again.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node import commands, servers
from sparkfleet.node.apt import Apt
from sparkfleet.node.disk import read_json, sync_dir
from sparkfleet.node.events import Events
from sparkfleet.node.faults import FAILED, OK, Fault

PACKAGE, PACKAGE_UNIT = "haproxy", "haproxy.service"
PROGRAM = Path("/usr/sbin/haproxy")
UNITS = Path("/etc/systemd/system")
#: Seconds for HAProxy to judge a file, for systemd to act, for a new process to serve.
JUDGE, ACT, SERVE = 30.0, 60.0, 20.0
#: Seconds for every agent to be asked once.
ASKED = 15.0
#: Seconds for a stop: requests under way end first (the unit's own limit is two minutes).
STOP = 180.0
LOCK_WAIT = 600.0
#: The first file descriptor that systemd hands over.
FIRST_SOCKET = 3


@dataclass(frozen=True)
class Request:
    """The JSON of the job: where things are and what must answer in the end."""

    incoming: Path
    config: Path
    certificate: Path
    unit: str
    ports: str
    """The unit that holds the ports; a change of it takes a stop."""
    socket: Path
    """HAProxy's runtime socket."""
    endpoints: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, raw: Any) -> Request:
        """Raises Fault naming the key that is missing or wrong."""
        try:
            return cls(
                incoming=Path(raw["incoming"]),
                config=Path(raw["config"]),
                certificate=Path(raw["certificate"]),
                unit=str(raw["unit"]),
                ports=str(raw["ports"]),
                socket=Path(raw["socket"]),
                endpoints=tuple((str(bind), int(port)) for bind, port in raw["endpoints"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Fault(
                f"The gateway's request is wrong or lacks {error}.", code="request"
            ) from None


class Gateway:
    """The gateway of this host."""

    def __init__(
        self,
        request: Request,
        events: Events,
        *,
        apt: Apt,
        run: commands.Runner = commands.run,
        program: Path = PROGRAM,
        units: Path = UNITS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._request, self._events, self._apt, self._run = request, events, apt, run
        self._program, self._units = program, units
        self._clock, self._sleep = clock, sleep
        self._stopped = False
        """What ran was stopped, for a change of ports."""

    def bring_up(self) -> dict[str, Any]:
        """Install, judge, put in place, start or reload. Raises Fault."""
        installed = self._install()
        self._judge()
        kept = Kept(self._targets())
        try:
            moves = kept.replaces(self._units / self._request.ports)
            kept.replace()
            how = self._take_up(moves)
        except (Fault, OSError):
            kept.put_back()
            self._systemctl("daemon-reload")
            if self._stopped:
                self._bring_back()
            raise
        kept.forget()
        shutil.rmtree(self._request.incoming, ignore_errors=True)
        silent = self._silent_agents()
        if silent:
            self._events.log(
                f"No agent answers the gateway at {', '.join(silent)}: a firewall on the way, or a "
                "node that is off? Until one does, the gateway goes by /health alone there."
            )
        return {"installed": installed, "how": how, "silent": silent}

    def _targets(self) -> dict[Path, Path]:
        """New file → where it goes."""
        request = self._request
        return {
            request.incoming / "haproxy.cfg": request.config,
            request.incoming / "tls.pem": request.certificate,
            request.incoming / request.unit: self._units / request.unit,
            request.incoming / request.ports: self._units / request.ports,
        }

    def _install(self) -> bool:
        if self._program.exists():
            return False
        self._apt.install(
            PACKAGE,
            missing="Complete the host's package sources (HAProxy is in Debian's main and in "
            "Ubuntu's main), or install it by hand; then run the same command again.",
        )
        # Its own unit serves an example; ours has its own files. One that the owner had stays.
        self._systemctl("disable", "--now", PACKAGE_UNIT)
        return True

    def _judge(self) -> None:
        """Let HAProxy read the new configuration. Raises Fault.

        With the new certificate, and with addresses in place of the sockets that it will inherit:
        a check has none.
        """
        request = self._request
        new, candidate = request.incoming / "haproxy.cfg", request.incoming / "candidate.cfg"
        text = new.read_text(encoding="utf-8")
        text = text.replace(str(request.certificate), str(request.incoming / "tls.pem"))
        for number, (bind, port) in enumerate(request.endpoints, start=FIRST_SOCKET):
            address = f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
            text = re.sub(rf"(?m)\bfd@{number}$|\bfd@{number}(?= )", address, text)
        candidate.write_text(text, encoding="utf-8")
        said = self._run([str(self._program), "-c", "-q", "-f", str(candidate)], JUDGE)
        candidate.unlink()
        if not said.ok:
            raise Fault(
                "HAProxy does not accept the new configuration; the gateway was left as it is.",
                where=str(new),
                why=f"It says: {said.words()}",
                next="Look at what it says of the inventory's values (a certificate, an address); "
                "then run the same command again.",
                code="config",
            )

    def _take_up(self, moves: bool) -> str:
        """Start it, or reload it; where its ports have changed, it is stopped for that."""
        unit, ports = self._request.unit, self._request.ports
        self._must("daemon-reload")
        self._must("enable", "--quiet", unit, ports)
        before = self._pid()
        runs = self._run(["systemctl", "is-active", "--quiet", unit, ports], ACT).ok
        if runs and not moves:
            self._events.phase("gateway", "reloading it")
            self._must("reload", unit)
            self._until_served(before)
            return "reloaded"
        self._events.phase("gateway", "starting it")
        if moves:
            self._stopped = self._run(["systemctl", "is-active", "--quiet", unit], ACT).ok
            self._must("stop", unit)
            self._must("stop", ports)
        self._run(["systemctl", "reset-failed", unit, ports], ACT)
        self._must("start", ports)
        self._must("start", unit)
        self._until_served("")
        return "restarted" if self._stopped else "started"

    def _bring_back(self) -> None:
        """What ran before, as well as it goes."""
        for words in (("stop", self._request.unit), ("restart", self._request.ports)):
            self._systemctl(*words)
        self._systemctl("start", self._request.unit)

    def _until_served(self, before: str) -> None:
        """Wait for a new process that listens everywhere. Raises Fault."""
        until = self._clock() + SERVE
        while True:
            pid = self._pid()
            fresh = bool(pid) and pid != before
            silent = [one for one in self._request.endpoints if not listens(*one)]
            if fresh and not silent:
                return
            if self._clock() >= until:
                break
            self._sleep(0.2)
        where = ", ".join(f"{bind}:{port}" for bind, port in silent)
        raise Fault(
            "The gateway did not take up its new configuration; the old one was put back.",
            where=where or self._request.unit,
            why=f"Nothing listens there. {self._journal()}" if where else self._journal(),
            next="Look at what it says (a port taken, an address the host does not have?); then "
            "run the same command again.",
            code="gateway",
        )

    def _silent_agents(self) -> list[str]:
        """Nodes whose agent the new process could not reach, once it has asked each."""
        until = self._clock() + ASKED
        while True:
            rows = self._agents()
            if (rows and all(rows.values())) or self._clock() >= until:
                return sorted(name for name, said in rows.items() if said.startswith("L4"))
            self._sleep(0.5)

    def _agents(self) -> dict[str, str]:
        """By node: how the last question to its agent went; empty while there was none."""
        try:
            said = servers.ask(self._request.socket, "show stat")
        except OSError:
            return {}
        rows = list(csv.DictReader(said.removeprefix("# ").splitlines()))
        asked = {row["svname"]: row.get("agent_status", "") for row in rows if row["type"] == "2"}
        return {name: "" if said.startswith(("INI", "*")) else said for name, said in asked.items()}

    def _pid(self) -> str:
        """The process that answers on the runtime socket; empty where none does."""
        try:
            said = servers.ask(self._request.socket, "show info")
        except OSError:
            return ""
        rows = dict(line.partition(": ")[::2] for line in said.splitlines())
        return "" if rows.get("Stopping") == "1" else rows.get("Pid", "")

    def _journal(self) -> str:
        argv = ["journalctl", "-u", self._request.unit, "-n", "12", "--no-pager", "-o", "cat"]
        said = self._run(argv, 20)
        return f"Its journal ends: {said.out.strip()}" if said.ok else ""

    def _must(self, *words: str) -> None:
        said = self._systemctl(*words)
        if not said.ok:
            raise Fault(
                "systemd did not do its part for the gateway.",
                where=f"systemctl {' '.join(words)}",
                why=f"{said.words()} {self._journal()}",
                next="Look at what it says; then run the same command again.",
                code="systemd",
            )

    def _systemctl(self, *words: str) -> commands.Outcome:
        return self._run(["systemctl", *words], STOP if words[0] == "stop" else ACT)


class Kept:
    """Files that are replaced together, and how they were before."""

    def __init__(self, targets: dict[Path, Path]) -> None:
        self._targets = targets

    def replaces(self, target: Path) -> bool:
        """Whether a file that is there already is to become another one."""
        new = next(new for new, known in self._targets.items() if known == target)
        return target.exists() and target.read_bytes() != new.read_bytes()

    def replace(self) -> None:
        """Put each new file in its place; what has no new one any more goes away."""
        for new, target in self._targets.items():
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            old = self._old(target)
            old.unlink(missing_ok=True)
            if target.exists():
                os.link(target, old)
            if new.exists():
                place(new, target)
            else:
                target.unlink(missing_ok=True)
            sync_dir(target.parent)

    def put_back(self) -> None:
        """As it was."""
        for target in self._targets.values():
            old = self._old(target)
            if old.exists():
                old.replace(target)
            else:
                target.unlink(missing_ok=True)

    def forget(self) -> None:
        """The new files stay."""
        for target in self._targets.values():
            self._old(target).unlink(missing_ok=True)

    @staticmethod
    def _old(target: Path) -> Path:
        return target.with_name(f".{target.name}.old")


def place(new: Path, target: Path) -> None:
    """Copy `new` to `target` in one step, with its mode, and never readable by more than that."""
    part = target.with_name(f".{target.name}.new")
    part.unlink(missing_ok=True)
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(new.read_bytes())
        os.fchmod(fd, new.stat().st_mode & 0o777)
        file.flush()
        os.fsync(fd)
    part.replace(target)


def listens(bind: str, port: int) -> bool:
    """Whether something accepts a connection."""
    try:
        with socket.create_connection((bind, port), timeout=1.0):
            return True
    except OSError:
        return False


def main(argv: Sequence[str]) -> int:
    """Do the job of the request file `argv[0]`."""
    path = Path(argv[0])
    with Events.for_request(path) as events:
        try:
            request = Request.parse(read_json(path))
            apt = Apt(events, lock_wait=LOCK_WAIT)
            events.done(True, Gateway(request, events, apt=apt).bring_up())
        except Fault as fault:
            events.done(False, error=fault.as_error())
            return fault.exit
        except OSError as error:
            refused = Fault(f"{error.strerror or error}.", where=str(error.filename or path))
            events.done(False, error=refused.as_error())
            return FAILED
    return OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
