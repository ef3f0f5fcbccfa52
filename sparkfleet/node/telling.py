"""Which lines of an engine's log tell something. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ERROR = re.compile(r"\b(ERROR|CRITICAL|FATAL|Traceback|\w*Error:|\w*Exception:)", re.ASCII)
_WIDTH = 400
MOST = 20


def text_of(row: Any) -> str:
    """The substring of a log row, which is given as such or with its reason."""
    return str(row["text"]) if isinstance(row, Mapping) else str(row)


def reason_of(row: Any) -> str:
    """Why the row matters; empty where only the substring was given."""
    return str(row.get("reason") or row.get("meaning") or "") if isinstance(row, Mapping) else ""


@dataclass(frozen=True)
class Telling:
    """The lines to show, and what they mean where the recipe knows it."""

    lines: tuple[str, ...] = ()
    meaning: str = ""
    next: str = ""


NOTHING = Telling()


def telling(lines: Sequence[str], fatal: Iterable[Any] = ()) -> Telling:
    """The telling lines of a dead engine: a known fatal one, else its errors, else its last words.

    A known line stands alone with the errors around it, so that its translation can be checked.
    """
    for row in fatal:
        hits = [line for line in lines if text_of(row) in line]
        if hits:
            next_step = str(row.get("next") or "") if isinstance(row, Mapping) else ""
            return Telling(_trim(hits), reason_of(row), next_step)
    errors = [line for line in lines if _ERROR.search(line)]
    return Telling(_trim(errors or lines))


def _trim(lines: Sequence[str]) -> tuple[str, ...]:
    kept = [line.rstrip() for line in lines if line.strip()][-MOST:]
    return tuple(line if len(line) <= _WIDTH else line[:_WIDTH] + "…" for line in kept)


def judge_log(
    lines: Iterable[str], forbidden: Sequence[Any], required: Sequence[Any]
) -> tuple[bool, str]:
    """Whether no forbidden and every required substring stands in the log, read once."""
    missing = {text_of(row): reason_of(row) for row in required}
    banned = {text_of(row): reason_of(row) for row in forbidden}
    for line in lines:
        for text, reason in banned.items():
            if text in line:
                why = f" {reason}" if reason else ""
                return False, f"it holds “{text}”:{why} The line: {line.strip()[:_WIDTH]}"
        for text in [text for text in missing if text in line]:
            del missing[text]
    if missing:
        text, reason = next(iter(missing.items()))
        return False, f"it lacks “{text}”. {reason}".rstrip()
    return (
        True,
        f"it holds none of {len(banned)} forbidden and all of {len(required)} required lines",
    )


def hide(text: str, secret: str) -> str:
    """`text` without the secret: what an engine prints of its arguments must not go further."""
    return text.replace(secret, "•••") if len(secret) >= 8 else text
