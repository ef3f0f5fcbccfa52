"""What a service's unit runs: one engine in the foreground, and its graceful end.

    python3 engine.py run  --root /var/lib/sparkfleet --service llm     ExecStart
    python3 engine.py stop --root /var/lib/sparkfleet --service llm     ExecStopPost

`run` takes the release under trial where there is one, else `current`; refuses where a start can't
succeed; clears what an earlier run left; then runs Docker Compose until the engine ends. It stays
in front of Compose rather than becoming it: so a stop goes through Docker's own API, ends with
status 0, and an engine that dies is named in the journal. And of two services of one box the second
waits until the first is ready: an engine that boots beside another misreads the memory it may use.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

if not __package__:
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node import wire
from sparkfleet.node.disk import Busy, hold_lock, remove
from sparkfleet.node.docker import Docker, DockerApi, DockerError
from sparkfleet.node.faults import CONFIG, FAILED, OK, Fault
from sparkfleet.node.layout import Release, Service, load_release
from sparkfleet.node.ports import is_local, lasting_holder
from sparkfleet.node.probe import alive

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
PROJECT = "com.docker.compose.project"
UP = ("up", "--abort-on-container-exit", "--no-color", "--no-log-prefix", "--no-build")


class Stopped(Exception):
    """systemd asked for the end."""


def compose(release: Release) -> list[str]:
    """The Compose command that every use of this project begins with."""
    file = str(release.dir / "compose.yaml")
    return ["docker", "compose", "--ansi", "never", "-p", release.project, "-f", file]


def to_run(service: Service) -> Release:
    """The release that a start runs. Raises Fault when there is none."""
    directory = service.chosen()
    if directory is None:
        raise Fault(
            f"{service.name} has nothing to run.",
            where=str(service.dir),
            why="No release has been proven here, and none is under trial.",
            next="Deploy it: pyinfra inventory/lab.py deploy.py.",
            code="nothing",
            exit=CONFIG,
        )
    return load_release(directory)


def clear_way(release: Release, docker: DockerApi) -> None:
    """Remove our own leftovers, and refuse where a stranger stands in the way.

    Raises Fault naming the container or process that holds the name or the port.
    """
    for row in docker.containers({PROJECT: release.project}):
        docker.remove(row.id)
    stranger = docker.container(release.container)
    if stranger is not None:
        raise Fault(
            f"The name {release.container} belongs to a container that is not ours.",
            why=f"It is {stranger.status} and was not started by this unit.",
            next=f"Stop and remove it (docker rm -f {release.container}), or let the deploy take "
            "it over with --data adopt=true.",
            code="name-taken",
        )
    check_port(release, docker)


def check_port(
    release: Release, docker: DockerApi, making_way: Collection[str] = frozenset()
) -> None:
    """Raise Fault when a stranger holds the port; our own container does not count, nor do those
    whose ids are in `making_way`: they are stopped before the start."""
    if not is_local(release.bind):
        raise Fault(
            f"This host has no address {release.bind}.",
            why=f"The service is to listen on {release.bind}:{release.port}.",
            next="Correct `bind` in the inventory, or bring the interface up.",
            code="bind",
        )
    taken = lasting_holder(release.bind, release.port, docker)
    if taken is not None and taken.project != release.project and taken.id not in making_way:
        raise Fault(
            f"Port {release.port} is taken by {taken.words}.",
            why=f"The service is to listen on {release.bind}:{release.port}.",
            next="Stop that, or give the service another `port` in the inventory.",
            code="port-taken",
        )


def drop_caches(say: Callable[[str], None], path: Path = DROP_CACHES) -> None:
    """Give the page cache back: on unified memory it would starve the driver while weights load."""
    os.sync()
    try:
        path.write_text("3\n", encoding="ascii")
    except OSError as error:
        say(f"The page cache could not be dropped ({error.strerror}); going on without.")


def run(service: Service, docker: DockerApi, say: Callable[[str], None]) -> int:
    """Run the service until it ends or a stop is asked for. Raises Fault."""
    with _stoppable():
        child: subprocess.Popen[bytes] | None = None
        release: Release | None = None
        try:
            remove(service.proven)  # whatever starts now has shown nothing yet
            release = to_run(service)
            clear_way(release, docker)
            with _alone(service, release, say):
                if release.drop_page_cache:
                    drop_caches(say)
                say(f"Starting release {release.hash} of {service.name} ({release.image}).")
                # A session of its own: a stop goes to the engine through Docker, not to Compose.
                child = subprocess.Popen([*compose(release), *UP], start_new_session=True)
                _until_ready(child, release)
            code = child.wait()
        except Stopped:
            if release is None or child is None:
                return OK
            say(f"Stopping {service.name}: requests under way may finish.")
            stop(release, docker)
            _end(child)
            return OK
    say(f"{_ending(release, docker)} Compose ended with status {code}.")
    return FAILED


@contextmanager
def _alone(service: Service, release: Release, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the box's one place to boot, after waiting for it as long as a boot may take."""
    with ExitStack() as stack:
        lock = service.run / ".boot.lock"  # no service has a name like that
        try:
            stack.enter_context(hold_lock(lock))
        except Busy:
            say("Another service of this host boots; waiting until it is ready.")
            with suppress(Busy):
                stack.enter_context(hold_lock(lock, patience=release.boot_timeout))
        yield


def _until_ready(child: subprocess.Popen[bytes], release: Release) -> None:
    """Return when the engine is ready, has ended, or takes longer than it may."""
    target = wire.Target.of(str(release.probe["url"]))
    until = time.monotonic() + release.boot_timeout
    while time.monotonic() < until:
        with suppress(wire.WireError):
            if alive(target, 2.0) == 200:
                return
        with suppress(subprocess.TimeoutExpired):
            child.wait(2.0)
            return


def _ending(release: Release, docker: DockerApi) -> str:
    try:
        container = docker.container(release.container)
    except DockerError as error:
        return f"The engine ended; {error}."
    return f"The engine ended: {container.ending()}." if container else "No engine was started."


def stop(release: Release, docker: DockerApi) -> None:
    """Stop the project's containers by their own signal and grace; they stay for their logs."""
    for row in docker.containers({PROJECT: release.project}):
        if row.state not in ("exited", "created", "dead"):
            docker.stop(row.id, release.stop_timeout + 20)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Compose ends by itself when its containers have; where it does not, it is told to."""
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        child.send_signal(number)  # 0 is no signal
        try:
            child.wait(15)
            return
        except subprocess.TimeoutExpired:
            continue


@contextmanager
def _stoppable() -> Iterator[None]:
    def raise_stopped(number: int, frame: FrameType | None) -> None:
        # Once: a second signal must not break the stop that the first one began.
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, signal.SIG_IGN)
        raise Stopped

    before = {name: signal.signal(name, raise_stopped) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def main(argv: list[str]) -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Run or stop a service's engine.")
    parser.add_argument("verb", choices=("run", "stop"))
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--service", required=True)
    options = parser.parse_args(argv)
    docker = Docker()
    try:
        service = Service(options.root, options.service)
        if options.verb == "run":
            return run(service, docker, lambda text: print(text, flush=True))
        stop(to_run(service), docker)
    except (Fault, DockerError) as fault:
        print(fault, file=sys.stderr, flush=True)
        return fault.exit if isinstance(fault, Fault) else FAILED
    return OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
