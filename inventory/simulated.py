"""The simulated Sparks of the lab on this machine (`make demo` starts it).

The lab says in its state file which hosts it runs and how they are reached.
"""

import json
import os
from pathlib import Path

from pyinfra.api.exceptions import InventoryError

from sparkfleet.inventory import fleet

_state = Path(os.environ.get("SPARKFLEET_LAB_RUN", "/run/sparkfleet-lab")) / "lab.json"
if not _state.is_file():
    raise InventoryError("The simulated lab is not running; start it with: make lab-up")
_lab = json.loads(_state.read_text(encoding="utf-8"))

sparks = fleet(
    *(
        (
            host["name"],
            {
                "ssh_hostname": host["address"],
                "ssh_port": host["port"],
                "ssh_user": host["user"],
                "ssh_key": host["key"],
                "ssh_known_hosts_file": host["known_hosts"],
                "ssh_strict_host_key_checking": "yes",
                "hub_endpoint": _lab["hub"],
                "catalog": _lab["catalog"],
                # Pins of the lab's own images and models, which are made anew with its cache.
                "lock": f"{_lab['cache']}/simulated.lock",
            },
        )
        for host in _lab["hosts"]
    )
)
