"""Install the NVIDIA container toolkit where it is missing, and register it with Docker. A job.

    python3 toolkit.py /var/lib/sparkfleet/jobs/NAME.json

From the host's own package sources, never a driver with it; Docker's configuration is merged and
checked, not replaced; Docker is restarted only where that stops nobody else's containers.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node import commands
from sparkfleet.node.apt import Apt
from sparkfleet.node.events import Events
from sparkfleet.node.faults import Fault
from sparkfleet.node.pull import Engine

PACKAGE = "nvidia-container-toolkit"
DAEMON_JSON = Path("/etc/docker/daemon.json")
#: Seconds for Docker to stop its containers and come back.
RESTART, ANSWER = 300.0, 120.0


class Toolkit:
    """The toolkit of this host."""

    def __init__(
        self,
        request: dict[str, Any],
        events: Events,
        *,
        engine: Engine,
        apt: Apt,
        run: commands.Runner = commands.run,
        daemon_json: Path = DAEMON_JSON,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.may_restart = bool(request.get("restart_docker"))
        self.events, self.engine, self.apt, self.run_program = events, engine, apt, run
        self.daemon_json, self.clock, self.sleep = daemon_json, clock, sleep
        self._put_back: Callable[[], object] = lambda: None  # until there is something to undo

    def run(self) -> dict[str, Any]:
        """Have the toolkit installed, registered and known to a running Docker. Raises Fault."""
        version, info = self.apt.version(PACKAGE), self._info()
        if version and registered(info):
            return {"changed": False, "version": version, "restarted": False}
        # Asked before the first change: a refusal must leave the host as it was.
        self._refuse_to_stop_others(info)
        if version is None:
            self.apt.install(PACKAGE)
        self._configure()
        self._restart()
        return {"changed": True, "version": self.apt.version(PACKAGE), "restarted": True}

    def _info(self) -> dict[str, Any]:
        return dict(self.engine.ask("GET", "/info") or {})

    def _refuse_to_stop_others(self, info: dict[str, Any]) -> None:
        if self.may_restart or info.get("LiveRestoreEnabled"):
            return
        others = sorted(filter(None, map(foreign, self.engine.ask("GET", "/containers/json"))))
        if others:
            raise Fault(
                f"Docker has to be restarted, which would stop {', '.join(others)}.",
                why="Docker looks for the container toolkit only when it starts.",
                next="Allow it with --data restart_docker=true, or stop them yourself first.",
                code="would-stop",
            )

    # ---- Docker's configuration

    def _read(self) -> dict[str, Any]:
        try:
            config = json.loads(self.daemon_json.read_text(encoding="utf-8") or "{}")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise self._bad(
                f"It can't be read as JSON ({error}), so nothing was changed."
            ) from None
        if not isinstance(config, dict):
            raise self._bad("It is not a JSON object, so nothing was changed.")
        return config

    def _bad(self, why: str) -> Fault:
        return Fault(
            "Docker's configuration could not be completed.",
            where=str(self.daemon_json),
            why=why,
            next="Put that file right, then run the same command again.",
            code="daemon-json",
        )

    @property
    def backup(self) -> Path:
        """The configuration as it was before."""
        return self.daemon_json.with_name(self.daemon_json.name + ".sparkfleet.bak")

    def _configure(self) -> None:
        """Let the toolkit's own program add its runtime, and see that it kept the rest."""
        before = self._read()
        if "nvidia" in (before.get("runtimes") or {}):
            return
        if self.daemon_json.exists():
            shutil.copy2(self.daemon_json, self.backup)
            self._put_back = lambda: shutil.copy2(self.backup, self.daemon_json)
        else:
            self._put_back = lambda: self.daemon_json.unlink(missing_ok=True)
        self.events.phase("configure", f"Registering the runtime in {self.daemon_json}.")
        argv = ["nvidia-ctk", "runtime", "configure", "--runtime=docker"]
        done = self.run_program([*argv, f"--config={self.daemon_json}"], 60)
        try:
            if not done.ok:
                raise self._bad(f"nvidia-ctk says: {done.words()}.")
            lost = lost_settings(before, self._read())
            if lost:
                raise self._bad(f"nvidia-ctk dropped or changed {', '.join(lost)}; put back.")
        except Fault:
            self._put_back()
            raise

    # ---- Docker itself

    def _restart(self) -> None:
        self.events.phase("restart", "Restarting Docker, which looks for the toolkit at its start.")
        # Our own services restart with Docker; that must not use up what they have of restarts.
        self.run_program(["systemctl", "reset-failed", "docker.service", "sparkfleet-*"], 30)
        done = self.run_program(["systemctl", "restart", "docker.service"], RESTART)
        why = done.words() if not done.ok else self._wait_for_answer()
        if why is None:
            return
        self._put_back()
        self.run_program(["systemctl", "reset-failed", "docker.service"], 30)
        back = self.run_program(["systemctl", "restart", "docker.service"], RESTART)
        raise Fault(
            "Docker did not come back with the toolkit's runtime.",
            where=str(self.daemon_json),
            why=f"{why} Its former configuration was put back, and Docker "
            f"{'runs again' if back.ok else 'still does not start'}.",
            next="Look at `journalctl -u docker` on the host.",
            code="docker-restart",
        )

    def _wait_for_answer(self) -> str | None:
        """None once Docker knows the runtime, else why it does not."""
        until, why = self.clock() + ANSWER, ""
        while self.clock() < until:
            try:
                if registered(self._info()):
                    return None
                why = "Docker runs and does not list the nvidia runtime."
            except Fault as fault:
                why = str(fault)
            self.sleep(0.5)
        return why


def registered(info: dict[str, Any]) -> bool:
    """Whether Docker's own account of itself names the runtime, or the GPU as a CDI device."""
    devices = info.get("DiscoveredDevices") or []
    cdi = any(str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in devices)
    return "nvidia" in (info.get("Runtimes") or {}) or cdi


def foreign(container: dict[str, Any]) -> str | None:
    """The name of a running container that is not ours; None for one that is."""
    labels = container.get("Labels") or {}
    project = str(labels.get("com.docker.compose.project", ""))
    if project.startswith("sparkfleet-") or "sparkfleet.job" in labels:
        return None
    return str((container.get("Names") or [container.get("Id", "a container")])[0]).lstrip("/")


def lost_settings(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Keys of the owner's configuration that are gone or say something else."""
    lost = [key for key in before if key != "runtimes" and after.get(key) != before[key]]
    runtimes = after.get("runtimes") or {}
    own = before.get("runtimes") or {}
    return lost + [f"runtimes.{key}" for key in own if runtimes.get(key) != own[key]]


def main(argv: list[str]) -> int:
    """Do the job of the request file `argv[0]`."""
    path = Path(argv[0])
    with Events.for_request(path) as events:
        try:
            request = json.loads(path.read_text(encoding="utf-8"))
            apt = Apt(events, lock_wait=float(request.get("lock_wait") or 600))
            events.done(True, Toolkit(request, events, engine=Engine(), apt=apt).run())
        except Fault as fault:
            events.done(False, error=fault.as_error())
        except (TypeError, ValueError) as error:
            what = f"The request of the toolkit step can't be used: {error!r}."
            events.done(False, error=Fault(what, where=str(path), code="request").as_error())
        except OSError as error:
            refused = Fault(f"{error.strerror or error}.", where=str(error.filename or path))
            events.done(False, error=refused.as_error())
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
