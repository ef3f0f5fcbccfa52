"""What an inventory's Python can hold and no file, argv or environment can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.wording import quoted, short


def refuse_unwritable(host: str, data: Mapping[str, object]) -> None:
    """Raise SpecError for keys that are no text, and for text that no file can carry.

    A NUL ends a word of a command line; half a surrogate pair, which Python takes for a character,
    is none in UTF-8.
    """
    for path, key in _keys(data):
        if not isinstance(key, str):
            raise SpecError(
                f"Host {host}: the key {quoted(key)}{path and f' in {path}'} is no text. Keys are "
                'names in quotes, such as "preset".',
                host=host,
            )
    for path, text in _texts(data):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise SpecError(
                f"Host {host}: {short(path)} holds a character that no file can carry (NUL, or "
                f"half a character): {quoted(ascii(text))}. Write it anew.",
                host=host,
                key=path,
            )


def _keys(data: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield path, key
            yield from _keys(value, f"{path}.{key}" if path else str(key))


def _texts(data: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a host's data with the key under which it stands; keys are texts too."""
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            below = f"{path}.{key}" if path else str(key)
            yield below.encode("ascii", "replace").decode(), str(key)
            yield from _texts(value, below)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _texts(value, path)
