"""The agent's answer to gateways, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from sparkfleet.node import drain
from sparkfleet.node.answer import PEERS, Answerer, Post, hearing
from sparkfleet.node.drain import DOWN, DRAIN, READY, Heard

from .world import World

OLD = "aaaaaaaaaaaa"


@pytest.fixture
def start(world: World) -> Iterator[Callable[..., Answerer]]:
    """Starts an answerer for the world's service."""
    stop, threads = threading.Event(), []

    def begin(known: bool = True, port: int = 0, say: Callable[[str], None] = print) -> Answerer:
        one = Answerer(
            (Post("llm", "127.0.0.1", port),),
            1.0,
            1,
            find=lambda name: world.service,
            known=lambda name: known,
            say=say,
        )
        one.begin()
        threads.append(threading.Thread(target=one.serve, args=(stop,)))
        threads[-1].start()
        return one

    yield begin
    stop.set()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ask(one: Answerer) -> str:
    until(lambda: "llm" in one.listening)
    with socket.create_connection(("127.0.0.1", one.listening["llm"]), timeout=5) as link:
        parts = b""
        with contextlib.suppress(ConnectionResetError):
            while part := link.recv(100):
                parts += part
        return parts.decode()


def test_the_word_follows_the_state(world: World, start: Callable[..., Answerer]) -> None:
    one = start()
    assert ask(one) == f"{DOWN}\n"
    world.release(OLD)
    world.serving(OLD)
    assert ask(one) == f"{READY}\n"
    drain.mark(world.service, "new fan")
    assert ask(one) == f"{DRAIN}\n"
    heard = drain.load_heard(world.service)
    assert heard.peers is not None and heard.peers["127.0.0.1"].word == DRAIN
    assert not heard.deaf(time.monotonic()) and heard.known(time.monotonic())


def test_what_is_not_known_yet_is_not_said(world: World, start: Callable[..., Answerer]) -> None:
    one = start(known=False)
    assert ask(one) == ""
    assert drain.load_heard(world.service) == Heard(1.0, 1, {}), "and counts as told to nobody"


def test_those_who_connect_and_do_nothing_hold_up_nobody(
    world: World, start: Callable[..., Answerer]
) -> None:
    one = start()
    until(lambda: "llm" in one.listening)
    with contextlib.ExitStack() as idle:
        for _ in range(50):
            idle.enter_context(socket.create_connection(("127.0.0.1", one.listening["llm"])))
        assert ask(one) == f"{DOWN}\n"


def test_a_port_that_is_taken_is_said_once_and_tried_again(
    start: Callable[..., Answerer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkfleet.node.answer.AGAIN", 0.1)
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        one = start(port=other.getsockname()[1], say=said.append)
        until(lambda: said)
    until(lambda: "llm" in one.listening)
    assert len(said) == 1 and "can't be listened on" in said[0]


def test_peers_are_bounded_and_forgotten() -> None:
    heard = Heard()
    for number in range(3 * PEERS):
        heard = hearing(heard, f"10.0.0.{number}", READY, 0.01 * number, interval=1.0, gateways=1)
    assert len(heard.peers or {}) == PEERS
    heard = hearing(heard, "10.0.1.1", READY, 100.0, interval=1.0, gateways=1)
    assert set(heard.peers or {}) == {"10.0.1.1"}


@pytest.mark.parametrize(
    ("text", "post"),
    [
        ("llm=10.0.0.5:18000", Post("llm", "10.0.0.5", 18000)),
        ("llm=[::]:18000", Post("llm", "::", 18000)),
    ],
)
def test_posts_as_the_unit_writes_them(text: str, post: Post) -> None:
    assert Post.parse(text) == post


@pytest.mark.parametrize("text", ["llm", "llm=18000", "=1.2.3.4:5", "llm=1.2.3.4:x"])
def test_what_is_no_post(text: str) -> None:
    with pytest.raises(ValueError):
        Post.parse(text)
