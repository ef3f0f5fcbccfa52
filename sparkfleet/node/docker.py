"""The few questions that we ask Docker, over its socket: no program is spawned for them.

API v1.44 is spoken by every Engine from 25, the oldest that is supported, to today's.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPResponse
from pathlib import PurePosixPath
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from sparkfleet.node import wire

SOCKET = "/var/run/docker.sock"
_API = "/v1.44"
_RELEASE, _CONFIG_FILES = "sparkfleet.release", "com.docker.compose.project.config_files"
#: How the tag of an image that we pulled begins, and that of one that was here already; the digest
#: follows, shortened.
PULLED, FOUND = "sparkfleet-", "sparkfleet-found-"
#: A log line longer than this is cut; the engine prints its arguments in one long line.
_MAX_LINE = 64 * 1024


class DockerError(Exception):
    """Docker did not do or tell what was asked; the message is its own words."""


@dataclass(frozen=True)
class Container:
    """One container, as inspected."""

    id: str
    name: str
    running: bool
    status: str
    started: str
    """When it was last started, as Docker prints it (RFC 3339, nanoseconds)."""
    exit_code: int = 0
    oom_killed: bool = False
    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def run(self) -> str:
        """Identity of this run: the same container started again is another run."""
        return f"{self.id[:12]}@{self.started}"

    @property
    def started_at(self) -> float:
        """`started` in seconds since 1970; 0 where it never ran."""
        return epoch(self.started)

    @property
    def release(self) -> str:
        """The release that it was started from: by its label, else by its compose file."""
        file = PurePosixPath(self.labels.get(_CONFIG_FILES, ""))
        return self.labels.get(_RELEASE) or file.parent.name

    def ending(self) -> str:
        """How it ended, in words."""
        killed = ", killed for want of memory" if self.oom_killed else ""
        return f"exit status {self.exit_code}{killed}"


@dataclass(frozen=True)
class Listed:
    """One row of the container list."""

    id: str
    name: str
    state: str
    labels: dict[str, str]
    ports: tuple[tuple[str, int], ...]
    """Published (address, port) pairs."""
    image_id: str = ""


@dataclass(frozen=True)
class Image:
    """One row of the image list."""

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    """repository@sha256:…"""
    size: int

    def names(self) -> set[str]:
        """Its digests without their repositories."""
        return {digest.rpartition("@")[2] for digest in self.digests}


class DockerApi(Protocol):
    """What the programs of this folder need of Docker; raises DockerError."""

    def container(self, name: str) -> Container | None:
        """The container of that name or id, or None."""

    def containers(self, labels: dict[str, str] | None = None) -> list[Listed]:
        """All containers, running or not, that carry `labels`."""

    def logs(
        self, container: str, *, since: str = "", seconds: float = 20.0
    ) -> Iterator[tuple[str, str]]:
        """(time, line) of its log from `since` (RFC 3339, included) to now."""

    def stop(self, container: str, seconds: float) -> None:
        """Stop it by its own signal and grace, and wait for that, `seconds` at most."""

    def remove(self, container: str) -> None:
        """Remove it, running or not; its absence is as good."""

    def images(self) -> list[Image]:
        """All images that carry a tag or a digest."""

    def remove_image(self, name: str) -> None:
        """Remove this name of an image, and the image with its last one; refused while a container
        was made of it. Its absence is as good."""


def short(digest: str) -> str:
    """The first hex digits of a digest, which stand for it in a tag or the name of a directory."""
    return digest.rpartition(":")[2][:12]


def epoch(stamp: str) -> float:
    """Seconds since 1970 of Docker's time stamp; 0 for its year 1, which means never."""
    if not stamp or stamp.startswith("0001-"):
        return 0.0
    whole, _, rest = stamp.rstrip("Z").partition(".")
    try:
        moment = datetime.fromisoformat(whole).replace(tzinfo=UTC)
        return moment.timestamp() + (float(f"0.{rest}") if rest.isdigit() else 0.0)
    except ValueError:
        return 0.0


def _since(stamp: str) -> str:
    """Docker's `since`: seconds.nanoseconds, exact, which a float would not be."""
    whole, _, rest = stamp.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return f"{seconds}.{rest.ljust(9, '0')[:9]}"


def demultiplex(response: HTTPResponse) -> Iterator[bytes]:
    """The payloads of Docker's framed log stream: 8 bytes of header, then as many as it says."""
    while True:
        header = response.read(8)
        if len(header) < 8:
            return
        (size,) = struct.unpack(">xxxxI", header)
        yield response.read(size)


def whole_lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Chunks as lines of text; a last line without an end counts."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line[:_MAX_LINE].decode("utf-8", "backslashreplace").rstrip("\r")
        rest = rest[:_MAX_LINE]
    if rest:
        yield rest.decode("utf-8", "backslashreplace")


class Docker:
    """DockerApi over the engine's socket."""

    def __init__(self, path: str = SOCKET, seconds: float = 10.0) -> None:
        self._target = wire.Target(host="docker", path=path)
        self._seconds = seconds

    def container(self, name: str) -> Container | None:
        reply = self._ask("GET", f"/containers/{quote(name, safe='')}/json", missing=True)
        return None if reply is None else _container(reply)

    def containers(self, labels: dict[str, str] | None = None) -> list[Listed]:
        wanted = [f"{key}={value}" for key, value in (labels or {}).items()]
        query = {"all": "1", "filters": json.dumps({"label": wanted})}
        reply = self._ask("GET", f"/containers/json?{urlencode(query)}")
        return [_listed(row) for row in reply or []]

    def logs(
        self, container: str, *, since: str = "", seconds: float = 20.0
    ) -> Iterator[tuple[str, str]]:
        query = {"stdout": "1", "stderr": "1", "timestamps": "1"}
        if since:
            query["since"] = _since(since)
        path = f"/containers/{quote(container, safe='')}/logs?{urlencode(query)}"
        with self._exchange("GET", path, seconds) as response:
            _refuse(response, f"the log of {container}")
            framed = "raw-stream" not in (response.getheader("Content-Type") or "")
            chunks = demultiplex(response) if framed else iter(lambda: response.read(65536), b"")
            for line in whole_lines(chunks):
                stamp, _, text = line.partition(" ")
                yield stamp, text

    def stop(self, container: str, seconds: float) -> None:
        path = f"/containers/{quote(container, safe='')}/stop"
        self._ask("POST", path, seconds=seconds, missing=True)

    def remove(self, container: str) -> None:
        path = f"/containers/{quote(container, safe='')}?force=1"
        self._ask("DELETE", path, seconds=60, missing=True)

    def images(self) -> list[Image]:
        return [
            Image(
                id=str(row.get("Id", "")),
                tags=_without_none(row.get("RepoTags")),
                digests=_without_none(row.get("RepoDigests")),
                size=int(row.get("Size") or 0),
            )
            for row in self._ask("GET", "/images/json") or []
        ]

    def remove_image(self, name: str) -> None:
        self._ask("DELETE", f"/images/{quote(name, safe='/:@')}", seconds=120, missing=True)

    @contextmanager
    def _exchange(self, method: str, path: str, seconds: float) -> Iterator[HTTPResponse]:
        try:
            with wire.exchange(self._target, method, _API + path, seconds=seconds) as response:
                yield response
        except wire.WireError as error:
            raise DockerError(f"Docker does not answer: {error}") from None

    def _ask(self, method: str, path: str, *, seconds: float = 0, missing: bool = False) -> Any:
        with self._exchange(method, path, seconds or self._seconds) as response:
            if missing and response.status == 404:
                return None
            _refuse(response, path.partition("?")[0])
            data = response.read(wire.MAX_BODY)
        return json.loads(data) if data.strip() else None


def _refuse(response: HTTPResponse, what: str) -> None:
    if response.status >= 400:
        words = response.read(2000).decode("utf-8", "backslashreplace").strip()
        raise DockerError(f"Docker refused {what} with {response.status}: {words}")


def _container(raw: dict[str, Any]) -> Container:
    state, config = raw.get("State") or {}, raw.get("Config") or {}
    return Container(
        id=str(raw.get("Id", "")),
        name=str(raw.get("Name", "")).lstrip("/"),
        running=bool(state.get("Running")),
        status=str(state.get("Status", "")),
        started=str(state.get("StartedAt", "")),
        exit_code=int(state.get("ExitCode") or 0),
        oom_killed=bool(state.get("OOMKilled")),
        image=str(config.get("Image", "")),
        labels=dict(config.get("Labels") or {}),
    )


def _listed(row: dict[str, Any]) -> Listed:
    return Listed(
        id=str(row.get("Id", "")),
        name=str((row.get("Names") or [""])[0]).lstrip("/"),
        state=str(row.get("State", "")),
        labels=dict(row.get("Labels") or {}),
        ports=tuple(
            (str(port.get("IP", "")), int(port["PublicPort"]))
            for port in row.get("Ports") or []
            if port.get("PublicPort")
        ),
        image_id=str(row.get("ImageID", "")),
    )


def _without_none(names: list[str] | None) -> tuple[str, ...]:
    """What Docker lists; older ones write `<none>` for what an image has not."""
    return tuple(name for name in names or () if "<none>" not in name)
