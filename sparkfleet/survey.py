"""Ask every host at once, with one command each."""

from __future__ import annotations

from collections.abc import Mapping

import gevent
from pyinfra.api.inventory import Inventory

from sparkfleet.connector import SparkConnector
from sparkfleet.facts.command import DEADLINE, MARGIN, survey_command
from sparkfleet.facts.host import HostFacts
from sparkfleet.facts.survey import Unreachable, read_answer, survey_request
from sparkfleet.spec.plan import HostPlan


def survey_all(
    inventory: Inventory, plans: Mapping[str, HostPlan]
) -> dict[str, HostFacts | Unreachable]:
    """The facts of every planned host, or why there are none."""
    names = list(plans)
    jobs = [
        gevent.spawn(_survey, inventory.get_host(name).connector, plans[name]) for name in names
    ]
    gevent.joinall(jobs)
    return {name: job.get() for name, job in zip(names, jobs, strict=True)}


def _survey(connector: SparkConnector, plan: HostPlan) -> HostFacts | Unreachable:
    if connector.unreachable:
        return Unreachable(connector.unreachable)
    command = survey_command(survey_request(plan))
    limit = DEADLINE + MARGIN + 5
    # With a password the whole command runs under sudo; without one it makes itself root where it
    # may, and reads what it can where it may not.
    refused = ""
    if connector.state.config.SUDO_PASSWORD:
        answer = connector.run(command, sudo=True, timeout=limit)
        if answer.ok:
            return read_answer(answer.status, answer.text, answer.errors)
        refused = answer.errors
    answer = connector.run(command, sudo=False, timeout=limit)
    facts = read_answer(answer.status, answer.text, answer.errors)
    if refused and isinstance(facts, HostFacts) and not facts.privileged:
        # What it said of the password that was given, not of the one that was not.
        return facts.model_copy(update={"sudo_error": refused})
    return facts
