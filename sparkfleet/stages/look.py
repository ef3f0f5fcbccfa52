"""Looking at a fleet: one command a host, every fault of every host, one table.

What the check stage and plays/preflight.py share; nothing here changes anything.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from pyinfra.context import ctx_state

from sparkfleet.facts.host import HostFacts
from sparkfleet.facts.survey import survey_request
from sparkfleet.fleet import Fleet
from sparkfleet.survey import survey_all

if TYPE_CHECKING:
    from rich.console import Console


def look(fleet: Fleet) -> None:
    """Survey every host of the fleet and judge what was read."""
    asked = {
        name: survey_request(fleet.plans.get(name), fleet.gateways.get(name))
        for name in fleet.hosts
    }
    fleet.facts = survey_all(ctx_state.get().inventory, asked, meanwhile=_make_ready)
    judge(fleet)


def _make_ready() -> None:
    """Load what answers are read, judged and shown with, 0.08 s, while the hosts make them."""
    for name in ("rich.console", "sparkfleet.console.tables", "sparkfleet.checks"):
        import_module(name)
    HostFacts.model_rebuild()  # its validator is built when it is first wanted


def judge(fleet: Fleet) -> None:
    """Judge the survey again: new pins change what is wanted."""
    from sparkfleet.checks import check_fleet  # loaded while the hosts answer

    fleet.findings = check_fleet(fleet.plans, fleet.facts, fleet.lock)
    if fleet.answers or fleet.gateways:
        from sparkfleet.checks.gateway import check_gateways

        fleet.findings += check_gateways(
            fleet.gateways, fleet.plans, fleet.facts, asked=bool(fleet.answers)
        )


def failed_hosts(fleet: Fleet) -> set[str]:
    """The hosts that failed a check. Unknown is neither: such a host is not among them."""
    return {finding.host for finding in fleet.findings if finding.level == "fail"}


def show_findings(console: Console, fleet: Fleet) -> None:
    """The table of findings, and how many hosts passed."""
    from sparkfleet.console.tables import findings_table  # loaded while the hosts answer

    table = findings_table(fleet.findings)
    if table:
        console.print(table)
    passed = len(fleet.hosts) - len(failed_hosts(fleet))
    console.print(f"Checked {len(fleet.hosts)} hosts: {passed} passed.")


def table_console(fleet: Fleet) -> Console:
    """Where tables go: standard output belongs to pyinfra's JSON where that was asked for."""
    from rich.console import Console  # loaded while the hosts answer

    return Console(file=sys.stderr if fleet.json else sys.stdout)
