"""What we render, read by the Compose and the systemd that are installed on a host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.api import Lab
from sparkfleet import escape
from sparkfleet.render import AGENT_UNIT, agent_unit, build_release
from sparkfleet.spec.catalog import load_catalog
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.lock import Lock, LockedImage, LockedModel, LockedRecipe
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.release import Release
from sparkfleet.spec.resolve import resolve

pytestmark = pytest.mark.lab

PROJECT = Path(__file__).resolve().parents[2]
RECIPE = "qwen36-35b-heretic"
DIGEST = "sha256:be9e05a11da6e72607ab6f3e960993b253b673af0727005122a3266129a518e3"
TRIAL = "/var/tmp/render trial$1"

NASTY = [
    "$",
    "$$",
    "$HOME",
    "${HOME}",
    "${HOME:-x}",
    "%n",
    "%%",
    '{"method":"dflash","model":"/drafter"}',
    "{{ value }}",
    "'single' \"double\" `back` \\slash\\",
    "- a: [b, {c",
    "#no comment",
    "line\nbreak\r\n\ttab",
    "\x01\x1b\x7f\x85\u2028\ufeff",
    "é 日本 😀",
    " spaces  around ",
    "",
    "~",
    "null",
    "no",
    "0x10",
    "=",
    "--",
    "-x",
    "a" * 3000 + " " + "b" * 3000,
]


def plan(**data: Any) -> ServicePlan:
    """Recipe A on a host, pinned by a lock that is made up."""
    commit = "a" * 40
    models = {
        role: LockedModel(repo=repo, commit=commit, date="2026-11-01T00:00:00+00:00", files=())
        for role, repo in {
            "model": "AEON-7/Qwen3.6-35B-A3B-heretic-NVFP4",
            "drafter": "z-lab/Qwen3.6-35B-A3B-DFlash",
        }.items()
    }
    image = LockedImage(
        repository="ghcr.io/aeon-7/aeon-vllm-ultimate",
        tag="2026-06-18-v0.23.0-dflashfix",
        digest=DIGEST,
        version="0.23.0",
    )
    lock = Lock(recipes={RECIPE: LockedRecipe(image=image, models=models)})
    host = parse_host("spark-a", {"recipe": RECIPE, "root": "/var/tmp/render-trial", **data})
    return resolve(host, load_catalog(PROJECT), lock).services[0]


def put(lab: Lab, host: str, directory: str, release: Release) -> None:
    for name, file in release.files.items():
        lab.write(host, f"{directory}/{name}", file.content)


@pytest.fixture(scope="module", autouse=True)
def bare_host(lab: Lab, host: str) -> None:
    """The recipe's container has one name, and an earlier test may have left one."""
    lab.fresh(host)


@pytest.fixture
def place(lab: Lab, host: str) -> Iterator[str]:
    """A directory on the host whose name needs every escape there is; gone afterwards."""
    lab.exec(host, ["mkdir", "-p", TRIAL], check=True)
    yield TRIAL
    lab.exec(host, ["rm", "-rf", TRIAL, "/var/tmp/render-trial"])


@pytest.fixture
def empty_image(lab: Lab, host: str) -> Iterator[str]:
    """The id of an image with nothing in it: enough to create a container, not to start it."""
    name = "render-trial:empty"
    done = lab.exec(host, f"tar -cT /dev/null | docker import - {name}", check=True)
    yield done.stdout.strip()
    lab.exec(host, ["docker", "image", "rm", "-f", name])


def test_compose_accepts_the_published_recipe(lab: Lab, host: str, place: str) -> None:
    put(lab, host, place, build_release(plan()))
    argv = ["docker", "compose", "-f", f"{place}/compose.yaml", "config", "--format", "json"]
    done = lab.exec(host, argv, check=True)
    assert done.stderr == ""  # no warning of an unset variable, nothing deprecated
    read = json.loads(done.stdout)
    assert read["name"] == "sparkfleet-llm"
    engine = read["services"]["engine"]
    assert engine["deploy"]["resources"]["reservations"]["devices"][0]["count"] == -1  # all
    assert engine["healthcheck"] == {"disable": True}
    assert engine["stop_grace_period"] == "1m0s"


def test_docker_is_given_every_argument_and_variable_unchanged(
    lab: Lab, host: str, place: str, empty_image: str
) -> None:
    env = {f"NASTY_{number}": text for number, text in enumerate(NASTY)}
    service = plan(auth="none")
    flags = {**service.flags, "chat-template": "$X", "served-model-name": NASTY}
    service = replace(service, env=env, flags=flags)
    release = build_release(service)
    put(lab, host, place, release)
    text = release.files["compose.yaml"].content
    lab.write(host, f"{place}/compose.yaml", text.replace(service.image.pinned, empty_image))
    for model in service.models:
        lab.exec(host, ["mkdir", "-p", model.dir], check=True)
    compose = ["docker", "compose", "-p", "render-trial", "-f", f"{place}/compose.yaml"]
    try:
        lab.exec(host, [*compose, "create"], check=True)
        done = lab.exec(host, ["docker", "inspect", service.container], check=True)
    finally:
        lab.exec(host, [*compose, "down"])
    container = json.loads(done.stdout)[0]
    words = container["Config"]["Cmd"]
    first = words.index("--served-model-name") + 1
    assert words[:2] == ["serve", "/model"]
    assert words[first : first + len(NASTY)] == NASTY
    assert words[words.index("--chat-template") + 1] == "$X"
    found = dict(row.partition("=")[::2] for row in container["Config"]["Env"])
    assert {name: found.get(name) for name in env} == env
    assert container["Config"]["Entrypoint"] == ["vllm"]
    settings = container["HostConfig"]
    assert settings["Privileged"] is False
    assert settings["RestartPolicy"]["Name"] in ("no", "")
    assert settings["LogConfig"]["Config"] == {"max-file": "5", "max-size": "20m"}
    assert settings["PortBindings"] == {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8000"}]}
    assert settings["DeviceRequests"][0]["Count"] == -1
    assert container["Config"]["StopTimeout"] == 60
    read_only = {row["Destination"]: not row["RW"] for row in container["Mounts"]}
    assert read_only["/model"] and read_only["/drafter"]
    assert not read_only["/root/.cache/vllm"]


def test_a_missing_model_stops_the_start(lab: Lab, host: str, place: str, empty_image: str) -> None:
    service = plan(auth="none")
    text = build_release(service).files["compose.yaml"].content
    lab.write(host, f"{place}/compose.yaml", text.replace(service.image.pinned, empty_image))
    compose = ["docker", "compose", "-p", "render-trial", "-f", f"{place}/compose.yaml"]
    try:
        done = lab.exec(host, [*compose, "create"])
    finally:
        lab.exec(host, [*compose, "down"])
    assert done.returncode != 0
    assert "bind source path does not exist" in done.stderr


def test_systemd_accepts_both_units_without_a_word(lab: Lab, host: str, place: str) -> None:
    release = build_release(plan())
    put(lab, host, place, release)
    lab.write(host, f"{place}/{AGENT_UNIT}", agent_unit("/var/lib/sparkfleet"))
    for name in (release.unit, AGENT_UNIT):
        done = lab.exec(host, ["systemd-analyze", "verify", f"{place}/{name}"])
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_runs_every_word_unchanged(lab: Lab, host: str, place: str) -> None:
    words = [word for word in NASTY if not escape.holds_control(word)]
    script = f"import json, sys; json.dump(sys.argv[1:], open({place + '/argv'!r}, 'w'))"
    start = escape.unit_command(["/usr/bin/python3", "-c", script, *words])
    unit = "render-trial.service"
    about = escape.unit_text("100 % of %n\nExecStart=/bin/false \\")
    text = f"[Unit]\nDescription={about}\n[Service]\nType=oneshot\nExecStart={start}\n"
    lab.write(host, f"/run/systemd/system/{unit}", text)
    try:
        lab.exec(host, f"systemctl daemon-reload && systemctl start {unit}", check=True)
        shown = lab.exec(host, ["systemctl", "show", unit, "-p", "Description", "--value"])
    finally:
        lab.exec(host, f"rm -f /run/systemd/system/{unit} && systemctl daemon-reload")
    assert json.loads(lab.read(host, f"{place}/argv")) == words
    assert shown.stdout.strip() == "100 % of %n ExecStart=/bin/false"


def test_a_docker_that_fails_first_still_brings_the_service_up(lab: Lab, host: str) -> None:
    """As after a boot: the engine's unit must come with Docker's second start, by itself."""
    unit = build_release(plan()).files["sparkfleet-llm.service"].content
    lines = [line for line in unit.splitlines() if not line.startswith(("ExecStart", "ExecStop"))]
    text = "\n".join(lines).replace("docker.service", "trial-docker.service")
    text = text.replace("[Service]\n", "[Service]\nExecStart=/usr/bin/sleep infinity\n")
    docker = (
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=exec\nRestart=always\nRestartSec=1\n"
        "ExecStartPre=/usr/bin/test -e /run/render-trial-may-start\n"
        "ExecStart=/usr/bin/sleep infinity\n"
    )
    units = "trial-docker.service trial-engine.service"
    lab.write(host, "/run/systemd/system/trial-docker.service", docker)
    lab.write(host, "/run/systemd/system/trial-engine.service", text)
    try:
        lab.exec(
            host, "systemctl daemon-reload; systemctl enable --runtime trial-engine", check=True
        )
        refused = lab.exec(host, ["systemctl", "start", "trial-engine"])
        assert refused.returncode != 0
        spent = lab.exec(host, "systemctl show trial-engine -p NRestarts --value").stdout.strip()
        assert spent == "0"  # waiting for Docker costs none of the bounded starts
        lab.exec(host, ["touch", "/run/render-trial-may-start"], check=True)
        wait = (
            "for i in $(seq 100); do systemctl is-active -q trial-engine && exit 0; sleep 0.1; done"
        )
        assert lab.exec(host, f"{wait}; exit 1").returncode == 0
    finally:
        lab.exec(
            host,
            f"systemctl disable --runtime trial-engine; systemctl stop {units};"
            "rm -f /run/render-trial-may-start /run/systemd/system/trial-*.service;"
            f"systemctl daemon-reload; systemctl reset-failed {units}",
        )


INSIDE_THE_WALLS = """
import http.client, json, pathlib, socket, subprocess
def can(act):
    try:
        act()
        return True
    except Exception:
        return False
def docker():
    link = socket.socket(socket.AF_UNIX)
    link.connect("/run/docker.sock")
    link.sendall(b"GET /version HTTP/1.0\\r\\n\\r\\n")
    assert b"ApiVersion" in link.makefile("rb").read()
def run(*words):
    return lambda: subprocess.run(words, check=True, capture_output=True, timeout=20)
def touch(path):
    return lambda: pathlib.Path(path).write_text("x")
root = "/var/lib/render-trial"
print(json.dumps({
    "its states": can(touch(root + "/services/llm/state.json")),
    "its runtime directory": can(touch("/run/sparkfleet/render-trial.lock")),
    "the key": can(lambda: pathlib.Path(root + "/services/llm/secrets/engine.yaml").read_text()),
    "docker": can(docker),
    "a restart": can(run("systemctl", "restart", "trial-target.service")),
    "a unit of its own for a cut switch": can(run("systemd-run", "--collect", "/usr/bin/true")),
    "the journal": can(run("journalctl", "-n1", "--no-pager")),
    "loopback": can(lambda: socket.create_server(("127.0.0.1", 0)).close()),
    "the models": can(touch(root + "/models/x")),
    "the system": can(touch("/etc/render-trial")),
    "a home": can(touch("/root/render-trial")),
    "a mount": can(run("mount", "-t", "tmpfs", "none", "/mnt")),
}))
"""


def test_the_agents_walls_leave_it_what_it_needs_and_nothing_else(lab: Lab, host: str) -> None:
    root = "/var/lib/render-trial"
    lab.write(host, f"{root}/walls.py", INSIDE_THE_WALLS)
    lab.write(host, f"{root}/services/llm/secrets/engine.yaml", "api-key: x\n", "0600")
    lab.exec(host, ["mkdir", "-p", f"{root}/models"], check=True)
    text = agent_unit(root).replace(
        f"/opt/sparkfleet/node/agent.py --root {root}", f"{root}/walls.py"
    )
    text = text.replace("Type=exec", "Type=oneshot").replace("Restart=always", "Restart=no")
    text = text.replace("[Service]", f"[Service]\nStandardOutput=file:{root}/said")
    target = "[Service]\nExecStart=/usr/bin/sleep infinity\n"
    lab.write(host, "/run/systemd/system/trial-agent.service", text)
    lab.write(host, "/run/systemd/system/trial-target.service", target)
    try:
        lab.exec(host, "systemctl daemon-reload && systemctl start trial-agent", check=True)
        can = json.loads(lab.read(host, f"{root}/said"))
    finally:
        lab.exec(
            host,
            "systemctl stop trial-agent trial-target; rm -f /run/systemd/system/trial-*.service"
            f" /run/sparkfleet/render-trial.lock; systemctl daemon-reload; rm -rf {root}",
        )
    allowed = {
        "its states",
        "its runtime directory",
        "the key",
        "docker",
        "a restart",
        "a unit of its own for a cut switch",
        "the journal",
        "loopback",
    }
    assert {name for name, able in can.items() if able} == allowed
