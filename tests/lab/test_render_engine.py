"""Every recipe's command line, as we render it, read by the real engine's own argument parser.

The engines here are newer than those that the recipes are bound to, and built for the CPU: an
option or a key that they know by its whole name is no slip of ours. What they do with it on a
Spark only a Spark can tell.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.api import Lab
from lab.engine.plan import ENGINE, VERSIONS
from sparkfleet.node.floors import PROGRAM
from sparkfleet.render import build_release
from sparkfleet.spec.command import render_argv
from sparkfleet.spec.plan import ServicePlan
from tests.documents import example_plan
from tests.golden import plans

pytestmark = [pytest.mark.lab, pytest.mark.engine]

JUDGE = Path(__file__).with_name("judge_argv.py")
CASES = dict(plans()) | dict([example_plan()])

SLIPS = {
    "typo": (["--max-num-sequences", "4"], "--max-num-sequences is no option"),
    "short form": (["--max-num-seq", "4"], "--max-num-seq is no option"),
    "twice": (["--port", "8000", "--port", "8001"], "--port stands twice"),
    "key": (["--speculative-config", '{"method":"dflash","num_tokens":1}'], "no key num_tokens"),
    "parser": (["--tool-call-parser", "qwen3_code"], "--tool-call-parser knows no qwen3_code"),
    "value": (["--max-num-seqs", "many"], "invalid"),
}
"""What the judge itself must find: words and what it says of them."""


def words(plan: ServicePlan) -> list[str]:
    """The engine's argv: what the compose file says, or what the image's start script makes."""
    if plan.recipe.command.environment:
        return render_argv(["serve", plan.models[0].mount], plan.flags)
    compose = yaml.safe_load(build_release(plan).files["compose.yaml"].content)
    return [word.replace("$$", "$") for word in compose["services"]["engine"]["command"]]


@pytest.fixture(scope="module", params=VERSIONS)
def verdicts(lab: Lab, host: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What one version of the engine says of all of them, in one container: it takes 10 s to
    come."""
    rows = {
        name: {"argv": words(plan), "config": build_release(plan).files["engine.yaml"].content}
        for name, plan in CASES.items()
    }
    rows |= {name: {"argv": ["serve", "/m", *slip], "config": ""} for name, (slip, _) in
             SLIPS.items()}  # fmt: skip
    reference = f"{lab.registry}/{ENGINE}:{request.param}"
    lab.exec(host, ["docker", "pull", "-q", reference], timeout=300, check=True)
    argv = ["docker", "run", "--rm", "--network=none", "--entrypoint=python3", reference]
    argv += ["-c", JUDGE.read_text(), json.dumps(rows)]
    done = lab.exec(host, argv, timeout=300, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_real_engine_takes_every_word_of_every_recipe(verdicts: dict[str, Any]) -> None:
    wrong = {name: verdicts[name]["wrong"] for name in CASES if verdicts[name]["wrong"]}
    assert wrong == {}


def test_it_reads_what_the_recipes_say(verdicts: dict[str, Any]) -> None:
    for name, plan in CASES.items():
        read = verdicts[name]["read"]
        for flag, value in plan.flags.items():
            if flag in ("config", "compilation-config"):
                continue  # the one is read and gone, the other becomes an object
            found = read[flag.replace("-", "_")]
            assert str(found).lower() == str(value).lower(), (name, flag)
        assert read["middleware"] == ["sparkfleet_guard.KeyGuard"]
        assert not read["api_key"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_image_tells_what_it_holds(lab: Lab, host: str, version: str) -> None:
    """As the floors of a recipe are checked; the CPU build has no CUDA and no FlashInfer."""
    floors = json.dumps({"vllm": "999", "flashinfer": "0.6.8", "cuda": "12.9"})
    argv = ["docker", "run", "--rm", "--network=none", "--entrypoint=python3"]
    argv += [f"{lab.registry}/{ENGINE}:{version}", "-c", PROGRAM.read_text(), floors]
    said = json.loads(lab.exec(host, argv, timeout=60, check=True).stdout)
    assert said["found"] == {"vllm": f"{version}+cpu", "flashinfer": None, "cuda": None}
    assert said["below"] == ["vllm"]


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_would_be_found(verdicts: dict[str, Any], slip: str) -> None:
    assert SLIPS[slip][1] in " ".join(verdicts[slip]["wrong"])
