"""verb: what plays/rollback.py and plays/restart.py have in common with a deploy, and what not.

They look at the hosts as the deploy does, but only a host that can't be read stops them: whether
the inventory's release would fit is no matter when going back from it.
"""

from __future__ import annotations

import sys

from pyinfra.context import ctx_state

from sparkfleet.facts.host import HostFacts, Service, known
from sparkfleet.fleet import Fleet
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.plan import HostPlan
from sparkfleet.stages.begin import fail_in_pyinfra, stop, this_fleet
from sparkfleet.stages.check import show_work, stop_or_leave_out, wanted_of
from sparkfleet.stages.configure import configure
from sparkfleet.stages.hold import hold, refuse_held
from sparkfleet.stages.look import failed_hosts, look, show_findings, table_console
from sparkfleet.stages.report import found_running
from sparkfleet.stages.stage import bring
from sparkfleet.verbs import Find, work_of
from sparkfleet.work import Wanted


def find(verb: Find, *, releases: bool = False) -> Fleet:
    """Look at every host and find what `verb` has to do there; changes nothing.

    `releases`: the verb asks what the inventory's releases are. Ends the run where a host can't be
    read, where another run holds one, and where there is nothing to do.
    """
    fleet = this_fleet()
    fleet.once.do("find", lambda: _find(fleet, verb, releases))
    return fleet


def ready(fleet: Fleet) -> None:
    """Hold the hosts, and bring what the verb needs on them: our programs, an image."""
    hold(fleet)
    bring(fleet)
    configure(fleet)


def read_all(fleet: Fleet) -> dict[str, tuple[HostPlan, HostFacts]]:
    """Look at all hosts, and give those that were read as root; else the run ends here."""
    look(fleet)
    refuse_held(fleet)
    read = {
        name: (plan, facts)
        for name, plan in fleet.plans.items()
        if isinstance(facts := fleet.facts[name], HostFacts) and facts.privileged
    }
    fleet.findings = [one for one in fleet.findings if one.host not in read]
    if fleet.findings:
        show_findings(table_console(fleet), fleet)
    stop_or_leave_out(fleet, failed_hosts(fleet) | (fleet.plans.keys() - read.keys()))
    return read


def bare_wanted(fleet: Fleet, plan: HostPlan, *, releases: bool = False) -> Wanted:
    """What the controller holds ready for a verb; the releases only where they are asked for."""
    try:
        return wanted_of(fleet, plan, releases=releases)
    except SpecError as error:
        stop(f"{error}\nNothing was changed.")


def end_early(fleet: Fleet, *, failed: bool) -> None:
    """End the run: there is nothing to do."""
    table_console(fleet).print("nothing changed", highlight=False)
    if not fleet.json:  # pyinfra would ask whether to make no changes
        sys.exit(1 if failed else 0)
    if failed:
        fail_in_pyinfra(*(host.name for host in ctx_state.get().inventory))


def _find(fleet: Fleet, verb: Find, releases: bool) -> None:
    console = table_console(fleet)
    amiss = False
    for name, (plan, facts) in read_all(fleet).items():
        fleet.wanted[name] = wanted = bare_wanted(fleet, plan, releases=releases)
        fleet.work[name], nothing = work_of(wanted, facts, verb)
        for one in nothing:
            amiss = amiss or one.amiss
            console.print(f"  {name}: {one.why}", highlight=False, soft_wrap=True)
        _note_what_stays(fleet, name, facts)
    show_work(console, fleet)
    if fleet.nothing:
        end_early(fleet, failed=amiss or bool(fleet.verdict.failures))


def _note_what_stays(fleet: Fleet, name: str, facts: HostFacts) -> None:
    """What the report says of services that the verb leaves alone: as they were found."""
    switched = {one.service for one in fleet.work[name].switches}
    found = known(facts.services, {})
    for service in fleet.plans[name].services:
        if service.name not in switched:
            key, state = (name, service.name), (found.get(service.name) or Service()).state or {}
            runs = found_running(facts, service.name)
            fleet.verdict.states[key] = str(state.get("phase", "absent"))
            fleet.verdict.runs[key] = runs.model_dump() if runs else None
