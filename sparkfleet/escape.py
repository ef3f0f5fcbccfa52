"""Escaping for the places our text lands in: Compose's YAML, a unit's values, a unit's commands.

Each function takes any text and gives the form that arrives unchanged. `Escaped` marks the result,
so that a template cannot print a value that passed none of them (see `render.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import yaml

from sparkfleet.spec.errors import SpecError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Escaped(str):
    """Text that is already in the form its file needs."""

    __slots__ = ()


def compose_scalar(value: object) -> Escaped:
    """Give a double-quoted YAML scalar that Compose reads back as exactly this text.

    Compose interpolates `$NAME` after it has read the YAML, hence the doubled `$`. The quoting is
    PyYAML's: it escapes what YAML cannot hold; with no width to keep to, it folds no line.
    """
    if isinstance(value, Escaped):
        return value
    text = str(value).replace("$", "$$")
    dumped: str = yaml.dump(text, default_style='"', allow_unicode=True, width=math.inf)
    return Escaped(dumped.removesuffix("\n"))


def unit_words(values: Iterable[str]) -> Escaped:
    """Give a unit setting's list of words: quoted, `%` doubled so that systemd expands nothing."""
    return Escaped(" ".join(_quoted(value) for value in values))


def unit_command(words: Iterable[str]) -> Escaped:
    """Give the words of `ExecStart=`: as `unit_words`, and `$` doubled; systemd expands it too."""
    return Escaped(" ".join(_quoted(word).replace("$", "$$") for word in words))


def unit_text(text: str) -> Escaped:
    """Give free text for `Description=`: one line, `%` doubled."""
    return Escaped(_CONTROL.sub(" ", text).replace("%", "%%").rstrip("\\ "))


def number(value: object) -> Escaped:
    """Give a whole number as it is, and refuse anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    return Escaped(str(value))


def seconds(value: object) -> Escaped:
    """Give a whole number of seconds in Compose's notation for a time."""
    return Escaped(f"{number(value)}s")


def boolean(value: object) -> Escaped:
    """Give YAML's form of a truth value."""
    return Escaped("true" if value else "false")


def escaped_only(value: object) -> Escaped:
    """Refuse to print what passed no escaping: a template's fault, found by its first rendering."""
    if not isinstance(value, Escaped):
        raise TypeError(f"printed without an escaping filter: {value!r}")
    return value


def holds_control(text: str) -> bool:
    """Whether a text holds a control character, such as a line break, which no unit can carry."""
    return _CONTROL.search(text) is not None


def _quoted(value: str) -> str:
    # systemd's quoting knows C escapes in some settings and not in others, so none is used.
    if holds_control(value):
        raise SpecError(
            f"The value {value!r} is to stand in a systemd unit and contains a control character, "
            "such as a line break, which a unit cannot carry. Remove it from the inventory."
        )
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    plain = re.fullmatch(r"[A-Za-z0-9_./:@%+,=-]+", escaped)
    return escaped if plain else f'"{escaped}"'
