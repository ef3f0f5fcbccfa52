"""From a plan to the files of a release: Jinja2 lays them out, and can't forget to escape.

In the compose template every `{{ value }}` becomes a quoted YAML scalar by itself. In a unit the
right form depends on the setting, so each value must pass a filter; one that did not stops the
rendering (`escaped_only`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sparkfleet import escape
from sparkfleet.engine.guard import KEY_FILE
from sparkfleet.spec.command import passable, render_argv
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.release import (
    COMPOSE,
    CONFIG_MOUNT,
    ENGINE_CONFIG,
    GUARD,
    INSIDE,
    MANIFEST,
    PROOF,
    RESTART_SECONDS,
    Release,
    ReleaseFile,
    Timing,
    manifest,
    proof,
    readable_json,
    release_hash,
)

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"

NODE_PROGRAMS = "/opt/sparkfleet/node"
AGENT_UNIT = "sparkfleet-agent.service"

_GUARD_SOURCE = Path(__file__).resolve().parent / "engine" / "guard.py"
_ENGINE_CONFIG = f"""\
# Read by the engine (--config). The key itself is in another file, which only the guard reads.
middleware: {GUARD.removesuffix(".py")}.KeyGuard
"""

PYTHON = ("/usr/bin/python3", "-B")
"""The host's own Python; -B, so that our directory holds what we put there and nothing else."""


def environment(**options: Any) -> Environment:
    """Jinja2 over templates/, with escaped_only for whatever says no other way to print."""
    options = {"finalize": escape.escaped_only, **options}
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        **options,
    )


_COMPOSE = environment(finalize=escape.compose_scalar)
_COMPOSE.filters.update(number=escape.number, seconds=escape.seconds, boolean=escape.boolean)
UNIT_TEMPLATES = environment()
UNIT_TEMPLATES.filters.update(
    number=escape.number,
    text=escape.unit_text,
    words=escape.unit_words,
    command_line=escape.unit_command,
)


def build_release(service: ServicePlan, *, key_id: str | None = None) -> Release:
    """Render everything that defines what `service` runs on its host.

    `key_id` names the API key that the node holds, not the key (see `manifest`).
    Raises SpecError when image or models are not pinned yet, or a value can't reach the engine.
    """
    _require_pins(service)
    _require_guard(service)
    files = _render(service, key_id, release=None)
    name = release_hash(files)
    # The hash stands in the files too, so they are rendered once without it to learn it.
    return Release(
        service=service.name,
        hash=name,
        unit=service.unit,
        files=_render(service, key_id, release=name),
    )


@dataclass(frozen=True, slots=True)
class Answers:
    """Where an agent tells the gateways of its services, and how they ask."""

    posts: tuple[tuple[str, str, int], ...]
    """Service, address and port."""
    gateways: int
    interval: float
    """Seconds between two questions."""

    def words(self) -> Iterator[str]:
        """As the agent's command line takes them."""
        for service, bind, port in self.posts:
            yield from ("--answer", f"{service}={f'[{bind}]' if ':' in bind else bind}:{port}")
        yield from ("--gateways", str(self.gateways), "--interval", f"{self.interval:g}")


def agent_unit(root: str, answers: Answers | None = None) -> str:
    """Give the unit of the one agent of a host, which looks after every service under `root`.

    Without `answers` (no gateway in the inventory) it listens nowhere.
    """
    start = [*PYTHON, f"{NODE_PROGRAMS}/agent.py", "--root", root]
    return UNIT_TEMPLATES.get_template("agent.service.j2").render(
        root=root,
        services=f"{root}/services",
        start=[*start, *(answers.words() if answers else ())],
    )


def compose_file(service: ServicePlan, release: str | None = None) -> str:
    """Give the compose file of a service; `release` is the hash that its label shows."""
    argv = render_argv(service.recipe.command.positional, service.argv_flags)
    return _COMPOSE.get_template("compose.yaml.j2").render(
        project=service.project,
        container=service.container,
        image=service.image.pinned,
        entrypoint=service.recipe.image.entrypoint,
        command=argv,
        environment=_environment_of(service),
        target_port=service.container_port,
        port=service.port,
        bind=service.bind,
        mounts=_mounts(service),
        shm_size=service.recipe.shm_size,
        stop_grace=Timing.of(service).grace,
        labels={
            "sparkfleet.service": service.name,
            "sparkfleet.recipe": service.recipe.name,
            "sparkfleet.release": release or "",
        },
    )


def unit_file(service: ServicePlan) -> str:
    """Give the systemd unit of a service; it holds no argument of the engine and no secret."""
    timing = Timing.of(service)
    engine = [*PYTHON, f"{NODE_PROGRAMS}/engine.py"]
    where = ["--root", service.root, "--service", service.name]
    return UNIT_TEMPLATES.get_template("unit.service.j2").render(
        description=f"sparkfleet {service.name}: {service.recipe.title}",
        mounts=[service.root, *(model.dir for model in service.models)],
        burst=timing.burst,
        window=timing.window,
        start=[*engine, "run", *where],
        stop=[*engine, "stop", *where],
        restart_seconds=RESTART_SECONDS,
        stop_timeout=timing.stop,
    )


def _render(
    service: ServicePlan, key_id: str | None, release: str | None
) -> dict[str, ReleaseFile]:
    about = manifest(service, key_id)
    guard: dict[str, ReleaseFile] = {}
    if service.key_file is not None:
        guard = {
            ENGINE_CONFIG: ReleaseFile(_ENGINE_CONFIG, 0o644),
            GUARD: ReleaseFile(_GUARD_SOURCE.read_text(encoding="utf-8"), 0o644),
        }
    return {
        # 0600: an owner's environment may hold what is nobody else's business.
        COMPOSE: ReleaseFile(compose_file(service, release), 0o600),
        service.unit: ReleaseFile(unit_file(service), 0o644),
        MANIFEST: ReleaseFile(readable_json({"release": release, **about}), 0o644),
        PROOF: ReleaseFile(readable_json(proof(service)), 0o644),
        **guard,
    }


def _mounts(service: ServicePlan) -> list[Mapping[str, object]]:
    def mount(source: str, target: str, *, read_only: bool, create: bool) -> Mapping[str, object]:
        return {"source": source, "target": target, "read_only": read_only, "create": create}

    # A model that is missing must stop the start: Docker would mount an empty directory instead.
    rows = [mount(row.dir, row.mount, read_only=True, create=False) for row in service.models]
    for name, source in service.cache_dirs.items():
        rows.append(mount(source, service.recipe.caches[name], read_only=False, create=True))
    if service.key_file is not None:
        rows.append(mount(service.key_file, KEY_FILE, read_only=True, create=False))
        # Relative to the compose file: the release's own path holds the hash, not known yet.
        for name in (ENGINE_CONFIG, GUARD):
            rows.append(mount(f"./{name}", f"{INSIDE}/{name}", read_only=True, create=False))
    return rows


def _environment_of(service: ServicePlan) -> dict[str, str]:
    env = {name: passable(value, name) for name, value in service.env.items()}
    if service.key_file is not None:
        # Where the engine finds the guard; what an image or owner needs there goes on behind it.
        env["PYTHONPATH"] = ":".join(filter(None, (INSIDE, env.get("PYTHONPATH"))))
    return env


def _require_guard(service: ServicePlan) -> None:
    command = service.recipe.command
    reaches = not command.environment or command.extra is not None
    told = service.flags.get("config") if reaches else None
    if service.key_file is not None and told != CONFIG_MOUNT:
        raise SpecError(
            f"Host {service.host}, service {service.name}: auth is key, but the engine is not told "
            f"to load the guard (--config is {told or 'not set'}, not {CONFIG_MOUNT}), so it would "
            "answer anyone. Leave `config` to the recipe, or say auth: none and mean it.",
            host=service.host,
            key="auth",
        )


def _require_pins(service: ServicePlan) -> None:
    loose = [
        f"model {model.role} ({model.repo} at {model.revision}) has no commit"
        for model in service.models
        if model.commit is None
    ]
    if service.image.digest is None:
        loose.insert(0, f"image {service.image.reference} has no digest")
    if loose:
        raise SpecError(
            f"Host {service.host}, service {service.name}: {'; '.join(loose)} yet, and a release "
            "runs nothing but what the lock file pins. Lock the recipe first; the first deploy "
            "does so by itself.",
            host=service.host,
            key=service.lock_key,
        )
