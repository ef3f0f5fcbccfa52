"""What is still to be done on a host: the difference between what is wanted and what was found.

Pure. An empty `HostWork` is what a second run finds, and then no further command is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from sparkfleet.facts.host import HostFacts, Service, Unit, known
from sparkfleet.facts.survey import AGENT_UNIT
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.lock import LockedModel, is_staged
from sparkfleet.spec.plan import HostPlan, ServicePlan
from sparkfleet.spec.release import Release

ADDED_BY_PYTHON = "__pycache__/"


@dataclass(frozen=True, slots=True)
class Fetch:
    """A model to bring to the host: which service wants it, and where its files go."""

    service: str
    role: str
    model: LockedModel
    dir: str


@dataclass(frozen=True, slots=True)
class Switch:
    """A service to bring to a release.

    `release`: another one than runs now. `start`: the same, which does not run. `prove`: the same,
    which runs and is not proven yet; nothing is stopped for it.
    """

    service: str
    release: str
    kind: Literal["release", "start", "prove"]
    why: str
    """A sentence."""
    first: bool = False
    """Nothing of this service serves on the host yet."""

    @property
    def disturbs(self) -> bool:
        """Whether what serves is stopped for it."""
        return self.kind != "prove" and not self.first


@dataclass(frozen=True, slots=True)
class HostWork:
    """Everything to do on one host, in the order in which it is done."""

    host: str
    programs: bool = False
    """The node programs differ from ours."""
    agent: bool = False
    """The agent's unit is missing, differs or does not run."""
    toolkit: bool = False
    """The container toolkit is to be installed or registered."""
    pulls: tuple[str, ...] = ()
    """Images by digest."""
    fetches: tuple[Fetch, ...] = ()
    releases: tuple[Release, ...] = ()
    """Release directories to write (new, or changed by hand since)."""
    units: tuple[Release, ...] = ()
    """Releases that run already and whose installed unit file is missing or differs."""
    keys: tuple[str, ...] = ()
    """Services whose key file is missing or holds another key."""
    switches: tuple[Switch, ...] = ()
    verbs: tuple[str, ...] = ()
    """What a play beside the deploy does here, a sentence each."""

    @property
    def nothing(self) -> bool:
        """Whether the host is as it should be."""
        return self == HostWork(self.host)

    @property
    def files(self) -> bool:
        """Whether anything of the release files is to be written."""
        return bool(self.releases or self.units or self.keys)

    def sentences(self) -> list[str]:
        """What would happen, one sentence a step."""
        steps = []
        if self.programs:
            steps.append("Install the node programs.")
        if self.toolkit:
            steps.append("Install and register the NVIDIA container toolkit.")
        steps += [f"Pull {image}." for image in self.pulls]
        steps += [
            f"Fetch {fetch.model.repo} at {fetch.model.commit[:12]} "
            f"({fetch.model.size / 1e9:.2f} GB, of which what is there already counts)."
            for fetch in self.fetches
        ]
        steps += [f"Write the key file of {service}." for service in self.keys]
        steps += [
            f"Write release {release.hash} of {release.service}." for release in self.releases
        ]
        steps += [f"Install the unit of {release.service} again." for release in self.units]
        if self.agent:
            steps.append("Install and start the agent.")
        steps += [switch.why for switch in self.switches]
        steps += self.verbs
        return steps


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the controller holds ready for one host, to compare with what was found."""

    plan: HostPlan
    releases: Mapping[str, Release]
    """By service."""
    models: Mapping[tuple[str, str], LockedModel]
    """By service and role."""
    programs: Mapping[str, str]
    """File name → sha256 of our node programs."""
    agent_unit: str
    """The unit file of the agent."""
    key_file: Mapping[str, bytes] = field(repr=False)
    """By service: the key file as it should be; none for a service without a key."""


def decide(wanted: Wanted, facts: HostFacts, findings: list[Finding]) -> HostWork:
    """Compare. Whatever could not be read counts as not done: doing it again is harmless."""
    plan = wanted.plan
    services = known(facts.services, {})
    units = known(facts.units, {})
    images = known(facts.images, {})
    models = known(facts.models, {})
    fetches, releases, restored, keys, switches = [], [], [], [], []
    pulls: dict[str, None] = {}
    for service in plan.services:
        release = wanted.releases[service.name]
        found = services.get(service.name) or Service()
        if service.image.pinned not in images:
            pulls[service.image.pinned] = None
        for model in service.models:
            locked = wanted.models[service.name, model.role]
            there = models.get(model.dir)
            if there is None or not is_staged(there.stamp, there.files, locked):
                fetches.append(Fetch(service.name, model.role, locked, model.dir))
        key = wanted.key_file.get(service.name)
        if key and not _begins(sha256(key).hexdigest(), found.secret_sha256_prefix):
            keys.append(service.name)
        same = found.current == release.hash
        intact = same and found.files == release.digests
        if not intact:
            releases.append(release)
        unit = units.get(service.unit) or Unit()
        if same and not _unit_stands(unit, release):
            restored.append(release)
        switch = _switch(service, release, found, unit, facts, intact=intact)
        if switch:
            switches.append(switch)
    return HostWork(
        plan.name,
        programs=lacks_programs(wanted, facts),
        agent=lacks_agent(wanted, facts),
        toolkit=any(row.level == "mend" and row.check == "toolkit" for row in findings),
        pulls=tuple(pulls),
        fetches=tuple(_once(fetches)),
        releases=tuple(releases),
        units=tuple(restored),
        keys=tuple(keys),
        switches=tuple(switches),
    )


def lacks_programs(wanted: Wanted, facts: HostFacts) -> bool:
    """Whether the node programs differ from ours."""
    return installed_programs(facts) != dict(wanted.programs)


def lacks_agent(wanted: Wanted, facts: HostFacts) -> bool:
    """Whether the agent's unit is missing, differs or does not run."""
    return not _agent_stands(known(facts.units, {}), wanted.agent_unit)


def _switch(
    service: ServicePlan,
    release: Release,
    found: Service,
    unit: Unit,
    facts: HostFacts,
    *,
    intact: bool,
) -> Switch | None:
    name = service.name
    if found.current is None:
        return Switch(name, release.hash, "release", f"Start {name} for the first time.", True)
    if found.current != release.hash:
        why = f"Switch {name} from release {found.current} to {release.hash}."
        return Switch(name, release.hash, "release", why)
    if not intact:
        why = f"Start {name} again: its release was changed by hand."
        return Switch(name, release.hash, "start", why)
    container = _running(service, facts)
    state = found.state or {}
    if unit.active not in ("active", "activating", "reloading") or container is None:
        return Switch(name, release.hash, "start", f"Start {name}: it does not run.")
    if state.get("phase") in ("failed", "wedged", "down"):
        return Switch(name, release.hash, "start", f"Start {name} again: it is {state['phase']}.")
    ours = state.get("release") == release.hash and state.get("container") == container
    if state.get("phase") != "proven" or not ours:
        return Switch(name, release.hash, "prove", f"Prove {name}: it runs and is not proven yet.")
    return None


def _begins(whole: str, prefix: str | None) -> bool:
    return bool(prefix) and whole.startswith(str(prefix))


def _running(service: ServicePlan, facts: HostFacts) -> str | None:
    """The id of the service's running container."""
    for container in known(facts.containers, ()):
        if container.service == service.name and container.state == "running":
            return container.id
    return None


def installed_programs(facts: HostFacts) -> dict[str, str]:
    """File name → sha256 of the node programs that a host has."""
    files = known(facts.node_files, {})
    return {name: sha for name, sha in files.items() if ADDED_BY_PYTHON not in name}


def _unit_stands(unit: Unit, release: Release) -> bool:
    return (
        unit.file_sha256 == release.files[release.unit].sha256
        and unit.enabled == "enabled"
        and not unit.needs_reload
    )


def _agent_stands(units: Mapping[str, Unit], text: str) -> bool:
    unit = units.get(AGENT_UNIT) or Unit()
    good = unit.file_sha256 == sha256(text.encode()).hexdigest() and unit.enabled == "enabled"
    return good and unit.active in ("active", "activating") and not unit.needs_reload


def _once(fetches: list[Fetch]) -> list[Fetch]:
    """Two services that share a model share its files: one fetch a directory."""
    return list({fetch.dir: fetch for fetch in fetches}.values())
