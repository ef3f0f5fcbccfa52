"""Variants of a recipe: only what differs, laid over the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.recipe import Recipe, Variant
from sparkfleet.spec.wording import near

K = TypeVar("K")
V = TypeVar("V")


def overlaid(base: Mapping[K, V], over: Mapping[K, V | None]) -> dict[K, V]:
    """`base` with the values of `over` in their old places, new ones at the end; None removes."""
    merged: dict[K, V | None] = {**base, **over}
    return {key: value for key, value in merged.items() if value is not None}


def chain(recipe: Recipe, name: str) -> list[Variant]:
    """The variant and all that it extends, the farthest first.

    Raises SpecError for an unknown name, or variants that extend each other in a circle.
    """
    names: list[str] = []
    step: str | None = name
    while step is not None:
        if step not in recipe.variants:
            known = ", ".join(recipe.variants) or "none"
            raise SpecError(
                f"Recipe {recipe.name} has no variant {step}; it has: {known}."
                f"{near(step, recipe.variants)}",
                key="variant",
            )
        if step in names:
            raise SpecError(
                f"variants extend each other in a circle: {' → '.join([*names, step])}.",
                key="variant",
            )
        names.append(step)
        step = recipe.variants[step].extends
    return [recipe.variants[name] for name in reversed(names)]


def with_variant(recipe: Recipe, name: str | None) -> Recipe:
    """The recipe with a variant merged in; itself when `name` is None. Raises as `chain`."""
    if name is None:
        return recipe
    for variant in chain(recipe, name):
        command = recipe.command.model_copy(
            update={"flags": overlaid(recipe.command.flags, variant.flags)}
        )
        logs = recipe.logs.model_copy(
            update={"required": (*recipe.logs.required, *variant.required_logs)}
        )
        recipe = recipe.model_copy(
            update={
                "command": command,
                "env": overlaid(recipe.env, variant.env),
                "models": {**recipe.models, **variant.models},
                "presets": {**recipe.presets, **variant.presets},
                "logs": logs,
                "drafts": recipe.drafts if variant.drafts is None else variant.drafts,
            }
        )
    return recipe
