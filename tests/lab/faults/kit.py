"""One simulated Spark that serves the stand-in engine, and runs of the deploy that go wrong on it.

Every test begins and ends with the same release proven (`Box.settle`), so a fault costs two short
runs: the one that fails and the one after it, which must carry on.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from lab.api import Lab
from lab.hub.faults import Fault, Kind
from lab.hub.server import Hub
from tests.lab.conftest import BIN, PROJECT, Fleet, Run
from tests.lab.faults.recipe import ARITHMETIC, HARDWARE, recipe
from tests.lab.observe import ask, key_of, state
from tests.lab.waiting import eventually

ROOT = "/var/lib/sparkfleet"


def words(text: str) -> str:
    """What a run said without its tables' lines and breaks."""
    return re.sub(r"\s+", " ", re.sub("[─-╿]", " ", text))


@contextmanager
def trouble(hub: Hub, kind: Kind, repo: str, **more: Any) -> Iterator[Fault]:
    """While the block runs, the hub's requests for this repository go wrong so."""
    fault = Fault(kind, repo, **more)
    hub.faults.add(fault)
    try:
        yield fault
    finally:
        hub.faults.clear()


@dataclass(frozen=True)
class Underway:
    """A deploy that goes on beside the test."""

    process: subprocess.Popen[str]
    said: Path

    def text(self) -> str:
        return self.said.read_text()

    def says(self, text: str, seconds: float) -> None:
        """Wait until it has said so."""
        done = self.process.poll
        eventually(lambda: text in self.text() or done() is not None, seconds, f"said: {text}")
        assert text in self.text(), self.text()

    def end(self, seconds: float = 60) -> Run:
        """Wait for its end."""
        code = self.process.wait(seconds)
        return Run(code, self.text(), self.text())


@dataclass
class Box:
    """A Spark under test. `data` is the host's data in the inventory beside the usual."""

    fleet: Fleet
    host: str
    hub: Hub
    """These tests' own, so that its faults are nobody else's."""
    data: dict[str, Any] = field(default_factory=dict)
    baseline: dict[str, str] = field(default_factory=dict)
    """Of the whole session: by host the release that it serves between tests; the `lock` then."""

    @property
    def lab(self) -> Lab:
        return self.fleet.lab

    # ---- runs

    def inventory(self, others: Mapping[str, Mapping[str, Any]] = {}, **changes: Any) -> Path:
        """Catalog and inventory with the recipe changed so; `others` are further hosts' data."""
        catalog = self.fleet.dir / "catalog"
        rows = {"hardware": HARDWARE, "recipes": recipe(self.lab.registry, **changes)}
        for kind, row in rows.items():
            (catalog / kind).mkdir(parents=True, exist_ok=True)
            text = yaml.safe_dump(row, allow_unicode=True)
            (catalog / kind / f"{row['name']}.yaml").write_text(text)
        common = {"recipe": "standin", "preset": "shared", "catalog": str(catalog)}
        common |= {"hub_endpoint": self.hub.endpoint}
        return self.fleet.write({self.host: self.data, **others}, **common)

    def deploy(self, *options: str, stdin: str = "", **changes: Any) -> Run:
        """The deploy with the recipe changed so. Its questions are answered from `stdin`."""
        return self.fleet.run(self.inventory(**changes), *options, timeout=240, stdin=stdin)

    @contextmanager
    def underway(self, *options: str, **changes: Any) -> Iterator[Underway]:
        """The same in the background; ended with the block, should it still run."""
        argv = [str(BIN / "pyinfra"), "-y", str(self.inventory(**changes)), "deploy.py", *options]
        said = self.fleet.dir / "underway.log"
        with said.open("w") as file:
            process = subprocess.Popen(
                argv,
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ
                | {"COLUMNS": "160", "SPARKFLEET_STATE": str(self.fleet.dir / "state")},
            )
        try:
            yield Underway(process, said)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()

    def fails(self, *told: str, options: tuple[str, ...] = (), **changes: Any) -> Run:
        """A deploy that must fail, saying all of `told`, in sentences."""
        run = self.deploy(*options, **changes)
        self.told(run, *told)
        return run

    def told(self, run: Run, *told: str) -> None:
        """A failed run says what went wrong, and where, why, what to do; and shows no code."""
        said = words(run.said)
        assert run.code == 1, (run.code, run.said)
        assert "Traceback" not in said and 'File "' not in said, run.said
        for text in (self.host, *told):
            assert text in said, (text, run.said)
        assert "nothing changed" not in said

    def works(self, **changes: Any) -> Run:
        """A deploy that must succeed."""
        run = self.deploy(**changes)
        assert run.code == 0, run.said
        assert self.phase == "proven", state(self.lab, self.host)
        return run

    # ---- what is true on the host

    @property
    def state(self) -> dict[str, Any]:
        return state(self.lab, self.host)

    @property
    def phase(self) -> str:
        return str(self.state.get("phase"))

    def sh(self, command: str) -> str:
        """Standard output of a command on the host."""
        return self.lab.exec(self.host, command, check=True).stdout

    def current(self) -> str:
        """The release that `current` points to."""
        link = f"readlink {ROOT}/services/llm/current || true"
        return self.sh(link).strip().rpartition("/")[2]

    def well(self) -> bool:
        """Whether the engine that the state calls proven runs."""
        found = self.state
        running = self.sh("docker ps -q --no-trunc").split()
        return found.get("phase") == "proven" and found["container"] in running

    def recovers(self) -> None:
        """Wait until the node has its engine proven again, by itself."""
        eventually(self.well, 90, "the engine is proven again")

    def serves(self) -> str:
        """Container id of the engine, which must be proven and answer right now."""
        found = self.state
        assert found.get("phase") == "proven", found
        assert found["release"] == self.current()
        body = {"model": "one", "messages": ARITHMETIC["messages"], "max_tokens": 256}
        answer = ask(self.lab, self.host, "/v1/chat/completions", body, key_of(self.fleet.dir))
        assert answer.status == 200, answer
        return str(found["container"])

    def lock(self) -> str:
        """The pins, as text."""
        path = self.fleet.dir / "recipes.lock"
        return path.read_text() if path.exists() else ""

    def models(self, repo: str) -> str:
        """Where the host keeps a repository's commits."""
        return f"{ROOT}/models/{repo.replace('/', '--')}"

    def stamps(self, repo: str) -> list[str]:
        """The stamps of what counts as staged of a repository."""
        found = self.sh(f"find {self.models(repo)} -name .sparkfleet-stamp.json 2>/dev/null; true")
        return found.split()

    def forget(self, repo: str) -> None:
        """Take a repository, and what was begun of it, off the host."""
        name = self.models(repo).rpartition("/")[2]
        self.sh(f"rm -rf {ROOT}/models/{name} {ROOT}/models/.partial/{name}")

    def settle(self) -> None:
        """Have the baseline proven, by a run only where it is not."""
        lock = self.fleet.dir / "recipes.lock"
        if self.host not in self.baseline:
            self.lab.fresh(self.host)
            self.works()
            self.baseline[self.host] = self.current()
            self.baseline["lock"] = lock.read_text()
            return
        lock.write_text(self.baseline["lock"])
        if self.current() != self.baseline[self.host] or not self.well():
            self.works()

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """What serves before the block serves after it: the same container, proven."""
        before, release = self.serves(), self.current()
        yield
        assert (self.serves(), self.current()) == (before, release)

    def on(self, **data: Any) -> Box:
        """The same host with other data in the inventory."""
        return replace(self, data=self.data | data)

    def write(self, path: str, text: str) -> None:
        self.lab.exec(self.host, f"cat > {shlex.quote(path)}", text=text, check=True)
