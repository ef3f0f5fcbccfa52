"""What is still to be done: all of it on a bare host, nothing on one that is as it should be."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from sparkfleet.facts.host import HostFacts
from sparkfleet.fleet import PROJECT
from sparkfleet.render import agent_unit, build_release
from sparkfleet.spec.catalog import load_catalog
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.inventory import parse_fleet
from sparkfleet.spec.lock import Lock, LockedFile, LockedImage, LockedModel, LockedRecipe
from sparkfleet.spec.resolve import resolve
from sparkfleet.work import Wanted, decide

KEY = b'api-key: "k"\n'
CONTAINER = "c" * 64


def locked_model(repo: str) -> LockedModel:
    file = LockedFile(path="model.safetensors", size=7, sha256="a" * 64, git_sha1=None)
    return LockedModel(
        repo=repo, revision="main", commit="1" * 40, date="2026-07-01T00:00:00+00:00", files=(file,)
    )


@pytest.fixture(scope="module")
def wanted() -> Wanted:
    catalog = load_catalog(PROJECT)
    recipe = catalog.recipes["qwen36-35b-heretic"]
    models = {role: locked_model(files.repo) for role, files in recipe.models.items()}
    image = LockedImage(repository=recipe.image.repository, digest="sha256:" + "d" * 64)
    lock = Lock().with_recipe(recipe.name, LockedRecipe(image=image, models=models))
    host = parse_fleet({"a": {"recipe": recipe.name}})["a"]
    plan = resolve(host, catalog, lock)
    return Wanted(
        plan=plan,
        releases={one.name: build_release(one, key_id="k1") for one in plan.services},
        models={("llm", role): model for role, model in models.items()},
        programs={"job.py": "p1"},
        agent_unit=agent_unit(plan.root),
        key_file={"llm": KEY},
    )


def bare(**changes: Any) -> HostFacts:
    answer: dict[str, Any] = {
        "time": 0.0,
        "received": 0.0,
        "python": "3.12.3",
        "privileged": True,
        "containers": [],
        "images": {},
        "units": {},
        "node_files": {},
        "services": {},
        "models": {},
    }
    return HostFacts.model_validate(answer | changes)


def settled(wanted: Wanted, **changes: Any) -> dict[str, Any]:
    """What a survey reads on a host that is as it should be; `changes` go into the one service."""
    service = wanted.plan.services[0]
    release = wanted.releases[service.name]
    state = {"release": release.hash, "container": CONTAINER, "phase": "proven"}
    found = {
        "current": release.hash,
        "files": release.digests,
        "state": state,
        "secret_sha256_prefix": sha256(KEY).hexdigest()[:12],
    }
    unit = {"load": "loaded", "active": "active", "enabled": "enabled"}
    return {
        "images": {service.image.pinned: "sha256:1"},
        "node_files": dict(wanted.programs),
        "units": {
            service.unit: unit | {"file_sha256": release.digests[release.unit]},
            "sparkfleet-agent.service": unit
            | {"file_sha256": sha256(wanted.agent_unit.encode()).hexdigest()},
        },
        "services": {service.name: found | changes},
        "containers": [
            {
                "name": service.container,
                "id": CONTAINER,
                "state": "running",
                "labels": {"sparkfleet.service": service.name},
            }
        ],
        "models": {
            model.dir: {
                "files": {"model.safetensors": (7, 5)},
                "stamp": {
                    "schema": 1,
                    "repo": model.repo,
                    "commit": model.commit,
                    "files": {"model.safetensors": {"size": 7, "mtime_ns": 5, "sha256": "a" * 64}},
                },
            }
            for model in service.models
        },
    }


def test_a_bare_host_needs_everything(wanted: Wanted) -> None:
    work = decide(wanted, bare(), [])
    assert work.programs and work.agent and work.keys == ("llm",)
    assert work.pulls == (wanted.plan.services[0].image.pinned,)
    assert [fetch.role for fetch in work.fetches] == ["model", "drafter"]
    assert [release.hash for release in work.releases] == [wanted.releases["llm"].hash]
    assert [(switch.kind, switch.first) for switch in work.switches] == [("release", True)]


def test_a_host_as_it_should_be_needs_nothing(wanted: Wanted) -> None:
    work = decide(wanted, bare(**settled(wanted)), [])
    assert work.nothing, work.sentences()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        pytest.param({"current": "0123456789ab"}, "release", id="another release"),
        pytest.param({"files": {"compose.yaml": "edited"}}, "start", id="edited by hand"),
        pytest.param({"state": {"phase": "down"}}, "start", id="down"),
        pytest.param({"state": None}, "prove", id="never proven"),
        pytest.param({"state": {"phase": "booting"}}, "prove", id="still booting"),
    ],
)
def test_a_service_that_is_not_right_is_switched(
    wanted: Wanted, changes: dict[str, Any], kind: str
) -> None:
    work = decide(wanted, bare(**settled(wanted, **changes)), [])
    assert [(switch.service, switch.kind) for switch in work.switches] == [("llm", kind)]


def test_a_service_that_does_not_run_is_started(wanted: Wanted) -> None:
    work = decide(wanted, bare(**settled(wanted) | {"containers": []}), [])
    assert [switch.kind for switch in work.switches] == ["start"]
    assert not work.releases and not work.fetches


def test_a_proof_of_another_container_does_not_count(wanted: Wanted) -> None:
    facts = settled(wanted)
    facts["containers"][0]["id"] = "e" * 64
    assert [switch.kind for switch in decide(wanted, bare(**facts), []).switches] == ["prove"]


def test_a_unit_changed_by_hand_is_put_back_without_a_restart(wanted: Wanted) -> None:
    facts = settled(wanted)
    facts["units"]["sparkfleet-llm.service"]["file_sha256"] = "edited"
    work = decide(wanted, bare(**facts), [])
    assert [release.service for release in work.units] == ["llm"]
    assert not work.switches


def test_a_touched_model_file_is_verified_again(wanted: Wanted) -> None:
    facts = settled(wanted)
    model = wanted.plan.services[0].models[0]
    facts["models"][model.dir]["files"] = {"model.safetensors": (7, 6)}
    assert [fetch.dir for fetch in decide(wanted, bare(**facts), []).fetches] == [model.dir]


def test_a_new_key_is_written(wanted: Wanted) -> None:
    work = decide(wanted, bare(**settled(wanted, secret_sha256_prefix="000000000000")), [])
    assert work.keys == ("llm",)


def test_what_could_not_be_read_counts_as_not_done(wanted: Wanted) -> None:
    facts = settled(wanted) | {"models": {"unknown": "I/O error"}}
    assert len(decide(wanted, bare(**facts), []).fetches) == 2


def test_the_toolkit_is_installed_where_the_check_says_so(wanted: Wanted) -> None:
    mend = Finding("mend", "a", "toolkit", "It is missing.")
    assert decide(wanted, bare(**settled(wanted)), [mend]).toolkit


def test_a_release_is_named_in_what_would_happen(wanted: Wanted) -> None:
    work = replace(decide(wanted, bare(), []), programs=False)
    assert any(wanted.releases["llm"].hash in sentence for sentence in work.sentences())
