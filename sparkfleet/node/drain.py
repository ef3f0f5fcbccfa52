"""Whether a service takes new requests through the gateway: who took it out, and who has heard.

Two hands may take a service out, and each lets in only what it took out itself:

- the *owner*, with plays/drain.py: drain.json in the service's directory, which outlives a reboot;
- a *switch*: a file in /run, which a power cut forgets, as it forgets the release under trial.

The agent tells each gateway that asks the `word` that follows from these files and the state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sparkfleet.node.disk import read_json, remove, write_whole
from sparkfleet.node.layout import Service
from sparkfleet.node.state import State, load_state

By = Literal["owner", "switch"]

#: What HAProxy's agent-check understands. `ready` alone leaves a server that was `down` DOWN.
READY, DRAIN, DOWN = "up ready", "drain", "down"
#: A gateway is known while it asks: so many intervals of its asking, and so many seconds at least.
KNOWN_INTERVALS, KNOWN_SECONDS = 3.0, 5.0


@dataclass(frozen=True)
class Peer:
    """A gateway, by its address, and what it knows. Times are of time.monotonic."""

    word: str
    since: float
    """When it was first told this word."""
    last: float
    """When it last asked."""


@dataclass(frozen=True)
class Heard:
    """What the agent has told to whom, as it writes it to /run."""

    interval: float = 0.0
    """Seconds between two questions of a gateway; 0: no gateway is configured."""
    gateways: int = 0
    """How many the inventory has."""
    peers: Mapping[str, Peer] | None = None

    def known(self, now: float) -> dict[str, Peer]:
        """The gateways that ask: one that is down is not waited for."""
        limit = max(KNOWN_INTERVALS * self.interval, KNOWN_SECONDS)
        return {name: peer for name, peer in (self.peers or {}).items() if now - peer.last <= limit}

    def deaf(self, now: float) -> list[str]:
        """Gateways that ask and were last told to send more."""
        return sorted(name for name, peer in self.known(now).items() if peer.word == READY)


@dataclass(frozen=True)
class Status:
    """Where a service stands with the gateway."""

    word: str
    owner: dict[str, Any] | None
    """reason, who, since (seconds since 1970); None: the owner has not taken it out."""
    switch: dict[str, Any] | None
    heard: Heard


def mark(service: Service, reason: str, *, by: By = "owner", who: str = "") -> None:
    """Take the service out: no new request from a gateway once it has heard (see `quiesce`).

    Marking what is marked already keeps the first mark. Raises OSError.
    """
    path = _path(service, by)
    if _read(path) is None:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        about = {"reason": reason, "who": who, "since": round(time.time(), 3)}
        write_whole(path, json.dumps(about, ensure_ascii=False) + "\n")


def clear(service: Service, *, by: By = "owner") -> bool:
    """Take back what `mark` did by the same hand; whether there was anything to take back.

    The service is let in once nobody holds it out and it is proven.
    """
    path = _path(service, by)
    held = path.exists()
    remove(path)
    return held


def status(service: Service) -> Status:
    """Where the service stands now, by what is on disk."""
    owner, switch = _read(service.drained), _read(service.leaving)
    return Status(
        word=word(load_state(service), out=bool(owner or switch), same_run=service.proven.exists()),
        owner=owner,
        switch=switch,
        heard=load_heard(service),
    )


def word(state: State, *, out: bool, same_run: bool) -> str:
    """What a gateway is told. Only a proven engine gets requests, and only the run of it that was
    proven; one that is `out` keeps those that it has."""
    if state.phase == "proven" and same_run:
        return DRAIN if out else READY
    return DRAIN if state.phase == "draining" else DOWN


def load_heard(service: Service) -> Heard:
    """What the agent last wrote; nothing heard where there is no gateway."""
    raw = read_json(service.heard)
    try:
        peers = {str(name): Peer(**peer) for name, peer in raw["peers"].items()}
        return Heard(float(raw["interval"]), int(raw["gateways"]), peers)
    except (KeyError, TypeError, ValueError, AttributeError):
        return Heard()


def _path(service: Service, by: By) -> Path:
    return service.drained if by == "owner" else service.leaving


def _read(path: Path) -> dict[str, Any] | None:
    """The mark; one that can't be read holds as well: in doubt, no request is sent."""
    raw = read_json(path)
    if isinstance(raw, dict):
        return raw
    return {"reason": "", "who": "", "since": 0.0} if path.exists() else None
