"""The lab's one resident process: it owns every other process of the lab, and the network.

`up` starts it, in a mount namespace of its own (so that no mount outlives it), `down` ends it.
It is spoken to over a Unix socket, one JSON line each way. Every process it starts dies with it,
by the kernel's parent-death signal; it ends none that it did not start.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from lab import disk, host, network, root, runstate
from lab.errors import LabError
from lab.settings import APT_PORT, HUB_PORT, Settings, from_environment

#: A process that ends this soon after its start, this often in a row, is left alone.
SHORT_LIFE_SECONDS = 3.0
SHORT_LIVES = 4
#: How long a host may take to shut down before its plug is pulled.
SHUTDOWN_SECONDS = 12.0


class Unit:
    """A process that is kept running: started again whenever it ends, until stopped."""

    def __init__(
        self,
        name: str,
        argv: list[str],
        log: Path,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self.name, self.argv, self.log, self.before, self.after = name, argv, log, before, after
        self.process: asyncio.subprocess.Process | None = None
        self.task: asyncio.Task[None] | None = None
        self.fault = ""
        self.starts = 0
        self.wanted = False

    def start(self) -> None:
        """Keep it running from now on; does nothing where that is so."""
        self.wanted = True
        if self.task is None or self.task.done():
            self.fault = ""
            self.task = asyncio.create_task(self.keep())

    async def keep(self) -> None:
        short = 0
        loop = asyncio.get_running_loop()
        while self.wanted and short < SHORT_LIVES:
            born = loop.time()
            try:
                await asyncio.to_thread(self.before)
                await self.live()
            except (LabError, OSError) as error:
                self.fault = str(error)
            await asyncio.to_thread(self.after)
            short = short + 1 if loop.time() - born < SHORT_LIFE_SECONDS else 0

    async def live(self) -> None:
        """One life of the process, from start to end."""
        if not self.wanted:
            return
        with self.log.open("ab") as log:
            # Forked by the main thread, whose end is the supervisor's, hence --pdeathsig works.
            self.process = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", "--", *self.argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1
        code = await self.process.wait()
        self.process = None
        self.fault = f"ended with exit code {code}; its output is in {self.log}"

    async def stop(self, *, patience: float = 5.0) -> None:
        """End the process and stop keeping it: SIGTERM, then SIGKILL after `patience` seconds."""
        self.wanted = False
        process = self.process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM if patience else signal.SIGKILL)
            try:
                await asyncio.wait_for(process.wait(), patience or None)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        if self.task is not None:
            await self.task

    def state(self) -> dict[str, object]:
        pid = self.process.pid if self.process else None
        kept = self.task is not None and not self.task.done()
        state = "running" if pid else "starting" if kept else "failed" if self.wanted else "stopped"
        return {"state": state, "pid": pid, "starts": self.starts, "fault": self.fault}


class Supervisor:
    """All units of the lab, and the verbs that `lab` and `lab.api` send."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.hosts: dict[str, Unit] = {}
        self.services: dict[str, Unit] = {}
        self.ending = asyncio.Event()
        self.quick = False

    def start_services(self) -> None:
        """Start the registry, the package repository and the hub stand-in."""
        here = self.settings
        (here.cache / "registry").mkdir(exist_ok=True)
        (here.cache / "hub").mkdir(exist_ok=True)
        config = here.run / "registry.json"
        config.write_text(registry_config(here))
        files = [sys.executable, "-m", "http.server", "--bind", here.gateway, str(APT_PORT)]
        hub = [sys.executable, "-m", "lab.hub", "--bind", here.gateway, "--port", str(HUB_PORT)]
        commands = {
            "registry": ["docker-registry", "serve", str(config)],
            "apt": [*files, "--directory", str(root.apt_directory(here))],
            "hub": [*hub, "--data", str(here.cache / "hub")],
        }
        for name, argv in commands.items():
            if name not in self.services:
                self.services[name] = Unit(name, argv, here.logs / f"{name}.log")
                self.services[name].start()

    def add_host(self, name: str) -> None:
        if name not in self.hosts:

            def before() -> None:
                host.clear(name)
                host.cgroup(name).mkdir(parents=True)
                disk.prepare(self.settings, name)
                host.mount(self.settings, name)

            argv = host.boot_argv(self.settings, name)
            log = self.settings.logs / f"{name}.log"
            self.hosts[name] = Unit(name, argv, log, before, lambda: host.clear(name))
        self.hosts[name].start()

    async def stop_host(self, name: str, *, quick: bool) -> None:
        unit = self.host(name)
        if quick:
            self.pull_plug(name)
        await unit.stop(patience=0 if quick else SHUTDOWN_SECONDS)
        await asyncio.to_thread(host.unmount, self.settings, name)

    def pull_plug(self, name: str) -> None:
        """Kill PID 1 of the host: everything in it is gone at once, nothing is flushed or told."""
        process = self.host(name).process
        inside = host.leader(process.pid) if process else None
        if inside is not None:
            os.kill(inside, signal.SIGKILL)

    def host(self, name: str) -> Unit:
        try:
            return self.hosts[name]
        except KeyError:
            up = ", ".join(self.hosts) or "none"
            raise LabError(f"The lab has no host {name!r} up; there are: {up}.") from None

    async def answer(self, request: dict[str, object]) -> dict[str, object]:
        """Carry out one request; raises LabError with the reason when it can't be done."""
        name = str(request.get("name", ""))
        match request.get("verb"):
            case "state":
                pass
            case "up":
                self.start_services()
                for wanted in json.loads(str(request["hosts"])):
                    self.add_host(wanted)
            case "power-cycle":
                self.pull_plug(name)
            case "fresh":
                await self.stop_host(name, quick=True)
                docker = bool(request.get("docker"))
                await asyncio.to_thread(disk.erase, self.settings, name, docker=docker)
                self.add_host(name)
            case "power-off":
                await self.stop_host(name, quick=bool(request.get("quick")))
            case "power-on":
                self.host(name).start()
            case "stop-service":
                await self.service(name).stop()
            case "start-service":
                self.service(name).start()
            case "down":
                self.quick = bool(request.get("quick"))
                self.ending.set()
            case other:
                raise LabError(f"The supervisor does not know the verb {other!r}.")
        return {
            "hosts": {name: unit.state() for name, unit in self.hosts.items()},
            "services": {name: unit.state() for name, unit in self.services.items()},
        }

    def service(self, name: str) -> Unit:
        if name not in self.services:
            raise LabError(f"The lab has no service {name!r}; it has {', '.join(self.services)}.")
        return self.services[name]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self.answer(json.loads(await reader.readline()))
        except LabError as error:
            answer = {"error": str(error)}
        except Exception as error:  # the supervisor must outlive a fault in one request
            traceback.print_exc()
            answer = {"error": f"The supervisor failed: {error!r}; see {self.settings.logs}."}
        with contextlib.suppress(ConnectionError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            writer.close()

    async def run(self, tied_to: int | None) -> None:
        """Bring up the network, serve until told to end, and leave nothing behind."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ending.set)
        if tied_to is not None:
            loop.add_reader(os.pidfd_open(tied_to), self.end_quickly)
        network.create(self.settings)
        try:
            server = await asyncio.start_unix_server(self.serve, str(self.settings.socket))
            self.settings.socket.chmod(0o600)
            await self.ending.wait()
            server.close()
        finally:
            await asyncio.gather(
                *(self.stop_host(name, quick=self.quick) for name in self.hosts),
                *(unit.stop() for unit in self.services.values()),
                return_exceptions=True,
            )
            network.remove(self.settings)

    def end_quickly(self) -> None:
        self.quick = True
        self.ending.set()


def registry_config(settings: Settings) -> str:
    """The registry's settings; JSON is YAML too."""
    return json.dumps(
        {
            "version": 0.1,
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {
                "filesystem": {"rootdirectory": str(settings.cache / "registry")},
                "delete": {"enabled": True},
            },
            "http": {"addr": settings.registry},
        }
    )


def main() -> None:
    """`python -m lab.supervisor [PID]`: PID is the process whose end ends the lab."""
    settings = from_environment()
    tied_to = int(sys.argv[1]) if len(sys.argv) > 1 else None
    try:
        with runstate.claim(settings):
            runstate.write_pid(settings)
            asyncio.run(Supervisor(settings).run(tied_to))
    except LabError as error:
        sys.exit(str(error))
    shutil.rmtree(settings.run, ignore_errors=True)


if __name__ == "__main__":
    main()
