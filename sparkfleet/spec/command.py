"""From a recipe's flags to the engine's argv: one rule per kind of value, no shell anywhere.

A recipe writes a flag's name without its dashes and the value as YAML has it. The kind of the value
decides the words, so that no recipe quotes, escapes or joins anything itself:

========  =======================================  =============================================
value     words                                    example
========  =======================================  =============================================
true      the flag alone                           ``--enable-prefix-caching``
false     its negative form                        ``--no-enable-prefix-caching``
null      none: the flag is left out
number    flag, number as written                  ``--port 8000``
string    flag, string verbatim                    ``--quantization compressed-tensors``
list      flag, each entry as a word of its own    ``--served-model-name a b c``
mapping   flag, one word of compact JSON           ``--limit-mm-per-prompt {"image":4,"video":2}``
========  =======================================  =============================================

A mapping is compact because the published command is, and one word because the engine parses it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

from sparkfleet.spec.errors import SpecError

_NEGATIVE_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")
"""What argparse itself takes for a negative number and not for an option (its own expression)."""


def render_argv(positional: Sequence[str], flags: Mapping[str, object]) -> list[str]:
    """Give the engine's whole argv, the entrypoint not included.

    `positional` comes first, such as `serve /model`; `flags` follow in their order.
    Raises SpecError where a value can't be an argument of a process or is of no known kind.
    """
    words = list(positional)
    for flag, value in flags.items():
        words += flag_words(flag, value)
    return [passable(word, "command") for word in words]


def flag_words(flag: str, value: object) -> list[str]:
    """Give the words of one flag by the kind of its value (the table above)."""
    option = f"--{flag}"
    if value is None:
        return []
    if isinstance(value, bool):  # before numbers: True is an int to Python
        return [option if value else f"--no-{flag}"]
    if isinstance(value, Mapping):
        return [option, _compact_json(flag, value)]
    if isinstance(value, list | tuple):
        return [option, *(_scalar(flag, entry) for entry in value)]
    word = _scalar(flag, value)
    if word.startswith("-") and not _NEGATIVE_NUMBER.match(word):
        # argparse takes a word with a leading dash for the next option; joined, it is the value.
        return [f"{option}={word}"]
    return [option, word]


def passable(word: str, key: str) -> str:
    """Return the word; raise SpecError for NUL and half a surrogate pair, which no process gets."""
    fault = None
    if "\0" in word:
        fault = "a NUL character"
    try:
        word.encode()
    except UnicodeEncodeError:
        fault = "half of a surrogate pair"
    if fault:
        raise SpecError(
            f"{key}: the value {word!r} contains {fault}, which cannot be passed to a process; "
            "remove it from the recipe or the inventory.",
            key=key,
        )
    return word


def _compact_json(flag: str, value: Mapping[str, object]) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"Flag {flag} cannot be written as JSON ({error}); "
            "use only strings, finite numbers, true, false, null, lists and mappings in it.",
            key=flag,
        ) from error


def _scalar(flag: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise SpecError(
        f"Flag {flag} has the value {value!r}, which has no form as one argument; "
        "write a string, a finite number, true, false, a list of strings and numbers, "
        "or a mapping.",
        key=flag,
    )
