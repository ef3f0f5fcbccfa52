"""Pulling: the real client of Docker's API, against a daemon of a few routes on a socket."""

from __future__ import annotations

import base64
import json
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from sparkfleet.node.events import Events
from sparkfleet.node.faults import Fault
from sparkfleet.node.layers import Layers
from sparkfleet.node.pull import Engine, Pull, split
from sparkfleet.node.pull_refusals import refusal

DIGEST = "sha256:" + "ab" * 32
REPO = "10.0.0.1:5000/lab/engine"
PINNED = f"{REPO}@{DIGEST}"


def layer(name: str, status: str, current: int = 0, total: int = 0) -> dict[str, Any]:
    detail = {"current": current, "total": total} if total else {}
    return {"status": status, "progressDetail": detail, "id": name}


MESSAGES: list[dict[str, Any]] = [
    {"status": f"Pulling from {REPO}", "id": DIGEST},
    layer("l0", "Already exists"),
    layer("l1", "Pulling fs layer"),
    layer("l2", "Pulling fs layer"),
    layer("l1", "Downloading", 400, 1000),
    layer("l2", "Downloading", 100, 200),
    layer("l2", "Verifying Checksum"),
    layer("l2", "Download complete"),
    layer("l1", "Downloading", 1000, 1000),
    layer("l1", "Download complete"),
    layer("l1", "Extracting", 500, 1000),
    layer("l1", "Pull complete"),
    layer("l2", "Pull complete"),
    {"status": f"Digest: {DIGEST}"},
    {"status": f"Status: Downloaded newer image for {PINNED}"},
]


@dataclass
class Daemon:
    path: str
    messages: list[dict[str, Any]] = field(default_factory=lambda: list(MESSAGES))
    refusal: tuple[int, str] | None = None
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    arrives: bool = True  # whether a pull puts the image there
    silent: threading.Event | None = None  # the pull says nothing until this is set
    calls: list[str] = field(default_factory=list)
    auth: str | None = None


class Handler(BaseHTTPRequestHandler):
    daemon: Daemon

    def log_message(self, *args: Any) -> None:
        pass

    def reply(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        name = unquote(self.path.removeprefix("/images/").removesuffix("/json"))
        image = self.daemon.images.get(name)
        self.reply(200, image) if image else self.reply(404, {"message": "No such image"})

    def do_POST(self) -> None:
        daemon, url = self.daemon, urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path.endswith("/tag"):
            daemon.calls.append(f"tag {query['repo']}:{query['tag']}")
            self.reply(201, {})
            return
        daemon.calls.append(f"pull {query['fromImage']} {query['tag']} {query.get('platform')}")
        daemon.auth = self.headers.get("X-Registry-Auth")
        if daemon.refusal:
            self.reply(daemon.refusal[0], {"message": daemon.refusal[1]})
            return
        self.send_response(200)
        self.end_headers()
        if daemon.silent:
            daemon.silent.wait(30)
        for message in daemon.messages:
            self.wfile.write(json.dumps(message).encode() + b"\r\n")
            self.wfile.flush()
        if daemon.arrives:
            image = {"Id": "sha256:id", "Size": 3, "RepoDigests": [PINNED], "RepoTags": []}
            daemon.images[PINNED] = daemon.images[f"{REPO}:v1"] = image


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    state = Daemon(str(tmp_path / "docker.sock"))
    handler = type("Bound", (Handler,), {"daemon": state, "address_string": lambda self: "unix"})
    server = Server(state.path, handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield state
    if state.silent:
        state.silent.set()
    server.shutdown()
    server.server_close()


class Listener(Events):
    def __init__(self) -> None:
        super().__init__(None)
        self.seen: list[dict[str, Any]] = []

    def write(self, event: str, fields: Any) -> None:
        self.seen.append({"event": event, **fields})


def pull(daemon: Daemon, reference: str = PINNED, **more: Any) -> tuple[dict[str, Any], Listener]:
    events = Listener()
    request = {"reference": reference, "docker_config": ["/nonexistent"], **more}
    ticks = iter(range(10_000))
    job = Pull(request, events, Engine(daemon.path), clock=lambda: float(next(ticks)))
    return job.run(), events


def test_an_image_comes_by_digest_and_is_kept(daemon: Daemon) -> None:
    result, events = pull(daemon, platform="linux/arm64")
    assert result == {"digest": DIGEST, "reference": PINNED, "id": "sha256:id", "bytes": 3}
    assert daemon.calls == [
        f"pull {REPO} {DIGEST} linux/arm64",
        f"tag {REPO}:sparkfleet-{'ab' * 6}",
    ]
    progress = [event for event in events.seen if event["event"] == "progress"]
    done = [(event["done"], event["total"]) for event in progress]
    assert done == sorted(done, key=lambda pair: pair[0]) and done[-1] == (1200, 1200)
    assert progress[-1]["item"] == "3 of 3 layers unpacked" and progress[-1]["phase"] == "unpack"
    assert "pull" in {event["phase"] for event in progress}


def test_what_is_here_is_not_pulled_again(daemon: Daemon) -> None:
    pull(daemon)
    daemon.calls.clear()
    daemon.images[PINNED]["RepoTags"] = [f"{REPO}:sparkfleet-{'ab' * 6}"]
    assert pull(daemon)[0]["digest"] == DIGEST
    assert daemon.calls == []


def test_a_tag_is_resolved_to_the_digest_of_its_repository(daemon: Daemon) -> None:
    result, _ = pull(daemon, f"{REPO}:v1")
    assert result["reference"] == PINNED and daemon.calls[0] == f"pull {REPO} v1 None"
    daemon.images[f"{REPO}:v1"]["RepoDigests"] = ["other/engine@sha256:" + "0" * 64, PINNED]
    assert pull(daemon, f"{REPO}:v1")[0]["digest"] == DIGEST


def test_a_pull_that_left_nothing_is_not_success(daemon: Daemon) -> None:
    daemon.arrives = False
    with pytest.raises(Fault) as caught:
        pull(daemon)
    assert caught.value.code == "digest-absent"


def test_an_error_inside_the_stream_ends_it(daemon: Daemon) -> None:
    words = "write /var/lib/docker/tmp/x: no space left on device"
    daemon.messages[5:] = [{"errorDetail": {"message": words}, "error": words}]
    with pytest.raises(Fault, match="could not be pulled") as caught:
        pull(daemon)
    assert caught.value.code == "disk-full" and words in str(caught.value)


def test_a_refusal_before_the_stream(daemon: Daemon) -> None:
    daemon.refusal = (404, f"manifest for {PINNED} not found: manifest unknown")
    with pytest.raises(Fault) as caught:
        pull(daemon)
    assert caught.value.code == "digest-absent" and caught.value.where == PINNED


def test_silence_is_bounded(daemon: Daemon) -> None:
    daemon.silent = threading.Event()
    with pytest.raises(Fault) as caught:
        pull(daemon, silence=0.2)
    assert caught.value.code == "stalled"


def test_docker_is_down(tmp_path: Path) -> None:
    with pytest.raises(Fault) as caught:
        pull(Daemon(str(tmp_path / "absent.sock")))
    assert caught.value.code == "docker-down"


def test_the_hosts_own_login_is_used_and_not_told(daemon: Daemon, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    auth = base64.b64encode(b"me:s3cret").decode()
    config.write_text(json.dumps({"auths": {"10.0.0.1:5000": {"auth": auth}}}))
    _, events = pull(daemon, docker_config=[str(config)])
    assert daemon.auth and json.loads(base64.urlsafe_b64decode(daemon.auth)) == {
        "username": "me",
        "password": "s3cret",
        "serveraddress": "10.0.0.1:5000",
    }
    assert "s3cret" not in json.dumps(events.seen)
    pull(daemon)
    config.write_text("{}")
    daemon.images.clear()
    pull(daemon, docker_config=[str(config)])
    assert daemon.auth is None


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ('Get "http://10.0.0.1:5000/v2/": dial tcp 10.0.0.1:5000: connect: connection refused',
         "registry-down"),
        ("Get https://ghcr.io/v2/: dial tcp: lookup ghcr.io: no such host", "registry-down"),
        ("received unexpected HTTP status: 503 Service Unavailable", "registry-down"),
        (f"manifest for {PINNED} not found: manifest unknown: manifest unknown", "digest-absent"),
        ("pull access denied for x, repository does not exist or may require 'docker login'",
         "auth"),
        ("unauthorized: authentication required", "auth"),
        ("toomanyrequests: You have reached your pull rate limit", "rate-limited"),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", "platform"),
        ("failed to register layer: write /usr/lib/x: no space left on device", "disk-full"),
        ("something new", "pull"),
    ],
)  # fmt: skip
def test_what_docker_says_has_a_meaning(words: str, code: str) -> None:
    fault = refusal(PINNED, words)
    assert fault.code == code and words in fault.why and fault.next


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("ghcr.io/o/i", ("ghcr.io/o/i", "latest", None)),
        ("ghcr.io/o/i:v1", ("ghcr.io/o/i", "v1", None)),
        (PINNED, (REPO, None, DIGEST)),
        (f"{REPO}:v1@{DIGEST}", (REPO, "v1", DIGEST)),
        ("localhost:5000/i", ("localhost:5000/i", "latest", None)),
    ],
)
def test_references(reference: str, parts: tuple[str, str | None, str | None]) -> None:
    assert split(reference) == parts


def test_the_containerd_store_counts_too() -> None:
    layers = Layers()
    for message in (
        layer("a", "Downloading", 10, 100),
        layer("a", "Download complete"),
        layer("a", "Extracting", 1, 0),
        layer("a", "Pull complete"),
    ):
        assert layers.take(message)
    assert (layers.came, layers.total, layers.ready, layers.downloading) == (100, 100, 1, False)
    assert not layers.take({"status": "Digest: sha256:x"})
