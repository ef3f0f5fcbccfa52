"""Which host the deploy file runs for just now, and the fleet it belongs to."""

from __future__ import annotations

import sys
from typing import NoReturn

import click
from pyinfra.api.host import Host
from pyinfra.context import ctx_host, ctx_state

from sparkfleet.fleet import Fleet, current
from sparkfleet.spec.errors import SpecError


def this_fleet() -> Fleet:
    """The fleet of this run; ends the run where config.py did not begin it."""
    try:
        return current()
    except SpecError as error:
        stop(str(error))


def stop(sentences: str) -> NoReturn:
    """End the run with exit code 1 and these sentences.

    Not by an exception of pyinfra's, which it shows with a place in our code instead of in the
    owner's: nothing here is wrong with a line of Python.
    """
    click.echo(click.style("Stopped: ", fg="red", bold=True) + sentences, err=True)
    sys.exit(1)


def this_host() -> Host:
    """The host that the deploy file runs for."""
    host: Host = ctx_host.get()
    return host


def fail_in_pyinfra(*names: str) -> None:
    """Let pyinfra's exit code be 1 for these hosts, without its question whether to go on."""
    state = ctx_state.get()
    state.failed_hosts.update(host for host in state.inventory if host.name in names)
