"""The gateway's host, whatever machine it is: reachable, root, HAProxy, free ports, known names.

And of the Sparks behind it: the port at which their agent answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sparkfleet.checks import reach, system
from sparkfleet.checks.case import Case, Speaker
from sparkfleet.checks.holders import of_listener, overlaps
from sparkfleet.facts.host import Gateway, HostFacts, Listener, Unit, Unknown
from sparkfleet.facts.survey import AGENT_UNIT, Unreachable
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.gateway import GATEWAY_SOCKET, GatewayPlan
from sparkfleet.spec.plan import HostPlan


@dataclass(frozen=True, slots=True)
class GatewayCase(Speaker):
    """One gateway: what is wanted of its host, and what was found."""

    plan: GatewayPlan
    facts: HostFacts

    @property
    def host(self) -> str:
        """The inventory's name of the host."""
        return self.plan.name


def check_gateways(
    gateways: Mapping[str, GatewayPlan],
    plans: Mapping[str, HostPlan],
    facts: Mapping[str, HostFacts | Unreachable],
    *,
    asked: bool,
) -> list[Finding]:
    """Every finding of every gateway's host; and, where there are gateways at all (`asked`), of the
    Sparks' agent ports. What a Spark's own checks say of its host is not said again."""
    findings: list[Finding] = []
    for name, plan in gateways.items():
        found = facts.get(name, Unreachable("it was not asked"))
        if isinstance(found, HostFacts):
            findings += check_gateway(GatewayCase(plan, found), spark=name in plans)
        elif name not in plans:
            findings.append(reach.explain(name, found.raw))
    for name, host in plans.items():
        read = facts.get(name)
        if asked and isinstance(read, HostFacts) and read.privileged:
            findings += agent_port(Case(host, read))
    return findings


def check_gateway(case: GatewayCase, *, spark: bool) -> Iterator[Finding]:
    """All that is checked on a gateway's host."""
    if not spark:
        yield from system.sudo(case)
        yield from system.python(case)
    if not case.facts.privileged:
        return
    there = case.facts.gateway
    if isinstance(there, Unknown) or there is None:
        yield case.unknown("gateway", "What the gateway needs", there or "nothing was said of it")
        return
    yield from haproxy(case, there)
    yield from ports(case)
    yield from names(case, there)


def haproxy(case: GatewayCase, there: Gateway) -> Iterator[Finding]:
    """HAProxy, or a way to install it."""
    if there.haproxy:
        yield case.ok("haproxy", f"HAProxy is there ({there.haproxy}).")
    elif there.apt:
        yield case.mend(
            "haproxy",
            f"HAProxy is not installed on {case.host}.",
            "The gateway is HAProxy with a configuration of ours.",
            "This run installs it from the host's own package sources.",
        )
    else:
        yield case.fail(
            "haproxy",
            f"HAProxy is not installed on {case.host}, and there is no apt-get to install it with.",
            "The gateway is HAProxy with a configuration of ours.",
            "Install HAProxy 2.4 or newer there by hand, or take a host with Debian or Ubuntu.",
        )


def ports(case: GatewayCase) -> Iterator[Finding]:
    """Each port that it listens on: free, held by our own gateway, or by a stranger."""
    for what, endpoint in case.plan.endpoints:
        where = f"Port {endpoint.port} on {case.host}"
        found = _listeners(case, endpoint.bind, endpoint.port)
        if isinstance(found, Unknown):
            yield case.unknown("gateway-port", f"Who listens on port {endpoint.port}", found)
            continue
        # systemd holds the ports, HAProxy has inherited them.
        ours = _unit(case, GATEWAY_SOCKET).active == "active"
        strangers = [one for one in found if not (ours and one.process in ("haproxy", "systemd"))]
        if strangers:
            yield case.fail(
                "gateway-port",
                f"{where} is held by {of_listener(case.facts, strangers[0]).name}.",
                f"The gateway wants it for {what}.",
                "Stop that, or give the gateway another port.",
            )
        else:
            yield case.ok("gateway-port", f"{where} is {'our gateway’s' if found else 'free'}.")


def names(case: GatewayCase, there: Gateway) -> Iterator[Finding]:
    """Each node that is known by name must have an address there."""
    for name, address in there.resolved.items():
        if address is None:
            yield case.fail(
                "gateway-names",
                f"{case.host} can't resolve {name}, which is how it would reach that node.",
                "HAProxy resolves names where it runs, not where you do; NAME.local often works "
                "on one machine and not on the next.",
                f"Give the node its address in the inventory: address: 192.168.1.… for {name}.",
            )


def agent_port(case: Case) -> Iterator[Finding]:
    """The port at which the agent answers: free, its own, or a stranger's."""
    for service in case.plan.services:
        port = service.spec.agent_port
        where = f"Port {port} on {case.host}"
        found = _listeners(case, service.spec.agent_bind or service.bind, port)
        if isinstance(found, Unknown):
            yield case.unknown("agent-port", f"Who listens on port {port}", found)
            continue
        agent = _unit(case, AGENT_UNIT).pid
        strangers = [one for one in found if agent is None or one.pid != agent]
        if strangers:
            yield case.fail(
                "agent-port",
                f"{where} is held by {of_listener(case.facts, strangers[0]).name}.",
                f"There the gateway asks whether {service.name} takes requests.",
                f"Stop that, or give {service.name} another agent_port.",
            )
        else:
            yield case.ok("agent-port", f"{where} is {'our agent’s' if found else 'free'}.")


def _listeners(case: Speaker, bind: str, port: int) -> list[Listener] | Unknown:
    listeners = case.facts.listeners
    if isinstance(listeners, Unknown):
        return listeners
    return [one for one in listeners if one.port == port and overlaps(one.addr, bind)]


def _unit(case: Speaker, name: str) -> Unit:
    units = case.facts.units
    return Unit() if isinstance(units, Unknown) else units.get(name, Unit())
