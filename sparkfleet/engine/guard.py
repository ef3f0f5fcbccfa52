"""The API's guard: nothing but health, version and metrics is answered without the key.

The engine loads it as `--middleware` (an ASGI class). It stands in the place of the engine's own
`--api-key` for two reasons. That one guards the routes below /v1 and leaves others open that answer
as well, `/invocations` among them (vLLM 0.32, serve/middleware/authenticate.py and
serve/sagemaker/api_router.py). And engines before vllm-project/vllm#52523 print the key in their
log with the other arguments; this one is read from its file and is never an argument.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

KEY_FILE = "/run/sparkfleet/key.yaml"

OPEN = frozenset({"/health", "/metrics", "/ping", "/version"})
"""Read without a key, as the engine has them. Whatever else there is, or comes later, is closed."""


class KeyGuard:
    """Lets a request through that bears the key (`Authorization: Bearer KEY`)."""

    def __init__(self, app: App, key_file: str = KEY_FILE) -> None:
        """Raises RuntimeError without a key: the engine then stops instead of running open."""
        self._app = app
        self._key = read_key(key_file)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_open(scope) or self._bears_key(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await refuse(send)

    def _bears_key(self, scope: Message) -> bool:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, key = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(key.strip(), self._key)


def is_open(scope: Message) -> bool:
    """Whether a request needs no key: a browser's preflight, or a read of an open path."""
    if scope["type"] != "http":
        return False
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return scope["method"] == "OPTIONS" or (scope["method"] in ("GET", "HEAD") and path in OPEN)


async def refuse(send: Send) -> None:
    """Answer 401, in the engine's own words."""
    body = b'{"error":"Unauthorized"}'
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def read_key(path: str) -> bytes:
    """The key in a file with the line `api-key: KEY`, quoted or not. Raises RuntimeError."""
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        text = value.strip()
        key = str(json.loads(text)) if text.startswith('"') else text
        if name.strip() == "api-key" and key.strip():
            return key.encode()
    raise RuntimeError(f"{path} holds no line `api-key: KEY`; without a key nothing is served.")
