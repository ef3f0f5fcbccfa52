"""Save what HAProxy knows of its servers, for its next process: who drains, who is down.

    python3 servers.py SOCKET FILE

Before every reload and stop of the gateway. Where HAProxy does not answer there is nothing newer to
save, and the file stays as it is.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node.disk import write_whole

#: Seconds for the whole answer.
PATIENCE = 5.0
MAX_BYTES = 4 * 1024 * 1024
#: Column of a state → what HAProxy writes there for a server that has none of its own.
FORGOTTEN = {
    "srv_check_port": "0",
    "srv_check_addr": "-",
    "srv_agent_addr": "-",
    "srv_agent_port": "0",
}


def ask(path: Path, command: str) -> str:
    """HAProxy's answer on its runtime socket. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(PATIENCE)
        asked.connect(str(path))
        asked.sendall(f"{command}\n".encode("ascii"))
        parts, size = [], 0
        while (part := asked.recv(65536)) and size < MAX_BYTES:
            parts.append(part)
            size += len(part)
    return b"".join(parts).decode("utf-8", "backslashreplace")


def save(path: Path, file: Path) -> str:
    """Write the state of the servers; a sentence where that was not possible."""
    try:
        text = ask(path, "show servers state")
    except OSError as error:
        return f"HAProxy did not tell the state of its servers ({error}); {file} stays as it was."
    if not text.startswith("1\n"):
        return f"HAProxy tells the state of its servers in a form unknown here: {text[:80]!r}."
    write_whole(file, without_addresses(text))
    return ""


def without_addresses(text: str) -> str:
    """The state without where checks and agents are asked: HAProxy would go on asking there after
    the configuration says another place. Pure."""
    lines = text.splitlines()
    names = next((line.split()[1:] for line in lines if line.startswith("# ")), [])
    places = {at: FORGOTTEN[name] for at, name in enumerate(names) if name in FORGOTTEN}
    rows = []
    for line in lines:
        words = line.split(" ")
        if len(words) == len(names) and not line.startswith("#"):
            line = " ".join(places.get(at, word) for at, word in enumerate(words))
        rows.append(line)
    return "".join(f"{row}\n" for row in rows)


def main(argv: list[str]) -> int:
    """The program. Always 0: a reload is not to fail for it."""
    try:
        said = save(Path(argv[0]), Path(argv[1]))
    except OSError as error:
        said = f"{argv[1]} could not be written: {error}."
    if said:
        print(said, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
