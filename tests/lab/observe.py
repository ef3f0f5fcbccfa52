"""What tests look at on a simulated host: everything that a second run must leave as it is."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.api import Lab

# Everything of ours that a run could touch: files with content and time, links, units, containers;
# but for the lease, by which a run that changes one host holds all of its hosts.
SNAPSHOT = r"""
set -eu
cd /
find opt/sparkfleet var/lib/sparkfleet etc/systemd/system etc/docker \
  -not -path '*/jobs/*' -not -path '*/cache/*' -not -name 'lease.json' \( -type f -o -type l \) \
  -printf '%p %y %m %u %s %T@ %l\n' | sort
docker ps -a --no-trunc --format '{{.ID}} {{.Names}} {{.Status}}' | sed 's/ Up .*/ Up/'
for unit in $(systemctl list-units --plain --no-legend 'sparkfleet-*' | cut -d' ' -f1); do
  systemctl show -p Id -p InvocationID -p NRestarts -p ActiveState "$unit"
done
"""


def snapshot(lab: Lab, host: str) -> str:
    """Files, links, units and containers of ours on a host, as text to compare."""
    return lab.exec(host, SNAPSHOT, check=True).stdout


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: Any


def ask(
    lab: Lab, host: str, path: str, body: Any = None, key: str | None = None, *, port: int = 8000
) -> Answer:
    """Ask a node's engine from outside it, as a client on the owner's network would."""
    address = lab.hosts[host].address
    request = urllib.request.Request(f"http://{address}:{port}{path}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read().decode()
            return Answer(answer.status, json.loads(text) if text.startswith(("{", "[")) else text)
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read().decode())


def complete(lab: Lab, host: str, model: str, key: str | None) -> str:
    """A real completion of a node: its text."""
    body = {"model": model, "prompt": "One, two,", "max_tokens": 8, "temperature": 0}
    answer = ask(lab, host, "/v1/completions", body, key)
    assert answer.status == 200, answer.body
    return str(answer.body["choices"][0]["text"])


def state(lab: Lab, host: str, service: str = "llm") -> dict[str, Any]:
    """state.json of a service; empty where there is none."""
    path = f"/var/lib/sparkfleet/services/{service}/state.json"
    done = lab.exec(host, ["cat", path])
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def key_of(directory: Path) -> str:
    """The API key that a test's fleet made."""
    return (directory / "state" / "fleet.key").read_text().strip()
