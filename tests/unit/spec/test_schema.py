"""The editor's schemas know every key, each with its meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sparkfleet.spec.recipe import Recipe
from sparkfleet.spec.schema import KINDS, main, schema
from sparkfleet.spec.wording import FORMS


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_described(kind: str) -> None:
    found = schema(kind)
    for definition in (found, *found.get("$defs", {}).values()):
        for name, field in definition.get("properties", {}).items():
            assert field.get("description"), f"{definition.get('title')}.{name}"
        if definition.get("type") == "object":
            assert definition["additionalProperties"] is False


def patterns(found: object) -> Iterator[str]:
    if isinstance(found, dict):
        if isinstance(found.get("pattern"), str):
            yield found["pattern"]
        yield from found.get("patternProperties", {})
    for value in (
        found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    ):
        yield from patterns(value)


@pytest.mark.parametrize("kind", ["host", "service"])
def test_what_an_owner_writes_wrong_is_told_in_words(kind: str) -> None:
    """Not by the pattern: an inventory is written by people who don't read patterns."""
    assert set(patterns(schema(kind))) <= set(FORMS)


def test_prints_one_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe"]) == 0
    assert set(json.loads(capsys.readouterr().out)["properties"]) == set(Recipe.model_fields)


def test_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "recipe, common, hardware" in capsys.readouterr().err
