"""The HTTP side of the hub stand-in: what huggingface_hub 1.x and 2.x ask for.

Large files are answered as the real hub does it: `resolve` redirects to another origin (here the
second port), which takes ranges. Whether a client carried its token there stands in the request
log; huggingface_hub 1.x does, since it compares host names without the port.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

from lab.hub.answers import Refusal, byte_range, commit_entry, model_info, tree_entry
from lab.hub.controls import control
from lab.hub.faults import STATUS_KINDS, Fault, Faults, Throttle, Where
from lab.hub.journal import Journal
from lab.hub.store import Commit, Repo, RepoFile, Store

TOKEN = "lab-token"
"""Opens the gated and the private repositories. A stand-in's password, not a secret."""
OTHER_TOKEN = "lab-other-token"
"""A valid account that was not let into the gated repository."""

STALL_LIMIT = 900.0
_BLOCK = 1 << 16
_ERROR_CODES = {"401": "RepoNotFound", "403": "GatedRepo", "404": "RepoNotFound"}


class Hub:
    """One running stand-in: the hub's port and its content network's, over one store."""

    def __init__(self, data: Path, bind: str, port: int, cdn_port: int | None = None) -> None:
        self.store = Store(data)
        self.faults = Faults()
        self.throttle = Throttle()
        self.journal = Journal(data / "requests.jsonl")
        handler = type("BoundHandler", (Handler,), {"hub": self})
        self._front = ThreadingHTTPServer((bind, port), handler)
        fallback = port + 1 if port else 0
        wanted = fallback if cdn_port is None else cdn_port
        self._cdn = ThreadingHTTPServer((bind, wanted), handler)
        for server in (self._front, self._cdn):
            server.daemon_threads = True
            server.request_queue_size = 128
        self.bind = bind
        self.port: int = self._front.server_address[1]
        self.cdn_port: int = self._cdn.server_address[1]

    @property
    def endpoint(self) -> str:
        """What HF_ENDPOINT is set to."""
        return f"http://{self.bind}:{self.port}"

    def start(self) -> None:
        """Answer in background threads."""
        for server in (self._front, self._cdn):
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop answering and close both ports."""
        self.faults.clear()
        for server in (self._front, self._cdn):
            server.shutdown()
            server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Routes of one request. `hub` is set on the class by the server."""

    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"
    server_version = "lab-hub"
    disable_nagle_algorithm = True

    # -- plumbing --------------------------------------------------------------------------------
    def do_GET(self) -> None:
        """Answer with a body."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer with headers only."""
        self._answer()

    def do_POST(self) -> None:
        """The lab's own controls, and the hub's few POST routes."""
        self._answer()

    def do_DELETE(self) -> None:
        """The lab's own controls."""
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are kept by the journal instead."""

    def _answer(self) -> None:
        url = urlsplit(self.path)
        self.route, self.query = unquote(url.path), parse_qs(url.query)
        self.file_key: str | None = None
        self.status, self.body_sent = 0, 0
        length = int(self.headers.get("Content-Length") or 0)
        self.request_body = self.rfile.read(length) if length else b""
        try:
            if self.route.startswith("/_lab/"):
                self._json(*control(self.hub, self.command, self.route, self.request_body))
                return
            on_cdn = self.connection.getsockname()[1] == self.hub.cdn_port
            self._cdn() if on_cdn else self._hub()
        except Refusal as refusal:
            self._refuse(refusal)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            if not self.route.startswith("/_lab/"):
                entry = {
                    "method": self.command, "path": self.route, "status": self.status,
                    "bytes": self.body_sent, "range": self.headers.get("Range"),
                    "authorized": "Authorization" in self.headers,
                    "client": self.client_address[0], "agent": self.headers.get("User-Agent", ""),
                }  # fmt: skip
                self.hub.journal.request(entry, self.file_key)

    def _headers(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _json(self, value: Any, status: int = 200, **headers: str) -> None:
        body = json.dumps(value).encode()
        self._headers(
            status,
            {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers},
        )
        if self.command != "HEAD":
            self.wfile.write(body)
            self.body_sent += len(body)
            if not self.route.startswith("/_lab/"):
                self.hub.journal.sent(self.route, self.file_key, len(body))

    def _refuse(self, refusal: Refusal) -> None:
        headers = dict(refusal.headers)
        if refusal.code:
            headers["X-Error-Code"] = refusal.code
            headers["X-Error-Message"] = str(refusal)
        self._json({"error": str(refusal)}, refusal.status, **headers)

    def _fail_if_told(self, where: Where, repo: str, file: str = "") -> None:
        fault = self.hub.faults.take(STATUS_KINDS, where, repo, file)
        if fault is None:
            return
        headers = {}
        if fault.retry_after is not None:
            headers["Retry-After"] = str(fault.retry_after)
        code = fault.code or _ERROR_CODES.get(fault.kind)
        raise Refusal(int(fault.kind), f"The lab answers {fault.kind} here.", code, **headers)

    # -- the hub ---------------------------------------------------------------------------------
    def _hub(self) -> None:
        parts = self.route.strip("/").split("/")
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            repo_id = "/".join(parts[2:4])
            self._fail_if_told("api", repo_id)
            self._api(self._readable(repo_id), parts[4:])
        elif len(parts) >= 5 and parts[2] == "resolve":
            repo_id, name = "/".join(parts[:2]), "/".join(parts[4:])
            self.file_key = f"{repo_id}/{name}"
            self._fail_if_told("resolve", repo_id, name)
            self._resolve(self._readable(repo_id), parts[3], name)
        elif parts == ["api", "models"]:
            self._search()
        elif self.route == "/api/whoami-v2":
            self._who()
        else:
            raise Refusal(404, "The hub stand-in has no such route.")

    def _search(self) -> None:
        """The public models whose id holds `search`, in any case, as the hub's search has it."""
        wanted = self.query.get("search", [""])[0].casefold()
        found = [self.hub.store.repo(one) for one in self.hub.store.ids()]
        open_ones = [one for one in found if one and not one.private]
        fitting = [one for one in open_ones if wanted in one.id.casefold()]
        self._json([model_info(one, one.head, blobs=False) for one in fitting])

    def _who(self) -> None:
        if self._token() not in (TOKEN, OTHER_TOKEN):
            raise Refusal(401, "Invalid credentials in Authorization header")
        self._json({"type": "user", "name": "lab", "auth": {"type": "access_token"}})

    def _token(self) -> str | None:
        value = self.headers.get("Authorization", "")
        return value.removeprefix("Bearer ").strip() or None

    def _readable(self, repo_id: str) -> Repo:
        token = self._token()
        if token is not None and token not in (TOKEN, OTHER_TOKEN):
            # As the real hub: a stale token closes even public repositories.
            raise Refusal(401, "Invalid credentials in Authorization header")
        repo = self.hub.store.repo(repo_id)
        if repo is None or (repo.private and token != TOKEN):
            status = 404 if repo is None else 401
            raise Refusal(status, "Repository not found", "RepoNotFound")
        return repo

    def _commit(self, repo: Repo, revision: str) -> Commit:
        commit = repo.commit(revision)
        if commit is None:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    def _api(self, repo: Repo, rest: list[str]) -> None:
        kind, revision = (rest[0] if rest else "revision"), "/".join(rest[1:2]) or "main"
        commit = self._commit(repo, unquote(revision))
        if kind == "revision":
            self._json(model_info(repo, commit, blobs="blobs" in self.query))
        elif kind == "tree":
            prefix = "/".join(rest[2:])
            files = [f for f in commit.files if f.path.startswith(prefix)]
            self._json([tree_entry(f) for f in files])
        elif kind == "paths-info":
            asked = parse_qs(self.request_body.decode()).get("paths", [])
            if not asked and self.request_body.startswith(b"{"):
                asked = json.loads(self.request_body).get("paths", [])
            self._json([tree_entry(f) for f in commit.files if f.path in asked])
        elif kind == "commits":
            at = repo.commits.index(commit)
            self._json([commit_entry(c) for c in repo.commits[at:]])
        elif kind == "refs":
            head = {"name": "main", "ref": "refs/heads/main", "targetCommit": repo.head.id}
            self._json({"branches": [head], "converts": [], "tags": []})
        else:
            raise Refusal(404, "The hub stand-in has no such route.")

    def _resolve(self, repo: Repo, revision: str, name: str) -> None:
        if repo.gated and self._token() != TOKEN:
            status = 401 if self._token() is None else 403
            raise Refusal(status, f"Access to model {repo.id} is restricted.", "GatedRepo")
        commit = self._commit(repo, revision)
        file = commit.file(name)
        if file is None:
            raise Refusal(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": commit.id})
        common = {
            "X-Repo-Commit": commit.id, "ETag": f'"{file.etag}"', "Accept-Ranges": "bytes",
        }  # fmt: skip
        if file.sha256 is None:
            self._body(repo, commit, file, common)
            return
        host = (self.headers.get("Host") or self.hub.bind).rsplit(":", 1)[0]
        location = f"http://{host}:{self.hub.cdn_port}/{quote(repo.id)}/{commit.id}/{file.sha256}"
        linked = {
            "X-Linked-ETag": f'"{file.sha256}"', "X-Linked-Size": str(file.size),
            "Location": location, "Content-Length": "0",
        }  # fmt: skip
        self._headers(302, common | linked)

    # -- the content network ---------------------------------------------------------------------
    def _cdn(self) -> None:
        owner, name, revision, sha256 = (*self.route.strip("/").split("/"), *[""] * 4)[:4]
        repo = self.hub.store.repo(f"{owner}/{name}")
        commit = repo.commit(revision) if repo else None
        file = commit.content(sha256) if commit else None
        if repo is None or commit is None or file is None:
            raise Refusal(404, "No such content.")
        self.file_key = f"{repo.id}/{file.path}"
        self._fail_if_told("cdn", repo.id, file.path)
        common = {
            "ETag": f'"{file.sha256}"', "Accept-Ranges": "bytes", "X-Repo-Commit": commit.id,
        }  # fmt: skip
        self._body(repo, commit, file, common)

    def _body(self, repo: Repo, commit: Commit, file: RepoFile, headers: dict[str, str]) -> None:
        take = self.hub.faults.take
        asked = self.headers.get("Range")
        if asked and take(("no-range",), "body", repo.id, file.path):
            asked = None
        first, last = byte_range(asked, file.size)
        whole = (first, last) == (0, file.size - 1) and not asked
        headers = headers | {
            "Content-Type": "application/octet-stream", "Content-Length": str(last - first + 1),
        }  # fmt: skip
        if not whole:
            headers["Content-Range"] = f"bytes {first}-{last}/{file.size}"
        self._headers(200 if whole else 206, headers)
        if self.command == "HEAD":
            return
        wrong = take(("wrong-bytes",), "body", repo.id, file.path)
        cut = take(("short-file", "stall"), "body", repo.id, file.path)
        self._send(self.hub.store.path(repo, commit, file), first, last, wrong, cut)

    def _send(
        self, path: Path, first: int, last: int, wrong: Fault | None, cut: Fault | None
    ) -> None:
        flip = path.stat().st_size // 2
        at, sent = first, 0
        with path.open("rb") as stream:
            stream.seek(first)
            while at <= last:
                size = min(_BLOCK, last - at + 1)
                if cut is not None:
                    size = min(size, cut.after - sent)
                    if size <= 0:
                        if not self._goes_on(cut):
                            return
                        cut = None
                        continue
                block = bytearray(stream.read(size))
                if wrong is not None and at <= flip < at + len(block):
                    block[flip - at] ^= 0xFF
                rate = self.hub.faults.peek("rate")
                self.hub.throttle.pace(len(block), rate.rate if rate else 0)
                self.wfile.write(block)
                self.body_sent += len(block)
                self.hub.journal.sent(self.route, self.file_key, len(block))
                at, sent = at + len(block), sent + len(block)

    def _goes_on(self, fault: Fault) -> bool:
        """Hold a stalled body until its fault is cleared; end a short one here."""
        if fault.kind == "stall":
            self.hub.faults.wait_cleared(fault, STALL_LIMIT)
            return True
        self.close_connection = True
        return False
