"""All checks over all hosts: every fault of every host at once, nothing changed yet."""

from __future__ import annotations

from collections.abc import Mapping

from sparkfleet.checks import adoption, containers, disk, gpu, memory, ports, reach, system, twins
from sparkfleet.checks.case import Case, Check
from sparkfleet.facts.host import HostFacts
from sparkfleet.facts.survey import Unreachable
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.plan import HostPlan

CHECKS: tuple[Check, ...] = (
    system.sudo,
    system.python,
    system.arch,
    system.clock,
    system.memory_size,
    system.guard,
    gpu.gpu,
    containers.docker,
    containers.compose,
    containers.toolkit,
    disk.disk,
    memory.memory,
    ports.port,
    adoption.adoption,
)
"""Every check of one host, in the order of the report."""


def check_host(plan: HostPlan, facts: HostFacts, lock: Lock | None = None) -> list[Finding]:
    """Everything that the checks say of one host, with what was known before it was read."""
    case = Case(plan, facts, lock)
    findings = [finding for check in CHECKS for finding in check(case)]
    if not facts.privileged:
        # Without root much can't be read: that one fault is reported, not its echoes.
        findings = [one for one in findings if one.level not in ("unknown", "mend")]
    return [*plan.findings, *findings]


def check_fleet(
    plans: Mapping[str, HostPlan],
    facts: Mapping[str, HostFacts | Unreachable],
    lock: Lock | None = None,
) -> list[Finding]:
    """Every finding of every host, in inventory order, then what concerns several hosts.

    A host without facts counts as unreachable. `lock` gives the sizes of what is still to come.
    """
    findings: list[Finding] = []
    read: dict[str, HostFacts] = {}
    for name, plan in plans.items():
        found = facts.get(name, Unreachable("it was not asked"))
        if isinstance(found, Unreachable):
            findings += [*plan.findings, reach.explain(name, found.raw)]
        else:
            read[name] = found
            findings += check_host(plan, found, lock)
    return [*findings, *twins.twins(read)]
