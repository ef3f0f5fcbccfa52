"""What is still to be done on a gateway's host. Pure; empty is what a second run finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from sparkfleet.facts.host import Gateway, HostFacts, Unit, known
from sparkfleet.render_gateway import GatewayFiles
from sparkfleet.spec.gateway import CERTIFICATE, GATEWAY_SOCKET, GATEWAY_UNIT
from sparkfleet.work import installed_programs


@dataclass(frozen=True, slots=True)
class GatewayWork:
    """Everything to do on one gateway's host, in the order in which it is done."""

    host: str
    programs: bool = False
    """The node programs differ from ours."""
    package: bool = False
    """HAProxy is to be installed."""
    files: bool = False
    """Configuration, certificate or unit differ."""
    start: bool = False
    """The unit does not run, or would not after a reboot."""

    @property
    def nothing(self) -> bool:
        """Whether the gateway is as it should be."""
        return self == GatewayWork(self.host)

    def sentences(self) -> list[str]:
        """What would happen, one sentence a step."""
        steps = []
        if self.programs:
            steps.append("Install the node programs.")
        if self.package:
            steps.append("Install HAProxy.")
        if self.files and self.start:
            steps.append("Write the gateway's configuration and start it.")
        elif self.files:
            steps.append("Write the gateway's configuration and reload it; no request is cut.")
        elif self.start:
            steps.append("Start the gateway: it does not run.")
        return steps


@dataclass(frozen=True, slots=True)
class WantedGateway:
    """What the controller holds ready for one gateway's host."""

    files: GatewayFiles
    programs: Mapping[str, str]
    """File name → sha256 of our node programs."""
    certificate: bytes | None = field(default=None, repr=False)
    """Certificate and key, where it is to speak TLS."""

    @property
    def digests(self) -> dict[str, str]:
        """Path → sha256 of every file of the gateway."""
        own = {CERTIFICATE: sha256(self.certificate).hexdigest()} if self.certificate else {}
        return {**self.files.digests, **own}


def decide_gateway(host: str, wanted: WantedGateway, facts: HostFacts) -> GatewayWork:
    """Compare. Whatever could not be read counts as not done: doing it again is harmless."""
    there = facts.gateway if isinstance(facts.gateway, Gateway) else Gateway()
    units = known(facts.units, {})
    service, sockets = (units.get(name) or Unit() for name in (GATEWAY_UNIT, GATEWAY_SOCKET))
    return GatewayWork(
        host,
        programs=installed_programs(facts) != dict(wanted.programs),
        package=there.haproxy is None,
        files=there.files != wanted.digests,
        start=service.active not in ("active", "activating", "reloading")
        or sockets.active != "active"
        or not service.enabled == sockets.enabled == "enabled",
    )
