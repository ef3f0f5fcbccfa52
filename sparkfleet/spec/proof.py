"""Proofs: the small requests that a node must answer right before it counts as serving."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, model_validator

from sparkfleet.spec.base import Model, Name, Rows, Text

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (255, 0, 0),
    "green": (0, 160, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 230, 0),
}
"""Colours that have one plain name, so that a right answer can be recognised."""


TOOL = "get_weather"
TOOL_QUESTION = "What is the weather in Lisbon? Use the tool."
TOOLS: list[JsonValue] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "The weather of a city, now.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
"""The tool that a proof of kind tool offers, unless its params say others."""

IMAGE_QUESTION = "What colour is this picture? Answer with one word."


def picture(colour: str, size: int) -> str:
    """A square PNG of one colour as a data URL; the same bytes on every machine."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + crc

    row = b"\0" + bytes(COLOURS[colour]) * size
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0))
        # Stored, not compressed: zlib versions differ in how they compress, not in this.
        + chunk(b"IDAT", zlib.compress(row * size, 0))
        + chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


class Picture(Model):
    """The picture of an image proof."""

    colour: Literal["red", "green", "blue", "yellow"] = Field(description="What it is filled with.")
    size: int = Field(default=64, ge=8, le=512, description="Width and height, pixels.")


class Expect(Model):
    """What a right answer looks like; every one that is set must hold."""

    contains: Text | None = Field(
        default=None, description="Text that must stand in it, case ignored."
    )
    equals: str | None = Field(default=None, description="The whole text, exactly.")
    tool: Text | None = Field(default=None, description="Name of the tool that must be called.")
    nonempty: bool = Field(default=False, description="Any text will do.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.contains is None and self.equals is None and not self.tool and not self.nonempty:
            raise ValueError(
                "expects nothing, so it could not fail; set contains, equals, tool or nonempty"
            )
        return self


class Proof(Model):
    """One bounded request, its expected answer, and the fields the answer may stand in."""

    name: Name = Field(description="Shown in reports.")
    model: Text = Field(description="Served name that is asked.")
    kind: Literal["chat", "completion", "tool", "image"] = Field(description="Route and shape.")
    messages: Rows[dict[str, JsonValue]] | None = Field(default=None, description="Chat messages.")
    prompt: str | None = Field(
        default=None, description="Prompt: of a completion, or beside a picture."
    )
    picture: Picture | None = Field(default=None, description="Only for kind image.")
    params: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Request parameters; max_tokens is required, every proof is bounded.",
    )
    expect: Expect | None = Field(
        default=None,
        description="What the answer must be; unsaid: of a picture its colour, of a tool its call.",
    )
    read: Rows[Literal["content", "reasoning", "text"]] = Field(
        default=("content", "reasoning"), description="Fields that the answer may stand in."
    )
    source: Text | None = Field(default=None, description="Where the request was published.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not isinstance(self.params.get("max_tokens"), int):
            raise ValueError("needs params.max_tokens, a whole number: a proof is bounded")
        needs = {"chat": "messages", "completion": "prompt", "image": "picture"}.get(self.kind)
        if needs and not getattr(self, needs):
            raise ValueError(f"of kind {self.kind} lacks {needs}")
        if self.expect is None and (self.kind in ("chat", "completion") or "tools" in self.params):
            raise ValueError("lacks expect, so nothing could tell a right answer")
        return self

    def row(self) -> dict[str, Any]:
        """The row as proof.json carries it, with pictures, tools and expectations written out."""
        messages: list[JsonValue] | None = [*self.messages] if self.messages else None
        params = dict(self.params)
        expect, prompt = self.expect, self.prompt
        if self.picture is not None:
            url = picture(self.picture.colour, self.picture.size)
            content: list[JsonValue] = [
                {"type": "text", "text": prompt or IMAGE_QUESTION},
                {"type": "image_url", "image_url": {"url": url}},
            ]
            messages, prompt = [{"role": "user", "content": content}], None
            expect = expect or Expect(contains=self.picture.colour)
        if self.kind == "tool":
            messages = messages or [{"role": "user", "content": TOOL_QUESTION}]
            params = {"tools": TOOLS, "tool_choice": "auto", **params}
            expect = expect or Expect(tool=TOOL)
        row = {
            "name": self.name,
            "model": self.model,
            "kind": self.kind,
            "messages": messages,
            "prompt": prompt,
            "params": params,
            "expect": expect.model_dump() if expect else None,
            "read": list(self.read),
        }
        return {key: value for key, value in row.items() if value is not None}
