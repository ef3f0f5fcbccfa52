"""HTTP with one deadline for the whole exchange, over TCP or a unix socket.

A socket timeout bounds one read; a server that drips a byte a second outlives it for ever. Here
every read and write is given only what is left of the total, and the body is bounded too.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

#: No answer that we ask for comes near this; a body without end is cut here.
MAX_BODY = 8 * 1024 * 1024


class WireError(Exception):
    """The exchange failed; the message says how, in words. `kind` is refused, timeout or broken."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class _DeadlineSocket(socket.socket):
    """A socket whose every operation gets what is left until `deadline` (time.monotonic)."""

    deadline: float = 0.0

    def _arm(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time given for the whole answer is used up")
        self.settimeout(left)

    def connect(self, address: Any) -> None:
        self._arm()
        super().connect(address)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self._arm()
        super().sendall(data, flags)

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self._arm()
        return super().recv_into(*args, **kwargs)


@dataclass(frozen=True)
class Target:
    """Where to connect: `host:port`, or a unix socket when `path` is given."""

    host: str = "localhost"
    port: int = 0
    path: str | None = None

    @classmethod
    def of(cls, url: str) -> Target:
        """The target of an http:// URL; ValueError for any other."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url!r} is not an http:// address")
        return cls(parts.hostname, parts.port or 80)

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


class _Connection(http.client.HTTPConnection):
    def __init__(self, target: Target, deadline: float) -> None:
        super().__init__(target.host, target.port or None)
        self._target, self._deadline = target, deadline

    def connect(self) -> None:
        if self._target.path is not None:
            sock = _DeadlineSocket(socket.AF_UNIX, socket.SOCK_STREAM)
            address: Any = self._target.path
        else:
            family, kind, proto, _, address = socket.getaddrinfo(
                self._target.host, self._target.port, type=socket.SOCK_STREAM
            )[0]
            sock = _DeadlineSocket(family, kind, proto)
        sock.deadline = self._deadline
        try:
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON; WireError when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise WireError(f"the answer is not JSON: {self.text()[:200]!r}", "broken") from None

    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 are shown as such."""
        return self.body.decode("utf-8", "backslashreplace")


@contextmanager
def exchange(
    target: Target,
    method: str,
    path: str,
    *,
    seconds: float,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Iterator[http.client.HTTPResponse]:
    """Send one request and hand out the response, still unread. `seconds` bounds all of it.

    Raises WireError, from the reading inside the `with` too.
    """
    connection = _Connection(target, time.monotonic() + seconds)
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        yield connection.getresponse()
    except ConnectionRefusedError:
        raise WireError(f"nothing listens at {target}", "refused") from None
    except FileNotFoundError:
        raise WireError(f"there is no socket {target}", "refused") from None
    except TimeoutError:
        raise WireError(f"{target} gave no whole answer in {seconds:g} s", "timeout") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise WireError(f"the exchange with {target} broke off: {reason}", "broken") from None
    finally:
        connection.close()


def ask(
    target: Target,
    method: str,
    path: str,
    *,
    seconds: float,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    limit: int = MAX_BODY,
) -> Reply:
    """One whole request and answer within `seconds`, at most `limit` bytes. Raises WireError."""
    with exchange(target, method, path, seconds=seconds, headers=headers, body=body) as response:
        data = response.read(limit + 1)
        if len(data) > limit:
            raise WireError(f"{target} answered more than {limit} bytes", "broken")
        return Reply(response.status, data)
