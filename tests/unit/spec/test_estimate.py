"""What a share of memory goes into: estimates that say what they rest on, and the engine's word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.spec.catalog import Catalog
from sparkfleet.spec.estimate import Figure, Seen, kv_bytes_per_token, spend
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.resolve import resolve

Serve = Callable[..., ServicePlan]
B = "huihui-qwen36-35b"
QWEN36 = {
    "num_hidden_layers": 40,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
}


@pytest.mark.parametrize(
    ("config", "dtype", "size"),
    [
        (QWEN36, "auto", 20480),  # what recipe A's sources give: 5 GiB for 262,144 tokens
        (QWEN36, "fp8_e4m3", 10240),
        (QWEN36 | {"layer_types": ["linear_attention"] * 30 + ["full_attention"] * 10}, "auto",
         20480),
        ({"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096,
          "num_key_value_heads": 8}, "auto", 131072),  # Llama 3 8B: 128 KiB
        ({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}, "auto", 512),
        ({}, "auto", None),
        ({"num_hidden_layers": 2, "num_key_value_heads": 2}, "auto", None),
        ({"num_hidden_layers": "two", "num_key_value_heads": 2, "head_dim": 8}, "auto", None),
        (QWEN36 | {"layer_types": ["linear_attention"] * 40}, "auto", None),
    ],
)  # fmt: skip
def test_bytes_a_token_by_config_json(
    config: dict[str, Any], dtype: str, size: float | None
) -> None:
    assert kv_bytes_per_token(config, dtype) == size


@given(st.dictionaries(st.sampled_from([*QWEN36, "layer_types"]), st.none() | st.booleans() |
       st.integers() | st.floats() | st.text() | st.lists(st.text())))  # fmt: skip
def test_any_config_json_is_read_or_let_be(config: dict[str, Any]) -> None:
    found = kv_bytes_per_token(config)
    assert found is None or found > 0


def test_before_the_first_boot_the_recipes_figures_are_estimates(serve: Serve) -> None:
    spent = spend(serve(preset="shared"), 121.7)
    assert spent.claim_gib == pytest.approx(85.19)
    assert spent.weights == Figure(22.6, "recipe")
    assert spent.kv_gib is not None and spent.kv_gib.value == pytest.approx(62.59)
    assert spent.kv_tokens is not None and spent.kv_tokens.origin == "recipe"
    assert spent.kv_tokens.value == pytest.approx(62.59 * 2**30 / 20480)
    assert spent.sequences == pytest.approx(12.5, abs=0.05)
    assert {figure.sign for figure in (spent.weights, spent.kv_gib, spent.kv_tokens)} == {"≈"}


def test_unsaid_weights_are_those_that_are_pinned(catalog: Catalog) -> None:
    """B's source gives no size; without pins nothing is made up."""
    host = parse_host("h1", {"recipe": B})
    plain = resolve(host, catalog, None).services[0]
    assert spend(plain, 121.7).weights is None and spend(plain, 121.7).kv_gib is None
    lock = locked(B, plain, size=3 * 2**30)
    service = resolve(host, catalog, lock).services[0]
    assert spend(service, 121.7, lock=lock).weights == Figure(3.0, "pinned files")


def test_unsaid_bytes_a_token_are_the_models(catalog: Catalog) -> None:
    recipe = catalog.recipes["qwen36-27b"]
    assert recipe.memory.kv_bytes_per_token is None
    service = resolve(parse_host("h1", {"recipe": recipe.name}), catalog, None).services[0]
    assert spend(service, 121.7).kv_tokens is None
    spent = spend(service, 121.7, config=QWEN36)
    assert spent.kv_gib is not None and spent.kv_tokens is not None
    assert spent.kv_tokens.value == pytest.approx(spent.kv_gib.value * 2**30 / 10240)
    assert (spent.kv_tokens.origin, spent.kv_tokens.sign) == ("config.json", "≈")


def locked(key: str, service: ServicePlan, size: int = 0) -> Lock:
    """Pins of a service's models, each of one file."""
    file = {"path": "model.safetensors", "size": size, "sha256": "d" * 64}
    models = {
        model.role: {"repo": model.repo, "commit": "a" * 40, "date": "2026-09-01", "files": [file]}
        for model in service.models
    }
    image = {"repository": service.image.repository, "tag": service.image.tag,
             "digest": service.image.digest}  # fmt: skip
    return Lock.model_validate({"schema": 1, "recipes": {key: {"image": image, "models": models}}})


def booted(service: ServicePlan, **changes: Any) -> dict[str, Any]:
    """What the node keeps of a boot at utilization 0.70."""
    return {
        "schema": 1,
        "release": "r1",
        "image": service.image.pinned,
        "utilization": 0.7,
        "models": {model.role: model.dir for model in service.models},
        "model_gib": 22.1,
        "kv_gib": 55.3,
        "kv_tokens": 2_900_000,
    } | changes


def test_the_engines_own_figures_replace_them(serve: Serve) -> None:
    service = serve(preset="shared")
    seen = Seen.of(booted(service), service)
    spent = spend(service, 121.7, seen=seen, release="r1")
    assert spent.weights == Figure(22.1, "boot log", exact=True)
    assert spent.kv_gib == Figure(55.3, "boot log", exact=True)
    assert spent.kv_tokens == Figure(2_900_000, "boot log", exact=True)


def test_for_another_release_they_are_carried_over_and_marked(serve: Serve) -> None:
    """85.2 − 55.3 GiB were no KV cache at 0.70; nor will they be at 0.85."""
    service = serve(preset="alone")
    seen = Seen.of(booted(service), service)
    spent = spend(service, 121.7, seen=seen, release="r2")
    assert spent.kv_gib is not None and spent.kv_gib.sign == "≈"
    assert spent.kv_gib.value == pytest.approx(121.7 * 0.85 - (121.7 * 0.7 - 55.3))
    assert spent.kv_tokens is not None
    assert spent.kv_tokens.value == pytest.approx(spent.kv_gib.value / 55.3 * 2_900_000)


@pytest.mark.parametrize("changes", [{"image": "other@sha256:1"}, {"models": {"model": "/x"}}])
def test_a_boot_of_something_else_tells_nothing(serve: Serve, changes: dict[str, Any]) -> None:
    service = serve()
    assert Seen.of(booted(service, **changes), service) is None
    assert Seen.of(None, service) is None


def test_a_cpu_build_tells_the_tokens_only(serve: Serve) -> None:
    service = serve()
    seen = Seen.of(booted(service, model_gib=None, kv_gib=None), service)
    spent = spend(service, 121.7, seen=seen, release="r1")
    assert spent.kv_tokens == Figure(2_900_000, "boot log", exact=True)
    assert spent.weights == Figure(22.6, "recipe")
    assert spent.kv_gib is not None and not spent.kv_gib.exact
