"""One service under the agent's eye: proven after each start, restarted when it is wedged."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkfleet.node import wire
from sparkfleet.node.boot import BootWatch
from sparkfleet.node.disk import Busy, hold_lock
from sparkfleet.node.docker import Container, DockerError
from sparkfleet.node.failed import failed_boot, failed_proof
from sparkfleet.node.faults import Fault
from sparkfleet.node.layout import Release, Service, load_release
from sparkfleet.node.pending import Pending
from sparkfleet.node.state import State, load_state, save_state
from sparkfleet.node.steps import Means, secret_of
from sparkfleet.node.systemd import Unit
from sparkfleet.node.watchdog import Pulse, beat, wedged

#: Seconds between looks: while something is about to change, and otherwise.
SOON, SELDOM = 2.0, 10.0
#: Seconds until a failed proof is tried again: doubled each time up to the second.
RETRY, RETRY_MOST = 60.0, 900.0
SWITCH = Path(__file__).absolute().with_name("switch.py")


@dataclass
class Watch:
    """One service, looked at again and again; `look` says after how many seconds to look next."""

    service: Service
    means: Means
    say: Callable[[str], None]
    boot: BootWatch | None = None
    run: str = ""
    """The container's run that is being watched."""
    pulse: Pulse = field(default_factory=lambda: Pulse(0.0))
    retry_at: float = 0.0
    retry: float = RETRY
    settles: int = 0
    looked: bool = False
    """Whether the state on disk is known to hold for what runs."""
    trouble: str = ""

    def look(self) -> float:
        """Look once. Never raises for what a host can do to it."""
        try:
            wait = self._look()
            self.trouble, self.looked = "", True
            return wait
        except Busy:
            self.looked = True  # the switch keeps the state
            self.boot, self.run = None, ""  # a switch is under way: afterwards, look afresh
            return SOON
        except (DockerError, Fault, OSError, wire.WireError) as error:
            if str(error) != self.trouble:
                self.say(f"{self.service.name}: {error}")
            self.trouble = str(error)
            return SELDOM

    def _look(self) -> float:
        with hold_lock(self.service.lock):
            state = load_state(self.service)
            if self.service.switch.exists():
                return self._settle()
            self.settles = 0
            directory = self.service.chosen()
            if directory is None:
                return SELDOM
            release = load_release(directory)
            container = self._container(release)
            if container is None or not container.running:
                return self._absent(state, release, container)
            if container.run != self.run:
                self._meet(state, release, container)
                state = load_state(self.service)
            if self.boot is not None:
                return self._boot(state, release)
            if state.phase == "proven":
                return self._guard(state, release)
        # The lock is free while the proof runs: a switch need not wait for that.
        return self._prove(release, container)

    def _container(self, release: Release) -> Container | None:
        container = self.means.docker.container(release.container)
        return container if container and container.release == release.hash else None

    def _meet(self, state: State, release: Release, container: Container) -> None:
        """A run of a container that is new here: to be proven unless a switch has done so."""
        now = self.means.clock()
        self.run, self.boot, self.pulse = container.run, None, Pulse(now)
        self.retry, self.retry_at = RETRY, 0.0
        if state.is_of(container.run) and state.phase == "proven":
            if not self.service.proven.exists():  # an older agent's word, which did not write it
                self._save(state)
            return
        if not state.is_of(container.run):
            again = state.restarts + 1 if state.release == release.hash and state.container else 0
            state = State(self.service.name, release.hash, container.id, container.started)
            self._save(state.become("booting", now, restarts=again))
            self.say(f"{self.service.name}: release {release.hash} has started.")
        self.boot = BootWatch(
            release,
            self.means.docker,
            begun=container.started_at,
            secret=secret_of(release),
            tell=lambda name, text: self._mark(text),
            clock=self.means.clock,
            health=self.means.health,
        )

    def _mark(self, text: str) -> None:
        state = load_state(self.service)
        self._save(state.become(state.phase, state.since, marker=text.partition(":")[0]))
        self.say(f"{self.service.name}: {text}.")

    def _boot(self, state: State, release: Release) -> float:
        assert self.boot is not None
        boot = self.boot.step()
        if boot.outcome == "waiting":
            return SOON
        self.boot = None
        if boot.outcome == "ready":
            self._become(state, "proving", "")
            return 0.0
        why = failed_boot(boot).detail
        if boot.outcome == "late":
            return self._restart(state, release, why)
        self._become(state, "failed", why)
        return SOON

    def _prove(self, release: Release, container: Container) -> float:
        now = self.means.clock()
        if now < self.retry_at:
            return min(SELDOM, self.retry_at - now)
        result = self.means.probe(release, self.means.docker, lambda check: None)
        with hold_lock(self.service.lock):
            state = load_state(self.service)
            if not state.is_of(container.run):
                return SOON
            if result["ok"]:
                self.pulse = Pulse(self.means.clock())
                self._become(state, "proven", "", proof=result)
                return SELDOM
            self.retry_at = self.means.clock() + self.retry
            self.retry = min(self.retry * 2, RETRY_MOST)
            why, _ = failed_proof(result["checks"][-1])
            self._become(state, "failed", why, proof=result)
            return SELDOM

    def _guard(self, state: State, release: Release) -> float:
        """Watch a proven engine's pulse."""
        try:
            target = wire.Target.of(str(release.probe["url"]))
            metrics: dict[str, float] | None = self.means.metrics(target, 5.0)
        except wire.WireError:
            metrics = None
        now = self.means.clock()
        self.pulse = beat(self.pulse, metrics, now)
        why = wedged(self.pulse, metrics, now, release.wedge_seconds)
        return self._restart(state, release, why) if why else SELDOM

    def _restart(self, state: State, release: Release, why: str) -> float:
        """Within the unit's cap: systemd refuses a start too many, and the unit has failed."""
        self._become(state, "wedged", f"{why} It is restarted.")
        said = self.means.systemd.restart(release.unit)
        if not said.ok:
            self._become(state, "down", f"{why} A restart was refused: {said.words()}")
        self.run = ""
        return SOON

    def _absent(self, state: State, release: Release, gone: Container | None) -> float:
        self.boot, self.run = None, ""
        unit = self.means.systemd.show(release.unit)
        phase, why = absence(unit, gone)
        # The switch's own words on why it is down or failed say more than that it is.
        said = {"stopped": ("down", "failed"), "down": ("down",)}.get(phase, ())
        if state.phase not in said:
            self._become(state, phase, why)
        return SOON if unit.active in ("active", "activating") else SELDOM

    def _settle(self) -> float:
        """A switch was cut: run it to its end, outside of this program's own confinement."""
        if self.settles >= 3:
            return SELDOM
        self.settles += 1
        job = Path(Pending(self.service).job or f"settle-{self.service.name}").stem
        self.say(f"{self.service.name}: a switch was cut; ending it (sparkfleet-job-{job}).")
        argv = ["systemd-run", "--quiet", "--collect", f"--unit=sparkfleet-job-{job}"]
        argv += [sys.executable, str(SWITCH), "--settle"]
        argv += ["--root", str(self.service.root), "--service", self.service.name]
        self.means.run(argv, 30)
        return SELDOM

    def _become(self, state: State, phase: str, why: str, **changes: Any) -> None:
        if phase != state.phase or why != state.reason:
            self.say(f"{self.service.name}: {phase}. {why}".rstrip())
        self._save(state.become(phase, round(self.means.clock(), 3), reason=why, **changes))

    def _save(self, state: State) -> None:
        save_state(self.service, state)


def absence(unit: Unit, gone: Container | None) -> tuple[str, str]:
    """Phase and reason of a service without a running container."""
    how = f" The engine ended with {gone.ending()}." if gone else ""
    if unit.gave_up:
        return "down", f"The unit is {unit.words()}.{how}"
    if unit.active == "inactive":
        return ("down" if unit.enabled else "stopped"), f"The unit is not running.{how}"
    if unit.sub == "auto-restart":
        return "booting", f"It will be started again.{how}"
    return "booting", "Its container is about to start."
