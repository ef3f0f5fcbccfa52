"""Answers a gateway's agent-check: one word per connection, from the node's own state.

HAProxy asks each server's `agent-port` every second or so. A connection gets its word and is closed
at once, without reading a byte of it: so nobody who connects can hold this up. Where the state is
not known yet the connection is closed without a word, which HAProxy takes for no news. What was
told to whom is written to /run, where a drain reads it.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from sparkfleet.node.disk import write_whole
from sparkfleet.node.drain import Heard, Peer, load_heard, status
from sparkfleet.node.layout import Service

#: Seconds between two tries to listen where an address is not there yet, or taken.
AGAIN = 5.0
#: Addresses that are remembered at once; the inventory has a handful of gateways.
PEERS = 32


@dataclass(frozen=True)
class Post:
    """Where the word of one service is given."""

    service: str
    bind: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Post:
        """`llm=10.0.0.5:18000`, the address of IPv6 in brackets. ValueError for anything else."""
        service, _, address = text.partition("=")
        bind, _, port = address.rpartition(":")
        if not service or not bind:
            raise ValueError(f"{text!r} is not SERVICE=ADDRESS:PORT")
        return cls(service, bind.strip("[]"), int(port))


@dataclass
class Answerer:
    """Listens for every post, in one thread."""

    posts: tuple[Post, ...]
    interval: float
    """Seconds between two questions of a gateway, as the inventory has it."""
    gateways: int
    find: Callable[[str], Service]
    known: Callable[[str], bool]
    """Whether a service was looked at in this life of the agent: before, its state is hearsay."""
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    listening: dict[str, int] = field(default_factory=dict)
    """Port by service, once it is listened on."""
    _heard: dict[str, Heard] = field(default_factory=dict)
    _silent: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Say in /run that gateways are there to be waited for, before the first has asked."""
        for post in self.posts:
            service = self.find(post.service)
            peers = load_heard(service).peers or {}
            write_heard(service, Heard(self.interval, self.gateways, peers))

    def serve(self, stop: threading.Event) -> None:
        """Answer until `stop`."""
        waiting = list(self.posts)
        try_at = self.clock()
        with selectors.DefaultSelector() as selector:
            while not stop.is_set():
                if waiting and self.clock() >= try_at:
                    waiting = [post for post in waiting if not self._listen(selector, post)]
                    try_at = self.clock() + AGAIN
                for key, _ in selector.select(0.5):
                    self._accept(key.fileobj, key.data)
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    def _listen(self, selector: selectors.BaseSelector, post: Post) -> bool:
        family = socket.AF_INET6 if ":" in post.bind else socket.AF_INET
        server = socket.socket(family, socket.SOCK_STREAM)
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((post.bind, post.port))
            server.listen(64)
        except OSError as error:
            server.close()
            if post.service not in self._silent:
                self._silent.add(post.service)
                self.say(
                    f"{post.service}: {post.bind}:{post.port} can't be listened on "
                    f"({error.strerror}), so no gateway hears of this node. Trying again."
                )
            return False
        server.setblocking(False)
        selector.register(server, selectors.EVENT_READ, post.service)
        self.listening[post.service] = server.getsockname()[1]
        self._silent.discard(post.service)
        return True

    def _accept(self, server: Any, name: str) -> None:
        try:
            connection, address = server.accept()
        except OSError:
            return  # it has gone again
        with connection, suppress(OSError):
            connection.setblocking(False)
            if self.known(name):
                service = self.find(name)
                word = status(service).word
                connection.send(f"{word}\n".encode("ascii"))
                self.note(service, str(address[0]).removeprefix("::ffff:"), word)
                connection.shutdown(socket.SHUT_WR)  # fails where the word was read already

    def note(self, service: Service, peer: str, word: str) -> None:
        """Write down that `peer` was told `word`."""
        now = self.clock()
        before = self._heard.get(service.name) or load_heard(service)
        heard = hearing(before, peer, word, now, interval=self.interval, gateways=self.gateways)
        self._heard[service.name] = heard
        write_heard(service, heard)


def hearing(
    before: Heard, peer: str, word: str, now: float, *, interval: float, gateways: int
) -> Heard:
    """What is known after one more word; those who ask no longer are forgotten."""
    peers = dict(Heard(interval, gateways, before.peers).known(now))
    old = peers.pop(peer, None)
    since = old.since if old and old.word == word else now
    while len(peers) >= PEERS:
        peers.pop(min(peers, key=lambda name: peers[name].last))
    return Heard(interval, gateways, {**peers, peer: Peer(word, since, now)})


def write_heard(service: Service, heard: Heard) -> None:
    """Write it where a drain reads it."""
    service.heard.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_whole(service.heard, json.dumps(asdict(heard)) + "\n")
