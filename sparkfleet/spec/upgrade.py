"""What differs between two locks: what has moved upstream, what an update moved. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparkfleet.spec.lock import Lock, LockedModel, LockedRecipe


@dataclass(frozen=True, slots=True)
class Move:
    """One pin that says something else now."""

    key: str
    """Lock key: the recipe, with a variant or an image of its own."""
    what: str
    """`image`, or the role of a repository with its id."""
    old: str
    """What is pinned, short: digest or commit, with its date."""
    new: str
    """What it is now."""
    size: int = 0
    """Bytes of files whose content is not among the pinned ones: what a host would fetch."""


def moves(old: Lock, new: Lock) -> list[Move]:
    """Every pin of `new` that `old` pins otherwise; recipes that only one of them has don't count,
    for nothing has moved there."""
    return [
        move
        for key, recipe in sorted(new.recipes.items())
        if key in old.recipes
        for move in _of_recipe(key, old.recipes[key], recipe)
    ]


def _of_recipe(key: str, old: LockedRecipe, new: LockedRecipe) -> Iterator[Move]:
    if old.image.digest != new.image.digest:
        tag = f"image {new.image.repository}:{new.image.tag}"
        yield Move(key, tag, _short(old.image.digest), _short(new.image.digest))
    for role, model in sorted(new.models.items()):
        before = old.models.get(role)
        if before is None:
            yield Move(key, f"{role} {model.repo}", "-", _commit(model), model.size)
        elif before.commit != model.commit:
            had = {file.digest for file in before.files}
            size = sum(file.size for file in model.files if file.digest not in had)
            yield Move(key, f"{role} {model.repo}", _commit(before), _commit(model), size)


def _short(digest: str | None) -> str:
    return digest.removeprefix("sha256:")[:12] if digest else "-"


def _commit(model: LockedModel) -> str:
    return f"{model.commit[:12]} {model.date[:10]}".strip()


def keys_of(lock: Lock, recipe: str) -> list[str]:
    """The keys under which pins of `recipe` stand: variants and images of its own included."""
    return [key for key in lock.recipes if recipe_of(key) == recipe]


def recipe_of(key: str) -> str:
    """The recipe's name in a lock key: `name`, `name+variant`, either with `@image`."""
    return key.partition("@")[0].partition("+")[0]
