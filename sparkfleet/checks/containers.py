"""Docker Engine, Compose, and the NVIDIA container toolkit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkfleet.checks.case import Case
from sparkfleet.checks.reach import quote
from sparkfleet.facts.host import Docker, Toolkit, Unknown
from sparkfleet.spec.finding import Finding

COMPOSE_FLOOR = 2

CDI_TROUBLE = "1.19.1"
"""Toolkit version whose CDI mode gave trouble (nvidia-container-toolkit#1910, #1940)."""


def major(version: str) -> int | None:
    """The first number of a version such as 26.1.5+dfsg1 or v2.26.1."""
    number = re.match(r"v?(\d+)\.", version)
    return int(number[1]) if number else None


def docker(case: Case) -> Iterator[Finding]:
    """The engine is installed, answers, and is new enough."""
    found, floor = case.facts.docker, case.plan.hardware.docker_floor
    if isinstance(found, Unknown):
        yield case.unknown("docker", "Docker's state", found)
    elif found.absent:
        yield case.fail(
            "docker",
            f"Docker is not installed on {case.host}.",
            f"The engine runs in a container; Docker Engine {floor} or newer is needed.",
            "DGX OS ships it; install docker-ce and docker-compose-plugin from its own sources.",
        )
    elif found.denied is not None:
        yield case.unknown("docker", "Docker's state", found.denied)
    elif found.error is not None:
        yield case.fail(
            "docker",
            f"Docker is installed on {case.host} but does not answer: {quote(found.error)}",
            "The engine runs in a container.",
            "See `systemctl status docker` and `journalctl -u docker -n 50` there.",
            found.error,
        )
    elif found.version is None or (number := major(found.version)) is None:
        yield case.unknown("docker", "Docker's version", found.version or "no version given")
    elif number < floor:
        yield case.fail(
            "docker",
            f"Docker Engine on {case.host} is {found.version}; {floor} or newer is needed.",
            "The recipe was published for it.",
            "Upgrade docker-ce from the host's own package sources.",
            found.version,
        )
    else:
        yield case.ok("docker", f"Docker Engine {found.version}.", found.version)


def compose(case: Case) -> Iterator[Finding]:
    """The Compose plugin, version 2 or newer."""
    found = case.facts.compose
    install = "Install docker-compose-plugin from the host's own package sources."
    if isinstance(found, Unknown):
        yield case.unknown("compose", "The Compose plugin's version", found)
    elif found.absent:
        yield case.fail(
            "compose",
            f"The Compose plugin of Docker is missing on {case.host}.",
            "The service is a compose file; the old docker-compose v1 does not read it.",
            install,
        )
    elif found.version is None or (number := major(found.version)) is None:
        raw = found.error or found.version or "no version given"
        yield case.unknown("compose", "The Compose plugin's version", raw)
    elif number < COMPOSE_FLOOR:
        yield case.fail(
            "compose",
            f"Compose on {case.host} is {found.version}; version {COMPOSE_FLOOR} is needed.",
            "Version 1 is dead and does not know GPU reservations.",
            install,
            found.version,
        )
    else:
        yield case.ok("compose", f"Compose {found.version}.", found.version)


def toolkit(case: Case) -> Iterator[Finding]:
    """The toolkit is installed and Docker knows of it; else the run mends that, if it may."""
    found, docker = case.facts.toolkit, case.facts.docker
    if isinstance(found, Unknown):
        yield case.unknown("toolkit", "The container toolkit's state", found)
        return
    if isinstance(docker, Unknown) or docker.version is None:
        # Docker's own check says what is wrong; whether the toolkit is registered is open.
        raw = docker if isinstance(docker, Unknown) else docker.error or docker.denied
        raw = raw or "Docker is not installed"
        yield case.unknown("toolkit", "Whether Docker knows the container toolkit", raw)
        return
    installed = found.ctk is not None and found.hook is not None
    if installed and registered(docker):
        yield case.ok("toolkit", f"Container toolkit {found.version or 'of unknown version'}.")
    else:
        yield mending(case, docker, installed)
    yield from cdi_trouble(case, found, docker)


def registered(docker: Docker) -> bool:
    """Whether the daemon can hand out a GPU: by the nvidia runtime, or by CDI."""
    return "nvidia" in docker.runtimes or bool(docker.cdi)


def mending(case: Case, docker: Docker, installed: bool) -> Finding:
    """What the run will do about the toolkit, or why it needs the owner's word first."""
    what = (
        f"Docker on {case.host} does not know the NVIDIA container toolkit."
        if installed
        else f"The NVIDIA container toolkit is not installed on {case.host}."
    )
    why = "Without it a container can't have the GPU."
    steps = "registers it in Docker's configuration by merging, and restarts Docker"
    steps = steps if installed else f"installs it from the host's own package sources, {steps}"
    others = strangers(case) if not docker.live_restore else ()
    if others and not case.plan.spec.restart_docker:
        return case.fail(
            "toolkit",
            what,
            f"{why} Registering it restarts Docker, and that would stop {', '.join(others)}.",
            "Stop them yourself, or allow it with --data restart_docker=true.",
        )
    note = (
        f" That stops {', '.join(others)}, as --data restart_docker=true allows." if others else ""
    )
    return case.mend("toolkit", what, why, f"This run {steps}.{note}")


def strangers(case: Case) -> tuple[str, ...]:
    """Names of running containers that are not ours."""
    containers = case.facts.containers
    if isinstance(containers, Unknown):
        return ()
    return tuple(box.name for box in containers if box.running and not (box.service or box.job))


def cdi_trouble(case: Case, found: Toolkit, docker: Docker) -> Iterator[Finding]:
    """The one toolkit version that is known for trouble, where its CDI mode is in use."""
    if docker.cdi and (found.version or "").startswith(CDI_TROUBLE):
        yield case.warn(
            "toolkit",
            f"{case.host} has container toolkit {found.version} with CDI.",
            "That pair fails to hand out the GPU on some boxes (nvidia-container-toolkit#1910, "
            "#1940).",
            "If a container gets no GPU, move to another toolkit version of the host's sources.",
            ", ".join(docker.cdi),
        )
