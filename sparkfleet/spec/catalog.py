"""Loads recipes and hardware profiles from directories of YAML: the only reading of files here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkfleet.spec.hardware import HardwareProfile
from sparkfleet.spec.recipe import Recipe
from sparkfleet.spec.rules import Rule


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything that an inventory can name."""

    recipes: Mapping[str, Recipe]
    hardware: Mapping[str, HardwareProfile]
    common_rules: tuple[Rule, ...] = ()
    """Rules of every recipe (recipes/_common.yaml)."""


def load_catalog(*directories: Path | str) -> Catalog:
    """Read `recipes/*.yaml` and `hardware/*.yaml` of each directory; a later one may not redefine.

    Raises SpecError naming file, line, key and value.
    """
    raise NotImplementedError
