"""A hub of a few files on loopback, with the faults that a test asks for."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
#: Files from this size on are said to be in LFS.
LFS = 1000


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def entry(path: str, data: bytes) -> dict[str, Any]:
    """The file as a lock names it."""
    if len(data) >= LFS:
        return {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {"path": path, "size": len(data), "git_sha1": git_sha1(data)}


@dataclass
class Repo:
    files: dict[str, bytes]
    date: str = "2026-06-18T09:00:00.000Z"
    private: bool = False
    gated: bool | str = False
    token: str | None = None  # wanted for everything (private) or for the files (gated)
    commits: bool = True  # whether the stand-in knows the history


#: Called with the handler before an answer; True when it has answered itself.
Fault = Callable[["Handler"], bool]


@dataclass
class HubServer:
    repos: dict[str, Repo] = field(default_factory=dict)
    #: For a path's end: faults in order, each used once; the last one stays if it is `forever`.
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    #: path's end -> served content, where it differs from what the metadata say
    served: dict[str, bytes] = field(default_factory=dict)
    ignore_range: bool = False
    chunk: Callable[[], None] = lambda: None  # called after every 64 KiB sent
    stop: threading.Event = field(default_factory=threading.Event)  # ends every hanging answer

    def __post_init__(self) -> None:
        hub = self

        class Bound(Handler):
            server_hub = hub

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.stop.set()
        self.server.shutdown()
        self.server.server_close()

    def gets(self, end: str) -> list[tuple[str, str, str | None, str | None]]:
        """(method, path, Range, Authorization) of the requests for a path that ends so."""
        return [r for r in self.requests if r[1].endswith(end)]


class Handler(BaseHTTPRequestHandler):
    server_hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def json(self, value: Any) -> None:
        self.send(200, json.dumps(value).encode(), Content_Type="application/json")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.server_hub
        url = urlsplit(self.path)
        auth = self.headers.get("Authorization")
        hub.requests.append((self.command, url.path, self.headers.get("Range"), auth))
        for end, faults in hub.faults.items():
            if url.path.endswith(end) and faults:
                fault = faults[0] if getattr(faults[0], "forever", False) else faults.pop(0)
                if fault(self):
                    return
        if url.path == "/api/models":
            text = parse_qs(url.query).get("search", [""])[0].lower()
            self.json([{"id": name} for name in hub.repos if text in name.lower()])
            return
        for name, repo in hub.repos.items():
            for prefix in (f"/api/models/{name}", f"/{name}"):
                rest = url.path.removeprefix(prefix)
                if rest != url.path and (rest == "" or rest[0] == "/"):
                    self.answer(name, repo, rest, prefix.startswith("/api"), auth)
                    return
        self.send(404, X_Error_Code="RepoNotFound")

    def answer(self, name: str, repo: Repo, rest: str, api: bool, auth: str | None) -> None:
        known = repo.token is not None and auth == f"Bearer {repo.token}"
        if auth is not None and not known and auth != f"Bearer {repo.token}":
            self.send(401)  # as the real hub does on a stale token, even for a public repository
        elif repo.private and not known:
            self.send(401)
        elif repo.gated and not known and not (api and "auth-check" not in rest):
            self.send(403, X_Error_Code="GatedRepo")
        elif not api:
            self.file(repo, rest.removeprefix(f"/resolve/{COMMIT}/"), rest)
        elif rest == "/auth-check":
            self.json({})
        elif rest.startswith("/commits/"):
            if repo.commits:
                author = [{"user": "u"}]
                self.json(
                    [
                        {
                            "id": COMMIT,
                            "title": "t",
                            "message": "",
                            "date": repo.date,
                            "authors": author,
                        }
                    ]
                )
            else:
                self.send(404)
        elif rest in ("", "/revision/main", f"/revision/{COMMIT}"):
            self.json(self.info(name, repo))
        else:
            self.send(404, X_Error_Code="RevisionNotFound")

    def info(self, name: str, repo: Repo) -> dict[str, Any]:
        siblings = []
        for path, data in repo.files.items():
            row: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": git_sha1(data)}
            if len(data) >= LFS:
                digest = hashlib.sha256(data).hexdigest()
                row["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 130}
            siblings.append(row)
        return {
            "id": name, "sha": COMMIT, "lastModified": repo.date, "private": repo.private,
            "gated": repo.gated, "tags": [], "siblings": siblings,
        }  # fmt: skip

    def file(self, repo: Repo, path: str, rest: str) -> None:
        if path == rest or path not in repo.files:
            self.send(404, X_Error_Code="EntryNotFound")
            return
        hub = self.server_hub
        data = hub.served.get(path, repo.files[path])
        start = 0
        said = self.headers.get("Range")
        if said and not hub.ignore_range:
            start = int(said.removeprefix("bytes=").split("-")[0])
            if start >= len(data):
                self.send(416, Content_Range=f"bytes */{len(data)}")
                return
        self.send_response(206 if said and not hub.ignore_range else 200)
        if said and not hub.ignore_range:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("ETag", f'"{entry(path, repo.files[path]).popitem()[1]}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        self.body(data[start:])

    def body(self, data: bytes, upto: int | None = None) -> None:
        """Send `data`, or only `upto` bytes of it and then break the connection."""
        sent = data if upto is None else data[:upto]
        try:
            for at in range(0, len(sent), 65536):
                self.wfile.write(sent[at : at + 65536])
                self.server_hub.chunk()
        except OSError:
            self.close_connection = True
        if upto is not None:
            self.close_connection = True


def status(code: int, **headers: str) -> Fault:
    """Answers `code` once."""

    def fault(handler: Handler) -> bool:
        handler.send(code, **headers)
        return True

    return fault


def forever(fault: Fault) -> Fault:
    """The same fault for every request."""

    def again(handler: Handler) -> bool:
        return fault(handler)

    again.forever = True  # type: ignore[attr-defined]
    return again


def cut_after(count: int) -> Fault:
    """Sends `count` bytes of the file (from where it was asked) and breaks the connection."""

    def fault(handler: Handler) -> bool:
        original = handler.body
        handler.body = lambda data, upto=None: original(data, count)  # type: ignore[method-assign]
        return False

    return fault


def hang_after(count: int) -> Fault:
    """Sends `count` bytes and then nothing, the connection open."""

    def fault(handler: Handler) -> bool:
        original = handler.body

        def body(data: bytes, upto: int | None = None) -> None:
            original(data, count)
            handler.wfile.flush()
            handler.server_hub.stop.wait(60)

        handler.body = body  # type: ignore[method-assign]
        return False

    return fault
