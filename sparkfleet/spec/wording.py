"""Turns validation errors into sentences that name the place, the value and the way out."""

from __future__ import annotations

import difflib
import json
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sparkfleet.spec.base import NAME_PATTERN, Misfit
from sparkfleet.spec.errors import SpecError

Place = tuple[str | int, ...]

MUST_BE: dict[str, str] = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "tuple_type": "a list",
    "list_type": "a list",
    "date_type": "a date such as 2026-06-18, without quotes",
    "date_from_datetime_inexact": "a date such as 2026-06-18",
    "literal_error": "{expected}",
    "greater_than": "above {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "below {lt}",
    "less_than_equal": "{le} or less",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "at most {max_length} characters long",
    "too_short": "at least {min_length} entries long",
    "finite_number": "a finite number",
    "string_pattern_mismatch": "of the form {pattern}",
}
"""pydantic's error type → what the value must be; placeholders come from the error's context."""

NAMES = "lower-case letters, digits and dashes, no dash in front"

FORMS: dict[str, str] = {
    NAME_PATTERN: f"a name of {NAMES}",
    r"^[a-z0-9][a-z0-9-]*(\.\w+)*$": "a flag without its dashes, or a key inside one: flag.key",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "a name of letters, digits and _",
    r"\S": "a text that says something",
    r"^sha256:[0-9a-f]{64}$": "a digest: sha256: and 64 hexadecimal digits",
    r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$": "a tag: letters, digits, _ . and -",
    r"^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+$": "a repository in lower case, such as ghcr.io/me/it",
    r"^/[\w./-]+$": "an absolute path of letters, digits, . _ - and /",
    r"^(/[\w./-]+)?$": "an absolute path of letters, digits, . _ - and /, or empty",
    r"^https?://\S+$": "a URL that begins with http:// or https://",
    r"^([A-Za-z0-9_.:-]+)?$": "a host name or an address",
    r"^[0-9]+[kmg]$": "a size such as 16g",
    r"^[\w.-]+/[\w.-]+$": "OWNER/NAME as the hub has it",
}
"""A field's pattern → what the value must be, for those who don't read patterns."""

UNION = "true or false, a number, a text, a list of words or a mapping"
"""What a flag may be, in place of one complaint for each of the union's members."""


def quoted(value: object) -> str:
    """A value as YAML or JSON would show it, cut when long; quotes tell a text from a number."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = repr(value)
    return short(text)


def short(text: str) -> str:
    """A text for the middle of a sentence, cut when long."""
    return text if len(text) <= 80 else text[:77] + "…"


def near(word: str, words: Iterable[str]) -> str:
    """` Did you mean X?` for the nearest known word, or the empty text."""
    known = list(words)
    for spelt in (word, word.replace("_", "-"), word.replace("-", "_"), word.lower()):
        found = difflib.get_close_matches(spelt, known, n=1, cutoff=0.6)
        if found:
            return f" Did you mean {found[0]}?"
    return ""


@dataclass(frozen=True, slots=True)
class Reader:
    """How the errors of one piece of data are told."""

    model: type[BaseModel]
    """The model that the data was read into; known keys and their meaning come from it."""
    start: Callable[[Place], str]
    """Begins the sentence: names the host, or the file and line, of a place."""
    show: Callable[[Place], str] = lambda place: ".".join(str(part) for part in place)
    """How a place is written for its owner."""
    more_keys: tuple[str, ...] = ()
    """Keys that are allowed at the top beside the model's own."""
    host: str | None = None
    file: str | None = None

    def explain(self, error: ValidationError, data: Mapping[str, Any]) -> SpecError:
        """One SpecError for everything that pydantic found."""
        told: dict[Place, SpecError] = {}
        found = [(_trim(detail, data), detail) for detail in error.errors()]
        misspelt = {
            place: near(str(place[-1]), _fields(self.model, place[:-1]))
            for place, detail in found
            if detail["type"] == "extra_forbidden"
        }
        for place, detail in found:
            if detail["type"] == "missing" and any(
                one[:-1] == place[:-1] and meant == f" Did you mean {place[-1]}?"
                for one, meant in misspelt.items()
            ):
                continue  # it is there, under the wrong name, and that is told
            misfit = detail.get("ctx", {}).get("error")
            if isinstance(misfit, Misfit):
                place = (*place, *misfit.place)
            # Members of a union complain one by one about one value: the first is enough.
            if any(place[:length] in told for length in range(1, len(place) + 1)):
                continue
            sentence = f"{self.start(place)}: {self._sentence(detail, place)}"
            told[place] = SpecError(
                sentence, host=self.host, file=self.file, key=self.show(place) or None
            )
        return SpecError.gather(told.values())

    def _sentence(self, detail: ErrorDetails, place: Place) -> str:
        key, kind, value = short(self.show(place)), detail["type"], detail["input"]
        if kind == "missing":
            return f"{key} is missing.{self._meaning(place)}"
        if kind == "extra_forbidden":
            known = [*_fields(self.model, place[:-1]), *(self.more_keys if len(place) == 1 else ())]
            hint = near(str(place[-1]), known) or f" Known here: {', '.join(sorted(known))}."
            return f"{key} (value {quoted(value)}) is not a known key.{hint}"
        if kind == "value_error":
            what = str(detail.get("ctx", {}).get("error", detail["msg"]))
            shown = f"{key} ({quoted(value)})" if key and not _big(value) else key
            return f"{shown} {what}.".strip()
        if detail["loc"] and detail["loc"][-1] == "[key]":
            if kind == "literal_error":
                return f"{key} is not known here; the key must be {detail['ctx']['expected']}."
            form = str(detail.get("ctx", {}).get("pattern", ""))
            if form in FORMS and form != NAME_PATTERN:
                return f"{key} is no key that can stand here; it must be {FORMS[form]}."
            fixed = short(str(value).lower().replace("_", "-").strip("-"))
            return f"{key} is not a name that can stand here; {fixed} would be: {NAMES}."
        must = MUST_BE.get(kind, detail["msg"]).format(**detail.get("ctx", {}))
        if kind == "string_pattern_mismatch":
            must = FORMS.get(str(detail["ctx"]["pattern"]), must)
        if len(detail["loc"]) > len(place) and "flags" in place:
            must = UNION
        return f"{key} is {quoted(value)}, but must be {must}.{_hint(kind, value, key)}" + (
            self._meaning(place)
        )

    def _meaning(self, place: Place) -> str:
        field = _fields(self.model, place[:-1]).get(str(place[-1])) if place else None
        return f" ({place[-1]}: {field})" if field else ""


def _hint(kind: str, value: object, key: str) -> str:
    name = key.rpartition(".")[2]
    if value in ("", None):
        return " It is empty; write a value or leave the key out."
    if kind in ("float_type", "int_type") and isinstance(value, str) and _is_number(value):
        return f" Write it without quotes: {name}: {value}."
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        return f' Put it in quotes: {name}: "{value}".'
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _big(value: object) -> bool:
    return isinstance(value, Mapping | BaseModel)


def _trim(detail: ErrorDetails, data: object) -> Place:
    """Where the error is, without what pydantic adds to it: members of unions, `[key]`."""
    place: list[str | int] = []
    here = data
    for part in detail["loc"]:
        if isinstance(here, list | tuple):
            here = dict(enumerate(here))
        if isinstance(here, Mapping) and part in here:
            here = here[part]
        elif detail["type"] == "missing" and part == detail["loc"][-1]:
            here = None
        else:
            continue
        place.append(part)
    return tuple(place)


def _inside(annotation: Any) -> Iterator[Any]:
    """The plain types inside an annotation, without Annotated, Optional and unions."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        yield from _inside(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(annotation):
            yield from _inside(part)
    else:
        yield annotation


def _fields(model: type[BaseModel], place: Place) -> dict[str, str]:
    """Field → its description, of the model that stands at a place; empty where none does."""
    here: list[Any] = [model]
    for part in place:
        deeper: list[Any] = []
        for kind in here:
            origin, args = typing.get_origin(kind), typing.get_args(kind)
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                field = kind.model_fields.get(str(part))
                deeper += list(_inside(field.annotation)) if field else []
            elif origin is dict:
                deeper += list(_inside(args[1]))
            elif origin in (tuple, list):
                deeper += list(_inside(args[0]))
        here = deeper
    return {
        name: field.description or ""
        for kind in here
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        for name, field in kind.model_fields.items()
    }
