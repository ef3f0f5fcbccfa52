"""Ask an engine whether it serves: every name, right answers, a drafter at work, a clean log.

    python3 probe.py --root /var/lib/sparkfleet --service llm     what runs now
    python3 probe.py --release DIR [--json]                       by a release's proof.json
    python3 probe.py JOB.json                                     as a job, with events

The exit status is 0 when every check passed, 1 when one failed, 2 when it could not be tried.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: its folder's grandparent holds the package on a Spark too
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node import proof, wire
from sparkfleet.node.disk import read_json
from sparkfleet.node.docker import Docker, DockerApi, DockerError
from sparkfleet.node.events import Events
from sparkfleet.node.faults import Fault
from sparkfleet.node.layout import Service, load_release
from sparkfleet.node.telling import hide, judge_log

#: Seconds for /health, /version, /v1/models and /metrics: the engine answers them from memory.
QUICK = 10.0
#: Seconds that the counters may lag behind the answer.
LAG = 10.0
_KEY = re.compile(r"^api-key:\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Check:
    """One check and what came of it; `detail` is a clause of its own."""

    name: str
    ok: bool
    detail: str
    seconds: float


Step = tuple[str, Callable[[], tuple[bool, str]]]


def read_key(path: str | Path) -> str:
    """The API key of an engine's key file, a line `api-key: KEY`. Raises Fault."""
    try:
        match = _KEY.search(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Fault(
            "The engine's key can't be read.",
            where=str(path),
            why=f"{error.strerror or error}.",
            next="Run as root; if the file is absent, run the deploy again: it writes the file.",
            code="key",
        ) from None
    if match is None:
        raise Fault(
            "The engine's key file holds no line `api-key: …`.",
            where=str(path),
            next="Run the deploy again: it writes the file.",
            code="key",
        )
    return match[1].strip("\"'[] ")


class Probe:
    """One run of a probe request (proof.json). Reads only; asks only what the request says."""

    def __init__(
        self,
        request: Mapping[str, Any],
        *,
        docker: DockerApi,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._request = request
        self._target = wire.Target.of(str(request["url"]))
        self._docker, self._clock, self._sleep = docker, clock, sleep
        self._secret = read_key(request["key_file"]) if request.get("key_file") else ""
        self._before: dict[str, float] = {}

    def run(self, watch: Callable[[Check], None] = lambda check: None) -> dict[str, Any]:
        """Check by check until one fails, each told to `watch` as it ends.

        The result has ok, checks, skipped (names), seconds, and failure: the failed check's name.
        """
        begun = self._clock()
        checks: list[Check] = []
        steps = list(self._steps())
        for name, step in steps:
            started = self._clock()
            try:
                ok, detail = step()
            except (wire.WireError, DockerError) as error:
                ok, detail = False, f"it could not be asked: {error}"
            detail = hide(detail, self._secret)
            checks.append(Check(name, ok, detail, round(self._clock() - started, 2)))
            watch(checks[-1])
            if not ok:
                break
        failed = next((check.name for check in checks if not check.ok), None)
        return {
            "ok": failed is None,
            "failure": failed,
            "checks": [asdict(check) for check in checks],
            "skipped": [name for name, _ in steps[len(checks) :]],
            "seconds": round(self._clock() - begun, 2),
        }

    def _steps(self) -> Iterator[Step]:
        request = self._request
        yield "alive", self._alive
        if request.get("version"):
            yield "version", lambda: proof.judge_version(request["version"], self._get("/version"))
        yield "names", self._names
        drafts = bool(request.get("draft_counters"))
        if drafts:
            yield "counters", self._counters
        for row in request.get("proofs") or []:
            yield str(row["name"]), lambda row=row: self._prove(row)  # type: ignore[misc]
        if drafts:
            yield "drafts", self._climbed
        if request.get("logs"):
            yield "log", self._log

    def _alive(self) -> tuple[bool, str]:
        status = alive(self._target, QUICK)
        words = {200: "it answers", 503: "it says that its engine is dead (HTTP 503)"}
        return status == 200, words.get(status, f"it answers with HTTP {status}")

    def _names(self) -> tuple[bool, str]:
        reply = self._ask("GET", "/v1/models")
        if reply.status in (401, 403):
            return False, f"it refuses the key of {self._request.get('key_file') or 'none'}"
        return proof.judge_names(self._request["names"], reply.json())

    def _counters(self) -> tuple[bool, str]:
        self._before = proof.sums(self._ask("GET", "/metrics").text())
        return True, "they were read before the proofs"

    def _prove(self, row: proof.Row) -> tuple[bool, str]:
        path, body = proof.request_of(row)
        reply = self._ask("POST", path, body, float(self._request.get("timeout") or 300))
        return proof.judge(row, reply.status, reply.json() if reply.status == 200 else _any(reply))

    def _climbed(self) -> tuple[bool, str]:
        until = self._clock() + LAG
        while True:
            after = proof.sums(self._ask("GET", "/metrics").text())
            ok, detail = proof.judge_climb(self._before, after)
            if ok or self._clock() >= until:
                return ok, detail
            self._sleep(0.5)

    def _log(self) -> tuple[bool, str]:
        logs = self._request["logs"]
        container = self._docker.container(logs["container"])
        if container is None:
            return False, f"it can't be read: there is no container {logs['container']}"
        found = self._docker.logs(container.id, since=container.started, seconds=60)
        return judge_log(
            (line for _, line in found), logs.get("forbidden") or (), logs.get("required") or ()
        )

    def _get(self, path: str) -> Any:
        return self._ask("GET", path).json()

    def _ask(
        self, method: str, path: str, body: bytes | None = None, seconds: float = QUICK
    ) -> wire.Reply:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._secret:
            headers["Authorization"] = f"Bearer {self._secret}"
        return wire.ask(self._target, method, path, seconds=seconds, headers=headers, body=body)


def alive(target: wire.Target, seconds: float = QUICK) -> int:
    """HTTP status of /health. Raises WireError: refused while the engine boots."""
    return wire.ask(target, "GET", "/health", seconds=seconds).status


def load(target: wire.Target, seconds: float = QUICK) -> dict[str, float]:
    """The engine's metrics, summed by name. Raises WireError."""
    reply = wire.ask(target, "GET", "/metrics", seconds=seconds)
    if reply.status != 200:
        raise wire.WireError(f"{target}/metrics answered with HTTP {reply.status}", "broken")
    return proof.sums(reply.text())


def _any(reply: wire.Reply) -> Any:
    try:
        return json.loads(reply.body)
    except ValueError:
        return reply.text()[:300]


def table(result: Mapping[str, Any]) -> str:
    """The result for a person."""
    rows = [
        f"{'ok  ' if check['ok'] else 'FAIL'}  {check['name']:<22} {check['seconds']:7.2f} s  "
        f"{check['detail']}"
        for check in result["checks"]
    ]
    rows += [f"--    {name:<22} {'':9}  not tried" for name in result["skipped"]]
    verdict = "proven" if result["ok"] else f"not proven: {result['failure']} failed"
    return "\n".join([*rows, f"{verdict}, in {result['seconds']:.1f} s"])


def _request_in(directory: Path | None) -> dict[str, Any]:
    if directory is None:
        raise Fault(
            "Nothing runs here that could be asked.",
            why="The service has neither a proven release nor one under trial.",
            next="Deploy it first.",
            code="nothing",
        )
    return load_release(directory).probe


def _as_job(path: Path, docker: DockerApi) -> int:
    job = read_json(path) or {}
    with Events.for_request(path) as events:
        try:
            service = Service(Path(job["root"]), job["service"])
            request = _request_in(service.chosen())
            result = Probe(request, docker=docker).run(
                lambda check: events.phase("prove", f"{check.name}: {check.detail}")
            )
        except (Fault, KeyError) as error:
            fault = error if isinstance(error, Fault) else Fault(f"The job lacks {error}.")
            events.done(False, error=fault.as_error())
            return 2
        events.done(True, result=result)
        return 0 if result["ok"] else 1


def main(argv: list[str]) -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Ask an engine whether it serves.")
    parser.add_argument("job", nargs="?", type=Path, help="a job's request, for job.py")
    parser.add_argument("--release", type=Path, help="directory of the release")
    parser.add_argument("--root", type=Path, default=Path("/var/lib/sparkfleet"))
    parser.add_argument("--service", help="the service whose running release is asked")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(argv)
    docker = Docker()
    if options.job:
        return _as_job(options.job, docker)
    try:
        if not options.release and not options.service:
            raise Fault("Say what to ask: --service NAME or --release DIR.")
        directory = options.release or Service(options.root, options.service).chosen()
        result = Probe(_request_in(directory), docker=docker).run()
    except Fault as fault:
        print(json.dumps({"ok": False, "error": fault.as_error()}) if options.json else fault)
        return 2
    print(json.dumps(result, ensure_ascii=False) if options.json else table(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
