"""Which image and which commits a service means: recipe, hardware, inventory and lock, in order."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace

from sparkfleet.spec.hardware import HardwareProfile
from sparkfleet.spec.image import ImageRef, ProvenImage, parse_image
from sparkfleet.spec.lock import LockedRecipe, model_dir
from sparkfleet.spec.plan import ModelPlan
from sparkfleet.spec.recipe import Recipe


def wanted_image(recipe: Recipe, hardware: HardwareProfile, text: str | None) -> ImageRef:
    """The image that the data asks for, before the lock.

    The hardware's replacement stands for the recipe's image; `text` is the owner's `image`, within
    that repository unless it is a full reference. The version is known for images that recipe or
    hardware name, else None. Raises SpecError when `text` names no image.
    """
    own = recipe.image
    base = ImageRef(own.repository, own.tag, own.digest, own.version)
    if (other := hardware.images.get(own.repository)) is not None:
        base = ImageRef(other.repository, other.tag, other.digest, other.version)
    if text is None:
        return base
    asked = parse_image(text, base.repository)
    for known in (base, *proven(recipe, base.repository)):
        if covers(known, asked):
            return replace(asked, version=known.version, digest=asked.digest or known.digest)
    return asked


def proven(recipe: Recipe, repository: str) -> list[ImageRef]:
    """Images beside the recipe's own that it accepts."""
    images = [ImageRef(repository, p.tag, p.digest, p.version) for p in recipe.image.proven]
    if recipe.image.rollback_tag:
        images.append(ImageRef(repository, recipe.image.rollback_tag, None, None))
    return images


def proven_as(recipe: Recipe, image: ImageRef) -> ProvenImage | None:
    """The row of `image.proven` that speaks of this image; None for the recipe's own."""
    for row in recipe.image.proven:
        if covers(ImageRef(image.repository, row.tag, row.digest, row.version), image):
            return row
    return None


def covers(known: ImageRef, asked: ImageRef) -> bool:
    """Whether `asked` is the image `known`: by digest where it has one, else by tag."""
    if known.repository != asked.repository:
        return False
    if asked.digest is not None:
        return known.digest == asked.digest
    return known.tag == asked.tag


def pinned_image(wanted: ImageRef, locked: LockedRecipe | None) -> ImageRef:
    """The wanted image with the lock's digest, where the lock speaks of the same image.

    It does not when the data has moved on since (another repository or tag, or a digest of its
    own): that is an upgrade, and the lock has to be filled anew.
    """
    if locked is None or locked.image.repository != wanted.repository:
        return wanted
    if wanted.digest is not None or locked.image.tag != wanted.tag:
        return wanted
    return replace(wanted, digest=locked.image.digest)


def planned_models(
    recipe: Recipe, locked: LockedRecipe | None, models_dir: str
) -> tuple[ModelPlan, ...]:
    """Every model of the recipe, by the lock's commit where the lock speaks of the same one."""
    plans = []
    for role, model in recipe.models.items():
        fixed = model.revision if re.fullmatch("[0-9a-f]{40}", model.revision) else None
        held = locked.models.get(role) if locked else None
        commit = fixed or (held.commit if held and held.repo == model.repo else None)
        plans.append(
            ModelPlan(
                role=role,
                repo=model.repo,
                revision=model.revision,
                commit=commit,
                mount=model.mount,
                include=model.include,
                exclude=model.exclude,
                dir=model_dir(models_dir, model.repo, commit or model.revision),
                tensors=model.tensors,
            )
        )
    return tuple(plans)


def commit_day(locked: LockedRecipe | None, role: str, repo: str) -> datetime.date | None:
    """Day of the pinned commit; None where the lock does not say."""
    held = locked.models.get(role) if locked else None
    if held is None or held.repo != repo:
        return None
    try:
        return datetime.datetime.fromisoformat(held.date).date()
    except ValueError:
        return None
