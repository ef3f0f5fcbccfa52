"""A switch under way, as it stands on disk: whoever finds it without its lock held, ends it."""

from __future__ import annotations

import json
from typing import Any

from sparkfleet.node.disk import read_json, remove, write_whole
from sparkfleet.node.failed import Failed, again
from sparkfleet.node.layout import Service
from sparkfleet.node.request import Request


class Pending:
    """switch.json of one service."""

    def __init__(self, service: Service) -> None:
        self._path = service.switch
        self._raw: dict[str, Any] = read_json(self._path) or {}

    def __bool__(self) -> bool:
        """Whether a switch is under way, or was cut."""
        return bool(self._raw)

    @property
    def tries(self) -> int:
        """How often it was begun."""
        return int(self._raw.get("tries", 0))

    @property
    def boot(self) -> str:
        """The boot of the host in which it was begun."""
        return str(self._raw.get("boot", ""))

    @property
    def job(self) -> str:
        """Path of the job's request, whose events tell of it; empty when there is none."""
        return str(self._raw.get("job") or "")

    @property
    def request(self) -> Request:
        """What was asked for. Raises Fault."""
        return Request.parse(self._raw.get("request"))

    def is_to(self, release: str) -> bool:
        """Whether it is a switch to `release`."""
        return bool((self._raw.get("request") or {}).get("release") == release)

    def way_back(self, release: str) -> Failed | None:
        """Why it was going back already when it was cut; None when it was not."""
        back = self._raw.get("back")
        return again(back) if back and self.is_to(release) else None

    def note(
        self, request: Request, *, boot: str, job: str, now: float, back: Failed | None = None
    ) -> None:
        """Say on disk that `request` is under way, or going back: before the first change."""
        tries = self.tries if self.is_to(request.release) else 0
        self._raw = {
            "request": request.plain(),
            "boot": boot,
            "job": job,
            "since": round(now, 3),
            "tries": tries + (back is None),
            "back": back.as_dict() if back else None,
        }
        write_whole(self._path, json.dumps(self._raw) + "\n", 0o600)

    def clear(self) -> None:
        """Its outcome is known."""
        remove(self._path)
