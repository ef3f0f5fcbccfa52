"""A command on a host that is talked with: one line there, one line back."""

from __future__ import annotations

import gevent
from paramiko import Channel, SSHException


class ConversationLost(Exception):
    """The connection broke, the command ended, or no answer came in time; why."""


class Conversation:
    """The command's standard input and output, as lines."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rest = b""

    def ask(self, line: bytes, seconds: float) -> bytes:
        """Send a line and give the line that answers it. Raises ConversationLost."""
        try:
            with gevent.Timeout(seconds):
                self._channel.sendall(line + b"\n")
                return self._line()
        except gevent.Timeout:
            raise ConversationLost(f"no answer within {seconds:.0f} s") from None
        except (SSHException, OSError, EOFError) as error:
            raise ConversationLost(str(error) or "closed") from None

    def close(self) -> None:
        """End it; the command sees the end of its input."""
        self._channel.close()

    def _line(self) -> bytes:
        while b"\n" not in self._rest:
            chunk = self._channel.recv(65536)
            if not chunk:
                said = self._rest
                while self._channel.recv_stderr_ready():
                    said += self._channel.recv_stderr(65536)
                raise EOFError(said.decode("utf-8", "backslashreplace").strip())
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line
