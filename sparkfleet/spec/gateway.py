"""The gateway: what its owner writes, and what follows from it and from the Sparks' plans. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from sparkfleet.spec.base import Model, Name
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.inventory import GATEWAY, PASSED_THROUGH
from sparkfleet.spec.plan import HostPlan, ServicePlan
from sparkfleet.spec.wording import Place, Reader, near, quoted

STATE_ROOT = "/var/lib/sparkfleet-gateway"
"""What the gateway keeps on its host."""

GATEWAY_UNIT, GATEWAY_SOCKET = "sparkfleet-gateway.service", "sparkfleet-gateway.socket"
UNITS = "/etc/systemd/system"

_CONFIG_DIR = "/etc/sparkfleet/gateway"
CONFIG, CERTIFICATE = f"{_CONFIG_DIR}/haproxy.cfg", f"{_CONFIG_DIR}/tls.pem"
"""HAProxy's configuration, and certificate and key, on the gateway's host."""


_NAME = re.compile(r"^[A-Za-z0-9_.:-]+$")
"""What HAProxy takes for the name of a server."""

Port = Annotated[int, Field(ge=1, le=65535)]


class GatewaySpec(Model):
    """One gateway, as its owner wants it."""

    bind: str = Field(default="127.0.0.1", description="Address that it listens on.")
    port: Port = Field(default=8080, description="Port of the one service there is.")
    ports: dict[Name, Port] = Field(
        default_factory=dict, description="Service → port, where there are several services."
    )
    queue_timeout: int = Field(
        default=300, ge=1, description="Seconds a request waits for a free place before a 503."
    )
    answer_timeout: int = Field(
        default=3600, ge=1, description="Seconds of silence after which a request is given up."
    )
    agent_interval: float = Field(
        default=1.0, ge=0.2, le=30, description="Seconds between two questions to a node."
    )
    stats: str | None = Field(
        default=None,
        description="ADDRESS:PORT of the statistics page and /metrics; left out: there is none.",
    )
    certificate: str | None = Field(
        default=None,
        description="PEM file on this machine with certificate, chain and key, for TLS.",
    )

    @field_validator("bind")
    @classmethod
    def _is_address(cls, value: str) -> str:
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            raise ValueError(
                "must be an IP address of the gateway's host: 127.0.0.1 for itself only, 0.0.0.0 "
                "for all"
            ) from None

    @field_validator("stats")
    @classmethod
    def _is_endpoint(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                Endpoint.parse(value)
            except ValueError:
                raise ValueError(
                    "must be an IP address and a port, such as 127.0.0.1:8404"
                ) from None
        return value


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and a port to listen on."""

    bind: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Raises ValueError for anything but ADDRESS:PORT."""
        bind, _, port = text.rpartition(":")
        number = int(port)
        if not 1 <= number <= 65535:
            raise ValueError(port)
        return cls(str(ipaddress.ip_address(bind.strip("[]"))), number)


@dataclass(frozen=True, slots=True)
class Server:
    """One node behind a route."""

    name: str
    address: str
    """As the gateway reaches it: an IP address or a name."""
    port: int
    agent_address: str
    agent_port: int
    maxconn: int | None
    """Requests that it is given at once, the engine's max-num-seqs; None: as many as come."""


@dataclass(frozen=True, slots=True)
class Route:
    """One service: the port that leads to it and the nodes that serve it."""

    service: str
    port: int
    names: tuple[str, ...]
    """Of the model, as requests call it."""
    servers: tuple[Server, ...]


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """One gateway, resolved."""

    name: str
    spec: GatewaySpec
    routes: tuple[Route, ...]

    @property
    def stats(self) -> Endpoint | None:
        """Where the statistics are shown."""
        return Endpoint.parse(self.spec.stats) if self.spec.stats else None

    @property
    def endpoints(self) -> Iterator[tuple[str, Endpoint]]:
        """Everything that it listens on, each with what for, in the order of inheritance."""
        for route in self.routes:
            yield f"service {route.service}", Endpoint(self.spec.bind, route.port)
        if self.stats:
            yield "the statistics", self.stats


def parse_gateway(
    name: str, data: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> GatewaySpec:
    """Read one gateway from its host's merged data.

    `own` is what stands only for gateways (the host's own line, the group's file); a key there that
    is not the gateway's is a mistake. Raises SpecError that names the host, key and value.
    """
    strange = [key for key in own or {} if key != GATEWAY and not PASSED_THROUGH.match(key)]
    if own and strange:
        hint = near(strange[0], [GATEWAY, *GatewaySpec.model_fields])
        raise SpecError(
            f"Gateway {name}: {strange[0]} (value {quoted(own[strange[0]])}) is not a known key. "
            f"What is said of a gateway stands under `{GATEWAY}`, as gateways() puts it there."
            f"{hint}",
            host=name,
            key=strange[0],
        )
    raw = data.get(GATEWAY, {})
    if not isinstance(raw, Mapping):
        raise SpecError(
            f"Gateway {name}: {GATEWAY} is {quoted(raw)}, but must be a mapping of its keys: "
            f"{', '.join(GatewaySpec.model_fields)}.",
            host=name,
            key=GATEWAY,
        )

    def show(place: Place) -> str:
        return ".".join(str(part) for part in place)

    reader = Reader(GatewaySpec, start=lambda place: f"Gateway {name}", show=show, host=name)
    try:
        return GatewaySpec.model_validate(dict(raw))
    except ValidationError as error:
        raise reader.explain(error, raw) from None


def plan_gateway(name: str, spec: GatewaySpec, hosts: Mapping[str, HostPlan]) -> GatewayPlan:
    """The gateway's plan: every service of every Spark, `hosts` in inventory order.

    Raises SpecError for a service that it could not reach or route to, each fault in a sentence.
    """
    services: dict[str, list[tuple[HostPlan, ServicePlan]]] = {}
    for host in hosts.values():
        for service in host.services:
            services.setdefault(service.name, []).append((host, service))
    errors = [*_faults(name, spec, services)]
    for members in services.values():
        errors += [*_reach_faults(name, members), *_one_model(members)]
    if errors:
        raise SpecError.gather(errors)
    routes = tuple(
        Route(
            service,
            spec.ports.get(service, spec.port),
            tuple(members[0][1].recipe.names),
            tuple(_server(name, host, one) for host, one in members),
        )
        for service, members in services.items()
    )
    plan = GatewayPlan(name, spec, routes)
    errors = [*_port_faults(plan, hosts.get(name))]
    if errors:
        raise SpecError.gather(errors)
    return plan


def is_address(text: str) -> bool:
    """Whether a server is known by an IP address and needs no resolver."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _server(gateway: str, host: HostPlan, service: ServicePlan) -> Server:
    return Server(
        name=host.name,
        address=reached_at(gateway, host, service.bind),
        port=service.port,
        agent_address=reached_at(gateway, host, service.spec.agent_bind or service.bind),
        agent_port=service.spec.agent_port,
        maxconn=service.max_num_seqs,
    )


def reached_at(gateway: str, host: HostPlan, bind: str) -> str:
    """The address under which a gateway reaches what listens on `bind` of a Spark."""
    address = ipaddress.ip_address(bind)
    if not address.is_unspecified:
        return str(address)
    if host.name == gateway:
        return "127.0.0.1" if address.version == 4 else "::1"
    return host.spec.address


def _faults(name: str, spec: GatewaySpec, services: Mapping[str, Any]) -> Iterator[SpecError]:
    unknown = [service for service in spec.ports if service not in services]
    if unknown:
        yield SpecError(
            f"Gateway {name}: ports names {unknown[0]}, which no Spark serves; there are "
            f"{', '.join(services)}.{near(unknown[0], services)}",
            host=name,
            key="ports",
        )
    without = [service for service in services if service not in spec.ports]
    if len(services) > 1 and without:
        yield SpecError(
            f"Gateway {name}: the Sparks serve {', '.join(services)}, and ports gives none to "
            f"{', '.join(without)}. With several services each has a port of its own; write "
            f'ports: {{"{without[0]}": 8080, …}}.',
            host=name,
            key="ports",
        )


def _reach_faults(name: str, members: list[tuple[HostPlan, ServicePlan]]) -> Iterator[SpecError]:
    for host, service in members:
        if not _NAME.match(host.name) or not _NAME.match(host.spec.address):
            yield SpecError(
                f"Host {host.name}: behind a gateway a host's name, and its address "
                f"({host.spec.address}), are letters, digits and .:_- alone. Give it such a name, "
                "and an address.",
                host=host.name,
                key="address",
            )
        for key in ("bind", "agent_bind"):
            bind = getattr(service.spec, key) or service.bind
            if host.name != name and ipaddress.ip_address(bind).is_loopback:
                yield SpecError(
                    f"Host {host.name}, service {service.name}: {key} is {bind}, which the gateway "
                    f"{name} can't reach. Bind it to an address of the Spark in the gateway's "
                    "network (or 0.0.0.0 for all).",
                    host=host.name,
                    key=key,
                )
                break


def _one_model(members: list[tuple[HostPlan, ServicePlan]]) -> Iterator[SpecError]:
    """A request for one service may go to any of its nodes, so each must know the same names."""
    (first_host, first), *others = members
    for host, service in others:
        if set(service.recipe.names) != set(first.recipe.names):
            yield SpecError(
                f"Host {host.name}, service {service.name}: it serves "
                f"{', '.join(service.recipe.names)}, and {first_host.name} serves "
                f"{', '.join(first.recipe.names)} under the same name of a service. Behind a "
                "gateway a service is one model: give one of them another `service` name.",
                host=host.name,
                key="service",
            )


def _port_faults(plan: GatewayPlan, beside: HostPlan | None) -> Iterator[SpecError]:
    """Two things that would listen on one port; `beside` is the Spark on the same host, if any."""
    held = dict(_held_by(beside)) if beside else {}
    for what, endpoint in plan.endpoints:
        if endpoint.port in held:
            yield SpecError(
                f"Gateway {plan.name}: port {endpoint.port} of {what} is taken by "
                f"{held[endpoint.port]} on the same host; choose another.",
                host=plan.name,
                key="stats" if what == "the statistics" else "port",
            )
        held.setdefault(endpoint.port, what)


def _held_by(host: HostPlan) -> Iterator[tuple[int, str]]:
    for service in host.services:
        yield service.port, f"the engine of service {service.name}"
        yield service.spec.agent_port, f"the agent of service {service.name}"
