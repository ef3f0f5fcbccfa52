"""Loads recipes and hardware profiles from directories of YAML: the only reading of files here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from sparkfleet.spec.base import Model, Name, Rows
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.flags import at_path
from sparkfleet.spec.hardware import HardwareProfile
from sparkfleet.spec.logs import FatalLine, Marker
from sparkfleet.spec.own_rules import OWN_RULES
from sparkfleet.spec.recipe import Addition, Recipe
from sparkfleet.spec.rules import Rule
from sparkfleet.spec.variants import chain
from sparkfleet.spec.wording import Reader, near
from sparkfleet.spec.yamlfile import Document, read_yaml

M = TypeVar("M", bound=Model)

COMMON = "_common.yaml"
"""Beside the recipes: what holds for all of them."""


class Common(Model):
    """The file recipes/_common.yaml: what holds for every recipe."""

    rules: Rows[Rule] = Field(description="Rules.")
    markers: Rows[Marker] = Field(default=(), description="Boot markers, where a recipe has none.")
    fatal: Rows[FatalLine] = Field(default=(), description="Telling lines of a dying engine.")
    additions: dict[Name, Addition] = Field(
        default_factory=dict, description="Flags of ours that recipes take up by name."
    )


@dataclass(frozen=True, slots=True, repr=False)
class Catalog:
    """Everything that an inventory can name."""

    recipes: Mapping[str, Recipe]
    hardware: Mapping[str, HardwareProfile]
    common_rules: tuple[Rule, ...] = ()
    """Rules of every recipe (recipes/_common.yaml)."""
    names: tuple[str, ...] = ()
    """Every recipe there is, read or not."""

    def __repr__(self) -> str:
        return f"Catalog(recipes={sorted(self.recipes)}, hardware={sorted(self.hardware)})"


def load_catalog(*directories: Path | str, only: Collection[str] | None = None) -> Catalog:
    """Read `recipes/*.yaml` and `hardware/*.yaml` of each directory; a later one may not redefine.

    With `only`, no other recipes are read than these: a run pays for what it serves, 5 ms a recipe,
    and a draft that nobody serves stops no run.
    Raises one SpecError with every fault found, each naming file, line, key and value.
    """
    errors: list[SpecError] = []
    commons: list[Common] = []
    for document in _documents(directories, "recipes", lambda name: name == COMMON, errors):
        try:
            commons.append(_read(Common, document))
        except SpecError as error:
            errors.append(error)
    hardware = _hardware(directories, errors)
    recipes: dict[str, Recipe] = {}
    names = tuple(
        path.stem
        for directory in directories
        for path in _files(directory, "recipes")
        if path.name[0] != "_"
    )
    wanted = {f"{name}.yaml" for name in names if only is None or name in only}
    for document in _documents(directories, "recipes", wanted.__contains__, errors):
        try:
            recipe = _read(Recipe, document)
            faults = [*_named(document, recipes), *_dangling(document, recipe, hardware, commons)]
            if faults:
                raise SpecError.gather(faults)
            recipes[recipe.name] = _completed(recipe, commons)
        except SpecError as error:
            errors.append(error)
    if errors:
        raise SpecError.gather(errors)
    rules = tuple(rule for common in commons for rule in common.rules)
    return Catalog(recipes, hardware, rules, names)


def _completed(recipe: Recipe, commons: list[Common]) -> Recipe:
    """The recipe with what it shares with others written out."""
    markers = recipe.boot.markers or tuple(row for common in commons for row in common.markers)
    fatal = (*recipe.logs.fatal, *(row for common in commons for row in common.fatal))
    shared = _shared_additions(commons)
    return recipe.model_copy(
        update={
            "additions": (*(shared[name] for name in recipe.common_additions), *recipe.additions),
            "boot": recipe.boot.model_copy(update={"markers": markers}),
            "logs": recipe.logs.model_copy(update={"fatal": fatal}),
        }
    )


def _shared_additions(commons: list[Common]) -> dict[str, Addition]:
    return {name: row for common in commons for name, row in common.additions.items()}


def _documents(
    directories: tuple[Path | str, ...],
    kind: str,
    wanted: Callable[[str], bool],
    errors: list[SpecError],
) -> Iterator[Document]:
    for directory in directories:
        if not Path(directory).is_dir():
            errors.append(
                SpecError(
                    f"There is no directory {directory}; catalog must name one that holds "
                    "recipes/ or hardware/.",
                    file=str(directory),
                    key="catalog",
                )
            )
            continue
        for path in _files(directory, kind):
            if wanted(path.name):
                try:
                    yield read_yaml(path)
                except SpecError as error:
                    errors.append(error)


def _files(directory: Path | str, kind: str) -> list[Path]:
    return sorted((Path(directory) / kind).glob("*.yaml"))


def _read(model: type[M], document: Document, data: dict[str, Any] | None = None) -> M:
    """Read a document, or `data` in its place, into a model; errors point at the document."""
    data = document.data if data is None else data
    try:
        return model.model_validate(data)
    except ValidationError as error:
        reader = Reader(model, start=document.at, file=str(document.path))
        raise reader.explain(error, data) from None


def _named(document: Document, known: Mapping[str, object]) -> Iterator[SpecError]:
    name, stem = document.data.get("name"), document.path.stem
    if name != stem:
        yield document.error(("name",), f"name is {name}, but the file is {stem}; make them one.")
    elif name in known:
        yield document.error(("name",), f"{name} is defined already in another directory; rename.")


def _hardware(
    directories: tuple[Path | str, ...], errors: list[SpecError]
) -> dict[str, HardwareProfile]:
    documents: dict[str, Document] = {}
    for document in _documents(directories, "hardware", lambda name: name[0] != "_", errors):
        errors += _named(document, documents)
        documents[document.path.stem] = document
    profiles: dict[str, HardwareProfile] = {}
    for name, document in documents.items():
        try:
            data, lineage = _inherited(name, documents)
            data["lineage"] = lineage
            profiles[name] = _read(HardwareProfile, document, data)
        except SpecError as error:
            errors.append(error)
    return profiles


def _inherited(name: str, documents: Mapping[str, Document]) -> tuple[dict[str, Any], list[str]]:
    """A profile's data over its ancestors', and their names, nearest first."""
    lineage = [name]
    while (parent := documents[lineage[-1]].data.get("inherits")) is not None:
        child = documents[lineage[-1]]
        if not isinstance(parent, str) or parent not in documents:
            raise child.error(
                ("inherits",),
                f"inherits names {parent}, which no hardware file defines."
                f"{near(str(parent), documents)}",
            )
        if parent in lineage:
            raise child.error(
                ("inherits",), f"profiles inherit in a circle: {' → '.join([*lineage, parent])}."
            )
        lineage.append(parent)
    data: dict[str, Any] = {}
    for ancestor in reversed(lineage):
        own = documents[ancestor].data
        images, below = own.get("images", {}), data.get("images", {})
        if isinstance(images, dict) and isinstance(below, dict):
            images = {**below, **images}
        data = {**data, **own, "images": images}
    return data, lineage


def _dangling(
    document: Document,
    recipe: Recipe,
    hardware: Mapping[str, HardwareProfile],
    commons: list[Common],
) -> Iterator[SpecError]:
    """Names in a recipe that nothing answers to."""
    shared = {rule.name for common in commons for rule in common.rules} | OWN_RULES.keys()
    rules = {rule.name for rule in recipe.rules} | shared
    additions = _shared_additions(commons)
    references = [
        *((("hardware", i), name, hardware, "hardware profile") for i, name in
          enumerate(recipe.hardware)),
        *((("common_additions", i), name, additions, "addition in _common.yaml") for i, name in
          enumerate(recipe.common_additions)),
        *((("fallbacks", key, "lifts", i), name, rules, "rule") for key, fallback in
          recipe.fallbacks.items() for i, name in enumerate(fallback.lifts)),
        *((("logs", kind, i, "rule"), line.rule, rules, "rule") for kind in
          ("forbidden", "required") for i, line in enumerate(getattr(recipe.logs, kind))
          if line.rule),
        *((("rules", i, "subject"), rule.subject[6:], recipe.models, "model") for i, rule in
          enumerate(recipe.rules) if rule.subject.startswith("model:")),
    ]  # fmt: skip
    for place, name, known, kind in references:
        if name not in known:
            yield document.error(place, f"there is no {kind} {name}.{near(name, known)}")
    for index, rule in enumerate(recipe.rules):
        if rule.name in shared:
            yield document.error(
                ("rules", index, "name"), f"{rule.name} is a rule of every recipe; rename this one."
            )
    for name in recipe.variants:
        try:
            chain(recipe, name)
        except SpecError as error:
            yield document.error(("variants", name, "extends"), str(error))
    for path in recipe.command.environment:
        if at_path(recipe.command.flags, path) is None:
            yield document.error(
                ("command", "environment", path), f"{path} is not among command.flags."
            )
