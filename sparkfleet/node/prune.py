"""Old releases, and the images that only they used, are cleared away once a newer one serves.

Kept are `current`, `previous`, what is under trial or being switched to, and the newest others up
to a number. An image goes only when we pulled it (it carries our tag and no other), no release that
is kept on this host has its digest, whichever the service, and no container was made of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sparkfleet.node.disk import read_json
from sparkfleet.node.docker import PULLED, DockerApi, DockerError, Image, short
from sparkfleet.node.layout import Service, services


@dataclass(frozen=True)
class Old:
    """An image to remove."""

    tag: str
    """Its one tag, ours."""
    digest: str
    """repository@sha256:…"""
    size: int
    """Bytes, unpacked."""


def surplus(names: Iterable[tuple[str, float]], needed: set[str], keep: int) -> list[str]:
    """Which of the releases (name, time of writing) are one too many: the oldest, none of `needed`,
    so that `keep` are left where that many are not needed anyway. Pure."""
    newest = [name for name, _ in sorted(names, key=lambda row: (row[1], row[0]), reverse=True)]
    spare = [name for name in newest if name not in needed]
    return spare[max(0, keep - len(newest) + len(spare)) :]


def unused(images: Iterable[Image], needed: set[str]) -> list[Old]:
    """The images that we pulled and nobody needs. `needed`: digests (sha256:…) and ids. Pure."""
    found = []
    for image in images:
        [tag, *others] = image.tags or ("",)
        name = tag.rpartition(":")[2]
        if others or not name.startswith(PULLED) or image.id in needed:
            continue
        for digest in image.digests:
            if name == f"{PULLED}{short(digest)}" and not image.names() & needed:
                found.append(Old(tag, digest, image.size))
    return found


def prune(service: Service, docker: DockerApi, keep: int) -> dict[str, int]:
    """Clear away; how many releases and images went, and the images' bytes.

    Never raises for what a host can do to it: the release that serves is what counts.
    """
    gone = {"releases": 0, "images": 0, "bytes": 0}
    try:
        for name in surplus(_releases(service), _needed(service), keep):
            shutil.rmtree(service.releases / name)
            gone["releases"] += 1
        for old in unused(docker.images(), _wanted(service, docker)):
            docker.remove_image(old.tag)
            docker.remove_image(old.digest)  # containerd's store keeps it as a name of its own
            shutil.rmtree(_caches(service.root, old), ignore_errors=True)
            gone["images"] += 1
            gone["bytes"] += old.size
    except (OSError, DockerError):
        return gone
    return gone


def told(gone: dict[str, int]) -> str:
    """What went, in a sentence."""
    releases, images = gone["releases"], gone["images"]
    words = [f"{releases} old release{'s' * (releases != 1)}"] if releases else []
    if images:
        size = gone["bytes"] / 1e9
        words.append(f"{images} image{'s' * (images != 1)} that only they used ({size:.1f} GB)")
    return f"Cleared away: {' and '.join(words)}."


def _releases(service: Service) -> list[tuple[str, float]]:
    # Not the time of modification: a release is unpacked with the same one whenever it comes.
    return [(path.name, path.stat().st_ctime) for path in service.releases.iterdir()]


def _needed(service: Service) -> set[str]:
    """The releases of a service that a start, a way back or a switch under way may want."""
    wanted = (service.linked(service.current), service.linked(service.previous), service.on_trial())
    names = {path.name for path in wanted if path is not None}
    pending = read_json(service.switch) or {}
    return names | {str((pending.get("request") or {}).get("release"))}


def _wanted(service: Service, docker: DockerApi) -> set[str]:
    """Digests that a release on this host names, and ids of images that a container was made of."""
    found = set()
    for one in services(service.root, service.run):
        for release in one.releases.glob("*/release.json"):
            image = str((read_json(release) or {}).get("image") or "")
            found.add(image.rpartition("@")[2])
    return found | {row.image_id for row in docker.containers()}


def _caches(root: Path, old: Old) -> Path:
    return root / "cache" / short(old.digest)
