"""Ask the host's own Docker which digest a tag means now: nothing is pulled, nothing is changed.

    python3 - REPOSITORY:TAG < registry.py

One self-contained file, so that it can be sent to a host on which nothing of ours stands yet. It
prints one line of JSON: `{"digest": "sha256:…"}` or `{"status": 404, "error": "…"}`. Going through
Docker means the host's own mirrors, proxies, certificates and `insecure-registries` hold.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
from urllib.parse import quote

SOCKET = "/var/run/docker.sock"

#: Seconds for the registry's answer.
TIMEOUT = 30.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over Docker's socket."""

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


def resolve(reference: str) -> dict[str, object]:
    """The digest that the registry gives for `reference`, or its refusal in its own words."""
    connection = UnixConnection("localhost", timeout=TIMEOUT)
    try:
        connection.request("GET", f"/distribution/{quote(reference, safe='/:@')}/json")
        answer = connection.getresponse()
        body = json.loads(answer.read())
    except (OSError, ValueError) as error:
        return {"status": 0, "error": str(error) or type(error).__name__}
    finally:
        connection.close()
    if answer.status != 200:
        return {"status": answer.status, "error": str(body.get("message", body))}
    return {"digest": body["Descriptor"]["digest"]}


if __name__ == "__main__":
    print(json.dumps(resolve(sys.argv[1])))
