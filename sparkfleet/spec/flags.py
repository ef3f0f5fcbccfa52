"""The flags and the environment that hold for a service: recipe, fallbacks, owner, additions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from sparkfleet.spec.base import UTILIZATION, FlagValue
from sparkfleet.spec.command import flag_words
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.image import ProvenImage
from sparkfleet.spec.inventory import ServiceSpec
from sparkfleet.spec.recipe import Addition, Recipe
from sparkfleet.spec.variants import overlaid
from sparkfleet.spec.wording import quoted

RESERVED: dict[str, str] = {
    "gpu-memory-utilization": "say preset, utilization or reserve_gib instead",
    "host": "the engine listens inside its container; say bind for the address on the host",
    "port": "the engine's port is inside its container; say port beside flags for the host's",
    "served-model-name": "the recipe's proofs ask these names; write a recipe of your own",
    "api-key": "a key on the command line shows in ps; say auth: key",
    "config": "the recipe's own file is passed this way, and another could break any rule unseen",
    "middleware": "the guard that wants the API key is one; another would take its place",
}
"""Flags that an inventory may not set, and what to do instead."""


def effective_flags(
    recipe: Recipe, spec: ServiceSpec, utilization: float, version: ProvenImage | None = None
) -> dict[str, FlagValue]:
    """Every flag in order: the recipe's, over them those of the chosen image's `version`, the
    preset's, the fallbacks' and the owner's.

    Additions of ours come last. Raises SpecError (the caller adds the host) for a flag that is not
    the owner's to set.
    """
    for flag, value in spec.flags.items():
        key = f"flags.{flag}"
        if flag in RESERVED:
            raise SpecError(
                f"{key} is {quoted(value)}, but may not be set: {RESERVED[flag]}.", key=key
            )
        _exact(flag, recipe)
        if recipe.command.environment and not _carried(flag, value, recipe):
            raise SpecError(
                f"{key} is {quoted(value)}, but the image of {recipe.name} is driven by its "
                f"environment, which carries only {', '.join(recipe.command.environment)}.",
                key=key,
            )
    of_version = version.flags if version else {}
    flags = overlaid(recipe.command.flags, of_version)
    if spec.utilization is None and spec.reserve_gib is None:
        flags = overlaid(flags, recipe.preset(spec.preset or "alone").flags)
    for name in spec.fallbacks:
        flags = overlaid(flags, recipe.fallbacks[name].flags)
    flags = overlaid(flags, spec.flags)
    for addition in additions(recipe, spec):
        if of_version.get(addition.flag, addition.value) is not None:
            flags.setdefault(addition.flag, addition.value)
    return {flag: utilization if value == UTILIZATION else value for flag, value in flags.items()}


def additions(recipe: Recipe, spec: ServiceSpec) -> list[Addition]:
    """The recipe's additions that hold for this service."""
    return [row for row in recipe.additions if row.when == "always" or spec.auth == "key"]


def at_path(flags: Mapping[str, Any], path: str) -> Any:
    """The value of a flag, or of a key inside its JSON value; None where it is not there."""
    value: Any = flags
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _carried(flag: str, value: object, recipe: Recipe) -> bool:
    """Whether variables carry everything in which `value` differs from the recipe's flag."""
    paths = [path for path in recipe.command.environment if path.split(".")[0] == flag]
    if flag in paths:
        return value is not None
    own = recipe.command.flags.get(flag)
    if not isinstance(value, Mapping) or not isinstance(own, Mapping):
        return False
    keys = {path.split(".")[1] for path in paths}
    return {**own, **{key: value[key] for key in keys if key in value}} == value


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
    recipe: Recipe,
    spec: ServiceSpec,
    flags: dict[str, FlagValue],
    utilization: float,
    version: ProvenImage | None = None,
) -> dict[str, str]:
    """The container's environment, with the variables of an environment-driven image.

    Raises SpecError (the caller adds the host) where the owner sets one of those directly.
    """
    command = recipe.command
    taken = {*command.environment.values(), *([command.extra] if command.extra else [])}
    for variable in spec.env:
        if variable in taken:
            raise SpecError(
                f"env.{variable} carries flags of the engine; say them under flags, so that the "
                "recipe's rules see them.",
                key=f"env.{variable}",
            )
    env = overlaid(overlaid(recipe.env, version.env if version else {}), spec.env)
    for path, variable in command.environment.items():
        if (value := at_path(flags, path)) is not None:
            env[variable] = as_text(value)
    if command.extra:
        words = [
            word
            for row in additions(recipe, spec)
            if row.flag in flags
            for word in flag_words(row.flag, row.value)
        ]
        env[command.extra] = " ".join(words)
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
