"""The routes of the stand-in, as an ASGI application: vLLM's middleware can be put before it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from .answers import Answer, answer
from .counters import Counters
from .faults import Fault, now

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

COMPLETIONS = ("/v1/chat/completions", "/v1/completions")
FATAL = ("dead", "dies", "dies-0")


class Engine:
    """One stand-in engine. `on_death` is called with an exit status when a fault ends it."""

    def __init__(
        self,
        names: list[str],
        *,
        version: str,
        drafts: int = 0,
        thinks: bool = False,
        keys: tuple[str, ...] = (),
        rate: float = 100,
        max_model_len: int = 262144,
        boot_fault: Fault | None = None,
        on_death: Callable[[int], None] = lambda status: None,
    ) -> None:
        self.names, self.version, self.thinks, self.keys = names, version, thinks, keys
        self.rate, self.max_model_len = rate, max_model_len
        self.counters = Counters(names[0], drafts)
        self.answered, self.dead = 0, False
        self._boot_fault, self._on_death = boot_fault or Fault(), on_death
        self._created = int(time.time())

    def fault(self) -> Fault:
        """The fault in force now."""
        return now(self._boot_fault)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        path, fault = scope["path"], self.fault()
        if path.startswith("/v1") and not self._authorized(scope):
            await reply(send, 401, {"error": "Unauthorized"})
        elif path in ("/health", "/ping"):
            await reply(send, 503 if self.dead else 200, None)
        elif path == "/version":
            version = "0.0.0" if fault.name == "wrong-version" else self.version
            await reply(send, 200, {"version": version})
        elif path == "/metrics":
            self.counters.still = fault.name == "still-counters"
            await reply(send, 200, self.counters.text())
        elif path == "/v1/models":
            await reply(send, 200, {"object": "list", "data": self._models(fault)})
        elif path in COMPLETIONS and scope["method"] == "POST":
            await self._complete(json.loads(await body(receive)), path, fault, receive, send)
        else:
            await reply(send, 404, {"detail": "Not Found"})

    def _authorized(self, scope: Message) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"").decode()
        return not self.keys or given.removeprefix("Bearer ") in self.keys

    def _served(self, fault: Fault) -> list[str]:
        return self.names[:1] if fault.name == "missing-name" else self.names

    def _models(self, fault: Fault) -> list[dict[str, Any]]:
        entry = {
            "object": "model", "created": self._created, "owned_by": "vllm",
            "max_model_len": self.max_model_len, "parent": None, "permission": [],
        }  # fmt: skip
        return [{"id": name, "root": "/model", **entry} for name in self._served(fault)]

    async def _complete(
        self, request: dict[str, Any], path: str, fault: Fault, receive: Receive, send: Send
    ) -> None:
        if request.get("model") not in self._served(fault):
            text = f"The model `{request.get('model')}` does not exist."
            await reply(send, 404, error(text, "NotFoundError", 404))
            return
        self._strike(fault)
        if self.dead:
            await reply(
                send, 500, error("EngineCore encountered an issue.", "EngineDeadError", 500)
            )
            return
        # As vLLM: an answer names the first served name, whichever was asked for.
        request = request | {"model": self.names[0]}
        self.counters.running += 1
        try:
            if fault.name == "mute" or (fault.name == "wedges" and self.answered >= fault.number):
                while (await receive())["type"] != "http.disconnect":
                    continue
                return
            kwargs = request.get("chat_template_kwargs") or {}
            off_by = 1 if fault.name == "wrong-answer" else 0
            thinks = self.thinks and kwargs.get("enable_thinking", True)
            said = answer(request, thinks=thinks and "chat" in path, off_by=off_by)
            if request.get("stream"):
                await self._stream(request, path, said, send)
            else:
                async for _ in self._spoken(said):
                    continue
                await reply(send, 200, whole(request, path, said))
            self.answered += 1
            self.counters.requests += 1
        except ValueError as problem:
            await reply(send, 400, error(str(problem), "BadRequestError", 400))
        finally:
            self.counters.running -= 1

    def _strike(self, fault: Fault) -> None:
        """Die, if this is the completion at which the fault says so."""
        if not self.dead and fault.name in FATAL and self.answered >= fault.number:
            self.dead = True
            log = "EngineCore encountered a fatal error. torch.AcceleratorError: CUDA error"
            print(f"(EngineCore pid=2) ERROR [core.py:1] {log}", flush=True)
            if fault.name != "dead":
                status = 0 if fault.name == "dies-0" else 1
                # A moment later, so that the failed request and a 503 can still be seen.
                asyncio.get_running_loop().call_later(1.0, self._on_death, status)

    async def _spoken(self, said: Answer) -> AsyncIterator[str]:
        """The answer's words at the engine's pace, each counted as it is generated."""
        self.counters.prompt_tokens += 8
        words = (said.content or "").split(" ")
        left = max(said.tokens, 1)
        for number, word in enumerate(words):
            share = left - (len(words) - 1) if number == 0 else 1
            await asyncio.sleep(max(share, 1) / self.rate)
            self.counters.generated(max(share, 1))
            yield word if number == len(words) - 1 else f"{word} "

    async def _stream(self, request: dict[str, Any], path: str, said: Answer, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def event(value: Any) -> None:
            data = value if isinstance(value, str) else json.dumps(value)
            chunk = f"data: {data}\n\n".encode()
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

        if "chat" in path:
            await event(part(request, path, {"role": "assistant", "content": ""}))
        if said.reasoning:
            await event(part(request, path, {"reasoning": said.reasoning}))
        if said.tool:
            await event(part(request, path, {"tool_calls": [tool_call(said.tool) | {"index": 0}]}))
        async for word in self._spoken(said):
            if word:
                await event(part(request, path, {"content": word}))
        await event(part(request, path, {}, said.finish))
        if (request.get("stream_options") or {}).get("include_usage"):
            await event({**part(request, path, {}), "choices": [], "usage": usage(said)})
        await event("[DONE]")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def body(receive: Receive) -> bytes:
    """The whole body of a request."""
    data = b""
    while True:
        message = await receive()
        data += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return data


async def reply(send: Send, status: int, content: Any) -> None:
    """Answer with JSON, with text where `content` is a string, with nothing where it is None."""
    text = "" if content is None else content if isinstance(content, str) else json.dumps(content)
    kind = b"application/json" if isinstance(content, dict) else b"text/plain; version=0.0.4"
    headers = [(b"content-type", kind), (b"content-length", str(len(text.encode())).encode())]
    with contextlib.suppress(ConnectionError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})


def error(message: str, kind: str, code: int) -> dict[str, Any]:
    """An error in vLLM's shape."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def tool_call(call: tuple[str, str]) -> dict[str, Any]:
    """A tool call in OpenAI's shape."""
    function = {"name": call[0], "arguments": call[1]}
    return {"id": "call_standin", "type": "function", "function": function}


def usage(said: Answer) -> dict[str, int]:
    """Token counts of an answer."""
    return {"prompt_tokens": 8, "completion_tokens": said.tokens, "total_tokens": 8 + said.tokens}


def whole(request: dict[str, Any], path: str, said: Answer) -> dict[str, Any]:
    """An answer that is not streamed."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": said.finish, "logprobs": None}
    if "chat" in path:
        calls = [tool_call(said.tool)] if said.tool else []
        choice["message"] = {
            "role": "assistant", "content": said.content, "reasoning": said.reasoning,
            "tool_calls": calls,
        }  # fmt: skip
    else:
        choice["text"] = said.content
    kind = "chat.completion" if "chat" in path else "text_completion"
    return {
        "id": "standin-1", "object": kind, "created": int(time.time()),
        "model": request["model"], "choices": [choice], "usage": usage(said),
    }  # fmt: skip


def part(
    request: dict[str, Any], path: str, delta: dict[str, Any], finish: str | None = None
) -> dict[str, Any]:
    """One event of a streamed answer."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
    if "chat" in path:
        choice["delta"] = delta
    else:
        choice["text"] = delta.get("content", "")
    kind = "chat.completion.chunk" if "chat" in path else "text_completion"
    return {
        "id": "standin-1", "object": kind, "created": int(time.time()),
        "model": request["model"], "choices": [choice],
    }  # fmt: skip
