"""preflight: the checks alone, for the owner who wants to know before anything is planned."""

from __future__ import annotations

import sys

from sparkfleet.fleet import Fleet
from sparkfleet.stages.begin import fail_in_pyinfra, this_fleet
from sparkfleet.stages.look import failed_hosts, look, show_findings, table_console


def preflight() -> None:
    """Read every host with one command, show what was found, and end the run.

    Changes nothing, neither on the hosts nor on the controller, and asks no hub. Ends with exit
    code 0 when no host failed a check, else with 1.
    """
    fleet = this_fleet()
    fleet.once.do("preflight", lambda: _preflight(fleet))


def _preflight(fleet: Fleet) -> None:
    look(fleet)
    show_findings(table_console(fleet), fleet)
    failed = failed_hosts(fleet)
    if fleet.json:  # pyinfra still has its own words to print
        fail_in_pyinfra(*failed)
    else:  # and else would go on to a change of nothing
        sys.exit(1 if failed else 0)
