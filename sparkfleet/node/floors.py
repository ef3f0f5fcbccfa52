"""Whether the staged image holds what the recipe needs at the least: vLLM, FlashInfer, CUDA.

The image itself is asked, in a container of a second without the GPU: labels and environment of an
image say what its base once was, not what was built into it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sparkfleet.node.commands import Runner
from sparkfleet.node.docker import DockerApi
from sparkfleet.node.faults import Fault
from sparkfleet.node.layout import Release

PROGRAM = Path(__file__).with_name("versions.py")

TIMEOUT = 120.0
"""Seconds: an image that was never run is read from the disk first."""

NAMES = {"vllm": "vLLM", "flashinfer": "FlashInfer", "cuda": "CUDA"}

OVERRIDE = 'To go on all the same, give a reason: overrides: {"image-floors": "…"}.'


def check_floors(release: Release, docker: DockerApi, run: Runner) -> None:
    """Raise Fault for a version below the recipe's floor, or one that the image does not tell."""
    if not release.floors:
        return
    found = _versions(release, docker, run)
    under = [
        f"{_name(name)} {found['found'].get(name)}, and the recipe needs {release.floors[name]}"
        for name in found["below"]
    ]
    if under:
        raise Fault(
            f"The engine's image holds {'; '.join(under)} or newer.",
            where=release.image,
            why="The recipe was published with these floors; below them it is known not to work.",
            next=f"Name a newer image in the inventory. {OVERRIDE}",
            code="floors",
        )
    silent = [_name(name) for name in release.floors if not found["found"].get(name)]
    if silent:
        raise Fault(
            f"The engine's image does not tell its version of {' and '.join(silent)}.",
            where=release.image,
            why="The recipe has a floor for it, and what can't be read is not taken for met.",
            next=f"Name an image that has it. {OVERRIDE}",
            code="floors",
        )


def _versions(release: Release, docker: DockerApi, run: Runner) -> dict[str, Any]:
    name = f"sparkfleet-floors-{release.service}"
    docker.remove(name)  # left by a try that was cut
    argv = ["docker", "run", "--rm", f"--name={name}", "--pull=never", "--network=none"]
    argv += ["--entrypoint=python3", release.image]
    said = run([*argv, "-c", PROGRAM.read_text(), json.dumps(release.floors)], TIMEOUT)
    if said.code == 124:
        docker.remove(name)
    try:
        found = json.loads(said.out.splitlines()[-1]) if said.ok else None
    except (ValueError, IndexError):
        found = None
    if isinstance(found, dict) and {"found", "below"} <= found.keys():
        return found
    raise Fault(
        "The engine's image could not be asked which versions it holds.",
        where=release.image,
        why=f"It said: {said.words() or 'nothing'}",
        next=f"Name an image with python3 in it. {OVERRIDE}",
        code="floors",
    )


def _name(key: str) -> str:
    return NAMES.get(key, key)
