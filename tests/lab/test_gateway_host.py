"""The gateway's own host: a machine that is no Spark, TLS, other ports, and what is refused."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.api import Lab
from tests.lab.conftest import Fleet, Run
from tests.lab.load import fetch
from tests.lab.observe import key_of
from tests.lab.waiting import eventually

pytestmark = pytest.mark.lab

STANDIN = {"recipe": "lab-standin", "preset": "shared"}


def certificate(path: Path, address: str) -> Path:
    """A self-signed certificate of `address` with its key, as HAProxy wants it; and it alone."""
    key, alone = path.with_suffix(".key"), path.with_suffix(".crt")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", f"/CN={path.stem}",
         "-addext", f"subjectAltName=IP:{address}", "-keyout", str(key), "-out", str(alone)],
        check=True, capture_output=True,
    )  # fmt: skip
    path.touch(mode=0o600)
    path.write_text(alone.read_text() + key.read_text())
    return path


class Door:
    """A gateway on a host of its own, before two Sparks."""

    def __init__(self, fleet: Fleet, door: str, sparks: list[str]) -> None:
        self.fleet, self.lab, self.name, self.sparks = fleet, fleet.lab, door, sparks
        self.address = fleet.lab.hosts[door].address

    def deploy(self, *words: str, sparks: dict[str, Any] | None = None, **keys: Any) -> Run:
        hosts = {name: dict(sparks or {}) for name in self.sparks}
        gateway = {self.name: {"bind": "0.0.0.0", "port": 8443, **keys}}
        return self.fleet.deploy(hosts, *words, gateway=gateway, **STANDIN)

    def sh(self, command: str) -> str:
        return self.lab.exec(self.name, command, check=True).stdout.strip()

    def names(self, cafile: Path | None, port: int = 8443) -> list[str]:
        """The served names, asked for through the gateway; empty where it does not answer yet."""
        if cafile:
            context = ssl.create_default_context(cafile=str(cafile))
            link: http.client.HTTPConnection = http.client.HTTPSConnection(
                self.address, port, timeout=10, context=context
            )
        else:
            link = http.client.HTTPConnection(self.address, port, timeout=10)
        key = key_of(self.fleet.dir)
        link.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
        answer = link.getresponse()
        body = answer.read()
        return [one["id"] for one in json.loads(body)["data"]] if answer.status == 200 else []


@pytest.fixture(scope="module")
def door(lab: Lab, sparks: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    for name in sparks:
        lab.fresh(name)
    # A machine without Docker's toolkit, without a GPU: nothing that a Spark has is asked of it.
    lab.exec(sparks[0], "systemctl stop docker.socket docker", check=True)
    yield Door(Fleet(lab, tmp_path_factory.mktemp("door")), sparks[0], sparks[1:])
    lab.exec(sparks[0], "systemctl start docker", check=True)


def test_a_host_that_is_no_spark_gets_the_gateway_with_tls(door: Door) -> None:
    pem = certificate(door.fleet.dir / "door.pem", door.address)
    first = door.deploy(certificate=str(pem))
    assert first.code == 0, first.said
    assert f"https://{door.name}:8443/v1, 2 nodes" in first.out
    eventually(lambda: "lab-standin" in door.names(pem.with_suffix(".crt")), 15, "TLS")
    mode, owner = door.sh("stat -c '%a %U' /etc/sparkfleet/gateway/tls.pem").split()
    assert (mode, owner) == ("600", "root")
    secret = pem.with_suffix(".key").read_text().splitlines()[1]
    assert secret not in first.said
    assert not door.sh(f"grep -rlF '{secret}' /var/lib /run /tmp /etc/systemd || true")
    assert "inactive" in door.sh("systemctl is-active haproxy || true")
    assert "disabled" in door.sh("systemctl is-enabled haproxy || true")

    began = time.time()
    again = door.deploy(certificate=str(pem))
    assert again.code == 0 and "nothing changed" in again.out, again.said
    assert len(door.lab.ssh_sessions(door.name, since=began)) == 1


def test_a_renewed_certificate_is_taken_up_by_a_reload(door: Door) -> None:
    before = door.sh("systemctl show -p MainPID sparkfleet-gateway")
    pem = certificate(door.fleet.dir / "renewed.pem", door.address)
    run = door.deploy(certificate=str(pem))
    assert run.code == 0 and "reload" in run.out, run.said
    assert "lab-standin" in door.names(pem.with_suffix(".crt"))
    assert door.sh("systemctl show -p MainPID sparkfleet-gateway") == before


def test_other_ports_and_no_tls(door: Door) -> None:
    run = door.deploy(port=8181, stats="127.0.0.1:8404")
    assert run.code == 0, run.said
    assert "lab-standin" in door.names(None, 8181)
    assert door.sh("test -e /etc/sparkfleet/gateway/tls.pem && echo there || echo gone") == "gone"
    listening = door.sh("cat /proc/net/tcp | awk '$4 == \"0A\" {print $2}'")
    assert f"0100007F:{8404:04X}" in listening and f":{8443:04X}" not in listening


def test_a_node_with_another_address_is_taken_over_from_the_old_one(door: Door) -> None:
    """What was saved of the servers must not bring an old address back."""
    run = door.deploy(port=8181, stats="127.0.0.1:8404", sparks={"address": "127.0.0.9"})
    assert run.code == 0, run.said
    assert f"No agent answers the gateway at {', '.join(sorted(door.sparks))}" in run.said
    eventually(lambda: door.names(None, 8181) == [], 30, "an address where nothing listens")
    run = door.deploy(port=8181, stats="127.0.0.1:8404")
    assert run.code == 0, run.said
    eventually(lambda: "lab-standin" in door.names(None, 8181), 15, "the right address again")


@pytest.mark.parametrize(
    ("prepare", "undo", "keys", "words"),
    [
        (
            "systemd-run --quiet --unit=stranger python3 -m http.server 8282",
            "systemctl stop stranger",
            {"port": 8282},
            "Port 8282 on {door} is held by process python3",
        ),
        ("true", "true", {"bind": "10.99.99.99"}, "did not take up its new configuration"),
    ],
    ids=["port taken", "address of another host"],
)
def test_what_cannot_be_leaves_the_old_gateway_at_work(
    door: Door, prepare: str, undo: str, keys: dict[str, Any], words: str
) -> None:
    ours: Callable[[], bool] = lambda: "lab-standin" in door.names(None, 8181)  # noqa: E731
    door.sh(prepare)
    try:
        port = {"port": 8181, **keys}
        run = door.deploy(stats="127.0.0.1:8404", **port)
    finally:
        door.sh(undo)
    said = " ".join(run.said.split())
    assert run.code == 1 and words.format(door=door.name) in said, run.said
    assert "Traceback" not in run.said
    eventually(ours, 15, "the old gateway")
    settled = door.deploy(port=8181, stats="127.0.0.1:8404")
    assert settled.code == 0 and "nothing changed" in settled.out, settled.said


def test_several_services_have_a_port_each(door: Door) -> None:
    for name in door.sparks:
        door.lab.fresh(name)
    both = {"recipe": "lab-standin", "bind": "0.0.0.0", "utilization": 0.3}
    services = {
        "chat": {**both, "port": 8000, "image": "1"},
        "small": {**both, "port": 8001, "image": "2"},
    }
    ports = {"chat": 8181, "small": 8182}
    run = door.fleet.deploy(
        {name: {"services": services} for name in door.sparks},
        gateway={door.name: {"bind": "0.0.0.0", "ports": ports}},
    )
    assert run.code == 0, run.said
    for service, version in {"chat": "1.0.0", "small": "2.0.0"}.items():
        for _ in range(4):
            status, text = fetch(door.address, ports[service], "/version")
            assert (status, json.loads(text)) == (200, {"version": version})
