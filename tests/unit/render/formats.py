"""How Compose and systemd read a file back: written from their manuals, not from our escaping.

Compose: after the YAML is read, `$$` is a dollar sign, `$NAME` and `${NAME…}` are variables, any
other `$` is an error. systemd: words split at spaces, quotes may hold spaces, a backslash takes
the next character as it is (no C escape may occur), then `%%` is a per cent sign and any other `%`
a specifier; in commands `$$` is a dollar sign and any other `$` a variable.
"""

from __future__ import annotations

import re
from typing import Any


class Expanded(Exception):
    """The reader would have put something else in the place of our text."""


def interpolate(value: Any) -> Any:
    """What Compose makes of a value of the loaded YAML; keys are not interpolated."""
    if isinstance(value, dict):
        return {key: interpolate(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [interpolate(entry) for entry in value]
    return _undouble(value, "$") if isinstance(value, str) else value


def unit_words(line: str) -> list[str]:
    """The words that systemd reads in a setting's value."""
    if "\n" in line or "\r" in line or "\0" in line:
        raise Expanded("a unit's line ends here")
    return [_undouble(word, "%") for word in _split(line)]


def unit_command(line: str) -> list[str]:
    """The argv that systemd makes of `ExecStart=`."""
    return [_undouble(word, "$") for word in unit_words(line)]


def _split(line: str) -> list[str]:
    words: list[str] = []
    word: str | None = None
    quote = ""
    rest = iter(line)
    for char in rest:
        if char == "\\":
            following = next(rest, "")
            if following not in ("\\", '"', "'"):
                raise Expanded(f"C escape \\{following}")
            word = (word or "") + following
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = (word or "") + char
        elif char in "\"'":
            quote, word = char, word or ""
        elif char in " \t":
            if word is not None:
                words.append(word)
            word = None
        else:
            word = (word or "") + char
    if quote:
        raise Expanded("an open quote")
    return words if word is None else [*words, word]


def _undouble(text: str, mark: str) -> str:
    doubled = re.escape(mark * 2)
    if re.search(re.escape(mark), re.sub(doubled, "", text)):
        raise Expanded(text)
    return re.sub(doubled, lambda _: mark, text)
