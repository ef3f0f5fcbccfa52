"""Docker's own API answers, served over a unix socket as the daemon does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

import pytest

from sparkfleet.node import survey_docker

CASES = Path(__file__).parents[2] / "cases" / "docker-api"
ENGINE = "4f1c" * 16
GONE = "77aa" * 16

Serve = Callable[[dict[str, tuple[int, bytes]]], None]


class Daemon(ThreadingMixIn, UnixStreamServer):
    """Answers from a table of paths."""

    daemon_threads = True
    answers: dict[str, tuple[int, bytes]]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Daemon)
        status, body = self.server.answers.get(self.path, (404, b'{"message":"no such thing"}'))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "docker"

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    path = tmp_path / "docker.sock"
    monkeypatch.setattr(survey_docker, "SOCKET", str(path))
    servers = []

    def start(answers: dict[str, tuple[int, bytes]]) -> None:
        server = Daemon(str(path), Handler)
        server.answers = answers
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def captured(name: str) -> tuple[int, bytes]:
    return 200, (CASES / f"{name}.json").read_bytes()


def healthy(info: str = "info-overlay2") -> dict[str, tuple[int, bytes]]:
    return {
        "/info": captured(info),
        "/images/json": captured("images"),
        "/containers/json?all=1": captured("containers"),
        f"/containers/{ENGINE}/json": captured("inspect"),
    }


def test_daemon(serve: Serve) -> None:
    serve(healthy())
    found = survey_docker.docker({"ports": [8000]})
    assert found["version"] == "29.2.1" and found["driver"] == "overlay2"
    assert found["runtimes"] == ["io.containerd.runc.v2", "nvidia", "runc"]
    assert found["cdi"] == ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]
    assert list(found["filesystems"]) == ["/"] and found["filesystems"]["/"]["mount"] == "/"
    assert sorted(found["images"].values()) == ["sha256:" + "0a" * 32] * 2


def test_containerd_store_is_measured_too(serve: Serve) -> None:
    serve(healthy("info-containerd"))
    found = survey_docker.docker({})
    assert list(found["filesystems"]) == ["/", "/var/lib/containerd"] and found["cdi"] == []


def test_containers_that_concern_us_are_read_whole_and_without_secrets(serve: Serve) -> None:
    serve(healthy())
    engine, web, gone = survey_docker.docker({"ports": [8000]})["containers"]
    assert engine["ports"] == [(8000, 8000)] and engine["pid"] == 4711
    assert engine["digests"][0].startswith("ghcr.io/aeon-7/aeon-vllm-ultimate@sha256:be9e05")
    assert engine["mounts"][0] == ["/home/anna/aeon-model", "/model", False]
    assert engine["cmd"][:4] == ["vllm", "serve", "/model", "--api-key"]
    assert engine["restart"] == "unless-stopped" and engine["started"].startswith("2026-11-30")
    assert "cmd" not in web and web["labels"] == {"com.docker.compose.project": "web"}
    # It was listed and has gone before it could be inspected.
    assert gone["id"] == GONE and "cmd" not in gone
    assert "geheim" not in json.dumps([engine, web, gone])


def test_names_are_enough(serve: Serve) -> None:
    serve(healthy())
    engine = survey_docker.docker({"containers": ["qwen36-35b"]})["containers"][0]
    assert engine["exit_code"] == 0 and engine["network"] == "bridge"


def test_daemon_that_fails(serve: Serve) -> None:
    serve({"/info": (500, b'{"message":"disk on fire \xff"}')})
    found = survey_docker.docker({})
    assert "disk on fire" in found["error"] and "\\xff" in found["error"]
    assert survey_docker.why_not(found) == found["error"]


def test_absent_and_stopped_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_docker, "SOCKET", str(tmp_path / "none.sock"))
    monkeypatch.setattr(survey_docker, "program", lambda name: None)
    assert survey_docker.docker({}) == {"absent": True}
    assert survey_docker.why_not({"absent": True}) == "Docker is not installed"
    monkeypatch.setattr(survey_docker, "program", lambda name: f"/usr/bin/{name}")
    assert "not running" in survey_docker.docker({})["error"]
    (tmp_path / "none.sock").touch()  # left behind by a daemon that died
    assert "refuses connections" in survey_docker.docker({})["error"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('echo "{\\"SchemaVersion\\":\\"0.1.0\\",\\"Version\\":\\"v5.0.2\\"}"', "v5.0.2"),
        ("echo broken >&2; exit 3", "broken"),
        (None, True),
    ],
)
def test_compose(
    script: str | None, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey_docker, "PLUGIN_DIRECTORIES", (str(tmp_path),))
    if script:
        plugin = tmp_path / "docker-compose"
        plugin.write_text(f"#!/bin/sh\n{script}\n")
        plugin.chmod(0o755)
    assert expected in survey_docker.compose({}).values()


def test_a_packaged_plugin_is_not_started(tmp_path: Path) -> None:
    plugin = "/usr/libexec/docker/cli-plugins/docker-compose"
    (tmp_path / "info").mkdir()
    (tmp_path / "info" / "docker-compose-plugin.list").write_text(f"/.\n{plugin}\n")
    (tmp_path / "status").write_text(
        "Package: docker-compose-plugin\nStatus: install ok installed\n"
        "Version: 5.0.2-1~ubuntu.24.04~noble\n"
    )
    found = survey_docker.packaged_version(plugin, str(tmp_path))
    assert found == "5.0.2-1~ubuntu.24.04~noble"
    assert survey_docker.packaged_version("/usr/local/x", str(tmp_path)) is None
