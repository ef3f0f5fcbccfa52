"""The `@spark/NAME` connector: pyinfra's own SSH connector, hardened for boxes that hang.

What it adds, and why:

- A host that cannot be reached is a *finding*, not a prompt: `connect` records the reason and lets
  the run go on, so that the check stage can name every fault of every host in one table.
- TCP_NODELAY (40 ms a command otherwise), keepalive and TCP_USER_TIMEOUT (a Spark that runs out of
  memory answers pings and nothing else: without these the run hangs for ever).
- `run`: one command, its input and its result, under one deadline. The sudo password, when one is
  needed, goes through standard input; pyinfra's askpass puts it on a remote command line.
"""

from __future__ import annotations

import logging
import secrets
import shlex
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.lock import RLock
from paramiko import Channel, SSHException, Transport
from paramiko.ssh_exception import NoValidConnectionsError
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.output import format_text
from pyinfra.connectors.ssh import SSHConnector

from sparkfleet.conversation import Conversation, ConversationLost

logger = logging.getLogger("pyinfra")

CONNECT_TIMEOUT = 10.0
"""Seconds for each of TCP connect, SSH banner and authentication. A wedged Spark accepts the
connection and never sends its banner."""

USER_TIMEOUT_MS = 15_000
"""Milliseconds that sent data may stay unacknowledged before the kernel drops the connection."""

KEEPALIVE_SECONDS = 5


@dataclass(frozen=True)
class Result:
    """What one remote command gave: exit status (None when the connection was lost or the deadline
    passed), its output, and for the None case a sentence on what went wrong."""

    status: int | None
    stdout: bytes
    stderr: bytes
    lost: str = ""

    @property
    def ok(self) -> bool:
        """True when the command ran and exited with 0."""
        return self.status == 0

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are shown as escapes."""
        return self.stdout.decode("utf-8", "backslashreplace")

    @property
    def errors(self) -> str:
        """Standard error as text, or the sentence on how the connection was lost."""
        return self.lost or self.stderr.decode("utf-8", "backslashreplace").strip()


def sudo_command(command: str, *, with_password: bool, sentinel: str) -> str:
    """The shell text that runs `command` as root.

    With a password, sudo reads it from standard input. sudo may not ask (NOPASSWD, or a cached
    login), and the line would then reach the command: so everything up to `sentinel` is skipped
    first. `read` takes one byte at a time from a pipe, so nothing behind the sentinel is lost.
    """
    if not with_password:
        return f"sudo -n -H sh -c {shlex.quote(command)}"
    skip = f'while IFS= read -r line && [ "$line" != {sentinel} ]; do :; done; '
    return f"sudo -S -p '' -H sh -c {shlex.quote(skip + command)}"


def tuned_transport(sock: Any, **options: Any) -> Transport:
    """paramiko's transport over a socket that is tuned before its first byte.

    The exchange of keys and the login are a dozen small messages: with Nagle's algorithm on, they
    take 60 ms more on a local network.
    """
    if isinstance(sock, socket.socket):  # behind a ProxyJump it is an SSH channel
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; macOS has no such option
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
    return Transport(sock, **options)


def reason(error: PyinfraError) -> str:
    """Why there is no connection. paramiko's own words leave out what the system said, and that is
    what tells a refused connection from a host that is off."""
    cause = error.__context__
    said = ""
    if isinstance(cause, NoValidConnectionsError):
        said = "; ".join(dict.fromkeys(str(one) for one in cause.errors.values()))
    return f"{error.args[0]}: {said}" if said else str(error.args[0])


class Greeting(logging.Filter):
    """Puts the truth in the place of the "Connected" that pyinfra says of every connector which did
    not raise."""

    def __init__(self, prefix: str, why: str) -> None:
        """`prefix` is how pyinfra begins the host's lines, `why` the reason it is out of reach."""
        super().__init__()
        self.connected = f"{prefix}{format_text('Connected', 'green')}"
        self.truth = f"{prefix}{format_text(f'Not reached: {why}', 'red')}"

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, that one with other words."""
        if str(record.msg).startswith(self.connected):
            record.msg = self.truth
        return True


class SparkConnector(SSHConnector):
    """pyinfra's SSH connector with deadlines, findings for unreachable hosts, and `run`."""

    __examples_doc__ = """
    .. code:: python

        sparks = [("@spark/spark-9de0.local", {"preset": "shared"})]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connecting = RLock()

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        """One host under its bare name, so that `--limit` and every table show just that."""
        yield name, {}, []

    def make_paramiko_kwargs(self) -> dict[str, Any]:
        """pyinfra's arguments, a bound on the banner and the authentication, a tuned socket."""
        kwargs: dict[str, Any] = super().make_paramiko_kwargs()
        kwargs.setdefault("transport_factory", tuned_transport)
        kwargs.setdefault("banner_timeout", CONNECT_TIMEOUT)
        kwargs.setdefault("auth_timeout", CONNECT_TIMEOUT)
        return kwargs

    def connect(self) -> None:
        """Connect, or record why not: `unreachable` then says it in a sentence."""
        self.host.connector_data.pop("unreachable", None)
        try:
            super().connect()
        except PyinfraError as error:  # a key file that is not there is no ConnectError
            self.host.connector_data["unreachable"] = reason(error)
            logger.addFilter(Greeting(self.host.print_prefix, reason(error)))
            return
        transport = self.client.get_transport() if self.client else None
        if transport is not None:
            transport.set_keepalive(KEEPALIVE_SECONDS)

    @property
    def unreachable(self) -> str:
        """Why the host could not be reached; empty when it was."""
        return str(self.host.connector_data.get("unreachable", ""))

    def run(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        sudo: bool = True,
        timeout: float = 60.0,
        begun: Callable[[], object] = lambda: None,
    ) -> Result:
        """Run one shell command on the host, bounded by `timeout` seconds.

        `begun` is called when the host has taken the command and begins it.
        Never raises for a lost connection, a closed channel or a passed deadline: the result says
        so. Re-opens a session that was dropped.
        """
        if self.unreachable or self.client is None:
            return Result(None, b"", b"", self.unreachable or "not connected")
        if sudo:
            command, before = self._as_root(command)
            stdin = before + stdin
        try:
            with gevent.Timeout(timeout):
                return self._exchange(command, stdin, begun)
        except gevent.Timeout:
            return Result(None, b"", b"", f"no answer within {timeout:.0f} s")
        except (SSHException, OSError, EOFError) as error:
            return Result(None, b"", b"", f"the SSH connection was lost ({error or 'closed'})")

    def converse(self, command: str) -> Conversation:
        """Begin a command that is talked with line by line, as root.

        Raises ConversationLost where it could not be begun.
        """
        command, before = self._as_root(command)
        try:
            if self.client is None:
                raise SSHException(self.unreachable or "not connected")
            channel = self._session()
            channel.exec_command(command)
            channel.sendall(before)
        except (SSHException, OSError, EOFError) as error:
            raise ConversationLost(str(error) or "closed") from None
        return Conversation(channel)

    def _as_root(self, command: str) -> tuple[str, bytes]:
        """The command under sudo, and what goes before its standard input."""
        password = self.state.config.SUDO_PASSWORD
        sentinel = secrets.token_hex(8)
        command = sudo_command(command, with_password=bool(password), sentinel=sentinel)
        return command, f"{password}\n{sentinel}\n".encode() if password else b""

    def _exchange(self, command: str, stdin: bytes, begun: Callable[[], object]) -> Result:
        channel = self._session()
        try:
            channel.exec_command(command)
            begun()
            errors = gevent.spawn(_drain, channel.recv_stderr)
            feeder = gevent.spawn(_feed, channel, stdin)
            output = _drain(channel.recv)
            status = channel.recv_exit_status()
            feeder.kill()
            # A connection that dies ends the streams as well, with the status -1.
            if status == -1:
                return Result(None, output, b"", "the SSH connection was lost")
            return Result(status, output, errors.get())
        finally:
            channel.close()

    def _session(self) -> Channel:
        assert self.client is not None
        with self._connecting:  # a step and the lease may both find that it was dropped
            transport = self.client.get_transport()
            if transport is None or not transport.is_active():
                self.connect()
                if self.unreachable:
                    raise SSHException(self.unreachable)
                transport = self.client.get_transport()
        assert transport is not None
        return transport.open_session(timeout=CONNECT_TIMEOUT)

    def reconnect(self, *, deadline: float) -> bool:
        """Try to reach the host again until `deadline` (time.monotonic); True when it answers."""
        while time.monotonic() < deadline:
            self.connect()
            if not self.unreachable:
                return True
            gevent.sleep(2)
        return False


def _drain(receive: Any) -> bytes:
    chunks = []
    while chunk := receive(65536):
        chunks.append(chunk)
    return b"".join(chunks)


def _feed(channel: Channel, data: bytes) -> None:
    # A command that ends without reading its input closes the channel: that is its business.
    with suppress(OSError):
        channel.sendall(data)
        channel.shutdown_write()
