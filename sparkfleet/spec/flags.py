"""The flags and the environment that hold for a service: recipe, fallbacks, owner, additions."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import JsonValue

from sparkfleet.spec.base import UTILIZATION, FlagValue
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.inventory import ServiceSpec
from sparkfleet.spec.recipe import Recipe
from sparkfleet.spec.variants import overlaid
from sparkfleet.spec.wording import quoted

RESERVED: dict[str, str] = {
    "gpu-memory-utilization": "say preset, utilization or reserve_gib instead",
    "host": "the engine listens inside its container; say bind for the address on the host",
    "port": "the engine's port is inside its container; say port beside flags for the host's",
    "served-model-name": "the recipe's proofs ask these names; write a recipe of your own",
    "api-key": "a key on the command line shows in ps; say auth: key",
    "config": "the key file is passed this way, and a file could break any rule unseen",
}
"""Flags that an inventory may not set, and what to do instead."""


def effective_flags(
    recipe: Recipe, spec: ServiceSpec, fallbacks: Iterable[str], utilization: float
) -> dict[str, FlagValue]:
    """Every flag in order: the recipe's, with fallbacks and the owner's in their places, ours.

    Raises SpecError (the caller adds the host) for a flag that is not the owner's to set.
    """
    for flag, value in spec.flags.items():
        if flag in RESERVED:
            raise SpecError(
                f"flags.{flag} is {quoted(value)}, but may not be set: {RESERVED[flag]}.",
                key=f"flags.{flag}",
            )
        _exact(flag, recipe)
        if recipe.command.environment and flag not in recipe.command.environment:
            raise SpecError(
                f"flags.{flag} is {quoted(value)}, but the image of {recipe.name} is driven by "
                f"its environment, which knows only {', '.join(recipe.command.environment)}.",
                key=f"flags.{flag}",
            )
    flags = dict(recipe.command.flags)
    for name in fallbacks:
        flags = overlaid(flags, recipe.fallbacks[name].flags)
    flags = overlaid(flags, spec.flags)
    for addition in recipe.additions:
        if addition.when == "always" or spec.auth == "key":
            flags.setdefault(addition.flag, addition.value)
    return {flag: utilization if value == UTILIZATION else value for flag, value in flags.items()}


def _exact(flag: str, recipe: Recipe) -> None:
    """Refuse what could be an abbreviation: it would slip past the rules of the whole name."""
    known = {*recipe.command.flags, *RESERVED}
    known |= {
        rule.subject[5:].partition(".")[0]
        for rule in recipe.rules
        if rule.subject.startswith("flag:")
    }
    longer = sorted(name for name in known if name.startswith(flag) and name != flag)
    if longer and flag not in known:
        raise SpecError(
            f"flags.{flag} looks like a short form of {longer[0]}; write the whole name.",
            key=f"flags.{flag}",
        )


def effective_env(
    recipe: Recipe, spec: ServiceSpec, flags: dict[str, FlagValue], utilization: float
) -> dict[str, str]:
    """The container's environment, with the variables of an environment-driven image.

    Raises SpecError (the caller adds the host) where the owner sets one of those directly.
    """
    carried = recipe.command.environment
    for flag, variable in carried.items():
        if variable in spec.env:
            raise SpecError(
                f"env.{variable} carries the flag {flag}; say it under flags, so that the recipe's "
                "rules see it.",
                key=f"env.{variable}",
            )
    env = overlaid(recipe.env, spec.env)
    env |= {variable: as_text(flags[flag]) for flag, variable in carried.items() if flag in flags}
    return {key: value.replace(UTILIZATION, f"{utilization:.2f}") for key, value in env.items()}


def as_text(value: FlagValue | JsonValue) -> str:
    """A flag's value as an environment carries it: words by spaces, mappings as compact JSON."""
    if isinstance(value, list):
        return " ".join(str(word) for word in value)
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)
