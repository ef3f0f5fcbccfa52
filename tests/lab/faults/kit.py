"""One simulated Spark that serves the stand-in engine, and runs of the deploy that go wrong on it.

Every test begins and ends with the same release proven (`Box.settle`), so a fault costs two short
runs: the one that fails and the one after it, which must carry on.
"""

from __future__ import annotations

import os
import platform
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
from tests.lab.observe import ask, key_of, state
from tests.lab.waiting import eventually

STANDIN = os.environ.get("SPARKFLEET_TEST_STANDIN", "sparkfleet/standin")
"""Repository of the stand-in engine; its tags are its faults (lab/engine/standin/README.md)."""

MODEL, DRAFTER = "lab/big-1", "lab/big-2"
"""What is served: noise, which is all that a stand-in needs."""

ROOT, SPYING = "/var/lib/sparkfleet", "/run/lab-spy"


HARDWARE = {
    "name": "gb10-lab",
    "inherits": "gb10",
    "description": "A Spark but for the architecture, so no check is softened.",
    "arch": platform.machine(),
    "sources": ["lab"],
}


def recipe(registry: str, **changes: Any) -> dict[str, Any]:
    """The recipe `standin`, as YAML has it; a change replaces a key at the top.

    `tag` and `version` are the image's, `repository` its name; `model` is the model's repository.
    """
    said = {"tag": "1", "version": "1.0.0", "repository": STANDIN, "model": MODEL} | changes
    changed = {key: said[key] for key in changes if key not in IMAGE_OR_MODEL}
    image = {key: said[key] for key in ("tag", "version")}
    model = {"repo": said["model"], "mount": "/model", "source": "lab"}
    drafter = {"repo": DRAFTER, "mount": "/drafter", "source": "lab"}
    return {
        "name": "standin",
        "title": "The stand-in engine",
        "description": "Plays faults.",
        "sources": ["lab"],
        "hardware": ["gb10"],
        "image": image
        | {"repository": f"{registry}/{said['repository']}", "entrypoint": ["vllm"]}
        | {"source": "lab"},
        "models": {"model": model, "drafter": drafter},
        "container": "standin",
        "command": {
            "positional": ["serve", "/model"],
            "flags": {
                "served-model-name": ["one", "two"],
                "port": 8000,
                "gpu-memory-utilization": "${utilization}",
                "speculative-config": {"method": "draft_model", "model": "/drafter"},
            },
            "source": "lab",
        },
        "common_additions": ["drain", "guard"],
        "presets": {"alone": 0.85, "shared": 0.7},
        "max_utilization": {"value": 0.88, "reason": "as on a Spark", "source": "lab"},
        "disk_gib": 1,
        "boot": boot(1),
        "logs": {"forbidden": [{"text": "not found in params_dict", "reason": "Weights skipped"}]},
        "names": ["one", "two"],
        "drafts": True,
        "proofs": [ARITHMETIC],
        "proof_timeout": 4,
    } | changed


IMAGE_OR_MODEL = ("tag", "version", "repository", "model")

ARITHMETIC = {
    "name": "arithmetic",
    "model": "one",
    "kind": "chat",
    "messages": [{"role": "user", "content": "What is 17 × 23?"}],
    "params": {"max_tokens": 256, "temperature": 0},
    "expect": {"contains": "391"},
}


def boot(seconds: float) -> dict[str, Any]:
    """Boot times of a recipe whose start has failed after so many minutes."""
    usual = {"first_minutes": [0, 1], "warm_minutes": [0, 1], "source": "lab"}
    return {"timeout_minutes": seconds, **usual}


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
    """Of the whole session: the release that the host serves between tests."""

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
        told_well(run, self.host, *told)
        return run

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

    def serves(self) -> str:
        """Container id of the engine, which must be proven and answer right now."""
        found = self.state
        assert found.get("phase") == "proven", found
        assert found["release"] == self.current()
        body = {"model": "one", "messages": ARITHMETIC["messages"], "max_tokens": 256}
        answer = ask(self.lab, self.host, "/v1/chat/completions", body, key_of(self.fleet.dir))
        assert answer.status == 200, answer
        return str(found["container"])

    def settle(self) -> None:
        """Have the baseline proven, by a run only where it is not."""
        link = self.baseline.get(self.host)
        if not link:
            self.lab.fresh(self.host)
        elif self.current() == link and self.phase == "proven":
            return
        self.works()
        self.baseline[self.host] = self.current()

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


def told_well(run: Run, host: str, *told: str) -> None:
    """A failed run says what went wrong, on which host, why, and what to do, and shows no code."""
    said = words(run.said)
    assert run.code == 1, (run.code, run.said)
    assert "Traceback" not in said and 'File "' not in said, run.said
    for text in (host, *told):
        assert text in said, (text, run.said)
    assert "nothing changed" not in said


SPY = f"""
while [ ! -e {SPYING}/stop ]; do
  grep -a -l -F -f {SPYING}/secret /proc/[0-9]*/cmdline /proc/[0-9]*/environ
  docker ps -q | xargs -r docker inspect | grep -F -f {SPYING}/secret
  sleep 0.05
done > {SPYING}/found 2>/dev/null
"""


class Spy:
    """Looks on a host for a secret: in every process all the time, at the end in journal and files.

    The secret itself reaches the host in a file that only root may read.
    """

    def __init__(self, box: Box, secret: str) -> None:
        self._box, self._secret = box, secret
        self.found = ""
        """Where it was seen."""

    def __enter__(self) -> Spy:
        box = self._box
        box.sh(f"rm -rf {SPYING}; install -d -m 700 {SPYING}")
        box.write(f"{SPYING}/secret", f"{self._secret}\n")
        box.write(f"{SPYING}/spy.sh", SPY)
        box.sh(f"systemd-run --quiet --collect --unit=lab-spy sh {SPYING}/spy.sh")
        self._since = box.sh("date +%s").strip()
        return self

    def __exit__(self, *error: object) -> None:
        box, pattern = self._box, f"-F -f {SPYING}/secret"
        box.sh(f"touch {SPYING}/stop")
        eventually(lambda: "inactive" in box.sh("systemctl is-active lab-spy || true"), 10, "quiet")
        self.found = box.sh(
            f"cat {SPYING}/found; journalctl --no-pager --since=@{self._since} | grep {pattern};"
            f"docker ps -aq | xargs -r -n1 docker logs 2>&1 | grep {pattern};"
            f"grep -r -l {pattern} /tmp /var/tmp /home /opt /etc /run/sparkfleet {ROOT}; true"
        )
        box.sh(f"rm -rf {SPYING}")
