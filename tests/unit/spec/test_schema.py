"""The editor's schemas know every key, each with its meaning."""

from __future__ import annotations

import json

import pytest

from sparkfleet.spec.recipe import Recipe
from sparkfleet.spec.schema import KINDS, main, schema


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_described(kind: str) -> None:
    found = schema(kind)
    for definition in (found, *found.get("$defs", {}).values()):
        for name, field in definition.get("properties", {}).items():
            assert field.get("description"), f"{definition.get('title')}.{name}"
        if definition.get("type") == "object":
            assert definition["additionalProperties"] is False


def test_prints_one_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe"]) == 0
    assert set(json.loads(capsys.readouterr().out)["properties"]) == set(Recipe.model_fields)


def test_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "recipe, common, hardware" in capsys.readouterr().err
