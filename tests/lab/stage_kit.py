"""The staging programs on a simulated host, beside whatever a deploy has installed there."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import random
import tarfile
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from lab.api import Lab
from sparkfleet.programs import node_programs

#: Neither the deploy's programs nor its root: other tests look at those.
BASE = "/opt/sparkfleet-stage-test"
PROGRAMS = f"{BASE}/sparkfleet/node"
ROOT = "/var/lib/sparkfleet-stage-test"
MODELS = f"{ROOT}/models"


@dataclass
class Outcome:
    """How a job ended, and everything that it told."""

    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def done(self) -> dict[str, Any]:
        assert self.events and self.events[-1]["event"] == "done", self.events[-3:]
        return self.events[-1]

    @property
    def result(self) -> dict[str, Any]:
        assert self.done["ok"], self.done
        return dict(self.done["result"])

    @property
    def error(self) -> dict[str, str]:
        assert not self.done["ok"], self.done
        return dict(self.done["error"])

    @property
    def progress(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "progress"]

    @property
    def log(self) -> str:
        return "\n".join(event["text"] for event in self.events if event["event"] == "log")


@dataclass
class Kit:
    """Jobs of one host, over the programs under test."""

    lab: Lab
    host: str

    def sh(self, command: str, **more: Any) -> str:
        return self.lab.exec(self.host, command, check=True, **more).stdout

    def install(self) -> None:
        """Put the programs of this checkout on the host, and begin with an empty root."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, content in node_programs().items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o644
                archive.addfile(entry, io.BytesIO(content))
        self.remove()
        self.sh(
            f"mkdir -p {PROGRAMS} {ROOT} && base64 -d | tar -x -C {PROGRAMS}",
            text=base64.b64encode(buffer.getvalue()).decode(),
        )

    def remove(self) -> None:
        """Leave nothing of this on the host, running or lying about."""
        self.sh(
            "systemctl stop 'sparkfleet-job-stage-*';"
            "docker ps -aq --filter name=sparkfleet-fetch-stage | xargs -r docker rm -f >/dev/null;"
            f"rm -rf {BASE} {ROOT}"
        )

    def job(self, command: str, name: str, *words: str, text: str | None = None) -> dict[str, Any]:
        argv = ["python3", f"{PROGRAMS}/job.py", command, "--root", ROOT, "--name", f"stage-{name}"]
        done = self.lab.exec(self.host, [*argv, *words], text=text, timeout=90)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def start(self, name: str, program: str, request: dict[str, Any]) -> str:
        answer = self.job("start", name, "--program", program, text=json.dumps(request))
        return str(answer["state"])

    def follow(self, name: str, outcome: Outcome, offset: int = 0, seconds: float = 300) -> Outcome:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            news = self.job("follow", name, "--offset", str(offset), "--wait", "10")
            offset = news["offset"]
            outcome.events += news["events"]
            if not news["running"]:
                return outcome
        raise AssertionError(f"{name} did not end within {seconds:.0f} s: {outcome.events[-3:]}")

    def run(self, name: str, program: str, request: dict[str, Any]) -> Outcome:
        self.start(name, program, request)
        return self.follow(name, Outcome())


def digest_of(lab: Lab, repository: str, tag: str) -> str:
    """The digest that the lab's registry has for a tag."""
    request = urllib.request.Request(
        f"http://{lab.registry}/v2/{repository}/manifests/{tag}",
        method="HEAD",
        headers={"Accept": f"{MANIFEST}, application/vnd.oci.image.manifest.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.headers["Docker-Content-Digest"])


MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def push_noise(lab: Lab, repository: str, tag: str, megabytes: int) -> str:
    """Put an image of so much noise into the lab's registry, by its API; returns the digest."""
    base = f"http://{lab.registry}/v2/{repository}"

    def send(method: str, url: str, body: bytes, kind: str) -> str:
        request = urllib.request.Request(url, data=body, method=method)
        request.add_header("Content-Type", kind)
        with urllib.request.urlopen(request, timeout=60) as answer:
            place = answer.headers["Location"] or ""
            return str(answer.headers["Docker-Content-Digest"] or place)

    def blob(data: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        place = send("POST", f"{base}/blobs/uploads/", b"", "application/octet-stream")
        if place.startswith("/"):
            place = f"http://{lab.registry}{place}"
        mark = "&" if "?" in place else "?"
        send("PUT", f"{place}{mark}digest={digest}", data, "application/octet-stream")
        return digest

    layers, diffs = [], []
    for number in range(2):  # two layers, so that progress has something to count
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            data = random.Random(f"{repository}:{tag}:{number}").randbytes(megabytes * 500_000)
            entry = tarfile.TarInfo(f"noise-{number}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        plain = buffer.getvalue()
        packed = gzip.compress(plain, compresslevel=0, mtime=0)
        diffs.append(f"sha256:{hashlib.sha256(plain).hexdigest()}")
        kind = "application/vnd.docker.image.rootfs.diff.tar.gzip"
        layers.append({"mediaType": kind, "size": len(packed), "digest": blob(packed)})
    config = json.dumps(
        {"architecture": "amd64", "os": "linux", "config": {},
         "rootfs": {"type": "layers", "diff_ids": diffs}}
    ).encode()  # fmt: skip
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": len(config),
            "digest": blob(config),
        },
        "layers": layers,
    }
    return send("PUT", f"{base}/manifests/{tag}", json.dumps(manifest).encode(), MANIFEST)
