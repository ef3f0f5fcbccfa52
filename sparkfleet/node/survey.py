"""Read everything a run needs to know of one host: one command, one JSON line, nothing changed.

Each section is read in its own thread and has until the deadline; one that fails or is late is
reported as `{"unknown": "<raw reason>"}` in its place, so that a hung driver or a dead disk costs
its own answer and never the whole survey. The program also runs unprivileged and then says what it
could not read. It is written for Python 3.9 and up, so that it can *report* a Python that is too
old for the other programs.

By hand on a host: `python3 survey.py '{"root": "/var/lib/sparkfleet", "ports": [8000]}'`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from sparkfleet.node import survey_docker, survey_fleet, survey_gateway, survey_gpu, survey_host

Request = dict[str, Any]

#: The shape of the answer; the reader refuses another one.
SCHEMA = 1

#: Seconds for the whole survey unless the request says otherwise.
DEADLINE = 15.0

SECTIONS: dict[str, Callable[[Request], Any]] = {
    "identity": survey_host.identity,
    "os": survey_host.operating_system,
    "dgx": survey_host.dgx_release,
    "gpu": survey_gpu.gpu,
    "docker": survey_docker.docker,
    "compose": survey_docker.compose,
    "toolkit": survey_gpu.toolkit,
    "memory": survey_host.memory,
    "filesystems": survey_host.filesystems,
    "listeners": survey_host.listeners,
    "units": survey_fleet.units,
    "node_files": survey_fleet.node_files,
    "services": survey_fleet.services,
    "models": survey_fleet.models,
    "partials": survey_fleet.partials,
    "weights": survey_fleet.weights,
    "jobs": survey_fleet.jobs,
    "gateway": survey_gateway.gateway,
    "lease": survey_fleet.lease,
}


def survey(request: Request) -> dict[str, Any]:
    """Return the whole answer; never raises, and never takes much longer than the deadline."""
    deadline = time.monotonic() + float(request.get("deadline", DEADLINE))
    read: dict[str, Any] = {}

    def run(name: str, section: Callable[[Request], Any]) -> None:
        try:
            read[name] = section(request)
        except Exception as error:
            read[name] = {"unknown": f"{type(error).__name__}: {error}"}

    threads = {
        name: threading.Thread(target=run, args=(name, section), daemon=True)
        for name, section in SECTIONS.items()
    }
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    # A late thread may still write to `read`: the answer is built from a copy.
    in_time = dict(read)
    late = {"unknown": "it had not answered when the survey's time was up"}
    return assemble(request, {name: in_time.get(name, late) for name in SECTIONS})


def assemble(request: Request, read: dict[str, Any]) -> dict[str, Any]:
    """Bring the sections into the answer's order and shape."""
    answer: dict[str, Any] = {
        "schema": SCHEMA,
        "time": time.time(),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "privileged": os.geteuid() == 0,
        "sudo_error": request.get("sudo_error") or None,
    }
    identity = read.pop("identity")
    if "unknown" in identity:
        identity = dict.fromkeys(survey_host.IDENTITY, identity)
    answer.update(identity)
    answer.update(read)
    # The docker section also knows the containers, the images and where they are stored.
    docker = answer["docker"]
    for key in ("containers", "images"):
        answer[key] = docker.pop(key, {"unknown": survey_docker.why_not(docker)})
    stores = docker.pop("filesystems", {})
    if "unknown" not in answer["filesystems"]:
        answer["filesystems"].update(stores)
    return answer


def printable(value: Any) -> Any:
    """Replace what UTF-8 cannot carry (file names and outputs in other encodings)."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {printable(str(key)): printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable(item) for item in value]
    return value


def main(request: Request) -> None:
    """Print the answer as one line of ASCII JSON and leave, whatever threads still hang."""
    # Every program we start is to speak English and print plain numbers.
    os.environ["LC_ALL"] = "C"
    os.environ["PATH"] = survey_host.SEARCH_PATH
    line = json.dumps(printable(survey(request)), separators=(",", ":")) + "\n"
    sys.stdout.write(line)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
