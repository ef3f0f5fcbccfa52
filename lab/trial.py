"""A line for a person to try once the simulated fleet is deployed: a question to a node."""

from __future__ import annotations

import json
import shlex
import urllib.request
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.reach import Reach

#: Where the deploy of inventory/simulated.py keeps the fleet's API key, from the checkout.
KEY_FILE = Path(".sparkfleet/simulated.key")
PORT = 8000
QUESTION = "What is 17 × 23?"


def line(lab: Reach) -> str:
    """A `curl` command that asks the first host whose engine answers. Raises LabError if none does.

    The key stays off the command line of curl: bash hands it over as a file.
    """
    key = KEY_FILE.read_text().strip() if KEY_FILE.exists() else ""
    for host in lab.hosts.values():
        url = f"http://{host.address}:{PORT}/v1"
        try:
            names = served_names(f"{url}/models", key)
        except (OSError, ValueError):
            continue
        body: dict[str, Any] = {"messages": [{"role": "user", "content": QUESTION}]}
        body |= {"model": names[0], "max_tokens": 40, "temperature": 0}
        header = f"""<(printf 'Authorization: Bearer %s' "$(< {KEY_FILE})")"""
        return (
            f"curl -s {url}/chat/completions -H 'Content-Type: application/json' "
            + (f"-H @{header} " if key else "")
            + f"-d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
        )
    raise LabError(
        f"No engine of the lab answers on port {PORT}: "
        "`pyinfra -y inventory/simulated.py deploy.py` starts them."
    )


def served_names(url: str, key: str) -> list[str]:
    """The names that an engine serves. Raises OSError or ValueError where it gives none."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    # The lab's addresses are on this machine: no proxy of the environment may be asked for them.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=5) as response:
        names = [str(row["id"]) for row in json.load(response)["data"]]
    if not names:
        raise ValueError(f"{url} names no model")
    return names
