"""What the stand-in says: enough sense to pass, or to fail, the proofs of a recipe."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from .picture import colour

_PRODUCT = re.compile(r"(\d+)\s*[×x*]\s*(\d+)")
_LEAST_TO_THINK = 32
"""Fewer tokens than this end inside the reasoning, as with a real model that thinks."""


@dataclass(frozen=True)
class Answer:
    """The parts of an answer; `tokens` is what it costs."""

    content: str | None
    reasoning: str | None = None
    tool: tuple[str, str] | None = None
    """Name and JSON arguments of a tool call."""
    finish: str = "stop"
    tokens: int = 0


def answer(request: dict[str, Any], *, thinks: bool, off_by: int = 0) -> Answer:
    """Answer a chat or completion request. Raises ValueError for a picture that is no picture."""
    limit = int(request.get("max_tokens") or request.get("max_completion_tokens") or 256)
    text, pictures = _read(request)
    if request.get("ignore_eos"):
        return Answer(" ".join(["word"] * limit), finish="length", tokens=limit)
    if request.get("tools") and request.get("tool_choice", "auto") != "none":
        call = _call(request["tools"][0]["function"])
        return Answer(None, tool=call, finish="tool_calls", tokens=min(limit, 12))
    if pictures:
        said, thought = colour(pictures[0]), "The picture is of one colour."
    elif product := _PRODUCT.search(text):
        result = int(product[1]) * int(product[2]) + off_by
        said, thought = f"{product[0]} = {result}", f"I multiply, which makes {result}."
    else:
        said, thought = "Hello there, a good day to you.", "A greeting will do."
    if not thinks:
        return _cut(Answer(said), limit)
    if limit < _LEAST_TO_THINK:
        return Answer(None, thought, finish="length", tokens=limit)
    return _cut(Answer(said, thought), limit)


def _cut(full: Answer, limit: int) -> Answer:
    words = (full.content or "").split(" ")
    cost = len(words) + len((full.reasoning or "").split())
    if len(words) <= limit:
        return Answer(full.content, full.reasoning, tokens=min(cost, limit))
    return Answer(" ".join(words[:limit]), full.reasoning, finish="length", tokens=limit)


def _read(request: dict[str, Any]) -> tuple[str, list[str]]:
    if "messages" not in request:
        prompt = request.get("prompt") or ""
        return (prompt if isinstance(prompt, str) else " ".join(map(str, prompt))), []
    content = request["messages"][-1].get("content") or ""
    if isinstance(content, str):
        return content, []
    text = " ".join(part.get("text", "") for part in content)
    return text, [part["image_url"]["url"] for part in content if part.get("type") == "image_url"]


def _call(function: dict[str, Any]) -> tuple[str, str]:
    schema = function.get("parameters", {})
    fields = schema.get("properties", {})
    wanted = schema.get("required") or list(fields)
    values = {name: _value(fields.get(name, {}).get("type")) for name in wanted}
    return function["name"], json.dumps(values)


def _value(kind: str | None) -> Any:
    return {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}.get(
        kind or "string", "Lisbon"
    )
