"""stage: node programs, toolkit, image by digest, models by commit; all hosts side by side."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from sparkfleet.checks.adoption import found_weights
from sparkfleet.checks.case import Case
from sparkfleet.checks.takeover import link_weights
from sparkfleet.connector import SparkConnector
from sparkfleet.console.progress import ProgressLines
from sparkfleet.facts.host import HostFacts, Unknown
from sparkfleet.fleet import Fleet
from sparkfleet.operations.bundle import Placement, install_script, tarball
from sparkfleet.operations.jobs import PROGRAMS, run_job
from sparkfleet.operations.step import at_the_end, say, step
from sparkfleet.programs import node_programs
from sparkfleet.spec.plan import HostPlan
from sparkfleet.stages.begin import this_host
from sparkfleet.stages.hold import hold
from sparkfleet.verdict import Failure
from sparkfleet.work import Fetch, HostWork

HOUR = 3600.0

PULL_TIMEOUT, FETCH_TIMEOUT, TOOLKIT_TIMEOUT = 6 * HOUR, 24 * HOUR, HOUR
"""Seconds after which watching a step ends; the slowest home lines were given room."""


def stage(fleet: Fleet) -> None:
    """Bring to the host whatever the new release needs, while the old one goes on serving."""
    work = fleet.work.get(this_host().name, HostWork(this_host().name))
    hold(fleet)
    if work.nothing:
        return
    at_the_end(
        name="Keep the pins and the key of this run",
        work=lambda: fleet.once.do("save", lambda: save(fleet)),
    )
    bring(fleet)


def bring(fleet: Fleet) -> None:
    """Programs, toolkit, images and models, as far as the host lacks them."""
    work = fleet.work.get(this_host().name, HostWork(this_host().name))
    if work.programs:
        step(fleet.verdict, "Install the node programs", install_programs(work))
    if work.toolkit:
        step(fleet.verdict, "Install the container toolkit", mend_toolkit(fleet))
    if work.pulls:
        step(fleet.verdict, "Pull the engine image", pull(fleet, work))
    if work.fetches:
        step(fleet.verdict, "Fetch the models", fetch(fleet, work))


def save(fleet: Fleet) -> None:
    """Write what this run made on the controller, unless it may change nothing."""
    if not fleet.verdict.refused:
        fleet.save()


def install_programs(work: HostWork) -> Any:
    """The step that puts the node programs in place, whole."""

    def run(connector: SparkConnector) -> Failure | None:
        files = {name: (text, 0o644) for name, text in node_programs().items()}
        programs = [Placement(PROGRAMS, files)]
        script = install_script(PROGRAMS.rpartition("/")[0], programs)
        answer = connector.run(script, stdin=tarball(programs), timeout=120)
        return None if answer.ok else _not_written("The node programs", answer.errors)

    return run


def mend_toolkit(fleet: Fleet) -> Any:
    """The step that installs and registers the NVIDIA container toolkit."""

    def run(connector: SparkConnector) -> Failure | None:
        spec = fleet.specs[connector.host.name]
        request = {"restart_docker": spec.restart_docker, "lock_wait": 600}
        return _job(fleet, connector, "toolkit", "toolkit.py", request, TOOLKIT_TIMEOUT)

    return run


def pull(fleet: Fleet, work: HostWork) -> Any:
    """The step that pulls each image that the host lacks."""

    def run(connector: SparkConnector) -> Failure | None:
        arch = fleet.plans[work.host].hardware.arch
        for reference in work.pulls:
            request = {"reference": reference, "platform": DOCKER_PLATFORMS.get(arch)}
            name = f"pull-{reference.rpartition(':')[2][:12]}"
            failure = _job(fleet, connector, name, "pull.py", request, PULL_TIMEOUT)
            if failure:
                return failure
        return None

    return run


DOCKER_PLATFORMS = {"aarch64": "linux/arm64", "x86_64": "linux/amd64"}
"""`uname -m` → what Docker calls it."""


def fetch(fleet: Fleet, work: HostWork) -> Any:
    """The step that brings the models, inside the engine image and as the owner's user."""

    def run(connector: SparkConnector) -> Failure | None:
        token_file = None
        try:
            if any(one.model.private for one in work.fetches):
                token_file = f"{fleet.plans[work.host].root}/secrets/hub-token"
                failure = hand_over_token(connector, token_file)
                if failure:
                    return failure
            failure = take_over_weights(fleet, connector)
            if failure:
                return failure
            request = fetch_request(fleet, work, token_file)
            return _job(fleet, connector, "fetch", "fetch.py", request, FETCH_TIMEOUT)
        finally:
            if token_file:
                connector.run(f"rm -f {shlex.quote(token_file)}")

    return run


def take_over_weights(fleet: Fleet, connector: SparkConnector) -> Failure | None:
    """Link weights that the owner downloaded by hand to where the fetch looks for them, if asked.

    The fetch then reads and verifies them as it does what it downloaded itself.
    """
    plan, facts = fleet.plans[connector.host.name], fleet.facts[connector.host.name]
    if not plan.spec.adopt or not isinstance(facts, HostFacts) or isinstance(facts.user, Unknown):
        return None
    found = found_weights(Case(plan, facts, fleet.lock))
    if not found:
        return None
    for weights in found:
        connector.host.log(f"Taking over {weights.model.repo} from {weights.source}.")
    script = link_weights(found, facts.user.uid, facts.user.gid)
    answer = connector.run(script, timeout=HOUR)
    return None if answer.ok else _not_written("The weights to take over", answer.errors)


def hand_over_token(connector: SparkConnector, target: str) -> Failure | None:
    """Put the controller's hub token into a root-only file on the host, through standard input."""
    from huggingface_hub import get_token  # needed for private repositories only

    token = get_token()
    if not token:
        return Failure(
            "A repository of this recipe wants a token, and this machine has none.",
            "It was pinned with one; the hub keeps it private or behind a gate.",
            "Log in here (hf auth login), then run the same command again.",
        )
    files = [Placement(target, {"": (token.encode(), 0o600)}, parent_mode=0o700)]
    script = install_script(target.rpartition("/")[0], files)
    answer = connector.run(script, stdin=tarball(files), timeout=60)
    return None if answer.ok else _not_written("The hub token", answer.errors)


def fetch_request(fleet: Fleet, work: HostWork, token_file: str | None) -> dict[str, Any]:
    """What node/fetch.py is asked for: every model of the host in one go."""
    plan, facts = fleet.plans[work.host], fleet.facts[work.host]
    assert isinstance(facts, HostFacts) and not isinstance(facts.user, Unknown)
    image = plan.service(work.fetches[0].service).image
    return {
        "image": image.pinned,
        "uid": facts.user.uid,
        "gid": facts.user.gid,
        "models_dir": plan.models_dir,
        "endpoint": plan.spec.hub_endpoint,
        "token_file": token_file,
        "models": [
            {
                "repo": one.model.repo,
                "commit": one.model.commit,
                "dir": one.dir,
                "files": [file.model_dump() for file in one.model.files],
                "tensors": _tensors(plan, one),
            }
            for one in work.fetches
        ],
    }


def _tensors(plan: HostPlan, fetch: Fetch) -> dict[str, Any] | None:
    for model in plan.service(fetch.service).models:
        if model.role == fetch.role and model.tensors:
            return model.tensors.model_dump(mode="json")
    return None


def _job(
    fleet: Fleet,
    connector: SparkConnector,
    name: str,
    program: str,
    request: Mapping[str, Any],
    timeout: float,
) -> Failure | None:
    host = connector.host
    outcome = run_job(
        connector,
        root=fleet.plans[host.name].root,
        name=name,
        program=program,
        request=request,
        timeout=timeout,
        watch=ProgressLines(say(host)),
    )
    return None if outcome.ok else failure_of(outcome.error)


def failure_of(error: Mapping[str, Any], log: tuple[str, ...] = ()) -> Failure:
    """A job's error as a failure of the run."""
    what, where = str(error.get("what", "A step failed.")), str(error.get("where", ""))
    return Failure(
        f"{what} ({where})" if where else what,
        str(error.get("why", "")),
        str(error.get("next", "")),
        log,
    )


def _not_written(what: str, why: str) -> Failure:
    return Failure(
        f"{what} could not be written.",
        why,
        "Look at the file systems of the host (full, read-only?), then run the same command again.",
    )
