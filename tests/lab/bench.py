"""A service of the tests' own on a simulated Spark, beside whatever else runs there.

Its programs, root, unit, container and port are its own; its engine is `standin_server.py` in an
image made of the host's own Python. So the node programs meet the real systemd, Docker and Compose.
"""

from __future__ import annotations

import io
import json
import shlex
import tarfile
from pathlib import Path
from typing import Any

from lab.api import Lab
from sparkfleet.render import UNIT_TEMPLATES, agent_unit
from tests.lab.waiting import eventually

SOURCE = Path(__file__).resolve().parents[2] / "sparkfleet" / "node"
SERVER = Path(__file__).with_name("standin_server.py")
PROGRAMS = "/opt/benchtest/sparkfleet/node"
ROOT = "/var/lib/benchtest"
SERVICE = f"{ROOT}/services/bench"
UNIT, AGENT = "sparkfleet-bench.service", "sparkfleet-bench-agent.service"
IMAGE, PORT = "sparkfleet-bench:2", 18200

MAKE_IMAGE = (
    f"docker image inspect {IMAGE} >/dev/null 2>&1 || "
    "tar -C / -c --ignore-failed-read --exclude=nvidia* "
    "bin lib lib64 usr/bin usr/lib/python3* usr/lib/x86_64-linux-gnu usr/lib64 etc/passwd "
    f"2>/dev/null | docker import - {IMAGE}"
)
CLEAR = f"""
systemctl disable --now {UNIT} {AGENT} 2>/dev/null
systemctl reset-failed {UNIT} {AGENT} 2>/dev/null
docker ps -aq -f label=com.docker.compose.project=sparkfleet-bench | xargs -r docker rm -f
rm -rf {ROOT} {PROGRAMS}/doom /run/sparkfleet/bench.*
rm -f /etc/systemd/system/{UNIT}
systemctl daemon-reload
mkdir -p {SERVICE}/releases {ROOT}/jobs
"""
MARKERS = [
    {"text": "non-default args", "label": "arguments read", "usual_seconds": 5},
    {"text": "Application startup complete", "label": "serving", "usual_seconds": 9},
]
PROOF = {
    "name": "arithmetic",
    "model": "fast",
    "kind": "chat",
    "messages": [{"role": "user", "content": "What is 17 × 23?"}],
    "params": {"max_tokens": 64},
    "expect": {"contains": "391"},
}


class Bench:
    """The service on one host."""

    def __init__(self, lab: Lab, host: str) -> None:
        self.lab, self.host = lab, host

    def sh(self, command: str, *, timeout: float = 60, text: str | None = None) -> str:
        """What a shell command on the host prints."""
        done = self.lab.exec(self.host, command, timeout=timeout, text=text, check=True)
        return done.stdout.strip()

    def ensure(self) -> None:
        """Install, unless the programs are still there: other tests make hosts bare again."""
        if self.lab.exec(self.host, f"test -e {PROGRAMS}/job.py").returncode != 0:
            self.install()

    def clear(self) -> None:
        """Nothing deployed, no agent; the programs stay."""
        self.lab.exec(self.host, CLEAR, timeout=120)

    def remove(self) -> None:
        """Leave nothing but the image."""
        self.clear()
        self.sh(f"rm -rf {ROOT} /opt/benchtest /etc/systemd/system/{AGENT}")

    def install(self) -> None:
        """Programs, image and the agent's unit (not started)."""
        self.clear()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path in [*SOURCE.glob("*.py"), SERVER]:
                archive.add(path, path.name)
        encoded = buffer.getvalue().hex()
        unpack = "import sys, tarfile, io; tarfile.open(fileobj=io.BytesIO(bytes.fromhex("
        unpack += f"sys.stdin.read()))).extractall('{PROGRAMS}', filter='data')"
        self.sh(
            f"mkdir -p {PROGRAMS} && python3 -c {shlex.quote(unpack)}",
            text=encoded,
        )
        self.sh(MAKE_IMAGE, timeout=240)
        text = agent_unit(ROOT).replace("/opt/sparkfleet/node", PROGRAMS)
        self.lab.write(self.host, f"/etc/systemd/system/{AGENT}", text)
        self.sh("systemctl daemon-reload")

    def release(
        self,
        name: str,
        *,
        wedge_seconds: float = 300,
        boot_timeout: float = 60,
        burst: int = 3,
        **behaviour: Any,
    ) -> str:
        """Write a release whose engine behaves so."""
        where = f"{SERVICE}/releases/{name}"
        compose = {
            "services": {
                "engine": {
                    "image": IMAGE,
                    "pull_policy": "never",
                    "container_name": "bench-engine",
                    "network_mode": "bridge",
                    "entrypoint": ["python3", "/srv/standin_server.py"],
                    "environment": {"BEHAVIOUR": json.dumps(behaviour)},
                    "volumes": [f"{PROGRAMS}:/srv:ro"],
                    "ports": [f"127.0.0.1:{PORT}:8000"],
                    "restart": "no",
                    "stop_grace_period": "10s",
                    "labels": {"sparkfleet.service": "bench", "sparkfleet.release": name},
                }
            }
        }
        manifest = {
            "schema": 1,
            "service": "bench",
            "unit": UNIT,
            "project": "sparkfleet-bench",
            "container": "bench-engine",
            "image": IMAGE,
            "bind": "127.0.0.1",
            "port": PORT,
            "drop_page_cache": False,  # it is the whole machine's
            "boot_timeout": boot_timeout,
            "stop_timeout": 10,
            "wedge_seconds": wedge_seconds,
            "markers": MARKERS,
            "logs": {
                "fatal": [
                    {
                        "text": "Free memory",
                        "meaning": "Too little memory is free.",
                        "next": "Stop what else uses it.",
                    }
                ]
            },
        }
        probe = {
            "url": f"http://127.0.0.1:{PORT}",
            "key_file": None,
            "names": ["fast"],
            "version": "1.0",
            "timeout": 10,
            "draft_counters": True,
            "logs": {
                "container": "bench-engine",
                "forbidden": [{"text": "not found in params"}],
                "required": [],
            },
            "proofs": [PROOF],
        }
        where_from = ["--root", ROOT, "--service", "bench"]
        unit = UNIT_TEMPLATES.get_template("unit.service.j2").render(
            description=f"bench {name}",
            mounts=[ROOT],
            burst=burst,
            window=600,
            start=["/usr/bin/python3", "-B", f"{PROGRAMS}/engine.py", "run", *where_from],
            stop=["/usr/bin/python3", "-B", f"{PROGRAMS}/engine.py", "stop", *where_from],
            restart_seconds=2,
            stop_timeout=40,
        )
        files = {
            "compose.yaml": json.dumps(compose),
            "release.json": json.dumps(manifest),
            "proof.json": json.dumps(probe),
            UNIT: unit,
        }
        write = "import sys, json, pathlib; [pathlib.Path(k).write_text(v) for k, v in "
        write += "json.load(sys.stdin).items()]"
        self.sh(
            f"mkdir -p {where} && cd {where} && python3 -c {shlex.quote(write)}",
            text=json.dumps(files),
        )
        return name

    def start_switch(self, release: str, **more: Any) -> None:
        """Start the switch as a job, as the controller does."""
        request = {"root": ROOT, "service": "bench", "release": release, "who": "test", **more}
        job = f"python3 {PROGRAMS}/job.py start --root {ROOT} --name switch-bench"
        self.sh(f"{job} --program switch.py", text=json.dumps(request))

    def events(self) -> list[dict[str, Any]]:
        text = self.sh(f"cat {ROOT}/jobs/switch-bench.jsonl")
        return [json.loads(line) for line in text.splitlines()]

    def done(self, seconds: float = 90) -> dict[str, Any]:
        """The end of the switch that was started; fails when it does not come."""
        eventually(
            lambda: self.events()[-1:][0]["event"] == "done" if self.events() else False,
            seconds,
            "the switch is done",
        )
        return self.events()[-1]

    def switch(self, release: str, **more: Any) -> dict[str, Any]:
        self.start_switch(release, **more)
        return self.done()

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.sh(f"cat {SERVICE}/state.json"))
        return state

    def link(self, name: str) -> str:
        return self.sh(f"readlink {SERVICE}/{name} || true").rpartition("/")[2]

    def unit(self, *names: str) -> list[str]:
        """Values of the unit's properties."""
        shown = self.sh(f"systemctl show {UNIT} " + " ".join(f"-p {name}" for name in names))
        values = dict(line.split("=", 1) for line in shown.splitlines())
        return [values[name] for name in names]

    def served(self) -> str:
        """The release whose container runs."""
        return self.sh(
            "docker ps -f label=sparkfleet.service=bench "
            "--format '{{.Label \"sparkfleet.release\"}}'"
        )

    def serves_alone(self, release: str) -> bool:
        """Whether `release` serves and is proven, with nothing else under way."""
        self.sh(f"systemctl disable --now {AGENT} 2>/dev/null; rm -f {PROGRAMS}/doom")
        if not self.sh(f"cat {SERVICE}/state.json 2>/dev/null || true"):
            return False
        quiet = self.sh(f"ls {SERVICE}/switch.json /run/sparkfleet/bench.trial 2>/dev/null || true")
        return not quiet and self.link("current") == release and self._is_proven(release)

    def proven(self, release: str, seconds: float = 60) -> None:
        """Wait until the node itself says that `release` serves."""
        eventually(lambda: self._is_proven(release), seconds, f"{release} is proven")

    def _is_proven(self, release: str) -> bool:
        state = self.state()
        return (state["phase"], state["release"], self.served()) == ("proven", release, release)
