"""The survey as a pyinfra fact, and the pure reading of its answer.

.. code:: python

    answer = host.get_fact(Survey, request=json.dumps(survey_request(plan)), _sudo=True)
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pyinfra.api.facts import FactBase

from sparkfleet.facts.command import NO_PYTHON, survey_command
from sparkfleet.facts.host import HostFacts
from sparkfleet.spec.gateway import (
    CERTIFICATE,
    CONFIG,
    GATEWAY_SOCKET,
    GATEWAY_UNIT,
    STATE_ROOT,
    UNITS,
    GatewayPlan,
    is_address,
)
from sparkfleet.spec.plan import HostPlan

SCHEMA = 1

AGENT_UNIT = "sparkfleet-agent.service"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A host of which nothing is known, and the raw text that says why."""

    raw: str


def survey_request(plan: HostPlan | None, gateway: GatewayPlan | None = None) -> dict[str, Any]:
    """What the survey shall read of a Spark, of a gateway's host, or of one that is both."""
    request: dict[str, Any] = _of_spark(plan) if plan else {"root": STATE_ROOT}
    if gateway is not None:
        ports = request.get("ports", []) + [one.port for _, one in gateway.endpoints]
        units = [*request.get("units", []), GATEWAY_UNIT, GATEWAY_SOCKET]
        named = {one.address for route in gateway.routes for one in route.servers}
        request |= {
            "ports": ports,
            "units": units,
            "gateway": {
                "files": [CONFIG, CERTIFICATE, *(f"{UNITS}/{one}" for one in units[-2:])],
                "names": sorted(name for name in named if not is_address(name)),
            },
        }
    return request


def _of_spark(plan: HostPlan) -> dict[str, Any]:
    services = plan.services
    return {
        "root": plan.root,
        "models_dir": plan.models_dir,
        "services": [service.name for service in services],
        "ports": [one.port for one in services] + [one.spec.agent_port for one in services],
        "units": [*(service.unit for service in services), AGENT_UNIT],
        "containers": [
            name for service in services for name in (service.container, service.recipe.container)
        ],
        "model_dirs": [model.dir for service in services for model in service.models],
        "repos": sorted({model.repo for service in services for model in service.models}),
    }


def parse_survey(lines: Sequence[str], received: float | None = None) -> HostFacts | Unreachable:
    """Read what a survey printed. Pure but for the clock, which a caller may give.

    Lines before the answer (a login message, a warning) are skipped; where there is no answer at
    all, everything printed becomes the raw text of an Unreachable.
    """
    if NO_PYTHON in lines:
        return Unreachable("python3: not found")
    for line in reversed(lines):
        if not line.startswith('{"schema":'):
            continue
        try:
            answer = json.loads(line)
            if answer["schema"] != SCHEMA:
                continue
            return HostFacts.model_validate({"received": received or time.time(), **answer})
        except (ValueError, ValidationError) as error:
            return Unreachable(f"{error}\n{line[:2000]}")
    return Unreachable("\n".join(lines).strip() or "the survey printed nothing")


def read_answer(status: int | None, stdout: str, stderr: str) -> HostFacts | Unreachable:
    """Read one remote command's outcome: the survey always exits with 0, so anything else is the
    connection's or sudo's word. `status` is None where no answer came."""
    if status != 0:
        return Unreachable(stderr.strip() or stdout.strip() or f"exit status {status}")
    return parse_survey(stdout.splitlines())


class Survey(FactBase[HostFacts | Unreachable]):
    """One bulk read of a host: everything the checks, the stages and the report ask about."""

    def command(self, request: str) -> str:
        """The survey's command; `request` is the JSON of `survey_request`."""
        return survey_command(json.loads(request))

    def process(self, output: list[str]) -> HostFacts | Unreachable:
        """The typed answer."""
        return parse_survey(output)
