"""Looking at a fleet: one command a host, every fault of every host, one table.

What the check stage and plays/preflight.py share; nothing here changes anything.
"""

from __future__ import annotations

import sys

from pyinfra.context import ctx_state
from rich.console import Console

from sparkfleet.checks import check_fleet
from sparkfleet.console.tables import findings_table
from sparkfleet.fleet import Fleet
from sparkfleet.survey import survey_all


def look(fleet: Fleet) -> None:
    """Survey every host of the fleet and judge what was read."""
    fleet.facts = survey_all(ctx_state.get().inventory, fleet.plans)
    judge(fleet)


def judge(fleet: Fleet) -> None:
    """Judge the survey again: new pins change what is wanted."""
    fleet.findings = check_fleet(fleet.plans, fleet.facts, fleet.lock)


def failed_hosts(fleet: Fleet) -> set[str]:
    """The hosts that failed a check. Unknown is neither: such a host is not among them."""
    return {finding.host for finding in fleet.findings if finding.level == "fail"}


def show_findings(console: Console, fleet: Fleet) -> None:
    """The table of findings, and how many hosts passed."""
    table = findings_table(fleet.findings)
    if table:
        console.print(table)
    passed = len(fleet.plans) - len(failed_hosts(fleet))
    console.print(f"Checked {len(fleet.plans)} hosts: {passed} passed.")


def table_console(fleet: Fleet) -> Console:
    """Where tables go: standard output belongs to pyinfra's JSON where that was asked for."""
    return Console(file=sys.stderr if fleet.json else sys.stdout)
