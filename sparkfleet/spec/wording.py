"""Turns validation errors into sentences that name the place, the value and the way out."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from sparkfleet.spec.errors import SpecError

Place = tuple[str | int, ...]


def quoted(value: object) -> str:
    """A value as YAML or JSON would show it, cut when long; quotes tell a text from a number."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def near(word: str, words: Iterable[str]) -> str:
    """` Did you mean X?` for the nearest known word, or the empty text."""
    found = difflib.get_close_matches(word.replace("_", "-"), list(words), n=1, cutoff=0.6)
    found = found or difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f" Did you mean {found[0]}?" if found else ""


def explain(
    error: ValidationError,
    data: Mapping[str, Any],
    *,
    where: str,
    host: str | None = None,
    file: str | None = None,
    flat: str | None = None,
    line: Callable[[Place], int | None] = lambda place: None,
) -> SpecError:
    raise NotImplementedError
