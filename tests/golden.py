"""The compose file of each recipe as it is rendered, kept so that a change of it is seen.

    make golden        # writes tests/cases/compose/ anew: review the diff, then commit it

Commits, and digests where a recipe has none, are made up: a recipe file names no commit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha1, sha256
from pathlib import Path

from lab.engine import catalog as lab_catalog
from lab.engine.model import PROMPTS
from sparkfleet.render import compose_file
from sparkfleet.spec.catalog import Catalog, load_catalog
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.recipe import Recipe
from sparkfleet.spec.resolve import resolve
from sparkfleet.spec.variants import with_variant

PROJECT = Path(__file__).resolve().parents[1]
CASES = PROJECT / "tests/cases/compose"
LAB = "lab-tiny"


def catalog() -> Catalog:
    """The project's recipes, and the lab's own on the hardware that it is written for."""
    found = load_catalog(PROJECT)
    tiny = lab_catalog.recipe(LAB, "registry.lab:5000", dict.fromkeys(PROMPTS, "made up"))
    gb10 = found.hardware["gb10"]
    name = lab_catalog.HARDWARE
    lab = gb10.model_copy(update={"name": name, "lineage": (name, *gb10.lineage)})
    return Catalog(
        recipes={**found.recipes, LAB: Recipe.model_validate(tiny)},
        hardware={**found.hardware, name: lab},
        common_rules=found.common_rules,
        names=(*found.names, LAB),
    )


def plans() -> Iterator[tuple[str, ServicePlan]]:
    """Every recipe and every variant, alone on its box: the case's name and its plan."""
    known = catalog()
    for name, recipe in sorted(known.recipes.items()):
        for variant in (None, *sorted(recipe.variants)):
            case = name if variant is None else f"{name}+{variant}"
            data = {"recipe": name, "variant": variant, "hardware": recipe.hardware[0]}
            host = parse_host("spark", {key: value for key, value in data.items() if value})
            lock = pins(case, with_variant(recipe, variant))
            yield case, resolve(host, known, lock).services[0]


def pins(key: str, recipe: Recipe) -> Lock:
    """A lock of made-up commits and digests, each derived from what it stands for."""
    image = recipe.image
    digest = image.digest or f"sha256:{sha256(image.repository.encode()).hexdigest()}"
    models = {
        role: {
            "repo": model.repo,
            "commit": sha1(model.repo.encode()).hexdigest(),
            "date": "2026-09-01T00:00:00Z",
            "files": [],
        }
        for role, model in recipe.models.items()
    }
    pinned = {"repository": image.repository, "tag": image.tag, "digest": digest}
    rows = {key: {"image": pinned, "models": models}}
    return Lock.model_validate({"schema": 1, "recipes": rows})


def rendered() -> dict[str, str]:
    """Case → the whole compose file; its label of the release's hash is left empty."""
    return {case: compose_file(plan) for case, plan in plans()}


def main() -> int:
    """Write every case, and remove those of recipes that are gone."""
    wanted = {CASES / f"{case}.yaml": text for case, text in rendered().items()}
    CASES.mkdir(parents=True, exist_ok=True)
    for path in set(CASES.glob("*.yaml")) - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
