"""Free disk: what is still to come, added up per file system, against what is free there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from sparkfleet.checks.case import Case, gib
from sparkfleet.facts.host import Filesystem, HostFacts, Unknown, known
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.lock import LockedModel, bytes_to_come
from sparkfleet.spec.plan import ModelPlan, ServicePlan

GB = 10**9

IMAGE_BYTES = int((8.2 + 18.3) * GB)
"""A Spark engine image: 8.2 GB of layers on the way in and 18.3 GB unpacked, for a while both
(IMG: the image's repository; its fat tags are larger)."""

HEADROOM = 2 * 2**30
"""Left for compile caches, logs and releases, bytes; ours."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Something that will fill a directory."""

    what: str
    path: str
    size: int
    """Bytes still to come."""


def disk(case: Case) -> Iterator[Finding]:
    """One finding for each file system that grows."""
    filesystems = case.facts.filesystems
    if isinstance(filesystems, Unknown):
        yield case.unknown("disk", "Free disk space", filesystems)
        return
    growing: dict[str, list[Growth]] = {}
    where: dict[str, Filesystem] = {}
    for growth in (*models(case), *images(case)):
        place = filesystems.get(growth.path)
        if place is None:
            yield case.unknown("disk", f"Free space at {growth.path}", "the survey has no answer")
            continue
        growing.setdefault(place.dev, []).append(growth)
        where[place.dev] = place
    for device, growths in growing.items():
        yield judge(case, where[device], growths)


def judge(case: Case, place: Filesystem, growths: list[Growth]) -> Finding:
    """Everything that comes to one file system against what is free on it."""
    coming = sum(growth.size for growth in growths)
    need = coming + HEADROOM if coming else 0
    parts = ", ".join(f"{growth.what} {gib(growth.size)}" for growth in growths if growth.size)
    if coming and place.read_only:
        return case.fail(
            "disk",
            f"{place.mount} on {case.host} is mounted read-only.",
            "A file system that the kernel has remounted so has had an error.",
            "See the kernel's log for the disk, and check it before anything else.",
        )
    if need <= place.free:
        left = f"{gib(place.free)} free on {place.mount}"
        return case.ok("disk", f"{left}; still to come: {parts or 'nothing'}.")
    return case.fail(
        "disk",
        f"{place.mount} on {case.host} has {gib(place.free)} free and needs {gib(need)}: {parts}, "
        f"and {gib(HEADROOM)} for caches.",
        "A disk that fills up in the middle looks like a download that hangs.",
        f"Free {gib(need - place.free)} there, or put weights elsewhere with models_dir.",
    )


def models(case: Case) -> Iterator[Growth]:
    """What each repository of weights still has to bring; a shared one counts once."""
    seen = set()
    for service in case.plan.services:
        unlocked = [model for model in service.models if locked(case, service, model) is None]
        if unlocked:
            size = int(service.recipe.disk_gib * 2**30)
            if service.recipe.name not in seen:
                yield Growth(f"weights of {service.recipe.name}", case.plan.models_dir, size)
            seen.add(service.recipe.name)
            continue
        for model in service.models:
            pins = locked(case, service, model)
            if pins is not None and model.dir not in seen:
                size = to_come(case.facts, case.plan.models_dir, model, pins)
                yield Growth(model.repo, case.plan.models_dir, size)
            seen.add(model.dir)


def locked(case: Case, service: ServicePlan, model: ModelPlan) -> LockedModel | None:
    """What the lock says of a model: its files and sizes."""
    pins = case.lock.recipes.get(service.lock_key) if case.lock else None
    return pins.models.get(model.role) if pins else None


def to_come(facts: HostFacts, models_dir: str, model: ModelPlan, pins: LockedModel) -> int:
    """Bytes that one repository still has to bring, begun downloads taken off."""
    found = facts.models.get(model.dir) if not isinstance(facts.models, Unknown) else None
    begun = 0
    if not isinstance(facts.partials, Unknown):
        # A begun download lies below .partial under the same name as the finished directory.
        name = PurePosixPath(model.dir).relative_to(models_dir)
        begun = sum(
            size
            for path, size in facts.partials.items()
            if PurePosixPath(path).is_relative_to(name)
        )
    return bytes_to_come(found.stamp if found else None, found.files if found else {}, begun, pins)


def images(case: Case) -> Iterator[Growth]:
    """Images that are not in Docker's store yet; where that is not known, they count."""
    facts = case.facts
    present = known(facts.images, {})
    missing = {
        service.image.reference
        for service in case.plan.services
        if service.image.reference not in present
    }
    for path in stores(facts):
        for reference in sorted(missing):
            yield Growth(f"image {reference.rpartition('/')[2][:40]}", path, IMAGE_BYTES)


def stores(facts: HostFacts) -> list[str]:
    """The directory that images fill: containerd's where it keeps them, else Docker's."""
    if isinstance(facts.docker, Unknown) or isinstance(facts.filesystems, Unknown):
        return []
    containerd = "/var/lib/containerd"
    root = containerd if containerd in facts.filesystems else facts.docker.root
    return [root] if root else []
