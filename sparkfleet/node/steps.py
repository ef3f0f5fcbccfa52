"""The steps of a switch: drain, stop, start, watch, prove, promote. Each may be repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkfleet.node import commands, drain, quiesce, wire
from sparkfleet.node.boot import BootWatch
from sparkfleet.node.disk import point_link, remove, write_whole
from sparkfleet.node.docker import Container, Docker, DockerApi, DockerError
from sparkfleet.node.engine import PROJECT
from sparkfleet.node.events import Events
from sparkfleet.node.failed import Failed, failed, failed_boot, failed_proof
from sparkfleet.node.faults import Fault
from sparkfleet.node.layout import RUN, Release, Service, load_release
from sparkfleet.node.probe import Check, Probe, alive, load, read_key
from sparkfleet.node.state import State, load_state, save_state
from sparkfleet.node.systemd import Systemd
from sparkfleet.node.telling import hide, telling

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Seconds beyond Docker's grace: for systemd to have ended the unit, and for Docker to say so.
_UNIT_MARGIN, _DOCKER_MARGIN = 90.0, 20.0


@dataclass
class Means:
    """How a switch looks and acts; tests give their own."""

    docker: DockerApi = field(default_factory=Docker)
    systemd: Systemd = field(default_factory=Systemd)
    run: commands.Runner = commands.run
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    """The agent's clock for what it told to whom."""
    sleep: Callable[[float], None] = time.sleep
    health: Callable[[wire.Target, float], int] = alive
    metrics: Callable[[wire.Target, float], dict[str, float]] = load
    probe: Callable[[Release, DockerApi, Callable[[Check], None]], dict[str, Any]] = (
        lambda release, docker, watch: Probe(release.probe, docker=docker).run(watch)
    )
    boot_id: Callable[[], str] = lambda: BOOT_ID.read_text(encoding="ascii").strip()
    run_dir: Path = RUN


def secret_of(release: Release) -> str:
    """The engine's key, to be kept out of what is told; empty where there is none to read."""
    try:
        return read_key(release.key_file) if release.key_file else ""
    except Fault:
        return ""


class Steps:
    """One service, and what can be done with it. Keeps state.json as it goes."""

    def __init__(self, service: Service, events: Events, means: Means) -> None:
        self._service, self._events, self._means = service, events, means
        self.state = load_state(service)
        self.seconds: dict[str, float] = {}
        """Spent so far, by step."""
        self._begun = 0.0

    def container(self) -> Container | None:
        """The service's own container, running rather than not; None where there is none.

        Found by its project: two releases may differ in their container's name, and a container
        of that name may be the owner's own.
        """
        project = f"sparkfleet-{self._service.name}"
        try:
            rows = self._means.docker.containers({PROJECT: project})
            rows.sort(key=lambda row: row.state != "running")
            return self._means.docker.container(rows[0].id) if rows else None
        except DockerError:
            return None

    def remove_container(self) -> None:
        """Take the service's own container away, stopped as it is: its name may be wanted."""
        for row in self._means.docker.containers({PROJECT: f"sparkfleet-{self._service.name}"}):
            self._means.docker.remove(row.id)

    def runs(self, release: Release) -> bool:
        """Whether the service's container runs, and from this release."""
        container = self.container()
        return bool(container and container.running and container.release == release.hash)

    def running(self) -> dict[str, Any] | None:
        """What the container that runs was started from, for the report; None where none runs."""
        container = self.container()
        if container is None or not container.running:
            return None
        release = self._release_running(container)
        known = {
            "recipe": release and release.recipe,
            "image": release.image if release else container.image,
            "version": release and release.version,
            "utilization": release and release.utilization,
        }
        return {"release": container.release, **known}

    def is_proven(self) -> bool:
        """Whether the container that runs is the one that the state says was proven."""
        container = self.container()
        if container is None or not container.running:
            return False
        return self.state.phase == "proven" and self.state.is_of(container.run)

    def replace(
        self, release: Release, *, drain_timeout: float, then: quiesce.Then = "proceed"
    ) -> None:
        """Let what runs finish, stop it, and start `release`. Raises Failed; of the phase `drain`
        when requests still ran and nothing was stopped for their sake."""
        try:
            container = self.container()
            if container is not None and container.running:
                with self.timed("drain", "waiting until no request runs"):
                    self.drain(self._release_running(container) or release, drain_timeout, then)
            with self.timed("stop", "stopping what runs"):
                self.stop(release)
            self.start(release)
        except (Fault, DockerError, OSError) as error:
            raise failed("start", error) from None

    def drain(self, running: Release, seconds: float, then: quiesce.Then = "proceed") -> None:
        """Leave the gateway, and wait until no request runs: `seconds`, and `then`.

        Raises Failed with `abort`; the service is in the gateway again, as it was.
        """
        before = self.state.phase
        drain.mark(self._service, "a switch", by="switch")
        self.save("draining", reason="")
        by = quiesce.Waiting(self._means.monotonic, self._means.sleep, self._events.log)
        quiesce.until_heard(lambda: drain.load_heard(self._service), by)
        target = wire.Target.of(str(running.probe["url"]))
        left = quiesce.until_idle(target, self._means.metrics, by, seconds=seconds, then=then)
        if not left:
            return
        if then == "abort":
            self.save(before)
            self.readmit()
            raise Failed(
                "drain",
                f"{left} requests still ran after {seconds:g} s, and drain_then is abort: nothing "
                "was stopped.",
                next="Run the deploy again at a quieter time, or raise drain_timeout.",
            )
        self._events.log(f"{left} requests still run; the engine has its own limit for them.")

    def readmit(self) -> None:
        """Take back this switch's own drain: from here on the state decides."""
        drain.clear(self._service, by="switch")

    def stop(self, release: Release) -> None:
        """Stop the unit, and whatever of the project runs without it."""
        self._means.systemd.stop(release.unit, release.stop_timeout + _UNIT_MARGIN)
        for row in self._means.docker.containers({PROJECT: release.project}):
            if row.state == "running":
                self._means.docker.stop(row.id, release.stop_timeout + _DOCKER_MARGIN)

    def start(self, release: Release) -> None:
        """Start `release`: under trial unless it is `current`."""
        if release.dir == self._service.linked(self._service.current):
            remove(self._service.trial)
        else:
            self._service.trial.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_whole(self._service.trial, f"{release.dir}\n")
        self._means.systemd.install(release.unit, release.unit_text)
        self._events.phase("start", f"starting release {release.hash}")
        self._begun = self._means.clock()
        self.state = State(self._service.name, release.hash)
        self.save("booting")
        self._means.systemd.start(release.unit)

    def watch(self, release: Release) -> None:
        """Until the engine is ready. Raises Failed at once when it died, or when time is up."""
        container = self.container()
        if container is not None and container.running:
            self._begun = container.started_at
        with self.timed("boot", f"booting, {release.boot_timeout / 60:g} min at most"):
            watch = BootWatch(
                release,
                self._means.docker,
                unit=self._means.systemd,
                begun=self._begun or self._means.clock(),
                secret=secret_of(release),
                tell=self._landmark,
                clock=self._means.clock,
                health=self._means.health,
            )
            while (boot := watch.step()).outcome == "waiting":
                self._means.sleep(1.0)
        if boot.outcome != "ready" or watch.container is None:
            raise failed_boot(boot)
        seen = watch.container
        self.save("booting", release=release.hash, container=seen.id, started=seen.started)

    def prove(self, release: Release, *, quietly: bool = False) -> None:
        """Raises Failed with the check that failed. `quietly`: it is proven and serves, and goes on
        doing so while it is asked again."""
        if not quietly:
            self.save("proving")
        with self.timed("prove", "proving that it answers"):
            try:
                result = self._means.probe(release, self._means.docker, self._checked)
            except (Fault, wire.WireError, DockerError) as error:
                raise failed("prove", error) from None
        container = self.container()
        if container is None or not container.running or not self.state.is_of(container.run):
            raise Failed("prove", "The engine died while it was asked.", self.log_tail(release))
        if not result["ok"]:
            self.save("failed", proof=result)
            detail, next_step = failed_proof(result["checks"][-1])
            raise Failed("prove", detail, self.log_tail(release), next_step)
        self.save("proven", proof=result, reason="")

    def promote(self, release: Release, old: Path | None = None) -> None:
        """Make the proven release what every start runs from now on; `old` becomes `previous`."""
        if old is not None and old != release.dir:
            point_link(self._service.previous, f"releases/{old.name}")
        if self._service.linked(self._service.current) != release.dir:
            point_link(self._service.current, f"releases/{release.hash}")
        remove(self._service.trial)
        self._means.systemd.install(release.unit, release.unit_text)
        if not self._means.systemd.show(release.unit).enabled:
            self._means.systemd.enable(release.unit)
        self.readmit()

    def save(self, phase: str, **changes: Any) -> None:
        """Write the state."""
        self.state = self.state.become(phase, round(self._means.clock(), 3), **changes)
        save_state(self._service, self.state)

    @contextmanager
    def timed(self, name: str, text: str) -> Iterator[None]:
        """Tell that a step begins, and count its seconds."""
        self._events.phase(name, text)
        begun = self._means.clock()
        try:
            yield
        finally:
            spent = self._means.clock() - begun
            self.seconds[name] = round(self.seconds.get(name, 0.0) + spent, 1)

    def _release_running(self, container: Container) -> Release | None:
        try:
            return load_release(self._service.release_dir(container.release))
        except Fault:
            return None

    def _landmark(self, name: str, text: str) -> None:
        self._events.phase(name, text)
        self.save("booting", marker=text.partition(":")[0])

    def _checked(self, check: Check) -> None:
        self._events.phase("prove", f"{check.name}: {check.detail}")

    def log_tail(self, release: Release) -> tuple[str, ...]:
        """The telling lines of the engine's log, its key left out."""
        try:
            container = self.container()
            found = self._means.docker.logs(container.id) if container else iter(())
            secret = secret_of(release)
            lines = [hide(line, secret) for _, line in found][-400:]
        except DockerError:
            return ()
        return telling(lines, release.logs.get("fatal") or ()).lines
