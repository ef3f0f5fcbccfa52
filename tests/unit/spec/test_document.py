"""docs/recipes.md: its example is a recipe that loads, and it explains every field and kind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from sparkfleet.spec.catalog import load_catalog
from sparkfleet.spec.command import render_argv
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.introduction import introduce
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.own_rules import OWN_RULES
from sparkfleet.spec.recipe import Recipe
from sparkfleet.spec.resolve import resolve
from sparkfleet.spec.rules import Kind
from tests.documents import PROJECT, RECIPES, example_recipe


@pytest.fixture
def mine(tmp_path: Path) -> tuple[Path, str]:
    return tmp_path, example_recipe(tmp_path)


def test_the_example_loads_beside_the_projects_recipes(mine: tuple[Path, str]) -> None:
    directory, name = mine
    catalog = load_catalog(PROJECT, directory)
    for preset in catalog.recipes[name].presets:
        plan = resolve(parse_host("h1", {"recipe": name, "preset": preset}), catalog, None)
        assert plan.findings == ()
    service = plan.services[0]
    assert service.utilization == 0.7
    words = render_argv(service.recipe.command.positional, service.flags)
    assert words[-2:] == ["--config", "/run/sparkfleet/engine.yaml"]
    assert "compressed-tensors" in "\n".join(introduce(service.recipe))


def test_its_rules_hold(mine: tuple[Path, str]) -> None:
    directory, name = mine
    catalog = load_catalog(PROJECT, directory)
    host = parse_host("h1", {"recipe": name, "flags": {"kv-cache-dtype": "fp8"}})
    with pytest.raises(SpecError, match="Rule no-kv-cache-dtype"):
        resolve(host, catalog, None)


def test_it_is_no_recipe_that_is_listed(mine: tuple[Path, str]) -> None:
    directory, name = mine
    catalog = load_catalog(PROJECT, directory)
    repos = {recipe.models["model"].repo for key, recipe in catalog.recipes.items() if key != name}
    assert catalog.recipes[name].models["model"].repo not in repos


def rows(heading: str) -> set[str]:
    """The names in the first column of the table under a heading."""
    section = RECIPES.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)}


def test_every_field_and_every_kind_is_explained_and_no_other() -> None:
    assert rows("The fields") == set(Recipe.model_fields)
    assert rows("Rules") == set(get_args(Kind))


def test_it_names_the_rules_without_a_row() -> None:
    text = RECIPES.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in OWN_RULES)


def test_its_own_links_lead_somewhere() -> None:
    text = RECIPES.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    places = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= places
