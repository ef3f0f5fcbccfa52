"""Inventory + recipe + hardware + lock → one plan per host. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparkfleet.spec.catalog import Catalog
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.hardware import HardwareProfile
from sparkfleet.spec.image import ImageRef
from sparkfleet.spec.inventory import HostSpec
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.plan import HostPlan, ModelPlan, ServicePlan
from sparkfleet.spec.service import ServiceResolver
from sparkfleet.spec.wording import near

__all__ = ["HostPlan", "ImageRef", "ModelPlan", "ServicePlan", "resolve"]


def resolve(host: HostSpec, catalog: Catalog, lock: Lock | None) -> HostPlan:
    """The plan of one host.

    Without a lock, digests and commits that the recipe does not fix stay None.
    Raises SpecError naming host, key and value, with the reason of any rule that is broken.
    """
    hardware = catalog.hardware.get(host.hardware)
    if hardware is None:
        raise SpecError(
            f"Host {host.name}: hardware is {host.hardware}, which no file in hardware/ defines; "
            f"known are {', '.join(catalog.hardware) or 'none'}."
            f"{near(host.hardware, catalog.hardware)}",
            host=host.name,
            key="hardware",
        )
    services: list[ServicePlan] = []
    findings: list[Finding] = []
    errors: list[SpecError] = []
    for name, spec in host.services.items():
        step = ServiceResolver(host, name, spec, hardware, catalog, lock)
        try:
            services.append(step.plan({service.container for service in services}))
            findings += step.findings
        except SpecError as error:
            errors.append(error)
    if not errors:
        errors += _sum_fits(host, hardware, services)
    if errors:
        raise SpecError.gather(errors)
    return HostPlan(
        name=host.name,
        spec=host,
        hardware=hardware,
        root=host.root,
        models_dir=host.models_dir,
        services=tuple(services),
        findings=tuple(findings),
    )


def _sum_fits(
    host: HostSpec, hardware: HardwareProfile, services: list[ServicePlan]
) -> Iterator[SpecError]:
    total = round(sum(service.utilization for service in services), 4)
    cap = hardware.max_utilization
    if len(services) > 1 and total > cap.value:
        parts = " + ".join(f"{service.name} {service.utilization:.2f}" for service in services)
        yield SpecError(
            f"Host {host.name}: the utilizations of its services add up to {total:.2f} ({parts}), "
            f"above the {cap.value:.2f} of {hardware.name}. {cap.reason.rstrip('.')}. Choose a "
            "smaller preset or utilization for one of them.",
            host=host.name,
            key="utilization",
        )
