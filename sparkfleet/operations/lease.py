"""Holding hosts for one run: a lease on each, renewed from here while the run lives."""

from __future__ import annotations

import base64
import json
import shlex
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import gevent
from gevent.event import Event

from sparkfleet.connector import SparkConnector
from sparkfleet.conversation import Conversation, ConversationLost

RENEW_SECONDS = 15.0
"""Between two signs of life: of four, three may get lost (the lease holds for 60 s)."""

AGAIN_SECONDS = 5.0
"""Until a broken connection is tried again."""

ANSWER_SECONDS = 20.0

# Line 1 of its input is the program; the rest is what the program reads.
_BOOT = (
    "import base64, sys, zlib; source = zlib.decompress(base64.b64decode(sys.stdin.readline())); "
    "exec(compile(source, 'lease.py', 'exec'), {'__name__': '__main__'})"
)
COMMAND = f"exec python3 -I -S -c {shlex.quote(_BOOT)}"


@cache
def _program() -> bytes:
    source = files("sparkfleet.node").joinpath("lease.py").read_bytes()
    return base64.b64encode(zlib.compress(source, 9))


@dataclass(frozen=True)
class Answer:
    """What a host said. `word`: granted, held, moved, lost, or `unheard` with the reason in
    `lease["why"]`."""

    word: str
    lease: Mapping[str, Any]


class Holder:
    """The lease of one host: taken once, then kept by a greenlet of its own."""

    def __init__(
        self, connector: SparkConnector, request: Mapping[str, Any], lost: Callable[[Answer], None]
    ) -> None:
        """`request` is what node/lease.py is asked; `lost` is called when another run has it."""
        self._connector, self._request, self._lost = connector, dict(request), lost
        self._talk: Conversation | None = None
        self._over = Event()
        self._keeper: gevent.Greenlet | None = None

    def take(self) -> Answer:
        """Ask for the lease; keeps it from then on where it was granted."""
        try:
            answer = self._ask()
        except ConversationLost as error:
            return Answer("unheard", {"why": str(error)})
        if answer.word == "granted":
            self._keeper = gevent.spawn(self._keep)
        return answer

    def give_back(self) -> bool:
        """End it; whether the host was told. One that can't be finds out by the silence."""
        self._over.set()
        if self._keeper is None:
            return True
        self._keeper.join(3 * ANSWER_SECONDS)
        return bool(self._keeper.value)

    def _ask(self) -> Answer:
        self._talk = self._connector.converse(COMMAND)
        line = _program() + b"\n" + json.dumps(self._request).encode()
        answer = _read(self._talk.ask(line, ANSWER_SECONDS))
        if answer.word == "granted":  # after a break: nobody else may have held it meanwhile
            self._request["seen"] = answer.lease["grants"]
        else:
            self._talk.close()
        return answer

    def _keep(self) -> bool:
        while not self._over.wait(RENEW_SECONDS):
            try:
                assert self._talk is not None
                answer = _read(self._talk.ask(b"renew", ANSWER_SECONDS))
            except ConversationLost:
                try:
                    answer = self._ask()
                except ConversationLost:
                    self._over.wait(AGAIN_SECONDS)
                    continue
            if answer.word not in ("renewed", "granted"):
                self._lost(answer)
                return True
        return self._release()

    def _release(self) -> bool:
        """Tell the host that the run is over, by a new connection where the old one broke."""
        for begun in (True, False):
            try:
                if not begun and self._ask().word != "granted":
                    return True
                assert self._talk is not None
                self._talk.ask(b"release", ANSWER_SECONDS)
                self._talk.close()
            except ConversationLost:
                continue
            return True
        return False


def _read(line: bytes) -> Answer:
    try:
        raw = json.loads(line)
        return Answer(str(raw["answer"]), raw)
    except (ValueError, KeyError, TypeError):
        raise ConversationLost(line.decode("utf-8", "backslashreplace")) from None
