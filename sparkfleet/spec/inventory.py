"""What an owner writes about a host: models of the inventory's data, and their reading."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from sparkfleet.spec.base import (
    EnvName,
    FlagName,
    FlagValue,
    Misfit,
    Model,
    Name,
    Rows,
    Text,
    Utilization,
)
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.unwritable import refuse_unwritable
from sparkfleet.spec.wording import Place, Reader, quoted

PASSED_THROUGH = re.compile(r"^(ssh_|fake_|spark_|_)")
"""Keys that are pyinfra's own (connection data and global arguments) or the connector's."""

GATEWAY = "gateway"
"""The key of a host's data that holds everything about the gateway on it."""

SIZES = ("preset", "utilization", "reserve_gib")
"""The three ways to say how much memory; one of them at a time."""

MIN_PORT, MAX_PORT = 1024, 65_535
AGENT_PORT_STEP = 10_000
"""How far above its port a service's agent port is, or below where there is no room."""

SWITCHES = ("partial", "restart_docker", "adopt")
"""Keys that come by --data for one run."""


class ServiceSpec(Model):
    """One engine on one host."""

    recipe: Name = Field(description="Stem of a file in recipes/.")
    variant: Name | None = Field(default=None, description="A variant of the recipe.")
    preset: Name | None = Field(
        default=None,
        description="A preset of the recipe (alone, shared). At most one of preset, utilization "
        "and reserve_gib; none of them means preset alone.",
    )
    utilization: Utilization | None = Field(
        default=None,
        description="Fraction of the memory the system reports (MemTotal), such as 0.70.",
    )
    reserve_gib: float | None = Field(
        default=None, gt=0, description="GiB left to everything else on the box."
    )
    port: int = Field(default=8000, ge=1024, le=65535, description="Port on the host.")
    bind: str = Field(default="127.0.0.1", description="Host address that the port is bound to.")
    agent_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Port at which gateways ask for the service's state; 0: 10000 above port.",
    )
    agent_bind: str = Field(
        default="", description="Address that the agent answers gateways at; empty: bind."
    )
    # Twelve thousand tokens at 40 a second; a boot takes longer than that.
    drain_timeout: float = Field(
        default=300.0, ge=0, description="Seconds to wait for running requests before a stop."
    )
    drain_then: Literal["wait", "proceed", "abort"] = Field(
        default="proceed", description="What then: wait on, proceed to the stop, abort the switch."
    )
    auth: Literal["key", "none"] = Field(
        default="key", description="key: /v1 wants the fleet's API key."
    )
    flags: dict[FlagName, FlagValue | None] = Field(
        default_factory=dict, description="Engine flags over the recipe's; null removes one."
    )
    env: dict[EnvName, str | None] = Field(
        default_factory=dict, description="Environment over the recipe's; null removes one."
    )
    fallbacks: Rows[Name] = Field(
        default=(), description="Fallbacks of the recipe that are in use."
    )
    overrides: dict[Name, Text] = Field(
        default_factory=dict, description="Rule → the owner's reason to break it; reported."
    )
    entrypoint: Rows[Text] | None = Field(
        default=None, description="Replaces the recipe's entry point of the container."
    )
    image: Text | None = Field(
        default=None, description="Another tag, @sha256:… or full reference than the recipe's."
    )

    @field_validator("bind", "agent_bind")
    @classmethod
    def _is_address(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.field_name == "agent_bind":
            return value
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            raise ValueError(
                "must be an IP address of the host: 127.0.0.1 for itself only, 0.0.0.0 for all"
            ) from None

    @model_validator(mode="after")
    def _agent_port(self) -> Self:
        if not self.agent_port:
            up = self.port + AGENT_PORT_STEP <= MAX_PORT
            step = AGENT_PORT_STEP if up else -AGENT_PORT_STEP
            object.__setattr__(self, "agent_port", self.port + step)
        elif self.agent_port < MIN_PORT:
            raise Misfit(f"is {self.agent_port}, but must be {MIN_PORT} or more", "agent_port")
        return self

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        sizes = [key for key in SIZES if getattr(self, key) is not None]
        if len(sizes) > 1:
            raise Misfit(f"stands beside {' and '.join(sizes[1:])}; keep one of them", sizes[0])
        return self


class HostSpec(Model):
    """One Spark, as its owner wants it."""

    name: str = Field(description="The inventory's name of the host.")
    hardware: Name = Field(default="gb10", description="Stem of a file in hardware/.")
    root: str = Field(
        default="/var/lib/sparkfleet",
        pattern=r"^/[\w./-]+$",
        description="Our directory on the host.",
    )
    models_dir: str = Field(
        default="", pattern=r"^(/[\w./-]+)?$", description="Where weights go; empty: {root}/models."
    )
    hub_endpoint: str | None = Field(
        default=None, pattern=r"^https?://\S+$", description="Another hub than huggingface.co."
    )
    address: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9_.:-]+)?$",
        description="Where gateways reach the host; empty: ssh_hostname, or else its name.",
    )
    catalog: Text | None = Field(
        default=None, description="A further directory that holds recipes/ and hardware/."
    )
    lock: Text = Field(default="recipes.lock", description="Lock file, relative to the project.")
    batch: int = Field(default=1, ge=1, description="Hosts that are switched at once.")
    max_unavailable: int | None = Field(
        default=None,
        ge=1,
        description="Hosts of a service out of service at once, those that are so anyway included.",
    )
    canary: Text | None = Field(default=None, description="The host that is switched first, alone.")
    soak: float = Field(
        default=0, ge=0, le=86400, description="Seconds that a new release is watched, serving."
    )
    keep: int = Field(
        default=3, ge=2, description="Releases kept on a host, current and previous among them."
    )
    services: dict[Name, ServiceSpec] = Field(min_length=1, description="By name.")
    partial: bool = Field(default=False, description="Go on with the hosts that passed the checks.")
    restart_docker: bool = Field(default=False, description="Docker may be restarted under others.")
    adopt: bool = Field(default=False, description="Take over what the owner started by hand.")

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        held: dict[int, str] = {}
        for name, service in self.services.items():
            for key in ("port", "agent_port"):
                port = getattr(service, key)
                if port in held:
                    raise Misfit(
                        f"is port {port}, which service {held[port]} has already; "
                        "give one of them another port",
                        *("services", name, key),
                    )
                held[port] = name
        return self

    @model_validator(mode="after")
    def _batch_fits(self) -> Self:
        if self.max_unavailable is not None and self.batch > self.max_unavailable:
            raise Misfit(
                f"is {self.batch}, and max_unavailable {self.max_unavailable}: no batch could ever "
                "be begun; make it no larger than that",
                "batch",
            )
        return self

    @model_validator(mode="after")
    def _models_dir(self) -> Self:
        if not self.models_dir:
            object.__setattr__(self, "models_dir", f"{self.root}/models")
        return self


SERVICE_KEYS = tuple(ServiceSpec.model_fields)


def parse_host(
    name: str, data: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> HostSpec:
    """Read one host's data, in either form: `services:` or one service's keys on the host itself.

    `defaults` is what holds for the host's groups, where `data` is not merged yet (see overlay).
    Raises SpecError that names the host, each faulty key and its value.
    """
    merged = overlay(defaults or {}, data)
    refuse_unwritable(name, merged)
    own = {key: value for key, value in merged.items() if not PASSED_THROUGH.match(key)}
    flat = {key: own.pop(key) for key in SERVICE_KEYS if key in own}
    single = own.pop("service", None)
    shown_flat = "services" not in own
    if not shown_flat and (flat or single is not None):
        mixed = [*flat, *(["service"] if single is not None else [])]
        raise SpecError(
            f"Host {name}: {', '.join(mixed)} stands beside services (value "
            f"{quoted(own['services'])}). A host has either one service written flat or several "
            f"under services; move {', '.join(mixed)} into one of the services.",
            host=name,
            key=mixed[0],
        )
    if single is not None and not isinstance(single, str):
        raise SpecError(
            f"Host {name}: service is {quoted(single)}, but must be a name; leave it out for llm.",
            host=name,
            key="service",
        )
    if shown_flat:
        own["services"] = {"llm" if single is None else single: flat}

    def show(place: Place) -> str:
        if shown_flat and place[:1] == ("services",):
            place = place[2:] if len(place) > 2 else ("service",)
        return ".".join(str(part) for part in place)

    reader = Reader(
        HostSpec,
        start=lambda place: f"Host {name}",
        show=show,
        more_keys=("service", *SERVICE_KEYS) if shown_flat else (),
        host=name,
    )
    whole = {**own, "name": name}
    try:
        host = HostSpec.model_validate(whole)
        if not host.address:
            object.__setattr__(host, "address", str(merged.get("ssh_hostname") or name))
        return host
    except ValidationError as error:
        raise reader.explain(error, whole) from None


def overlay(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Inventory data of two layers as one, `high` (the host's) over `low` (its groups').

    What `high` says of a gateway is laid over what `low` says of it, key by key.
    A size of `high` (preset, utilization, reserve_gib) replaces any size of `low`. Where `high` has
    `services`, the flat service keys of `low`, but for the ports, hold for each of them.
    """
    low, high = dict(low), dict(high)
    if any(key in high for key in SIZES):
        low = {key: value for key, value in low.items() if key not in SIZES}
    doors = low.get(GATEWAY), high.get(GATEWAY)
    if isinstance(doors[0], Mapping) and isinstance(doors[1], Mapping):
        high[GATEWAY] = {**doors[0], **doors[1]}
    services = high.get("services")
    if isinstance(services, Mapping) and "services" not in low:
        shared = {key: low.pop(key) for key in SERVICE_KEYS if key in low}
        low.pop("service", None)
        for key in ("port", "agent_port"):
            shared.pop(key, None)
        high["services"] = {key: _over(shared, one) for key, one in services.items()}
    return {**low, **high}


def _over(shared: dict[str, Any], one: object) -> object:
    """One service over what all services of the host share; anything odd is left to the model."""
    if not isinstance(one, Mapping):
        return one
    if any(key in one for key in SIZES):
        shared = {key: value for key, value in shared.items() if key not in SIZES}
    return {**shared, **one}


def parse_fleet(
    fleet: Mapping[str, Mapping[str, Any]],
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, HostSpec]:
    """Read every host; all faults of all hosts are raised in one SpecError.

    `defaults` holds, by host, what its groups say (see parse_host).

    Two names that lead to one box (same ssh_hostname and ssh_port) are refused as well.
    """
    hosts: dict[str, HostSpec] = {}
    errors: list[SpecError] = []
    boxes: dict[tuple[str, Any], str] = {}
    for name, data in fleet.items():
        try:
            hosts[name] = parse_host(name, data, (defaults or {}).get(name))
        except SpecError as error:
            errors.append(error)
        box = (str(data.get("ssh_hostname", name)).lower(), data.get("ssh_port", 22))
        if box in boxes:
            errors.append(
                SpecError(
                    f"Hosts {boxes[box]} and {name} are the same box ({box[0]}, port {box[1]}): "
                    "two hosts would fight over it; keep one of them.",
                    host=name,
                    key="ssh_hostname",
                )
            )
        boxes.setdefault(box, name)
    if errors:
        raise SpecError.gather(errors)
    return hosts
