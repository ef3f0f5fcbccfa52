"""HTTP over a unix socket whose every read may take so long: for calls that stream for minutes.

`wire` bounds a whole exchange; a pull has no such bound, only that it must not fall silent.
"""

from __future__ import annotations

import http.client
import socket


class UnixConnection(http.client.HTTPConnection):
    """A connection to the server at the socket `path`; `silence` seconds bound each read."""

    def __init__(self, path: str, silence: float) -> None:
        super().__init__("localhost", timeout=silence)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self.timeout)
        try:
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock
