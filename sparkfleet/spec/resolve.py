"""Inventory + recipe + hardware + lock → one plan per host. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkfleet.spec.catalog import Catalog
from sparkfleet.spec.image import ImageRef
from sparkfleet.spec.inventory import HostSpec
from sparkfleet.spec.plan import HostPlan, ModelPlan, ServicePlan

if TYPE_CHECKING:
    from sparkfleet.spec.lock import Lock

__all__ = ["HostPlan", "ImageRef", "ModelPlan", "ServicePlan", "resolve"]


def resolve(host: HostSpec, catalog: Catalog, lock: Lock | None) -> HostPlan:
    """The plan of one host.

    Without a lock, digests and commits that the recipe does not fix stay None.
    Raises SpecError naming host, key and value, with the reason of any rule that is broken.
    """
    raise NotImplementedError
