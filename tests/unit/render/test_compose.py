"""The compose file: what stands in it, and that the engine's argv comes through it whole."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkfleet.render import compose_file
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.plan import ServicePlan

from .formats import interpolate
from .samples import COMMIT, DIGEST, recipe, service

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NASTY = st.text(st.sampled_from("$%{}\"'\\ #:-,\n\u2028é😀"))


def engine(plan: ServicePlan) -> dict[str, Any]:
    """The engine's part of the compose file, as Compose reads it."""
    document = interpolate(yaml.safe_load(compose_file(plan, "0123456789ab")))
    assert list(document["services"]) == ["engine"]
    part: dict[str, Any] = document["services"]["engine"]
    return part


@settings(deadline=None)  # other jobs may hold the machine
@given(st.lists(TEXT | NASTY), st.dictionaries(st.sampled_from(["A", "B_1"]), TEXT | NASTY))
def test_every_argument_and_variable_arrives_unchanged(
    words: list[str], env: dict[str, str]
) -> None:
    small = recipe()
    command = small.command.model_copy(update={"positional": tuple(words)})
    plan = service(
        recipe=small.model_copy(update={"command": command}), flags={}, env=env, auth="none"
    )
    read = engine(plan)
    assert read.get("command", []) == words
    assert read.get("environment", {}) == env


def test_a_value_of_a_flag_arrives_unchanged() -> None:
    plan = service(
        auth="none", flags={"text": "$HOME/${X} \"'\\ %n", "json": {"a": "$b", "c": [1, "é"]}}
    )
    assert engine(plan)["command"] == [
        "serve",
        "/model",
        "--text",
        "$HOME/${X} \"'\\ %n",
        "--json",
        '{"a":"$b","c":[1,"é"]}',
    ]


def test_the_image_is_started_by_digest_and_never_pulled() -> None:
    read = engine(service())
    assert read["image"] == f"registry.test/engine@{DIGEST}"
    assert read["pull_policy"] == "never"
    assert read["entrypoint"] == ["vllm"]


def test_an_image_that_keeps_its_entry_point_gets_none() -> None:
    image = recipe().image.model_copy(update={"entrypoint": None})
    assert "entrypoint" not in engine(service(recipe=recipe().model_copy(update={"image": image})))


def test_an_image_driven_by_its_environment_gets_no_flag() -> None:
    small = recipe()
    command = small.command.model_copy(update={"environment": {"port": "PORT"}, "positional": ()})
    plan = service(
        recipe=small.model_copy(update={"command": command}), env={"PORT": "8000"}, auth="none"
    )
    read = engine(plan)
    assert "command" not in read
    assert read["environment"] == {"PORT": "8000"}


def test_the_port_is_published_where_the_owner_said() -> None:
    read = engine(service(port=8001, bind="192.168.7.5"))
    assert read["ports"] == [
        {"target": 8000, "published": "8001", "host_ip": "192.168.7.5", "protocol": "tcp"}
    ]


def test_models_are_read_only_and_must_be_there_and_caches_are_kept_per_image() -> None:
    mounts = {row["target"]: row for row in engine(service())["volumes"]}
    model = mounts["/model"]
    assert model["source"] == f"/var/lib/sparkfleet/models/owner--model/{COMMIT}"
    assert model["read_only"] is True
    assert model["bind"]["create_host_path"] is False
    assert mounts["/drafter"]["read_only"] is True
    cache = mounts["/root/.cache/vllm"]
    assert cache["source"] == "/var/lib/sparkfleet/cache/0123456789ab/vllm"
    assert cache["read_only"] is False


def test_the_key_travels_as_a_file_and_the_engine_is_told_to_load_the_guard() -> None:
    read = engine(service(env={"PYTHONPATH": "/opt/lib"}))
    mounts = {row["target"]: row for row in read["volumes"]}
    key = mounts["/run/sparkfleet/key.yaml"]
    assert key["source"] == "/var/lib/sparkfleet/services/llm/secrets/engine.yaml"
    for name in ("engine.yaml", "sparkfleet_guard.py"):
        assert mounts[f"/run/sparkfleet/{name}"]["source"] == f"./{name}"
        assert mounts[f"/run/sparkfleet/{name}"]["read_only"] is True
    assert read["command"][-2:] == ["--config", "/run/sparkfleet/engine.yaml"]
    assert read["environment"]["PYTHONPATH"] == "/run/sparkfleet:/opt/lib"


def test_an_open_service_has_neither_key_nor_guard() -> None:
    read = engine(service(auth="none", flags={}))
    assert not [row for row in read["volumes"] if row["target"].startswith("/run/sparkfleet")]
    assert "environment" not in read


def test_it_asks_for_the_gpu_and_for_no_privilege() -> None:
    read = engine(service())
    assert read["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    ]
    assert "privileged" not in read
    assert read["security_opt"] == ["no-new-privileges:true"]


def test_docker_neither_restarts_nor_judges_the_engine_and_its_logs_are_bounded() -> None:
    read = engine(service())
    assert read["restart"] == "no"  # quoted in the file: a bare no is false
    assert read["healthcheck"] == {"disable": True}
    assert set(read["logging"]["options"]) == {"max-size", "max-file"}


def test_shared_memory_is_set_only_where_the_recipe_says() -> None:
    assert "shm_size" not in engine(service())
    assert engine(service(recipe=recipe(shm_size="16g")))["shm_size"] == "16g"


def test_labels_say_whose_container_it_is() -> None:
    assert engine(service())["labels"] == {
        "sparkfleet.service": "llm",
        "sparkfleet.recipe": "small",
        "sparkfleet.release": "0123456789ab",
    }


def test_a_variable_that_no_process_can_hold_is_refused() -> None:
    with pytest.raises(SpecError, match=r"BAD: .*NUL"):
        compose_file(service(env={"BAD": "a\0b"}))
