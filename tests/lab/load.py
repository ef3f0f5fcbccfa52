"""A steady load through a gateway: every answer is read to its end and counted.

Clients in a closed loop, half of them streaming. A request is *ok* when its answer was whole: the
status 200, exactly the tokens asked for, and, streamed, `[DONE]` at its end. It is *cut* when the
answer began and broke off, *failed* for everything else. What was sent and is none of these would
be *lost*.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

#: Seconds that a request may take at all; the load is bounded, whatever becomes of the fleet.
PATIENCE = 180.0


@dataclass
class Count:
    """What became of the requests. Guarded by `lock`."""

    sent: int = 0
    ok: int = 0
    streamed: int = 0
    """Of those that were ok."""
    failed: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    longest: float = 0.0
    """Seconds that the slowest whole answer took."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def lost(self) -> int:
        """Sent, and never accounted for."""
        return self.sent - self.ok - len(self.failed) - len(self.cut)

    def __str__(self) -> str:
        return (
            f"{self.sent} sent, {self.ok} ok ({self.streamed} streamed), {len(self.failed)} "
            f"failed, {len(self.cut)} cut, {self.lost} lost; the slowest took {self.longest:.1f} s"
        )

    @property
    def clean(self) -> bool:
        """Whether every request was answered whole."""
        return self.sent == self.ok and self.sent > 0


@dataclass
class Load:
    """Where to send what. One address is tried as a client does: no retries of its own."""

    address: str
    port: int
    model: str
    key: str
    tokens: int = 60
    count: Count = field(default_factory=Count)

    def ask(self, *, stream: bool, tokens: int | None = None) -> None:
        """One request, read to its end and counted."""
        wanted = tokens or self.tokens
        with self.count.lock:
            self.count.sent += 1
            number = self.count.sent
        began = time.monotonic()
        began_answer = threading.Event()
        try:
            got, done = self._exchange(stream, wanted, began_answer)
            if got != wanted or not done:
                raise ValueError(f"{got} of {wanted} tokens, end {'seen' if done else 'not seen'}")
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            spent = time.monotonic() - began
            what = "stream" if stream else "plain"
            text = f"#{number} {what} after {spent:.1f} s: {type(error).__name__}: {error}"
            with self.count.lock:
                kind = self.count.cut if began_answer.is_set() else self.count.failed
                kind.append(text)
            return
        with self.count.lock:
            self.count.ok += 1
            self.count.streamed += stream
            self.count.longest = max(self.count.longest, time.monotonic() - began)

    def _exchange(self, stream: bool, tokens: int, began: threading.Event) -> tuple[int, bool]:
        connection = http.client.HTTPConnection(self.address, self.port, timeout=PATIENCE)
        try:
            body: dict[str, Any] = {
                "model": self.model,
                "messages": [{"role": "user", "content": "Count."}],
                "max_tokens": tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": stream,
            }
            if stream:
                body["stream_options"] = {"include_usage": True}
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise ValueError(f"HTTP {answer.status}: {answer.read(300)!r}")
            if not stream:
                began.set()
                return int(json.loads(answer.read())["usage"]["completion_tokens"]), True
            return _read_stream(answer, began)
        finally:
            connection.close()

    @contextmanager
    def running(self, clients: int) -> Iterator[Count]:
        """Keep `clients` at it while the block runs; then let each finish what it began."""
        stop = threading.Event()

        def client(number: int) -> None:
            turn = number
            while not stop.is_set():
                self.ask(stream=turn % 2 == 0)
                turn += 1

        threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield self.count
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)

    def long_stream(self, tokens: int) -> threading.Thread:
        """One stream of its own that goes on beside the load; join the thread to wait for it."""
        thread = threading.Thread(target=self.ask, kwargs={"stream": True, "tokens": tokens})
        thread.start()
        return thread


def _read_stream(answer: http.client.HTTPResponse, began: threading.Event) -> tuple[int, bool]:
    tokens, done = -1, False
    for line in answer:
        began.set()
        data = line.strip().removeprefix(b"data: ")
        if data == b"[DONE]":
            done = True
        elif data:
            event = json.loads(data)
            if "error" in event:
                raise ValueError(f"an error in the stream: {event['error']}")
            if event.get("usage"):
                tokens = int(event["usage"]["completion_tokens"])
    return tokens, done


def fetch(address: str, port: int, path: str, seconds: float = 10) -> tuple[int, str]:
    """One GET: status and body."""
    connection = http.client.HTTPConnection(address, port, timeout=seconds)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def servers(table: str, backend: str = "llm") -> Mapping[str, dict[str, str]]:
    """HAProxy's `show stat` as rows by server name."""
    lines = table.splitlines()
    names = lines[0].lstrip("# ").split(",")
    rows = [dict(zip(names, line.split(","), strict=False)) for line in lines[1:] if line]
    return {
        row["svname"]: row
        for row in rows
        if row["pxname"] == backend and row["svname"] not in ("FRONTEND", "BACKEND")
    }


Status = Callable[[], Mapping[str, dict[str, str]]]
