"""The gateway's side of a host: HAProxy, our files of it, and the names that it must resolve."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from sparkfleet.node.survey_host import file_sha256, program


def gateway(request: dict[str, Any]) -> dict[str, Any] | None:
    """What is there for a gateway; None where the request asks for none."""
    asked = request.get("gateway")
    if not asked:
        return None
    return {
        "haproxy": program("haproxy"),
        "apt": program("apt-get") is not None,
        "files": {path: file_sha256(path) for path in asked["files"] if Path(path).is_file()},
        "resolved": {name: resolved(name) for name in asked.get("names", [])},
    }


def resolved(name: str) -> str | None:
    """The first address of a name; None where it has none."""
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None
