"""The lab's own routes, `/_lab/…`: counters, the request log, faults, a moved branch head."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lab.hub.faults import Fault

if TYPE_CHECKING:
    from lab.hub.server import Hub


def control(hub: Hub, method: str, route: str, body: bytes) -> tuple[Any, int]:
    """Carry out one control request; returns the JSON to answer and its status."""
    try:
        return _control(hub, f"{method} {route}", json.loads(body or b"null"))
    except (ValueError, KeyError, TypeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}, 400


def _control(hub: Hub, asked: str, body: Any) -> tuple[Any, int]:
    match asked:
        case "GET /_lab/health":
            return {"ok": True}, 200
        case "GET /_lab/counters":
            return hub.journal.counters(), 200
        case "DELETE /_lab/counters":
            hub.journal.reset()
        case "GET /_lab/log":
            return hub.journal.recent(), 200
        case "GET /_lab/faults":
            return hub.faults.listing(), 200
        case "DELETE /_lab/faults":
            hub.faults.clear()
        case "POST /_lab/faults":
            rows = [Fault.parse(raw) for raw in (body if isinstance(body, list) else [body])]
            return {"ids": [hub.faults.add(row) for row in rows]}, 200
        case "POST /_lab/move":
            return {"commit": hub.store.move_head(body["repo"], date=body.get("date"))}, 200
        case _:
            return {"error": "no such control"}, 404
    return {"ok": True}, 200
