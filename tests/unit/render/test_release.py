"""A release is named by what it runs: nothing more, nothing less, and the same bytes every time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from sparkfleet.render import build_release
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.inventory import ServiceSpec
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.release import Timing, probe_url

from .samples import DIGEST, recipe, service

Change = Callable[[ServicePlan], ServicePlan]


def _model(plan: ServicePlan, **changes: Any) -> ServicePlan:
    return replace(plan, models=(replace(plan.models[0], **changes), *plan.models[1:]))


RUNS_SOMETHING_ELSE: dict[str, Change] = {
    "one character of a flag": lambda p: replace(
        p, flags={**p.flags, "served-model-name": "smalk"}
    ),
    "the order of flags": lambda p: replace(p, flags=dict(reversed(p.flags.items()))),
    "a variable": lambda p: replace(p, env={"A": "1"}),
    "the digest": lambda p: replace(p, image=replace(p.image, digest=DIGEST[:-1] + "d")),
    "a commit": lambda p: _model(p, commit="b" * 40, dir="/elsewhere/b"),
    "a mount": lambda p: _model(p, mount="/modem"),
    "the port": lambda p: replace(p, port=8001),
    "the address": lambda p: replace(p, bind="0.0.0.0"),
    "the guard": lambda p: replace(p, auth="none"),
    "the container's name": lambda p: replace(p, container="smaller"),
    "the restart cap": lambda p: replace(p, recipe=recipe(restart={"burst": 4})),
    "the boot's limit": lambda p: replace(
        p,
        recipe=p.recipe.model_copy(
            update={"boot": p.recipe.boot.model_copy(update={"timeout_minutes": 31.0})}
        ),
    ),
    "the page cache": lambda p: replace(p, recipe=recipe(drop_page_cache=False)),
    "shared memory": lambda p: replace(p, recipe=recipe(shm_size="16g")),
    "a proof": lambda p: replace(p, recipe=recipe(proof_timeout=181.0)),
}

RUNS_THE_SAME: dict[str, Change] = {
    "nothing": lambda p: p,
    "the host": lambda p: replace(p, host="spark-b"),
    "how the utilization was said": lambda p: replace(
        p, spec=ServiceSpec(recipe="small", utilization=0.85)
    ),
    "an override's wording": lambda p: replace(p, notes=("rule x overridden: because",)),
    "a tag beside the same digest": lambda p: replace(p, image=replace(p.image, tag="two")),
    "a description": lambda p: replace(p, recipe=recipe(description="Made up, in other words.")),
}


@pytest.mark.parametrize("name", RUNS_SOMETHING_ELSE)
def test_what_runs_differently_has_another_hash(name: str) -> None:
    plan = service()
    assert build_release(RUNS_SOMETHING_ELSE[name](plan)).hash != build_release(plan).hash


@pytest.mark.parametrize("name", RUNS_THE_SAME)
def test_what_runs_the_same_has_the_same_hash_and_bytes(name: str) -> None:
    plan = service()
    assert build_release(RUNS_THE_SAME[name](plan)) == build_release(plan)


def test_a_new_key_is_a_new_release_and_an_unused_one_is_not() -> None:
    closed, opened = service(), service(auth="none")
    assert build_release(closed, key_id="one").hash != build_release(closed, key_id="two").hash
    assert build_release(opened, key_id="one") == build_release(opened, key_id="two")


def test_the_files_and_their_modes() -> None:
    release = build_release(service())
    assert {name: file.mode for name, file in release.files.items()} == {
        "compose.yaml": 0o600,
        "sparkfleet-llm.service": 0o644,
        "release.json": 0o644,
        "proof.json": 0o644,
        "engine.yaml": 0o644,
        "sparkfleet_guard.py": 0o644,
    }
    assert release.unit == "sparkfleet-llm.service"
    assert len(release.hash) == 12
    assert all(len(digest) == 64 for digest in release.digests.values())


def test_the_manifest_and_the_label_carry_the_hash() -> None:
    release = build_release(service())
    assert json.loads(release.files["release.json"].content)["release"] == release.hash
    assert f'"sparkfleet.release": "{release.hash}"' in release.files["compose.yaml"].content


def test_the_manifest_says_what_the_node_needs() -> None:
    said = json.loads(build_release(service(), key_id="k1").files["release.json"].content)
    assert said["image"] == f"registry.test/engine@{DIGEST}"
    assert said["key_file"] == "/var/lib/sparkfleet/services/llm/secrets/engine.yaml"
    assert said["key_id"] == "k1"
    assert said["boot_timeout"] == 1800
    assert said["models"]["drafter"]["repo"] == "owner/drafter"
    assert said["markers"] == [
        {"text": "startup complete", "label": "serving", "usual_seconds": None}
    ]


def test_the_proof_names_the_key_file_and_not_the_key() -> None:
    said = json.loads(build_release(service()).files["proof.json"].content)
    assert said["url"] == "http://127.0.0.1:8000"
    assert said["names"] == ["small", "small-fast"]
    assert said["draft_counters"] is True
    assert said["key_file"] == "/var/lib/sparkfleet/services/llm/secrets/engine.yaml"
    assert said["logs"]["container"] == "small"
    assert said["proofs"][0]["expect"]["contains"] == "2"
    opened = json.loads(build_release(service(auth="none")).files["proof.json"].content)
    assert opened["key_file"] is None


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("192.168.7.5", "http://192.168.7.5:8000"),
        ("::", "http://[::1]:8000"),
        ("fd00::7", "http://[fd00::7]:8000"),
    ],
)
def test_the_probe_asks_where_the_port_is_bound(bind: str, url: str) -> None:
    assert probe_url(bind, 8000) == url


def test_each_time_outlasts_the_one_within_it() -> None:
    timing = Timing.of(service())
    assert timing.shutdown == 30
    assert timing.shutdown < timing.grace < timing.stop
    # A burst of the slowest boots, each stopped in the slowest way, still counts as one burst.
    assert timing.window > timing.burst * (timing.boot + timing.stop)


def test_what_is_not_pinned_is_not_released() -> None:
    loose = service()
    loose = replace(
        loose,
        image=replace(loose.image, digest=None),
        models=(replace(loose.models[0], commit=None), loose.models[1]),
    )
    with pytest.raises(SpecError) as caught:
        build_release(loose)
    text = str(caught.value)
    assert "spark-a" in text and "llm" in text
    assert "registry.test/engine:one" in text and "owner/model at main" in text
    assert "owner/drafter" not in text


@pytest.mark.parametrize("flags", [{}, {"config": "/else.yaml"}])
def test_a_service_with_a_key_that_nothing_checks_is_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="spark-a, service llm: auth is key, but") as caught:
        build_release(service(flags=flags))
    assert caught.value.key == "auth"


@pytest.mark.parametrize("extra", [None, "EXTRA_ARGS"])
def test_an_image_driven_by_its_environment_must_carry_the_guard_too(extra: str | None) -> None:
    small = recipe()
    command = small.command.model_copy(update={"environment": {"port": "PORT"}, "extra": extra})
    plan = service(recipe=small.model_copy(update={"command": command}))
    if extra:
        assert "sparkfleet_guard.py" in build_release(plan).files
    else:
        with pytest.raises(SpecError, match="would answer anyone"):
            build_release(plan)


def test_the_guard_is_part_of_a_guarded_release() -> None:
    files = build_release(service()).files
    config = yaml.safe_load(files["engine.yaml"].content)
    assert config == {"middleware": "sparkfleet_guard.KeyGuard"}
    assert "class KeyGuard" in files["sparkfleet_guard.py"].content
    assert "sparkfleet_guard.py" not in build_release(service(auth="none")).files
