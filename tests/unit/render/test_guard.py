"""The guard in front of the engine: what it lets through, and what it does not."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.engine.guard import KeyGuard, Message, Receive, Send, read_key
from sparkfleet.keys import ApiKey

KEY = "sk-right"


async def engine(scope: Message, receive: Receive, send: Send) -> None:
    """Stands for the engine behind the guard: it answers whatever reaches it."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})
    else:
        await send({"type": f"{scope['type']}.reached"})


@pytest.fixture
def guard(tmp_path: Path) -> KeyGuard:
    file = tmp_path / "key.yaml"
    file.write_text(f'api-key: "{KEY}"\n')
    return KeyGuard(engine, str(file))


def sent(guard: KeyGuard, **scope: Any) -> list[Message]:
    """What a request gets."""
    answers: list[Message] = []

    async def send(message: Message) -> None:
        answers.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    whole = {"type": "http", "method": "GET", "path": "/", "headers": [], **scope}
    asyncio.run(guard(whole, receive, send))
    return answers


def status(guard: KeyGuard, path: str, key: str | None = None, **scope: Any) -> int:
    headers = [(b"Authorization", f"Bearer {key}".encode())] if key is not None else []
    answer: int = sent(guard, path=path, **{"headers": headers, **scope})[0]["status"]
    return answer


@pytest.mark.parametrize("path", ["/health", "/metrics", "/version", "/ping"])
def test_what_tells_how_it_is_stays_open(guard: KeyGuard, path: str) -> None:
    assert status(guard, path) == 200
    assert status(guard, path, method="HEAD") == 200
    assert status(guard, path, method="POST") == 401


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/v1/chat/completions",
        "/invocations",  # answers like a completion; the engine's own guard leaves it open
        "/inference/v1/generate",
        "/tokenize",
        "/docs",
        "/health/",
        "/healthx",
        "//health",
        "/metrics/../v1/models",
        "/unheard-of",
    ],
)
def test_everything_else_wants_the_key(guard: KeyGuard, path: str) -> None:
    for method in ("GET", "POST"):
        assert status(guard, path, method=method) == 401
        assert status(guard, path, "sk-wrong", method=method) == 401
        assert status(guard, path, KEY, method=method) == 200


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"sk-right",
        b"Basic sk-right",
        b"Bearer",
        b"Bearer ",
        b"Bearer sk-rightx",
        b"Bearer\xff",
    ],
)
def test_half_a_header_is_no_key(guard: KeyGuard, header: bytes) -> None:
    assert status(guard, "/v1/models", headers=[(b"authorization", header)]) == 401


def test_the_scheme_is_read_as_http_has_it_and_two_headers_are_none(guard: KeyGuard) -> None:
    right = (b"authorization", b"bearer sk-right")
    assert status(guard, "/v1/models", headers=[right]) == 200
    assert status(guard, "/v1/models", headers=[right, right]) == 401


def test_a_refusal_says_so_as_the_engine_does(guard: KeyGuard) -> None:
    start, body = sent(guard, path="/v1/models")
    assert dict(start["headers"])[b"www-authenticate"] == b"Bearer"
    assert body["body"] == b'{"error":"Unauthorized"}'


def test_a_socket_is_closed_a_preflight_and_the_start_pass(guard: KeyGuard) -> None:
    assert sent(guard, type="websocket", path="/v1/realtime") == [
        {"type": "websocket.close", "code": 1008}
    ]
    assert sent(guard, type="websocket", path="/health")[0]["type"] == "websocket.close"
    bearing = [(b"authorization", b"Bearer sk-right")]
    assert sent(guard, type="websocket", path="/v1/realtime", headers=bearing) == [
        {"type": "websocket.reached"}
    ]
    assert sent(guard, type="lifespan") == [{"type": "lifespan.reached"}]
    assert status(guard, "/v1/models", method="OPTIONS") == 200


def test_a_prefix_of_the_server_is_not_part_of_the_path(guard: KeyGuard) -> None:
    assert status(guard, "/spark/health", root_path="/spark") == 200
    assert status(guard, "/spark/v1/models", root_path="/spark") == 401


def test_it_reads_the_file_that_the_deploy_writes(tmp_path: Path) -> None:
    key = ApiKey(tmp_path / "key", 'sk-"quoted"\\', new=True)
    (tmp_path / "engine.yaml").write_bytes(key.engine_file)
    assert read_key(str(tmp_path / "engine.yaml")).decode() == key.value


@pytest.mark.parametrize("text", ["", "api-key:\n", "api-key:   \n", 'api-key: ""\n', "key: x\n"])
def test_without_a_key_it_does_not_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "key.yaml").write_text(text)
    with pytest.raises(RuntimeError, match="nothing is served"):
        KeyGuard(engine, str(tmp_path / "key.yaml"))


def test_it_needs_nothing_but_the_standard_library() -> None:
    source = Path(importlib.import_module("sparkfleet.engine.guard").__file__ or "").read_text()
    imports = {
        line.split()[1] for line in source.splitlines() if line.startswith(("from", "import"))
    }
    assert imports == {"__future__", "hmac", "json", "collections.abc", "pathlib", "typing"}
