"""Fill the lock where it says nothing yet: commits and files from the hub, digests from Docker."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from importlib.resources import files

from pyinfra.api.inventory import Inventory

from sparkfleet.connector import SparkConnector
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.image import ImageRef
from sparkfleet.spec.lock import Lock, stale
from sparkfleet.spec.plan import HostPlan, ServicePlan


def missing_pins(lock: Lock, plans: Mapping[str, HostPlan]) -> dict[str, ServicePlan]:
    """Lock key → a service that wants it, for every pin that the lock lacks."""
    missing: dict[str, ServicePlan] = {}
    for plan in plans.values():
        for service in plan.services:
            locked = lock.recipes.get(service.lock_key)
            if (
                locked is None
                or locked.image.digest is None
                or stale(locked, service.image, service.recipe.models)
            ):
                missing.setdefault(service.lock_key, service)
    return missing


def fill_lock(lock: Lock, plans: Mapping[str, HostPlan], inventory: Inventory) -> Lock:
    """The lock with every pin that the plans want; the same object when nothing was missing.

    Raises one SpecError with every recipe for which the hub or a registry can't say.
    """
    missing = missing_pins(lock, plans)
    if missing:  # a fifth of a run's start-up, needed by first runs only
        from sparkfleet.hub import Hub, lock_recipe
    errors = []
    for key, service in missing.items():
        hub = Hub(plans[service.host].spec.hub_endpoint)
        try:
            pinned = lock_recipe(service.recipe, service.image, hub)
            if pinned.image.digest is None:
                connector = inventory.get_host(service.host).connector
                assert isinstance(connector, SparkConnector)
                pinned = pinned.with_digest(registry_digest(connector, service.image))
        except SpecError as error:
            sentence = f"Recipe {service.recipe.name} could not be pinned. {error}"
            errors.append(SpecError(sentence, host=service.host, key=error.key))
        else:
            lock = lock.with_recipe(key, pinned)
    if errors:
        raise SpecError.gather(errors)
    return lock


def registry_digest(connector: SparkConnector, image: ImageRef) -> str:
    """The digest that a tag means now, asked of one host's Docker. Raises SpecError."""
    source = files("sparkfleet.node").joinpath("registry.py").read_bytes()
    host = connector.host.name
    command = shlex.join(["python3", "-", image.reference])
    answer = connector.run(command, stdin=source, timeout=60)
    if not answer.ok:
        raise SpecError(
            f"{host} could not be asked which digest {image.reference} has now: {answer.errors}. "
            "See whether Docker answers there, then run the same command again."
        )
    said = json.loads(answer.text)
    if "digest" in said:
        return str(said["digest"])
    reasons = {
        404: "The registry has no such image: compare repository and tag letter by letter.",
        401: "The registry wants a login: run docker login there as root.",
        403: "The registry wants a login: run docker login there as root.",
    }
    next_step = reasons.get(
        said["status"], "Look at the registry and the host's network, then try again."
    )
    raise SpecError(
        f"{host} can't say which digest {image.reference} has now: "
        f"{str(said['error']).strip().rstrip('.')}. {next_step}",
        key="image",
    )
