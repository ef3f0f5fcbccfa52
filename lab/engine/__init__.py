"""The lab's engine images, tiny models and recipes: `ensure` brings all of them about.

`plan` says what the images are made of, `tree` and `layer` build them, `workshop` keeps what is
built, `oci` pushes it, `model` makes the models, `catalog` writes recipes that use them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from lab.engine import catalog, model, oci, plan
from lab.engine.workshop import Workshop


@dataclass(frozen=True)
class EngineArtifacts:
    """What `ensure` leaves behind."""

    images: dict[str, str]
    """`sparkfleet/engine:0.32.0` → `REGISTRY/sparkfleet/engine@sha256:…`."""
    catalog: Path
    """Holds recipes/ and hardware/, for `catalog` in an inventory."""
    expected: dict[str, str]
    """Prompt → the exact text of the tiny model at temperature 0."""


def ensure(cache: Path, registry: str, *, only: Collection[str] | None = None) -> EngineArtifacts:
    """Build what is missing, push what the registry lacks, write models and recipes.

    `registry` is `HOST:PORT`. `only` names images to bring (`sparkfleet/standin:1`, or a whole
    repository). Doing it again costs one request an image. Raises LabError, in a sentence.
    """
    workshop = Workshop(cache)
    with workshop.locked():
        wanted = [i for i in plan.IMAGES if only is None or {i.name, i.repository} & set(only)]
        built = workshop.images(wanted)
        expected = model.ensure(workshop, cache / "hub")
        for image in built:
            if oci.push(workshop.layout, image, registry):
                print(f"engine images: pushed {image.image.name}", flush=True)
        catalog.write(cache / "catalog", registry, expected)
        workshop.tidy()
    images = {image.image.name: image.reference(registry) for image in built}
    return EngineArtifacts(images, cache / "catalog", expected)
