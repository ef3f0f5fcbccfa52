"""The lab's network: one bridge without a way out, and the guard around its address range.

Addresses of the lab must never leave the machine. Before the bridge comes up, an unreachable route
for the whole range is set; it is removed last. Without it, a packet to a lab address would follow
the machine's default route whenever the lab is down or half up.
"""

from __future__ import annotations

import json
import shutil
from ipaddress import IPv4Network
from pathlib import Path

from lab.command import attempt, run
from lab.errors import LabError
from lab.settings import Settings

#: Any number above 0, the metric of the bridge's own route, which must win while it is there.
GUARD_METRIC = "65535"
#: Between the local table (0), so that the machine itself answers, and the main table (32766).
RULE = "77"


def guard(settings: Settings) -> None:
    """Make the lab's range unreachable. Raises LabError if the machine already uses the range."""
    for route in json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"])):
        if route.get("dev") == settings.bridge or route.get("type") == "unreachable":
            continue
        if route["dst"] != "default" and IPv4Network(route["dst"]).overlaps(settings.net):
            raise LabError(
                f"The lab's range {settings.net} overlaps {route['dst']} on "
                f"{route.get('dev', 'this machine')}: set SPARKFLEET_LAB_NET to a free /24."
            )
    run(["ip", "route", "replace", "unreachable", str(settings.net), "metric", GUARD_METRIC])


def create(settings: Settings) -> None:
    """Bring up guard and bridge; does nothing twice. Raises LabError."""
    bridge = settings.bridge
    guard(settings)
    if not Path(f"/sys/class/net/{bridge}").exists():
        run(["ip", "link", "add", bridge, "type", "bridge", "stp_state", "0"])
    # IPv4 only: no link-local address of the machine on the bridge, no IPv6 route to clean up.
    Path(f"/proc/sys/net/ipv6/conf/{bridge}/disable_ipv6").write_text("1")
    run(["ip", "address", "replace", f"{settings.gateway}/24", "dev", bridge])
    # Whatever a host's root does to its routes, the machine forwards nothing for it.
    drop_rules(settings)
    run(["ip", "rule", "add", "iif", bridge, "priority", RULE, "unreachable"])
    allow_bridged(settings, "-I")
    run(["ip", "link", "set", bridge, "up"])


def remove(settings: Settings) -> None:
    """Take down bridge, rules and, last, the guard. Does nothing where there is nothing."""
    for port in Path("/sys/class/net").glob("vb-spark-*"):
        attempt(["ip", "link", "delete", port.name])
    if Path(f"/sys/class/net/{settings.bridge}").exists():
        run(["ip", "link", "delete", settings.bridge])
        allow_bridged(settings, "-D")
    drop_rules(settings)
    attempt(["ip", "route", "delete", "unreachable", str(settings.net), "metric", GUARD_METRIC])


def drop_rules(settings: Settings) -> None:
    rule = ["ip", "rule", "delete", "iif", settings.bridge, "priority", RULE]
    while attempt(rule).returncode == 0:
        pass


def allow_bridged(settings: Settings, action: str) -> None:
    """Let hosts talk to each other where the machine's firewall would drop bridged packets.

    That is so where Docker runs on the machine: it sets the FORWARD policy to DROP, and
    br_netfilter then applies it to packets that only cross a bridge.
    """
    switch = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if not shutil.which("iptables") or not switch.exists() or switch.read_text().strip() == "0":
        return
    rule = ["FORWARD", "-i", settings.bridge, "-o", settings.bridge, "-j", "ACCEPT"]
    if action == "-D":
        attempt(["iptables", "-w", "-D", *rule])
        return
    policy = attempt(["iptables", "-w", "-S", "FORWARD"]).stdout
    if "-P FORWARD DROP" in policy and attempt(["iptables", "-w", "-C", *rule]).returncode != 0:
        run(["iptables", "-w", "-I", *rule])


def cut(settings: Settings, name: str) -> None:
    """Cut host `name` off: packets vanish silently, as on a dead wire, and its link stays up."""
    run(["ip", "link", "set", port(name), "nomaster"])


def restore(settings: Settings, name: str) -> None:
    """Undo `cut`."""
    run(["ip", "link", "set", port(name), "master", settings.bridge])


def port(name: str) -> str:
    """The host's end of the cable to the bridge, as systemd-nspawn names it."""
    return f"vb-{name}"
