"""What a node knows of a service: state.json for now, history.jsonl for then."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sparkfleet.node.disk import append_line, read_json, remove, write_whole
from sparkfleet.node.layout import Service

#: What a service can be in. Only `proven` means that it answers.
PHASES = (
    "booting",  # the container runs, the engine is not ready
    "proving",  # ready, the proof is under way
    "proven",  # it has answered every proof since its container started
    "failed",  # ready and a proof failed, or it never became ready
    "wedged",  # requests run and no token comes, or it does not answer at all
    "stopped",  # nobody wants it to run
    "draining",  # about to be switched
    "down",  # it should run and does not
)


@dataclass(frozen=True)
class State:
    """One service's state; `since` is in seconds since 1970."""

    service: str
    release: str = ""
    container: str = ""
    started: str = ""
    """Start of the container, as Docker prints it: with its id, the identity of a run."""
    phase: str = "stopped"
    since: float = 0.0
    marker: str = ""
    """Label of the last boot landmark."""
    proof: dict[str, Any] = field(default_factory=dict)
    """The last output of the probe."""
    restarts: int = 0
    """Starts of this release beyond the first."""
    reason: str = ""
    """A sentence, for every phase that is not good news."""
    schema: int = 1

    def become(self, phase: str, now: float, **changes: Any) -> State:
        """The state in `phase`; `since` moves only when the phase does."""
        since = self.since if phase == self.phase else now
        return replace(self, phase=phase, since=since, **changes)

    def is_of(self, run: str) -> bool:
        """Whether this state speaks of that run of a container (see Container.run)."""
        return bool(self.container) and f"{self.container[:12]}@{self.started}" == run


def load_state(service: Service) -> State:
    """The state on disk; a fresh one where there is none or it can't be read."""
    raw = read_json(service.state)
    if not isinstance(raw, dict) or raw.get("schema") != 1:
        return State(service.name)
    known = {entry.name for entry in fields(State)}
    return State(**{"service": service.name, **{k: v for k, v in raw.items() if k in known}})


def save_state(service: Service, state: State) -> None:
    """Write the state whole; the survey and the agent's next life read it."""
    if state.phase != "proven":
        remove(service.proven)
    write_whole(service.state, json.dumps(asdict(state), ensure_ascii=False, indent=1) + "\n")
    if state.phase == "proven":
        service.proven.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        service.proven.touch()


def record(service: Service, line: dict[str, Any]) -> None:
    """Append one line to the service's history."""
    append_line(service.history, line)
