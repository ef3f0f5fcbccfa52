"""What must hold before anything that runs is stopped. Each refusal is a Fault."""

from __future__ import annotations

from collections.abc import Collection

from sparkfleet.node.commands import Outcome, Runner
from sparkfleet.node.docker import DockerApi
from sparkfleet.node.engine import check_port, compose
from sparkfleet.node.faults import Fault
from sparkfleet.node.floors import check_floors
from sparkfleet.node.layout import Release

STAMP = ".sparkfleet-stamp.json"

#: What Docker or nvidia-smi say, what it means, and what to do.
GPU_WORDS = (
    (
        "could not select device driver",
        "Docker knows no nvidia runtime: the container toolkit is missing or not registered.",
        "Run the deploy again: its check finds and mends that.",
    ),
    (
        "No devices were found",
        "The driver is torn from its firmware, as a plain apt upgrade can leave it.",
        "Restart the host; if that does not help, update it by NVIDIA's own DGX updater.",
    ),
    (
        "No such image",
        "The image is not on this host.",
        "Run the deploy again: its stage step pulls it.",
    ),
)


def preflight(
    release: Release,
    docker: DockerApi,
    run: Runner,
    *,
    gpu: bool,
    making_way: Collection[str] = frozenset(),
) -> None:
    """Everything that can be known without stopping what runs. Raises Fault."""
    check_models(release)
    check_compose(release, run)
    check_port(release, docker, making_way)
    if gpu:
        check_gpu(release, docker, run)
    check_floors(release, docker, run)


def check_models(release: Release) -> None:
    """Raise Fault for weights that are not staged and verified."""
    for role, directory in release.models.items():
        if not (directory / STAMP).is_file():
            raise Fault(
                f"The {role} is not staged.",
                where=str(directory),
                why=f"The stamp {STAMP}, which is written when every file was verified, is absent.",
                next="Run the deploy again: its stage step fetches what is missing.",
                code="not-staged",
            )


def check_compose(release: Release, run: Runner) -> None:
    """Raise Fault when the installed Compose does not take the file."""
    said = run([*compose(release), "config", "-q"], 60)
    if not said.ok:
        raise Fault(
            "The compose file is refused by this host's Docker Compose.",
            where=str(release.dir / "compose.yaml"),
            why=f"It said: {said.words()}",
            next="Compose v2 is needed; if it is there, this is a fault of the templates.",
            code="compose",
        )


def check_gpu(release: Release, docker: DockerApi, run: Runner) -> None:
    """Raise Fault when a container of this image can't have the GPU."""
    name = f"sparkfleet-gpu-{release.service}"
    docker.remove(name)  # left by a try that was cut
    argv = ["docker", "run", "--rm", f"--name={name}", "--pull=never", "--network=none"]
    said = run([*argv, "--gpus=all", "--entrypoint=nvidia-smi", release.image, "-L"], 120)
    if said.code == 124:
        docker.remove(name)
    if said.ok and "GPU 0" in said.out:
        return
    why, next_step = _gpu_reason(said)
    raise Fault(
        "A container of the engine's image can't use the GPU.",
        where=release.image,
        why=why,
        next=next_step,
        code="gpu",
    )


def _gpu_reason(said: Outcome) -> tuple[str, str]:
    words = said.words()
    for text, meaning, next_step in GPU_WORDS:
        if text in said.out + said.err:
            return f"{meaning} It said: {words}", next_step
    return f"It said: {words or 'nothing'}", "Try `nvidia-smi` on the host itself."
