"""`fleet(...)`: the list of Sparks in an inventory file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyinfra.api.exceptions import InventoryError

HostEntry = str | tuple[str, Mapping[str, Any]]


def fleet(*hosts: HostEntry) -> list[tuple[str, dict[str, Any]]]:
    """The hosts of a fleet as pyinfra wants them, reached through the `@spark` connector.

    Each host is a name or address, or a pair of it and what differs on that box from
    `group_data/`::

        sparks = fleet("spark-9de0.local", ("spark-0a7d.local", {"preset": "shared"}))

    Raises InventoryError for an empty list, a host named twice, or an entry of another shape.
    """
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
