"""Rules without a row: the caps and the images that recipe and hardware name elsewhere."""

from __future__ import annotations

from collections.abc import Container, Iterator

from packaging.version import InvalidVersion, Version

from sparkfleet.spec.hardware import HardwareProfile
from sparkfleet.spec.image import IMAGE_FLOORS
from sparkfleet.spec.judge import Broken, Scene, judge
from sparkfleet.spec.pins import covers, proven, wanted_image
from sparkfleet.spec.recipe import Cap, Recipe
from sparkfleet.spec.rules import Rule

OWN_RULES: dict[str, str] = {
    "max-utilization": "The recipe's max_utilization.",
    "hardware-max-utilization": "The hardware profile's max_utilization, of one service.",
    "image-proven": "The image is the recipe's own or one that it lists as proven.",
    IMAGE_FLOORS: "The recipe's image.floors; the host asks the staged image before any stop.",
}
"""Name → what it holds to; an override can name them like any rule of a recipe."""


def own_faults(
    recipe: Recipe, hardware: HardwareProfile, scene: Scene, overridden: Container[str]
) -> Iterator[Broken]:
    """What of the caps and of the proven images does not hold."""
    caps = {"max-utilization": recipe.max_utilization}
    caps["hardware-max-utilization"] = hardware.max_utilization
    for found in judge([_cap_rule(name, cap) for name, cap in caps.items()], scene):
        yield found
        if found.rule.name not in overridden:
            break  # of two caps that are passed one is enough said
    yield from _floors(recipe, scene)
    accepted = wanted_image(recipe, hardware, None)
    images = [accepted, *proven(recipe, accepted.repository)]
    if not any(covers(image, scene.image) for image in images):
        names = ", ".join(image.tag or image.reference for image in images)
        rule = Rule(
            name="image-proven",
            kind="require",
            subject="image",
            reason="A recipe is bound to the images it was proven on; flags and scars differ from "
            "version to version",
            source=recipe.image.source,
        )
        yield Broken(
            rule,
            f"the image {scene.image.reference} is not one that recipe {recipe.name} was proven "
            f"on ({names})",
        )


def _floors(recipe: Recipe, scene: Scene) -> Iterator[Broken]:
    """What is known before the image is there: the engine's own version."""
    floor, version = recipe.image.floors.get("vllm"), scene.image.version
    if floor is None or version is None or not _older(version, floor):
        return
    rule = Rule(
        name=IMAGE_FLOORS,
        kind="at_least",
        subject="image",
        value=0,
        reason="Below the floors that the recipe was published with it is known not to work",
        source=recipe.image.source,
    )
    yield Broken(
        rule, f"the image {scene.image.reference} holds vLLM {version}, {floor} or newer is needed"
    )


def _older(version: str, floor: str) -> bool:
    try:
        return Version(version) < Version(floor)
    except InvalidVersion:
        return False  # the host asks the image itself


def _cap_rule(name: str, cap: Cap) -> Rule:
    return Rule(
        name=name,
        kind="at_most",
        subject="utilization",
        value=cap.value,
        reason=cap.reason,
        source=cap.source,
    )
