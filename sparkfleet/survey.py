"""Ask every host at once, with one command each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gevent
from gevent.event import Event
from pyinfra.api.inventory import Inventory

from sparkfleet.connector import SparkConnector
from sparkfleet.facts.command import DEADLINE, MARGIN, survey_command
from sparkfleet.facts.host import HostFacts
from sparkfleet.facts.survey import Unreachable, read_answer

BEGUN_SECONDS = 1.0
"""How long a slow host may hold up what is done meanwhile."""


def survey_all(
    inventory: Inventory,
    requests: Mapping[str, Mapping[str, Any]],
    meanwhile: Callable[[], object] = lambda: None,
) -> dict[str, HostFacts | Unreachable]:
    """The facts of every host in `requests` (see survey_request), or why there are none.

    `meanwhile` is called once all hosts are at it: a survey takes them 0.2 s at the least.
    """
    begun = {name: Event() for name in requests}

    def one(name: str) -> HostFacts | Unreachable:
        connector = inventory.get_host(name).connector
        assert isinstance(connector, SparkConnector)
        try:
            return _survey(connector, requests[name], begun[name].set)
        finally:
            begun[name].set()

    jobs = {name: gevent.spawn(one, name) for name in requests}
    gevent.wait(list(begun.values()), timeout=BEGUN_SECONDS)
    meanwhile()
    gevent.joinall(list(jobs.values()))
    return {name: job.get() for name, job in jobs.items()}


def _survey(
    connector: SparkConnector, request: Mapping[str, Any], begun: Callable[[], object]
) -> HostFacts | Unreachable:
    if connector.unreachable:
        return Unreachable(connector.unreachable)
    command = survey_command(request)
    limit = DEADLINE + MARGIN + 5
    # With a password the whole command runs under sudo; without one it makes itself root where it
    # may, and reads what it can where it may not.
    refused = ""
    if connector.state.config.SUDO_PASSWORD:
        answer = connector.run(command, sudo=True, timeout=limit, begun=begun)
        if answer.ok:
            return read_answer(answer.status, answer.text, answer.errors)
        refused = answer.errors
    answer = connector.run(command, sudo=False, timeout=limit, begun=begun)
    facts = read_answer(answer.status, answer.text, answer.errors)
    if refused and isinstance(facts, HostFacts) and not facts.privileged:
        # What it said of the password that was given, not of the one that was not.
        return facts.model_copy(update={"sudo_error": refused})
    return facts
