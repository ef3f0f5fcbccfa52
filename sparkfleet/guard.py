"""What is checked before the first connection: the command line and the whole inventory.

pyinfra exits with 0 when an inventory file is missing or `--limit` matches nothing, and never
reaches the deploy file then. Its `config.py` runs first, so the command line is judged from there.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import stat
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from pyinfra.api import connectors
from pyinfra.api.exceptions import InventoryError, PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.context import ctx_state
from pyinfra_cli.inventory import make_inventory
from pyinfra_cli.util import parse_cli_arg

from sparkfleet.connection_data import check_connection
from sparkfleet.connector import SparkConnector
from sparkfleet.fleet import GATEWAYS, GROUP, begin
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.gateway import GatewaySpec, parse_gateway
from sparkfleet.spec.inventory import GATEWAY, overlay
from sparkfleet.spec.options import split_options
from sparkfleet.spec.wording import near

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells count it; pyinfra's own handler says 0."""


FOR_ONE_HOST = ("drain.py", "readmit.py")
"""Plays that take one host, named by --limit."""


class Refusal(SpecError):
    """A command line that can't do what it asks for; a sentence."""


def guard() -> None:
    """Judge the running `pyinfra` command; ends it with a sentence where something is wrong."""
    context = click.get_current_context(silent=True)
    if context is None:  # imported by something that is not the pyinfra command
        return
    signal.signal(signal.SIGINT, _interrupted)
    _look_for_connectors_once()
    # The interpreter ends with collections that walk everything once more, 0.3 s, to free what the
    # end of the process frees anyway; what is frozen they leave alone.
    atexit.register(gc.freeze)
    options = context.params
    try:
        _guard(options)
    except InventoryError as error:
        refuse(f"{options['inventory']}: {error}")
    except (SpecError, PyinfraError) as error:
        refuse(str(error))


def _look_for_connectors_once() -> None:
    """Let pyinfra remember which connectors are installed.

    It reads the metadata of every installed package, 10 ms, some 24 times in a run of three hosts
    and twice more for each further host; the answer can't change within a run.
    """
    find = getattr(connectors, "entry_points", None)
    if find is not None:
        setattr(connectors, "entry_points", cache(find))  # noqa: B010 (mypy: not ours to assign)


def refuse(sentences: str) -> NoReturn:
    """End the command with exit code 1 and these sentences.

    Not by an exception: pyinfra shows one raised in a config.py with its traceback.
    """
    click.echo(click.style("Refused: ", fg="red", bold=True) + sentences, err=True)
    sys.exit(1)


def _guard(options: Mapping[str, Any]) -> None:
    check_inventory_argument(options["inventory"])
    data = override_data(options.get("data") or ())
    inventory = _load_inventory(options, data)
    if not list(inventory):
        raise Refusal(
            f"{options['inventory']} names no host. Put the Sparks into a list named `{GROUP}`, as "
            "inventory/lab.py does."
        )
    chosen = choose_hosts(inventory, options.get("limit") or (), options.get("exclude") or ())
    deploys = [name for name in options["operations"] if str(name).endswith(".py")]
    if not deploys:  # `exec`, `fact` and single operations are pyinfra's own business
        return
    check_options(options)
    check_one_host(deploys, chosen, options.get("limit") or ())
    check_groups(inventory, str(options["inventory"]))
    check_connectors([*_group(inventory, GROUP), *_group(inventory, GATEWAYS)])
    own, data = split_options(str(deploys[0]), data)
    name = Path(str(options["inventory"])).stem
    gateways = {
        host.name: _gateway_of(inventory, host, data) for host in _group(inventory, GATEWAYS)
    }
    sparks = {host.name: _data_of(inventory, host.name, data) for host in _group(inventory, GROUP)}
    check_connections(inventory, [*sparks, *gateways], data)
    for host in sparks.keys() & gateways.keys():
        sparks[host].pop(GATEWAY, None)
    check_canary({one: sparks[one].get("canary") for one in sparks if one in chosen}, sparks)
    fleet = begin(name, sparks, gateways, chosen=chosen)
    fleet.options = own
    # Noted here: the click context is not to be had in the greenlets that run the deploy file.
    fleet.json = bool(options.get("json_output"))
    fleet.dry = bool(options.get("dry"))


def check_inventory_argument(argument: str) -> None:
    """Refuse a path that does not exist; pyinfra would take it for a host name and exit with 0."""
    is_list = "," in argument or argument.startswith("@")
    looks_like_path = argument.endswith(".py") or "/" in argument
    if looks_like_path and not is_list and not Path(argument).is_file():
        there = sorted(str(path) for path in Path("inventory").glob("*.py"))
        hint = f" There are: {', '.join(there)}." if there else ""
        raise Refusal(f"There is no inventory file {argument}.{hint}")


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that undo the order in which sparkfleet changes hosts."""
    for name in ("no_wait", "serial"):
        if options.get(name):
            flag = "--" + name.replace("_", "-")
            raise Refusal(
                f"{flag} does not go with sparkfleet: it changes hosts batch by batch itself, and "
                f"pyinfra's {flag} would go on past a host that failed. Leave it out; the size of "
                "a batch is `batch` in group_data/sparks.py."
            )
    interactive = not (options.get("yes") or options.get("dry") or options.get("json_output"))
    if interactive and not can_be_asked():
        raise Refusal(
            "Nobody can answer the question before the changes: standard input is closed. "
            "Add -y to go on without it, or --dry to see what would happen."
        )


def can_be_asked() -> bool:
    """Whether standard input can carry an answer: a terminal or a pipe, not closed or /dev/null."""
    try:
        mode = os.fstat(0)
    except OSError:
        return False
    null = Path(os.devnull).stat()
    return not (stat.S_ISCHR(mode.st_mode) and mode.st_rdev == null.st_rdev)


def override_data(pairs: Iterable[str]) -> dict[str, Any]:
    """`--data key=value`, read as pyinfra reads it."""
    data = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise Refusal(f"--data wants key=value; {pair!r} has no '='.")
        data[key] = parse_cli_arg(value)
    return data


def check_groups(inventory: Inventory, filename: str) -> None:
    """Refuse an inventory without the group that the deploy works on, and hosts of none of ours."""
    if GROUP not in inventory.groups or not inventory.groups[GROUP]:
        found = ", ".join(sorted(name for name in inventory.groups if name != "all")) or "none"
        raise Refusal(
            f"{filename} has no hosts in the group `{GROUP}` (groups found: {found}). "
            f"Put the Sparks into a list named `{GROUP}`, as inventory/lab.py does."
        )
    ours = {host.name for group in (GROUP, GATEWAYS) for host in inventory.groups.get(group, [])}
    strangers = [host.name for host in inventory if host.name not in ours]
    if strangers:
        raise Refusal(
            f"{filename} has {', '.join(strangers)}, in neither the group `{GROUP}` nor "
            f"`{GATEWAYS}`, so there is nothing to do there. Move it into one of them."
        )


def check_connectors(hosts: Iterable[Host]) -> None:
    """Refuse hosts that pyinfra would reach by a connector which is not ours: it would stop at the
    first that is out of reach, and put sudo's password on a command line."""
    for host in hosts:
        if host.connector_cls is not SparkConnector:
            raise Refusal(
                f"{host.name} does not stand in the inventory as a Spark. Write the list with "
                f'fleet(), as inventory/lab.py does: {GROUP} = fleet("{host.name}", …).'
            )


def check_connections(inventory: Inventory, names: Iterable[str], told: Mapping[str, Any]) -> None:
    """Raise one SpecError for everything wrong in how hosts are to be reached."""
    errors = []
    for name in dict.fromkeys(names):
        try:
            check_connection(name, _data_of(inventory, name, told))
        except SpecError as error:
            errors.append(error)
    if errors:
        raise SpecError.gather(errors)


def choose_hosts(
    inventory: Inventory, limit: Iterable[str], exclude: Iterable[str]
) -> tuple[str, ...]:
    """The hosts a run is for, in inventory order.

    Raises Refusal for a pattern that matches nothing and for a choice of no host at all.
    """
    names = [host.name for host in inventory]
    limited = _matching(inventory, names, limit, "--limit")
    excluded = _matching(inventory, names, exclude, "--exclude")
    chosen = [name for name in names if (not limited or name in limited) and name not in excluded]
    if not chosen:
        raise Refusal("No host is left: --exclude takes away all that --limit allows.")
    return tuple(chosen)


def check_one_host(deploys: Iterable[Any], chosen: tuple[str, ...], limit: Iterable[str]) -> None:
    """Refuse to take a whole fleet out of service because nobody said which host."""
    for play in deploys:
        if Path(str(play)).name in FOR_ONE_HOST and (not tuple(limit) or len(chosen) != 1):
            raise Refusal(
                f"{play} is for one host, and this would be {len(chosen)}: "
                f"{', '.join(chosen)}. Say which: --limit {chosen[0]}."
                if len(chosen) > 1
                else f"{play} is for one host that is named: --limit {chosen[0]}."
            )


def check_canary(canaries: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse a canary that is none of the fleet's hosts: it would never go first."""
    names = list(names)
    for host, canary in canaries.items():
        if isinstance(canary, str) and canary not in names:
            raise Refusal(
                f"Host {host}: canary is {canary}, which is no host of the group `{GROUP}`; it has "
                f"{', '.join(names)}.{near(canary, names)}"
            )


def _matching(
    inventory: Inventory, names: list[str], patterns: Iterable[str], option: str
) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        matched = {host.name for host in inventory.groups.get(pattern, [])}
        matched |= {name for name in names if fnmatch(name, pattern)}
        if not matched:
            raise Refusal(
                f"{option} {pattern} matches no host and no group. Hosts: {', '.join(names)}."
            )
        found |= matched
    return found


def _load_inventory(options: Mapping[str, Any], data: dict[str, Any]) -> Inventory:
    state = ctx_state.get()
    try:
        inventory: Inventory = make_inventory(
            options["inventory"],
            cwd=state.cwd,
            override_data=data,
            group_data_directories=options.get("group_data"),
        )
    except (PyinfraError, SpecError):
        raise
    except Exception as error:
        cause = getattr(error, "exception", error)
        if isinstance(cause, SpecError):
            raise cause from None
        raise Refusal(
            f"{options['inventory']} cannot be read: {type(cause).__name__}: {cause}"
        ) from None
    return inventory


def _data_of(inventory: Inventory, name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """A host's data, nearest last; `told` is what --data says of every host."""
    host = inventory.get_host(name)
    merged: dict[str, Any] = {}
    for layer in (
        inventory.get_data(),
        host.group_data,
        host.host_data,
        told,
    ):
        merged = overlay(merged, layer)
    return merged


def _group(inventory: Inventory, name: str) -> list[Host]:
    """The hosts of a group, in inventory order."""
    members = {host.name for host in inventory.groups.get(name, [])}
    return [host for host in inventory if host.name in members]


def _gateway_of(inventory: Inventory, host: Host, data: Mapping[str, Any]) -> GatewaySpec:
    """What the inventory says of a gateway. Flat keys that hold for every host (of the file's own
    group, say) mean the Sparks; a host that is a Spark as well has its own."""
    own: dict[str, Any] = {**inventory.get_group_data(GATEWAYS)}
    if host not in inventory.groups.get(GROUP, []):
        own |= host.host_data
    return parse_gateway(host.name, _data_of(inventory, host.name, data), own)


def _interrupted(signum: int, frame: FrameType | None) -> NoReturn:
    click.echo(
        "Stopped by Ctrl-C. Steps that a Spark had begun by itself go on there; "
        "the same command finds them and carries on.",
        err=True,
    )
    # Not sys.exit: greenlets that follow a step would connect again, and keep this alive.
    sys.stdout.flush()
    os._exit(INTERRUPTED)
