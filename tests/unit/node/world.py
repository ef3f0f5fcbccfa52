"""A Spark in memory: systemd, Docker and engines as far as the node programs can see them.

Releases, links and states are real files below a temporary root. Time moves only when a program
sleeps. Every act or look is a point at which the program can be killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.node import commands, disk, pending, state, steps, switch, systemd, wire
from sparkfleet.node.docker import Container, DockerError, Image, Listed
from sparkfleet.node.events import Events
from sparkfleet.node.layout import Release, Service
from sparkfleet.node.request import Request
from sparkfleet.node.steps import Means
from sparkfleet.node.systemd import Systemd

IMAGE = "registry/engine@sha256:" + "0" * 64
PROJECT = "com.docker.compose.project"
MARKERS = [
    {"text": "non-default args", "label": "arguments read", "usual_seconds": 20},
    {"text": "Model loading took", "label": "weights loaded", "usual_seconds": 240},
    {"text": "Application startup complete", "label": "serving", "usual_seconds": None},
]


class Killed(BaseException):
    """SIGKILL: no handler of the program sees it."""


@dataclass
class Engine:
    """How one release behaves once it runs. Times in seconds since the container's start."""

    boots_in: float = 30.0
    dies_at: float | None = None
    exit_code: int = 1
    never_starts: bool = False
    proof_fails: str = ""
    proof_fails_at: int = 1
    """From which proof on."""
    dies_in_proof: bool = False
    log: list[tuple[float, str]] = field(
        default_factory=lambda: [(1.0, "non-default args: {}"), (20.0, "Model loading took 21 GiB")]
    )


@dataclass
class Running:
    """A container."""

    id: str
    release: str
    begun: float
    running: bool = True
    exit_code: int = 0


class World:
    """The Spark."""

    def __init__(self, root: Path) -> None:
        self.root, self.run_dir, self.units = root / "srv", root / "run", root / "units"
        self.units.mkdir(parents=True)
        self.service = Service(self.root, "llm", self.run_dir)
        self.service.releases.mkdir(parents=True)
        self.now, self.boot = 1_000_000.0, "boot-1"
        self.engines: dict[str, Engine] = {}
        self.box: Running | None = None
        self.strangers: list[tuple[Container, Listed]] = []
        self.active, self.sub, self.enabled = "inactive", "dead", False
        self.restarts, self.starts, self.burst, self.start_again_at = 0, 0, 3, 0.0
        self.made = 0
        self.points, self.kill_at = 0, 0
        self.busy: list[float] = []
        self.metrics_of: Callable[[], dict[str, float]] | None = None
        self.gpu = commands.Outcome(0, "GPU 0: NVIDIA GB10 (UUID: GPU-1)\n")
        self.config = commands.Outcome(0)
        self.versions = commands.Outcome(127, err="python3: not found")
        self.said: list[list[str]] = []
        self.answers_docker = True
        self.proofs: dict[str, int] = {}
        self.stored: list[Image] = []
        self.jobs = 0

    # What a test sets up

    def release(self, hash: str, engine: Engine | None = None, **manifest: Any) -> str:
        """Write a release and say how its engine behaves."""
        directory = self.service.release_dir(hash)
        directory.mkdir()
        about = {
            "schema": 1,
            "service": "llm",
            "unit": "sparkfleet-llm.service",
            "project": "sparkfleet-llm",
            "container": "qwen36-35b",
            "image": IMAGE,
            "version": "0.23.0",
            "bind": "127.0.0.1",
            "port": 18123,
            "key_file": None,
            "drop_page_cache": False,
            "boot_timeout": 1800,
            "stop_timeout": 60,
            "wedge_seconds": 300,
            "markers": MARKERS,
            "logs": {
                "fatal": [{"text": "Free memory", "meaning": "Too little memory.", "next": "Wait."}]
            },
        }
        (directory / "release.json").write_text(json.dumps(about | manifest))
        (directory / "proof.json").write_text(json.dumps({"url": "http://127.0.0.1:18123"}))
        (directory / "sparkfleet-llm.service").write_text(f"# {hash}\n[Service]\n")
        self.engines[hash] = engine or Engine()
        return hash

    def serving(self, hash: str) -> None:
        """`hash` is deployed and proven, as a switch of its own would leave it."""
        assert self.switch(hash)["ok"]
        self.points = 0

    def state_is(self, phase: str) -> None:
        """Put the state into `phase`, as the agent would."""
        state.save_state(self.service, self.state.become(phase, self.now))

    def request(self, hash: str, **more: Any) -> Request:
        raw = {"root": str(self.root), "service": "llm", "release": hash, "who": "owner@desk"}
        return Request.parse(raw | more)

    def switch(self, hash: str, *, settle: bool = False, **more: Any) -> dict[str, Any]:
        """Run a switch to its end; the `done` event, with all events under `events`."""
        events = self.root / "events.jsonl"
        events.unlink(missing_ok=True)
        with Events(events, clock=lambda: self.now) as writer:
            switch.perform(self.request(hash, **more), writer, self.means(), settle=settle)
        told = [json.loads(line) for line in events.read_text().splitlines()]
        assert told[-1]["event"] == "done"
        return {**told[-1], "events": told[:-1]}

    def means(self) -> Means:
        return Means(
            docker=self,
            systemd=Systemd(self.run, self.units),
            run=self.run,
            clock=lambda: self.now,
            sleep=self.sleep,
            health=self.health,
            metrics=self.metrics,
            probe=self.probe,
            monotonic=lambda: self.now,
            boot_id=lambda: self.boot,
            run_dir=self.run_dir,
        )

    def run_jobs(self) -> None:
        """Run what was given to systemd-run: `switch.py --settle`."""
        while self.jobs:
            self.jobs -= 1
            cut = pending.Pending(self.service)
            if cut:
                self.switch(cut.request.release, settle=True)

    def power_cut(self) -> None:
        """All that is not on disk is gone; then the host boots."""
        for path in self.run_dir.glob("*"):
            path.unlink()
        if self.box is not None:
            self.box.running = False
        self.boot += "+"
        self.active, self.sub, self.restarts, self.starts = "inactive", "dead", 0, 0
        if self.enabled:
            self._start()

    # What can be read off it

    @property
    def current(self) -> str | None:
        found = self.service.linked(self.service.current)
        return found.name if found else None

    @property
    def previous(self) -> str | None:
        found = self.service.linked(self.service.previous)
        return found.name if found else None

    @property
    def serves(self) -> str | None:
        """The release whose engine runs, if any."""
        self._pass_time()
        return self.box.release if self.box and self.box.running else None

    @property
    def state(self) -> state.State:
        return state.load_state(self.service)

    def history(self) -> list[dict[str, Any]]:
        path = self.service.history
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    # Time, and the point at which the program dies

    def point(self) -> None:
        self.points += 1
        if self.points == self.kill_at:
            raise Killed

    def sleep(self, seconds: float) -> None:
        self.point()
        self.now += seconds

    # systemd and the programs of the host

    def run(self, argv: Sequence[str], seconds: float) -> commands.Outcome:
        self.point()
        self.said.append(list(argv))
        self._pass_time()
        match list(argv):
            case ["systemctl", "show", *_]:
                return commands.Outcome(0, self._shown())
            case ["systemctl", "start" | "restart", *_]:
                if argv[1] == "restart":
                    self._stop()
                    if self.starts >= self.burst:
                        self.active, self.sub = "failed", "failed"
                        return commands.Outcome(1, err="start request repeated too quickly")
                if self.active not in ("active", "activating"):
                    self.restarts = 0
                    self._start()
            case ["systemctl", "stop", *_]:
                self._stop()
            case ["systemctl", "reset-failed", *_]:
                self.starts = 0
                if self.active == "failed":
                    self.active, self.sub = "inactive", "dead"
            case ["systemctl", "enable", *_]:
                self.enabled = True
            case ["systemctl", "disable", *_]:
                self.enabled = False
            case ["docker", "compose", *_]:
                return self.config
            case ["docker", "run", *rest] if "--entrypoint=python3" in rest:
                return self.versions
            case ["docker", "run", *_]:
                return self.gpu
            case ["journalctl", *_]:
                return commands.Outcome(0, "no release\n")
            case ["systemd-run", *rest] if "--settle" in rest:
                self.jobs += 1
        return commands.Outcome(0)

    def _shown(self) -> str:
        enabled = "enabled" if self.enabled else "disabled"
        loaded = "loaded" if any(self.units.iterdir()) else "not-found"
        result = "start-limit-hit" if self.active == "failed" else "success"
        return (
            f"LoadState={loaded}\nActiveState={self.active}\nSubState={self.sub}\n"
            f"Result={result}\nNRestarts={self.restarts}\nUnitFileState={enabled}\n"
        )

    def _start(self) -> None:
        self.starts += 1
        if self.starts > self.burst:
            self.active, self.sub = "failed", "failed"
            return
        self.active, self.sub = "active", "running"
        chosen = self.service.chosen()
        if chosen is None or not chosen.is_dir() or self.engines[chosen.name].never_starts:
            self._ended()
            return
        self.made += 1
        self.box = Running(f"{self.made:064x}", chosen.name, self.now)

    def _stop(self) -> None:
        self.active, self.sub = "inactive", "dead"
        if self.box is not None:
            self.box.running = False

    def _ended(self) -> None:
        self.active, self.sub, self.start_again_at = "activating", "auto-restart", self.now + 10

    def _pass_time(self) -> None:
        """Let happen what was to happen by now."""
        one = self.box
        if one is not None and one.running:
            engine = self.engines[one.release]
            if engine.dies_at is not None and self.now >= one.begun + engine.dies_at:
                one.running, one.exit_code = False, engine.exit_code
                self._ended()
        if self.sub == "auto-restart" and self.now >= self.start_again_at:
            self.restarts += 1
            self._start()

    # Docker

    def _one(self) -> Container | None:
        one = self.box
        if one is None:
            return None
        return Container(
            id=one.id,
            name="qwen36-35b",
            running=one.running,
            status="running" if one.running else "exited",
            started=stamp(one.begun),
            exit_code=one.exit_code,
            labels={PROJECT: "sparkfleet-llm", "sparkfleet.release": one.release},
        )

    def _docker(self) -> None:
        self.point()
        self._pass_time()
        if not self.answers_docker:
            raise DockerError("Docker does not answer: nothing listens")

    def container(self, name: str) -> Container | None:
        self._docker()
        one = self._one()
        if one is not None and name in (one.id, one.name):
            return one
        return next((each for each, _ in self.strangers if name in (each.id, each.name)), None)

    def containers(self, labels: dict[str, str] | None = None) -> list[Listed]:
        self._docker()
        one = self._one()
        ours = [Listed(one.id, one.name, one.status, one.labels, ())] if one else []
        rows = ours + [row for _, row in self.strangers]
        return [row for row in rows if (labels or {}).items() <= row.labels.items()]

    def logs(
        self, container: str, *, since: str = "", seconds: float = 20.0
    ) -> Iterator[tuple[str, str]]:
        self._docker()
        one = self.box
        assert one is not None
        engine = self.engines[one.release]
        until = self.now if one.running else one.begun + (engine.dies_at or 0.0)
        for offset, line in engine.log:
            at = stamp(one.begun + offset)
            if one.begun + offset <= until and at >= since:
                yield at, line

    def stop(self, container: str, seconds: float) -> None:
        self._docker()
        if self.box is not None:
            self.box.running = False

    def images(self) -> list[Image]:
        self._docker()
        return list(self.stored)

    def remove_image(self, name: str) -> None:
        self._docker()
        self.stored = [one for one in self.stored if name not in (*one.tags, *one.digests)]

    def remove(self, container: str) -> None:
        self._docker()
        if self.box is not None and self.box.id == container:
            self.box = None

    # The engine

    def health(self, target: wire.Target, seconds: float) -> int:
        self._pass_time()
        one = self.box
        if one is None or not one.running:
            raise wire.WireError("nothing listens", "refused")
        if self.now < one.begun + self.engines[one.release].boots_in:
            raise wire.WireError("nothing listens", "refused")
        return 200

    def metrics(self, target: wire.Target, seconds: float) -> dict[str, float]:
        self.health(target, seconds)
        if self.metrics_of is not None:
            return self.metrics_of()
        return {"vllm:num_requests_running": self.busy.pop(0) if self.busy else 0.0}

    def probe(self, release: Release, docker: Any, watch: Callable[[Any], None]) -> dict[str, Any]:
        self.point()
        assert self.box is not None
        engine = self.engines[self.box.release]
        self.now += 5
        if engine.dies_in_proof:
            self.box.running = False
            self._ended()
        self.proofs[self.box.release] = self.proofs.get(self.box.release, 0) + 1
        name = engine.proof_fails * (self.proofs[self.box.release] >= engine.proof_fails_at)
        check = {
            "name": name or "alive",
            "ok": not name,
            "detail": "it answered 17",
            "seconds": 5.0,
        }
        return {"ok": not name, "failure": name or None, "checks": [check], "skipped": []}


def stamp(seconds: float) -> str:
    """Docker's form of a moment."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


def make_world(root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(root)
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # hundreds of switches, nothing to lose
    for module in (steps, switch, pending, state, systemd):
        for name in ("write_whole", "point_link", "remove", "append_line"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, mortal(made, getattr(disk, name)))
    return made


def mortal(world: World, act: Callable[..., Any]) -> Callable[..., Any]:
    """`act`, before and after which the program can be killed."""

    def acting(*args: Any, **kwargs: Any) -> Any:
        world.point()
        result = act(*args, **kwargs)
        world.point()
        return result

    return acting
