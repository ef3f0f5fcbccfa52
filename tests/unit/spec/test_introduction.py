"""What an owner is told once of a recipe: responsibility, risks, and what is ours in it."""

from __future__ import annotations

import pytest

from sparkfleet.spec.catalog import Catalog
from sparkfleet.spec.introduction import introduce, newcomers
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.recipe import Recipe

B = "huihui-qwen36-35b"


def locked(*keys: str) -> Lock:
    """A lock with pins under these keys."""
    image = {"repository": "registry.test/engine", "tag": "one"}
    rows = {key: {"image": image, "models": {}} for key in keys}
    return Lock.model_validate({"schema": 1, "recipes": rows})


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ((), (B,), True),
        ((), (f"{B}+dflash",), True),
        ((), (f"{B}+dflash@sometag",), True),
        ((B,), (B, f"{B}+dflash"), False),
        ((f"{B}@sometag",), (f"{B}@sometag", B), False),
        ((B,), (B,), False),
        ((), ("qwen36-27b",), False),
    ],
)
def test_a_recipe_is_introduced_when_it_enters_the_lock(
    catalog: Catalog, before: tuple[str, ...], now: tuple[str, ...], told: bool
) -> None:
    recipe = catalog.recipes[B]
    found = newcomers(locked(*before), locked(*now), [recipe, recipe])
    assert found == ([recipe] if told else [])


def test_b_says_whose_responsibility_it_is_and_what_is_ours(catalog: Catalog) -> None:
    lines = list(introduce(catalog.recipes[B]))
    text = "\n".join(lines)
    assert "you take full responsibility for its outputs" in text
    assert "vLLM#39273" in text and "(Source: S4.)" in text
    repo = next(line for line in lines if "models.model.repo" in line)
    assert '"YuYu1015/Huihui-Qwen3.6-35B-A3B-abliterated-NVFP4"' in repo
    assert "Change: models.model.repo in recipes/huihui-qwen36-35b.yaml." in repo
    sequences = next(line for line in lines if "max-num-seqs" in line)
    assert 'Change: flags: {"max-num-seqs": …} in the inventory.' in sequences
    assert any("image.tag" in one and "Change: image in the inventory." in one for one in lines)


def test_every_uncensored_recipe_says_the_word(catalog: Catalog) -> None:
    for recipe in catalog.recipes.values():
        assert any("responsib" in line or "safety layer" in line for line in introduce(recipe))


def test_every_choice_is_told_with_its_reason(catalog: Catalog) -> None:
    for recipe in catalog.recipes.values():
        text = "\n".join(introduce(recipe))
        for choice in recipe.choices:
            assert choice.key in text and choice.reason.rstrip(".") in text


def test_a_recipe_without_any_of_it_is_only_named(catalog: Catalog) -> None:
    bare = {"responsibility": None, "choices": (), "risks": ()}
    recipe: Recipe = catalog.recipes[B].model_copy(update=bare)
    assert len(list(introduce(recipe))) == 1
