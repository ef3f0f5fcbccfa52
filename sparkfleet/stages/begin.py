"""Which host the deploy file runs for just now, and the fleet it belongs to."""

from __future__ import annotations

from pyinfra.api.exceptions import DeployError
from pyinfra.api.host import Host
from pyinfra.context import ctx_host, ctx_state

from sparkfleet.fleet import Fleet, current
from sparkfleet.spec.errors import SpecError


def this_fleet() -> Fleet:
    """The fleet of this run; raises DeployError where config.py did not begin it."""
    try:
        return current()
    except SpecError as error:
        raise DeployError(str(error)) from None


def this_host() -> Host:
    """The host that the deploy file runs for."""
    host: Host = ctx_host.get()
    return host


def fail_in_pyinfra(*names: str) -> None:
    """Let pyinfra's exit code be 1 for these hosts, without its question whether to go on."""
    state = ctx_state.get()
    state.failed_hosts.update(host for host in state.inventory if host.name in names)
