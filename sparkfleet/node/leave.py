"""Take a service out of the gateway by its owner's word, or let it in again. A job.

    python3 leave.py JOB.json

The request: root, service, action (`out` or `in`); for `out` also reason, who, and seconds to wait
for running requests. Nothing is stopped. The result of `out`: heard (whether every gateway of the
inventory knows), under_way (requests that still run); of `in`: held (whether the owner held it
out), word (what the gateways are told now: one that is not proven is not let in).
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

if not __package__:
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node import drain, probe, wire
from sparkfleet.node.disk import read_json
from sparkfleet.node.events import Events
from sparkfleet.node.faults import FAILED, OK, Fault
from sparkfleet.node.layout import Service, load_release
from sparkfleet.node.quiesce import Waiting, until_heard, until_idle


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    root: Path
    service: str
    action: Literal["out", "in"]
    reason: str = ""
    who: str = ""
    seconds: float = 60.0

    @classmethod
    def parse(cls, raw: Any) -> Request:
        """Raises Fault naming the key that is missing or wrong."""
        try:
            if raw["action"] not in ("out", "in"):
                raise ValueError(f"action {raw['action']!r}")
            return cls(
                root=Path(raw["root"]),
                service=str(raw["service"]),
                action=raw["action"],
                reason=str(raw.get("reason", "")),
                who=str(raw.get("who", "")),
                seconds=float(raw.get("seconds", 60.0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Fault(f"The request is wrong or lacks {error}.", code="request") from None


def leave(request: Request, service: Service, events: Events) -> dict[str, Any]:
    """Take it out, and wait until nothing of it is under way or the time is up."""
    if not service.dir.is_dir():
        raise Fault(
            f"There is no service {service.name} on this host.",
            where=str(service.dir),
            next="Deploy it first, or name another.",
            code="no-service",
        )
    drain.mark(service, request.reason, who=request.who)
    by = Waiting(time.monotonic, time.sleep, events.log)
    events.phase("drain", "waiting until every gateway has heard")
    heard = until_heard(lambda: drain.load_heard(service), by)
    chosen = service.chosen()
    count = 0
    if chosen is not None:
        events.phase("drain", "waiting until no request runs")
        target = wire.Target.of(str(load_release(chosen).probe["url"]))
        count = until_idle(target, probe.load, by, seconds=request.seconds)
    return {"heard": heard, "under_way": count, "word": drain.status(service).word}


def enter(service: Service) -> dict[str, Any]:
    """Take back what the owner said."""
    held = drain.clear(service)
    return {"held": held, "word": drain.status(service).word}


def main(argv: list[str]) -> int:
    """Do the job of the request file `argv[0]`."""
    path = Path(argv[0])
    with Events.for_request(path) as events:
        try:
            request = Request.parse(read_json(path))
            service = Service(request.root, request.service)
            out = request.action == "out"
            result = leave(request, service, events) if out else enter(service)
            events.done(True, result)
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
