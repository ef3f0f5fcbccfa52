"""What is said of a recipe once, when it enters the lock: whose word it is and what is ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparkfleet.spec.lock import Lock
from sparkfleet.spec.published import Choice
from sparkfleet.spec.recipe import Recipe
from sparkfleet.spec.upgrade import recipe_of
from sparkfleet.spec.wording import quoted


def newcomers(before: Lock, now: Lock, recipes: Iterable[Recipe]) -> list[Recipe]:
    """The recipes of which `now` has pins and `before` had none, of any image or variant."""
    known, locked = ({recipe_of(key) for key in lock.recipes} for lock in (before, now))
    fresh = {recipe.name: recipe for recipe in recipes if recipe.name in locked - known}
    return list(fresh.values())


def introduce(recipe: Recipe) -> Iterator[str]:
    """The lines: responsibility, known risks, and each choice of ours with how to change it."""
    yield f"New in the lock: {recipe.name}, {recipe.title}."
    if recipe.responsibility:
        yield f"  {recipe.responsibility}"
    for risk in recipe.risks:
        yield f"  Known risk: {risk.what.rstrip('.')}. (Source: {risk.source}.)"
    if recipe.choices:
        yield "  No source says the following; it is our choice, and yours to change:"
    for choice in recipe.choices:
        reason = choice.reason.rstrip(".")
        yield f"    {choice.key}: {quoted(choice.value)}. {reason}. {_change(recipe, choice)}"


def _change(recipe: Recipe, choice: Choice) -> str:
    """The one line in which the owner says otherwise."""
    first, *rest = choice.key.split(".")
    if choice.key.startswith("command.flags."):
        return f'Change: flags: {{"{rest[1]}": …}} in the inventory.'
    if first == "presets":
        return "Change: utilization in the inventory."
    if first == "image":
        return "Change: image in the inventory."
    return f"Change: {choice.key} in recipes/{recipe.name}.yaml."
