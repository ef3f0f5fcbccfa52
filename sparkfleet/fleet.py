"""The fleet of one run: what is wanted of each host, what was found there, and how it goes.

pyinfra runs the deploy file once per host with fresh globals; what the hosts share lives here.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkfleet.facts.host import HostFacts
from sparkfleet.facts.survey import Unreachable
from sparkfleet.keys import ApiKey, load_key
from sparkfleet.locking import read_lock, write_lock
from sparkfleet.once import Once
from sparkfleet.operations.lease import Holder
from sparkfleet.render import Answers
from sparkfleet.rolling import Policy
from sparkfleet.runs import Run
from sparkfleet.spec.catalog import Catalog, load_catalog
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.gateway import STATE_ROOT, GatewayPlan, GatewaySpec, plan_gateway
from sparkfleet.spec.inventory import HostSpec, parse_fleet
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.options import Options
from sparkfleet.spec.plan import HostPlan
from sparkfleet.spec.resolve import resolve
from sparkfleet.verdict import Failure, Verdict
from sparkfleet.work import HostWork, Wanted
from sparkfleet.work_gateway import GatewayWork

GROUP = "sparks"
"""The inventory group that the deploy works on."""

GATEWAYS = "gateway"
"""The inventory group of the hosts that run the gateway; there need not be one."""

STATE_VARIABLE = "SPARKFLEET_STATE"
"""Environment variable: where the controller keeps API keys instead of `.sparkfleet/`."""

PROJECT = Path(__file__).resolve().parents[1]
"""Where recipes/, hardware/ and templates/ stand."""


@dataclass
class Fleet:
    """The hosts of a run, in the order of the inventory."""

    specs: dict[str, HostSpec]
    catalog: Catalog
    key: ApiKey
    lock_path: Path
    lock: Lock
    plans: dict[str, HostPlan]
    run: Run
    """This run among others: who holds a host is told by it."""
    gateways: dict[str, GatewayPlan] = field(default_factory=dict)
    """The gateways that this run is for, by host; a host may be a Spark as well."""
    answers: Mapping[str, Answers] = field(default_factory=dict)
    """By Spark, where there are gateways: where its agent answers them."""
    gateway_work: dict[str, GatewayWork] = field(default_factory=dict)
    lock_is_new: bool = False
    """Filled in this run, and not what stands in the file."""
    facts: dict[str, HostFacts | Unreachable] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    wanted: dict[str, Wanted] = field(default_factory=dict)
    work: dict[str, HostWork] = field(default_factory=dict)
    holders: dict[str, Holder] = field(default_factory=dict)
    """By host: this run's lease, once it has one."""
    verdict: Verdict = field(default_factory=Verdict)
    once: Once = field(default_factory=Once)
    options: Options = field(default_factory=Options)
    """What this play alone was told with --data."""
    dry: bool = False
    """pyinfra was called with --dry: nothing is changed, on the controller neither."""
    json: bool = False
    """pyinfra was called with --json: standard output is for its JSON alone."""

    @property
    def partial(self) -> bool:
        """Whether the owner said to go on with the hosts that passed the checks."""
        return all(spec.partial for spec in self.specs.values())

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host of the run: the Sparks in the order of the inventory, then the gateways."""
        return tuple({**self.plans, **self.gateways})

    def root(self, host: str) -> str:
        """Where ours is kept on a host."""
        plan = self.plans.get(host)
        return plan.root if plan else STATE_ROOT

    @property
    def nothing(self) -> bool:
        """Whether every host is as it should be."""
        works: list[HostWork | GatewayWork] = [*self.work.values(), *self.gateway_work.values()]
        return all(work.nothing for work in works)

    @property
    def policy(self) -> Policy:
        """How the fleet is rolled: where hosts say different things, the most careful of them."""
        specs = self.specs.values()
        bounds = [one.max_unavailable for one in specs if one.max_unavailable is not None]
        canaries = [one.canary for one in specs if one.canary is not None]
        return Policy(
            batch=min((one.batch for one in specs), default=1),
            max_unavailable=min(bounds, default=None),
            canary=canaries[0] if canaries else None,
        )

    @property
    def failures(self) -> list[tuple[str, Failure]]:
        """What failed, with its host, in the order of the hosts."""
        found = self.verdict.failures
        return [(host, failure) for host in self.hosts for failure in found.get(host, [])]

    def remark(self, sentence: str) -> None:
        """Have the report end with this sentence, once."""
        if sentence not in self.verdict.remarks:
            self.verdict.remarks.append(sentence)

    def use_lock(self, lock: Lock) -> None:
        """Take a lock that was filled in this run: what it pins changes every plan."""
        if lock is not self.lock:
            self.lock, self.lock_is_new = lock, True
            self.plans = _resolve(self.specs, self.catalog, lock)

    def save(self) -> None:
        """Write what this run made on the controller: new pins, a new API key."""
        if self.lock_is_new:
            self.lock_path.parent.mkdir(parents=True, exist_ok=True)
            write_lock(self.lock_path, self.lock)
        self.key.save()


def begin(
    name: str,
    data: Mapping[str, Mapping[str, Any]],
    gateways: Mapping[str, GatewaySpec] | None = None,
    *,
    chosen: Collection[str] | None = None,
) -> Fleet:
    """Validate everything that can be known without a connection, and plan each host.

    `name` is the inventory's, such as `lab`; `data` is pyinfra's merged data of each Spark, in
    inventory order; `gateways` is what the inventory says of each. Only hosts in `chosen` are
    worked on, where it is given: but a gateway leads to all Sparks, chosen or not.
    Raises SpecError with every fault of every host.
    """
    global _current
    gateways = gateways or {}
    worked_on = [one for one in data if chosen is None or one in chosen]
    here = {one: spec for one, spec in gateways.items() if chosen is None or one in chosen}
    specs = parse_fleet(data if here else {one: data[one] for one in worked_on})
    extra = {spec.catalog: None for spec in specs.values() if spec.catalog}
    served = {service.recipe for spec in specs.values() for service in spec.services.values()}
    catalog = load_catalog(PROJECT, *extra, only=served)
    locks = {spec.lock for spec in specs.values()}
    if len(locks) > 1:
        raise SpecError(
            f"The hosts name different lock files ({', '.join(sorted(locks))}). One run pins one "
            "fleet: set `lock` once, in group_data."
        )
    canaries = {spec.canary for spec in specs.values() if spec.canary}
    if len(canaries) > 1:
        raise SpecError(
            f"The hosts name different canaries ({', '.join(sorted(canaries))}). One host goes "
            "first: set `canary` once, in group_data."
        )
    lock_path = PROJECT / locks.pop()
    lock = read_lock(lock_path)
    plans = _resolve(specs, catalog, lock)
    planned = plan_gateways(here, plans)
    state = Path(os.environ.get(STATE_VARIABLE, PROJECT / ".sparkfleet"))
    mine = {one: plans[one] for one in worked_on}
    _current = Fleet(
        {one: specs[one] for one in worked_on},
        catalog,
        load_key(state / f"{name}.key"),
        lock_path,
        lock,
        mine,
        Run(state),
        planned,
        answers_of(mine, gateways),
    )
    return _current


def plan_gateways(
    specs: Mapping[str, GatewaySpec], plans: Mapping[str, HostPlan]
) -> dict[str, GatewayPlan]:
    """The plan of each gateway. Raises SpecError with every fault of all."""
    planned, errors = {}, []
    for name, spec in specs.items():
        try:
            planned[name] = plan_gateway(name, spec, plans)
        except SpecError as error:
            errors.append(error)
    if errors:
        raise SpecError.gather(errors)
    return planned


def answers_of(
    plans: Mapping[str, HostPlan], gateways: Mapping[str, GatewaySpec]
) -> dict[str, Answers]:
    """By Spark: where its agent answers; nothing without a gateway."""
    if not gateways:
        return {}
    interval = max(spec.agent_interval for spec in gateways.values())
    return {
        name: Answers(
            tuple(
                (one.name, one.spec.agent_bind or one.bind, one.spec.agent_port)
                for one in plan.services
            ),
            len(gateways),
            interval,
        )
        for name, plan in plans.items()
    }


def current() -> Fleet:
    """The fleet of this run, made by `begin` before the first connection.

    Raises SpecError where the run was started past config.py, which is what begins it.
    """
    if _current is None:
        raise SpecError(
            "config.py was not read, so nothing was validated. Run pyinfra in sparkfleet's own "
            "directory and without --config: pyinfra inventory/lab.py deploy.py"
        )
    return _current


_current: Fleet | None = None


def _resolve(specs: Mapping[str, HostSpec], catalog: Catalog, lock: Lock) -> dict[str, HostPlan]:
    plans, errors = {}, []
    for name, spec in specs.items():
        try:
            plans[name] = resolve(spec, catalog, lock)
        except SpecError as error:
            errors.append(error)
    if errors:
        raise SpecError.gather(errors)
    return plans
