"""report: one table, each failure with its cause and the next step, and a truthful exit code."""

from __future__ import annotations

from sparkfleet.console.progress import duration
from sparkfleet.console.tables import ReportRow, print_failures, report_table
from sparkfleet.facts.host import HostFacts, Runs, Service, Unknown
from sparkfleet.fleet import Fleet
from sparkfleet.operations.step import at_the_end
from sparkfleet.spec.plan import HostPlan, ServicePlan
from sparkfleet.stages.begin import fail_in_pyinfra
from sparkfleet.stages.gateway import gateway_lines, gateway_state
from sparkfleet.stages.hold import let_go
from sparkfleet.stages.look import table_console


def report(fleet: Fleet) -> None:
    """Print the report after the last step of the last host; failures make the exit code 1."""
    if not fleet.nothing:
        let_go(fleet)  # first: pyinfra runs nothing more on the hosts that the report calls failed
        at_the_end(name="Report", work=lambda: fleet.once.do("report", lambda: report_now(fleet)))


def report_now(fleet: Fleet) -> None:
    """Print the table as things stand."""
    console = table_console(fleet)
    rows = [
        _row(fleet, plan, service) for plan in fleet.plans.values() for service in plan.services
    ]
    console.print(report_table(rows))
    for name, plan in fleet.gateways.items():
        if name not in fleet.gateway_work and name not in fleet.verdict.failures:
            continue  # a play that leaves gateways alone
        for line in gateway_lines(plan, gateway_state(fleet, name)):
            console.print(line, highlight=False, soft_wrap=True)
    print_failures(console, fleet.failures)
    notes = dict.fromkeys(
        f"{name}, {service.name}: {note}"
        for name, plan in fleet.plans.items()
        for service in plan.services
        for note in service.notes
    )
    for note in notes:
        console.print(f"Note: {note}", highlight=False, soft_wrap=True)
    for sentence in filter(None, (fleet.verdict.refused, fleet.verdict.stopped)):
        console.print(sentence, style="bold red", highlight=False, soft_wrap=True)
    for remark in fleet.verdict.remarks:
        console.print(remark, highlight=False, soft_wrap=True)
    if not fleet.verdict.changed and not fleet.failures:
        console.print("nothing changed", highlight=False)
    fail_in_pyinfra(*fleet.verdict.failures)


def _row(fleet: Fleet, plan: HostPlan, service: ServicePlan) -> ReportRow:
    key = (plan.name, service.name)
    seconds = fleet.verdict.seconds.get(key)
    state = fleet.verdict.states.get(key)
    untouched = False
    if state is None:
        work = fleet.work.get(plan.name)
        if work is None:
            state = "not checked" if plan.name not in fleet.verdict.failures else "left out"
        elif plan.name in fleet.verdict.failures:
            state = "FAILED"
        elif any(switch.service == service.name for switch in work.switches):
            state = "not begun"
        else:
            state, untouched = "proven", True
    runs = what_runs(fleet, service, state)
    return ReportRow(
        host=plan.name,
        service=service.name,
        recipe=(runs.recipe or "?") if runs else "-",
        image=runs.label if runs else "-",
        utilization=f"{runs.utilization:.2f}" if runs and runs.utilization else "-",
        state=state,
        endpoint=f"{_address(plan, service)}:{service.port}",
        time=duration(seconds) if seconds is not None else "same" if untouched else "-",
    )


def what_runs(fleet: Fleet, service: ServicePlan, state: str) -> Runs | None:
    """What really runs, whatever was asked for; None where nothing does."""
    key = (service.host, service.name)
    if key in fleet.verdict.runs:
        told = fleet.verdict.runs[key]
        return Runs.model_validate(told) if told else None
    if state == "proven":
        image = service.image
        version = image.version or image.tag
        name = service.recipe.name
        return Runs(
            recipe=name, image=image.digest, version=version, utilization=service.utilization
        )
    facts = fleet.facts.get(service.host)
    return found_running(facts, service.name) if isinstance(facts, HostFacts) else Runs()


def found_running(facts: HostFacts, service: str) -> Runs | None:
    """The same, of what ran when the host was looked at."""
    if isinstance(facts.containers, Unknown) or isinstance(facts.services, Unknown):
        return Runs()
    for container in facts.containers:
        if container.service == service and container.running:
            releases = (facts.services.get(service) or Service()).releases
            return releases.get(container.release) or Runs(image=container.image)
    return None


def _address(plan: HostPlan, service: ServicePlan) -> str:
    return plan.name if service.bind in ("0.0.0.0", "::") else service.bind
