"""Long steps on a host: started once, detached from SSH, and watched from here.

A job is a node program under a transient systemd unit (`sparkfleet.node.job`). Losing the
connection loses nothing: the job goes on, and this side connects again and reads on where it was.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkfleet.connector import SparkConnector

PROGRAMS = "/opt/sparkfleet/node"
"""Where the node programs stand on a Spark: a link to the installed version of them."""

POLL_SECONDS = 20
"""How long one poll waits on the host for news before it answers that there is none."""

LOST_SECONDS = 20 * 60
"""How long a host may be out of reach while a job runs: a firmware reboot takes 15 minutes."""

Watcher = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Outcome:
    """How a job ended. `error` has the keys what, where, why, next, code, each a sentence."""

    ok: bool
    result: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, str] = field(default_factory=dict)


def _failure(what: str, why: str, next_step: str, code: str) -> Outcome:
    return Outcome(False, error={"what": what, "why": why, "next": next_step, "code": code})


def run_job(
    connector: SparkConnector,
    *,
    root: str,
    name: str,
    program: str,
    request: Mapping[str, Any],
    timeout: float,
    watch: Watcher,
) -> Outcome:
    """Start the job (or join the one that runs already), pass its events to `watch`, and return
    how it ended. `timeout` bounds the watching, in seconds; the job has bounds of its own."""
    words = ["python3", f"{PROGRAMS}/job.py", "start", "--root", root]
    words += ["--name", name, "--program", program]
    started = connector.run(shlex.join(words), stdin=json.dumps(request).encode(), timeout=60)
    if not started.ok:
        return _failure(
            f"The step {name} could not be started.",
            started.errors or started.text.strip(),
            "Look at the message, then run the same command again.",
            "start",
        )
    done: Outcome | None = None
    for event in follow(connector, root=root, name=name, deadline=time.monotonic() + timeout):
        if event["event"] == "done":
            error = event.get("error") or {}
            done = Outcome(bool(event["ok"]), event.get("result") or {}, error)
        else:
            watch(event)
    return done or _failure(
        f"The step {name} gave no result.",
        f"Nothing was heard of it within {timeout / 60:.0f} minutes, or the host went away.",
        "It may still be running there: run the same command again, which joins it.",
        "lost",
    )


def follow(
    connector: SparkConnector, *, root: str, name: str, deadline: float
) -> Iterator[dict[str, Any]]:
    """The events of a job, as they come, up to its `done`; ends early at the deadline
    (time.monotonic) or when the host stays out of reach."""
    offset = 0
    while time.monotonic() < deadline:
        words = ["python3", f"{PROGRAMS}/job.py", "follow", "--root", root, "--name", name]
        words += ["--offset", str(offset), "--wait", str(POLL_SECONDS)]
        answer = connector.run(shlex.join(words), timeout=POLL_SECONDS + 20)
        if not answer.ok:
            if answer.status is not None:
                yield _done_event(answer.errors)
                return
            yield _log_event(f"The connection was lost: {answer.errors}. The step goes on there.")
            if not connector.reconnect(deadline=min(deadline, time.monotonic() + LOST_SECONDS)):
                return
            yield _log_event("Reached again.")
            continue
        news = json.loads(answer.text)
        offset = news["offset"]
        for event in news["events"]:
            yield event
            if event["event"] == "done":
                return


def _log_event(text: str) -> dict[str, Any]:
    return {"event": "log", "text": text}


def _done_event(why: str) -> dict[str, Any]:
    error = {
        "what": "The step can't be followed.",
        "why": why,
        "next": "Run the same command again.",
        "code": "follow",
    }
    return {"event": "done", "ok": False, "error": error}
