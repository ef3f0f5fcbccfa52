"""Where a service's things are on a Spark, and what its releases say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkfleet.node import wire
from sparkfleet.node.disk import read_json
from sparkfleet.node.faults import CONFIG, Fault

RUN = Path("/run/sparkfleet")
NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,62}$")


@dataclass(frozen=True)
class Release:
    """One release directory: the manifest that the node programs go by, and its files."""

    dir: Path
    hash: str
    service: str
    unit: str
    project: str
    container: str
    image: str
    version: str | None
    bind: str
    port: int
    key_file: Path | None
    drop_page_cache: bool
    boot_timeout: float
    """Seconds from start to ready, at most."""
    stop_timeout: float
    """Seconds that Docker gives the engine to end, before it kills it."""
    wedge_seconds: float
    markers: tuple[dict[str, Any], ...] = ()
    """Boot log landmarks: text, label, usual_seconds."""
    logs: dict[str, list[Any]] = field(default_factory=dict)
    """Rows by kind: forbidden, required, fatal."""
    models: dict[str, Path] = field(default_factory=dict)
    """Directory of each role's weights."""
    floors: dict[str, str] = field(default_factory=dict)
    """Lowest versions of what the image holds: vllm, flashinfer, cuda."""
    probe: dict[str, Any] = field(default_factory=dict)
    """proof.json, whole."""
    recipe: str | None = None
    utilization: float | None = None
    """Fraction of the memory; as the recipe's name, for the report only."""

    @property
    def figures(self) -> Path:
        """Where the engine's own figures of the service's last boot are kept."""
        return self.dir.parent.parent / "figures.json"

    @property
    def unit_text(self) -> str:
        """The unit file that this release wants installed."""
        try:
            return (self.dir / self.unit).read_text(encoding="utf-8")
        except OSError as error:
            raise _unreadable(self.dir / self.unit, str(error)) from None


def load_release(directory: Path) -> Release:
    """Read a release directory. Raises Fault naming the file that is absent or not whole."""
    manifest = read_json(directory / "release.json")
    if not isinstance(manifest, dict):
        raise _unreadable(directory / "release.json", "it is absent or not JSON")
    probe = read_json(directory / "proof.json")
    if not isinstance(probe, dict):
        raise _unreadable(directory / "proof.json", "it is absent or not JSON")
    try:
        wire.Target.of(str(probe["url"]))
        service = str(manifest["service"])
        return Release(
            dir=directory,
            hash=directory.name,
            service=service,
            unit=str(manifest.get("unit") or f"sparkfleet-{service}.service"),
            project=str(manifest.get("project") or f"sparkfleet-{service}"),
            container=str(manifest["container"]),
            image=str(manifest["image"]),
            version=manifest.get("version"),
            bind=str(manifest["bind"]),
            port=int(manifest["port"]),
            key_file=Path(manifest["key_file"]) if manifest.get("key_file") else None,
            drop_page_cache=bool(manifest.get("drop_page_cache")),
            boot_timeout=float(manifest["boot_timeout"]),
            stop_timeout=float(manifest["stop_timeout"]),
            wedge_seconds=float(manifest["wedge_seconds"]),
            markers=tuple(manifest.get("markers") or ()),
            logs=dict(manifest.get("logs") or {}),
            models={role: Path(m["dir"]) for role, m in (manifest.get("models") or {}).items()},
            floors={name: str(one) for name, one in (manifest.get("floors") or {}).items()},
            probe=probe,
            recipe=manifest.get("recipe"),
            utilization=manifest.get("utilization"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(
            directory / "release.json", f"its key {error} is missing or wrong"
        ) from None


def _unreadable(path: Path, why: str) -> Fault:
    return Fault(
        "The release is not whole.",
        where=str(path),
        why=f"This file can't be used: {why}.",
        next="Run the deploy again: it writes the release anew.",
        code="release",
        exit=CONFIG,
    )


@dataclass(frozen=True)
class Service:
    """Paths of one service below the root."""

    root: Path
    name: str
    run: Path = RUN

    def __post_init__(self) -> None:
        if not NAME.match(self.name):
            raise Fault(f"{self.name!r} is not the name of a service.", code="request")

    @property
    def dir(self) -> Path:
        return self.root / "services" / self.name

    @property
    def releases(self) -> Path:
        return self.dir / "releases"

    @property
    def current(self) -> Path:
        """Link to the last release that was proven; moves only after a proof."""
        return self.dir / "current"

    @property
    def previous(self) -> Path:
        """Link to the release that was current before."""
        return self.dir / "previous"

    @property
    def trial(self) -> Path:
        """Names the release under trial. In /run, so that a power cut returns to `current`."""
        return self.run / f"{self.name}.trial"

    @property
    def lock(self) -> Path:
        """Held by a switch from its first act to its last."""
        return self.run / f"{self.name}.lock"

    @property
    def state(self) -> Path:
        return self.dir / "state.json"

    @property
    def history(self) -> Path:
        return self.dir / "history.jsonl"

    @property
    def switch(self) -> Path:
        """The switch under way; there from before the first change until its outcome is known."""
        return self.dir / "switch.json"

    @property
    def drained(self) -> Path:
        """There while the owner keeps the service out of the gateway (see drain.py)."""
        return self.dir / "drain.json"

    @property
    def leaving(self) -> Path:
        """There while a switch does. In /run: a power cut returns to `current`, and lets it in."""
        return self.run / f"{self.name}.leaving"

    @property
    def proven(self) -> Path:
        """There while the run of the engine that was proven goes on: every start removes it, and
        so does a power cut."""
        return self.run / f"{self.name}.proven"

    @property
    def heard(self) -> Path:
        """Which word the agent last told to which gateway."""
        return self.run / f"{self.name}.heard"

    def release_dir(self, hash: str) -> Path:
        """Directory of the release named `hash`."""
        if not NAME.match(hash):
            raise Fault(f"{hash!r} is not the name of a release.", code="request")
        return self.releases / hash

    def linked(self, link: Path) -> Path | None:
        """The release directory that `link` names, or None."""
        try:
            return self.releases / link.readlink().name
        except OSError:
            return None

    def on_trial(self) -> Path | None:
        """The release directory under trial, or None."""
        try:
            name = Path(self.trial.read_text(encoding="utf-8").strip()).name
        except OSError:
            return None
        return self.releases / name if NAME.match(name) else None

    def chosen(self) -> Path | None:
        """What a start runs: the trial where there is one, else `current`."""
        return self.on_trial() or self.linked(self.current)


def services(root: Path, run: Path = RUN) -> Iterator[Service]:
    """Every service that has a directory below `root`."""
    try:
        names = sorted(entry.name for entry in (root / "services").iterdir() if entry.is_dir())
    except OSError:
        return
    for name in names:
        if NAME.match(name):
            yield Service(root, name, run)
