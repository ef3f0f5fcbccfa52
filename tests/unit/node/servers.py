"""Small servers on loopback: an engine and a Docker socket, as far as our programs ask them."""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

Answer = tuple[int, Any]
Route = Callable[["Handler"], Answer | None]
KEY = "sk-a-long-secret-key"


class Handler(BaseHTTPRequestHandler):
    """Answers by the server's routes; a route that gives None has answered by itself."""

    server: Server

    def _do(self) -> None:
        path = self.path.partition("?")[0]
        length = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((self.command, self.path))
        route = self.server.routes.get(path)
        answer = (404, {"error": {"message": "no such path"}}) if route is None else route(self)
        if answer is None:
            return
        status, value = answer
        data = value.encode() if isinstance(value, str) else value
        data = data if isinstance(data, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _do

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def address_string(self) -> str:
        return "loopback"


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A server with routes that a test may change."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: Any, family: socket.AddressFamily = socket.AF_INET) -> None:
        self.address_family = family
        self.routes: dict[str, Route] = {}
        self.asked: list[tuple[str, str]] = []
        self.ended = threading.Event()
        super().__init__(address, Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that gives up is the point of some tests


@contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()


class Engine(Server):
    """A vLLM that drafts and answers right."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0))
        self.names = ["qwen36-35b-heretic", "qwen36-fast"]
        self.version = "0.23.0"
        self.message: dict[str, Any] = {"content": "17 × 23 = 391", "reasoning": None}
        self.finish, self.status = "stop", 200
        self.drafted, self.accepted, self.step = 100.0, 40.0, 11.0
        self.requests: list[Any] = []
        self.routes = {
            "/health": lambda handler: (200, ""),
            "/version": lambda handler: (200, {"version": self.version}),
            "/v1/models": self._guarded(lambda h: (200, {"data": [{"id": n} for n in self.names]})),
            "/metrics": lambda handler: (200, self.metrics()),
            "/v1/chat/completions": self._guarded(self._chat),
            "/v1/completions": self._guarded(self._chat),
        }

    def _guarded(self, route: Route) -> Route:
        def guarded(handler: Handler) -> Answer | None:
            if handler.headers.get("Authorization") != f"Bearer {KEY}":
                return 401, {"error": "Unauthorized"}
            return route(handler)

        return guarded

    def _chat(self, handler: Handler) -> Answer:
        self.requests.append(handler.body)
        self.drafted += self.step
        self.accepted += self.step / 2
        if self.status != 200:
            return self.status, {"error": {"message": "max_tokens is too large"}}
        choice = {"message": self.message, "text": "abc", "finish_reason": self.finish}
        return 200, {"choices": [choice]}

    def metrics(self) -> str:
        prefix = "vllm:spec_decode_num"
        return (
            f"# TYPE {prefix}_drafts counter\n"
            f'{prefix}_draft_tokens_total{{engine="0",model_name="a"}} {self.drafted / 2}\n'
            f'{prefix}_draft_tokens_total{{engine="1",model_name="a"}} {self.drafted / 2}\n'
            f'{prefix}_accepted_tokens_total{{engine="0"}} {self.accepted}\n'
            f'{prefix}_draft_tokens_created{{engine="0"}} 1.7e9\n'
            'vllm:num_requests_running{engine="0"} 0.0\n'
        )


class DockerSocket(Server):
    """Docker's API for one container with a log."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), socket.AF_UNIX)
        self.path = str(path)
        self.started = "2026-11-02T10:00:00.123456789Z"
        self.log: list[tuple[str, bytes]] = [("2026-11-02T10:00:01.000000001Z", b"started")]
        self.tty = False
        api = "/v1.44/containers"
        self.routes = {
            f"{api}/qwen36-35b/json": lambda handler: (200, self.inspected()),
            f"{api}/c0ffee/logs": self._logs,
            f"{api}/json": lambda handler: (200, [self.listed()]),
            f"{api}/c0ffee/stop": lambda handler: (204, b""),
            f"{api}/c0ffee": lambda handler: (409, {"message": "removal is in progress"}),
        }

    def inspected(self) -> dict[str, Any]:
        state = {"Running": True, "Status": "running", "StartedAt": self.started, "ExitCode": 0}
        return {"Id": "c0ffee", "Name": "/qwen36-35b", "State": state, "Config": {"Labels": None}}

    def listed(self) -> dict[str, Any]:
        port = {"IP": "127.0.0.1", "PublicPort": 8000, "PrivatePort": 8000}
        return {"Id": "c0ffee", "Names": ["/qwen36-35b"], "State": "running", "Ports": [port]}

    def _logs(self, handler: Handler) -> None:
        kind = "raw" if self.tty else "multiplexed"
        handler.send_response(200)
        handler.send_header("Content-Type", f"application/vnd.docker.{kind}-stream")
        handler.end_headers()
        for stamp, line in self.log:
            data = stamp.encode() + b" " + line + b"\n"
            handler.wfile.write(data if self.tty else struct.pack(">BxxxI", 1, len(data)) + data)
