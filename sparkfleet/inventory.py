"""`fleet(...)`: the list of Sparks in an inventory file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from pyinfra.api.exceptions import InventoryError

from sparkfleet.spec.inventory import GATEWAY, PASSED_THROUGH

HostEntry = str | tuple[str, Mapping[str, Any]]


def fleet(*hosts: HostEntry) -> list[tuple[str, dict[str, Any]]]:
    """The hosts of a fleet as pyinfra wants them, reached through the `@spark` connector.

    Each host is a name or address, or a pair of it and what differs on that box from
    `group_data/`::

        sparks = fleet("spark-9de0.local", ("spark-0a7d.local", {"preset": "shared"}))

    Raises InventoryError for an empty list, a host named twice, or an entry of another shape.
    """
    _refuse_elsewhere()
    if not hosts:
        raise InventoryError("fleet() has no hosts: name at least one Spark.")
    entries: list[tuple[str, dict[str, Any]]] = []
    seen: set[str] = set()
    for entry in hosts:
        name, data = _split(entry)
        if name in seen:
            raise InventoryError(
                f"The host {name} stands twice in the inventory; pyinfra would silently merge the "
                "two. Remove one of them."
            )
        seen.add(name)
        entries.append((f"@spark/{name}", data))
    return entries


def gateways(*hosts: HostEntry) -> list[tuple[str, dict[str, Any]]]:
    """The hosts that run the gateway, to be called `gateway` in the inventory file.

    Each is written as for `fleet`, with what it does beside its name; a Spark may be one of them::

        gateway = gateways(("door.local", {"bind": "0.0.0.0", "port": 8080}))

    Raises InventoryError as `fleet` does.
    """
    entries = []
    for name, data in fleet(*hosts):
        connection = {key: value for key, value in data.items() if PASSED_THROUGH.match(key)}
        own = {key: value for key, value in data.items() if key not in connection}
        entries.append((name, {**connection, **({GATEWAY: own} if own else {})}))
    return entries


def _refuse_elsewhere() -> None:
    """End a pyinfra command that was not started in our directory.

    It reads config.py, and with it everything that judges a run before the first connection, from
    where it is started; from elsewhere a `--limit` that matches nothing would exit with 0.
    """
    context = click.get_current_context(silent=True)
    if context is not None and "sparkfleet.guard" not in sys.modules:
        click.echo(
            click.style("Refused: ", fg="red", bold=True)
            + f"pyinfra was started in {Path.cwd()}, where it finds no config.py of sparkfleet's, "
            "so nothing was checked. Go to sparkfleet's own directory first: cd "
            f"{Path(__file__).resolve().parents[1]}",
            err=True,
        )
        sys.exit(1)


def _split(entry: HostEntry) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        name, data = entry, {}
    elif isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], Mapping):
        name, data = str(entry[0]), dict(entry[1])
    else:
        raise InventoryError(
            f"{entry!r} is no host: write a name, or a pair of a name and a dictionary such as "
            '("spark-9de0.local", {"preset": "shared"}).'
        )
    if not name or any(character.isspace() or character in "@,/" for character in name):
        raise InventoryError(f"{name!r} is no host name: give a name or an address.")
    return name, data
