"""A deployed fleet behind a gateway on its first host, as the tests drive and watch it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.conftest import Fleet, Run
from tests.lab.load import Load, fetch, servers
from tests.lab.observe import key_of

SHOW_INFO = """
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("/run/sparkfleet-gateway/admin.sock")
s.sendall(b"show info\\n")
print(s.makefile().read())
"""
ROOT = "/var/lib/sparkfleet"
STATS_PORT = 8404
PORT = 8080


@dataclass
class Gated:
    """A deployed fleet of stand-ins behind a gateway on its first host."""

    fleet: Fleet
    sparks: list[str]
    common: dict[str, Any]
    doors: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is said of each gateway beside what holds for all; the first host alone by default."""

    @property
    def door(self) -> str:
        return self.sparks[0]

    @property
    def address(self) -> str:
        return self.fleet.lab.hosts[self.door].address

    @property
    def gateway(self) -> dict[str, dict[str, Any]]:
        common = {"bind": "0.0.0.0", "port": PORT, "stats": f"0.0.0.0:{STATS_PORT}"}
        return {name: {**common, **keys} for name, keys in (self.doors or {self.door: {}}).items()}

    def deploy(self, *words: str, **changes: Any) -> Run:
        self.common = {**self.common, **changes}
        return self.fleet.run(self.inventory(), *words)

    def play(self, name: str, *words: str) -> Run:
        """Another play than the deploy, of the same inventory."""
        return self.fleet.run(self.inventory(), *words, play=f"plays/{name}.py")

    def inventory(self) -> Path:
        hosts: dict[str, dict[str, Any]] = {name: {} for name in self.sparks}
        return self.fleet.write(hosts, self.gateway, **self.common)

    def load(self, model: str = "lab-standin", tokens: int = 60) -> Load:
        return Load(self.address, PORT, model, key_of(self.fleet.dir), tokens)

    def stat(self) -> Mapping[str, dict[str, str]]:
        return servers(fetch(self.address, STATS_PORT, "/;csv")[1])

    def status(self, name: str) -> str:
        row = self.stat().get(name)
        return row["status"] if row else "absent"

    def in_flight(self, name: str) -> int:
        return int(self.stat()[name]["scur"])

    def all_up(self) -> bool:
        return all(self.status(name) == "UP" for name in self.sparks)

    def sh(self, command: str, host: str | None = None) -> str:
        return self.fleet.lab.exec(host or self.door, command, check=True).stdout

    def leave(self, host: str, action: str) -> dict[str, Any]:
        """Have the owner's word carried out on a node, as plays/drain.py does."""
        request = {"root": ROOT, "service": "llm", "action": action, "reason": "a test"}
        path = "/run/leave.json"
        program = "python3 /opt/sparkfleet/node/leave.py"
        self.sh(
            f"rm -f /run/leave.jsonl; echo '{json.dumps(request)}' > {path}; {program} {path}", host
        )
        last = json.loads(self.sh("tail -1 /run/leave.jsonl", host))
        assert last["ok"], last
        return dict(last["result"])

    def pid(self) -> str:
        """HAProxy's working process; empty while there is none."""
        said = self.fleet.lab.exec(self.door, ["python3", "-c", SHOW_INFO]).stdout
        return next((line for line in said.splitlines() if line.startswith("Pid:")), "")

    def anew(self, before: str) -> bool:
        """Whether another process than `before` works."""
        return self.pid() not in ("", before)

    def in_flight_at_drain(self, seen: dict[str, int], seconds: float = 300) -> threading.Thread:
        """Watch each node's drain begin, and note in `seen` how many requests it had then."""

        def watch() -> None:
            until = time.monotonic() + seconds
            while time.monotonic() < until and set(seen) != set(self.sparks):
                for name, row in self.stat().items():
                    if row["status"].startswith("DRAIN") and name not in seen:
                        seen[name] = int(row["scur"])
                threading.Event().wait(0.1)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        return thread
