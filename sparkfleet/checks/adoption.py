"""What the owner already runs by hand from the published command: offered for adoption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparkfleet.checks.case import Case, gib
from sparkfleet.checks.disk import locked
from sparkfleet.checks.holders import by_hand
from sparkfleet.facts.host import Container, Unknown, Weights
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.lock import LockedModel, is_staged
from sparkfleet.spec.plan import ModelPlan


@dataclass(frozen=True, slots=True)
class FoundWeights:
    """Weights downloaded by hand that would do for a model: linked or copied, then verified."""

    model: ModelPlan
    source: str
    """Directory on the host."""
    files: tuple[str, ...]
    """Paths below it that the lock wants and whose size is right."""
    size: int
    """Bytes."""


def found_containers(case: Case) -> list[Container]:
    """The owner's own engines that stand in the way of our services."""
    boxes = {box.id: box for service in case.plan.services for box in by_hand(case.facts, service)}
    return list(boxes.values())


def found_weights(case: Case) -> list[FoundWeights]:
    """For each model that is not staged: a directory that holds all its large files.

    Sizes decide what is worth trying; staging checks every file's hash in any case.
    """
    facts = case.facts
    if isinstance(facts.weights, Unknown) or isinstance(facts.models, Unknown):
        return []
    found = {}
    for service in case.plan.services:
        for model in service.models:
            pins = locked(case, service, model)
            there = facts.models.get(model.dir)
            if pins is None or (there and is_staged(there.stamp, there.files, pins)):
                continue
            for weights in facts.weights:
                match = compare(model, pins, weights)
                if match:
                    found[model.dir] = match
    return list(found.values())


def compare(model: ModelPlan, pins: LockedModel, weights: Weights) -> FoundWeights | None:
    """Whether a directory holds every large file of a model, by name and size."""
    if weights.repo not in (None, model.repo):
        return None
    right = [file for file in pins.files if weights.files.get(file.path) == file.size]
    large = [file for file in pins.files if file.sha256]
    if not large or not all(file in right for file in large):
        return None
    size = sum(file.size for file in right)
    return FoundWeights(model, weights.dir, tuple(file.path for file in right), size)


def adoption(case: Case) -> Iterator[Finding]:
    """Containers first: they are in the way; weights only save a download."""
    adopt = case.plan.spec.adopt
    for box in found_containers(case):
        state = "runs" if box.running else "has stopped"
        what = (
            f"Container {box.name} on {case.host}, started by hand from the published command, "
            f"{state}."
        )
        if adopt:
            yield case.mend(
                "adoption",
                what,
                "It holds the name, the port or the memory that the service needs.",
                "This run takes over, as --data adopt=true allows: it stops and renames the "
                "container when the new one is to start, and starts it again if that one fails.",
            )
        else:
            yield case.fail(
                "adoption",
                what,
                "It holds the name, the port or the memory that the service needs, and what you "
                "started yourself is not stopped without your word.",
                "Let the run take over with --data adopt=true, or remove the container yourself.",
            )
    for weights in found_weights(case):
        what = (
            f"Weights of {weights.model.repo} ({gib(weights.size)}) already lie in "
            f"{weights.source} on {case.host}."
        )
        if adopt:
            yield case.mend(
                "adoption",
                what,
                "They need not be fetched again.",
                "This run takes them over, as --data adopt=true allows, and verifies each file.",
            )
        else:
            yield case.warn(
                "adoption",
                what,
                "They need not be fetched again.",
                "Let the run take them over, verified, with --data adopt=true.",
            )
