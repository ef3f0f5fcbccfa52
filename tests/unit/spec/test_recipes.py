"""Every recipe: whole, within its own rules, and each with its own scars."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkfleet.spec.catalog import Catalog
from sparkfleet.spec.command import render_argv
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.image import ProvenImage
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.resolve import resolve

Serve = Callable[..., ServicePlan]
Refused = Callable[..., SpecError]
NAMES = [
    "gemma4-26b",
    "gemma4-31b-deckard",
    "huihui-qwen36-35b",
    "ornith-35b",
    "qwen36-27b",
    "qwen36-35b-heretic",
]


def test_all_are_there(catalog: Catalog) -> None:
    assert sorted(catalog.recipes) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_resolves_with_every_preset_and_variant(catalog: Catalog, name: str) -> None:
    recipe = catalog.recipes[name]
    for variant in [None, *recipe.variants]:
        for preset in recipe.presets:
            keys = {"recipe": name, "preset": preset, **({"variant": variant} if variant else {})}
            plan = resolve(parse_host("h1", keys), catalog, None)
            assert plan.findings == ()
            service = plan.services[0]
            assert service.utilization == recipe.preset(preset).utilization
            assert service.recipe.boot.markers and service.logs.fatal
            assert service.key_file == "/var/lib/sparkfleet/services/llm/secrets/engine.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_says_where_it_comes_from(catalog: Catalog, name: str) -> None:
    recipe = catalog.recipes[name]
    assert recipe.responsibility and recipe.published and recipe.sources
    assert recipe.boot.timeout_minutes * 60 > max(recipe.boot.first_minutes) * 60
    assert all(proof.params["max_tokens"] for proof in recipe.proofs)
    today = datetime.date.today()
    assert all(m.not_before is None or m.not_before <= today for m in recipe.models.values())


FIGURES = ("presets", "disk_gib", "shm_size", "env", "proof_timeout")
"""Keys that have no source of their own beside them."""


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_a_source_or_is_a_choice(catalog: Catalog, name: str) -> None:
    recipe = catalog.recipes[name]
    said = {*recipe.sources_of, *(choice.key for choice in recipe.choices)}
    wanted = [key for key in FIGURES if key in recipe.model_fields_set and getattr(recipe, key)]
    for key in wanted:
        parts = {f"{key}.{part}" for part in recipe.presets} if key == "presets" else {None}
        assert key in said or parts <= said, (key, said)
    if any((recipe.memory.weights_gib, recipe.memory.kv_bytes_per_token, recipe.memory.free_gib)):
        assert recipe.memory.source
    for line in (*recipe.logs.forbidden, *recipe.logs.required):
        assert line.source, line.text


UNDONE: list[tuple[str, str, dict[str, Any], str]] = [
    ("huihui-qwen36-35b", "kv-cache-auto", {"flags": {"kv-cache-dtype": "fp8"}}, "FP8 KV"),
    ("huihui-qwen36-35b", "mtp-one-token",
     {"flags": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 3}}},
     "state-rollback"),
    ("huihui-qwen36-35b", "dflash-backend",
     {"variant": "dflash", "flags": {"attention-backend": "flashinfer"}}, "incompatible"),
    ("gemma4-26b", "triton-body", {"flags": {"attention-backend": "flash_attn"}}, "head sizes"),
    ("gemma4-26b", "flash-attn-drafter",
     {"flags": {"speculative-config": {"method": "dflash", "model": "/drafter",
                                       "num_speculative_tokens": 10}}}, "does not inherit"),
    ("gemma4-26b", "no-marlin", {"env": {"VLLM_TEST_FORCE_FP8_MARLIN": "1"}}, "four-bit path"),
    ("gemma4-26b", "no-nvfp4-kv", {"flags": {"kv-cache-dtype": "nvfp4"}}, "non-causal"),
    ("ornith-35b", "sixteen-sequences", {"flags": {"max-num-seqs": 32}}, "crash the whole host"),
    ("ornith-35b", "max-utilization", {"utilization": 0.71}, "not counted"),
    ("ornith-35b", "no-fp8-kv", {"flags": {"kv-cache-dtype": "fp8"}}, "crashes at init"),
    ("ornith-35b", "mamba-float32", {"flags": {"mamba-cache-dtype": None}}, "precision"),
    ("qwen36-27b", "fp8-kv", {"flags": {"kv-cache-dtype": None}}, "FP8 KV"),
    ("qwen36-27b", "modelopt", {"flags": {"quantization": "compressed-tensors"}}, "modelopt"),
    ("gemma4-31b-deckard", "max-utilization", {"utilization": 0.85}, "memory pressure"),
    ("gemma4-31b-deckard", "fifteen-tokens",
     {"flags": {"speculative-config": {"method": "dflash", "model": "/models/gemma-dflash",
                                       "num_speculative_tokens": 11,
                                       "attention_backend": "flash_attn"}}}, "Keep 15"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "rule", "keys", "reason"), UNDONE, ids=[f"{row[0]}-{row[1]}" for row in UNDONE]
)
def test_undoing_is_refused_with_the_reason(
    refused: Refused, name: str, rule: str, keys: dict[str, Any], reason: str
) -> None:
    error = refused(recipe=name, **keys)
    message = next(str(part) for part in error.errors if f"Rule {rule}:" in str(part))
    assert reason in message


def test_every_rule_of_every_recipe_is_tried(catalog: Catalog) -> None:
    """A new row comes with a try at undoing it, or with a line here that says why not."""
    tried = {(row[0], row[1]) for row in UNDONE}
    not_tried = {
        ("gemma4-26b", "no-removed-backend-variable"): "as no-marlin",
        ("ornith-35b", "compressed-tensors"): "as modelopt",
        ("ornith-35b", "flash-attn"): "as triton-body",
        ("qwen36-27b", "triton-body"): "as gemma4-26b",
        ("qwen36-27b", "triton-drafter"): "as flash-attn-drafter",
        ("qwen36-27b", "no-mamba-block-size"): "as recipe A",
    }
    rows = {
        (name, rule.name)
        for name in NAMES
        if name != "qwen36-35b-heretic"  # its own file of tests
        for rule in catalog.recipes[name].rules
    }
    assert rows == {key for key in tried if key[1] != "max-utilization"} | not_tried.keys()


def test_variant_adds_its_drafter_and_pins_apart(serve: Serve) -> None:
    plain, dflash = (
        serve(recipe="huihui-qwen36-35b", **keys) for keys in ({}, {"variant": "dflash"})
    )
    assert [model.role for model in plain.models] == ["model"]
    assert [model.role for model in dflash.models] == ["model", "drafter"]
    assert dflash.flags["speculative-config"]["num_speculative_tokens"] == 15  # type: ignore[index,call-overload]
    assert (plain.lock_key, dflash.lock_key) == ("huihui-qwen36-35b", "huihui-qwen36-35b+dflash")
    assert dflash.notes == ("variant dflash",)


def test_flags_that_are_a_versions_follow_its_image(catalog: Catalog) -> None:
    """Say an older engine is proven that has neither --shutdown-timeout nor the vision switch."""
    recipe = catalog.recipes["qwen36-35b-heretic"]
    older = ProvenImage(
        tag="older",
        version="0.20.0",
        flags={"shutdown-timeout": None, "trust-remote-code": None, "max-num-seqs": 32},
        env={"OLD_SWITCH": "1"},
    )
    image = recipe.image.model_copy(update={"proven": (older,)})
    changed = replace(catalog, recipes={recipe.name: recipe.model_copy(update={"image": image})})

    def serve(**keys: Any) -> ServicePlan:
        host = parse_host("h1", {"recipe": recipe.name, **keys})
        return resolve(host, changed, None).services[0]

    own, old = serve(), serve(image="older")
    assert own.flags["shutdown-timeout"] == 30 and own.env == {}
    assert old.flags.keys() == own.flags.keys() - {"shutdown-timeout", "trust-remote-code"}
    assert (old.flags["max-num-seqs"], old.env) == (32, {"OLD_SWITCH": "1"})
    assert old.image.version == "0.20.0"
    assert serve(image="older", flags={"max-num-seqs": 8}).flags["max-num-seqs"] == 8


B_FLOORS = {"vllm": "0.19.1rc1.dev374", "flashinfer": "0.6.8", "cuda": "12.9"}


def test_huihuis_floors_reach_the_host_unless_overridden(serve: Serve, catalog: Catalog) -> None:
    """S4's floors; what the image holds only the host can ask."""
    b = {"recipe": "huihui-qwen36-35b"}
    assert serve(**b).floors == B_FLOORS
    assert serve(recipe="qwen36-35b-heretic").floors == {}
    passed = {**b, "overrides": {"image-floors": "a build of ours with the fix"}}
    assert serve(**passed).floors == {}
    said = resolve(parse_host("h1", passed), catalog, None).findings[0].what
    assert said == ("Service llm: Rule image-floors is overridden: a build of ours with the fix")


def test_an_engine_known_to_be_too_old_is_refused_at_once(catalog: Catalog) -> None:
    recipe = catalog.recipes["huihui-qwen36-35b"]
    image = recipe.image.model_copy(update={"version": "0.19.0"})
    old = replace(catalog, recipes={recipe.name: recipe.model_copy(update={"image": image})})
    with pytest.raises(SpecError, match=r"holds vLLM 0\.19\.0, 0\.19\.1rc1\.dev374 or newer"):
        resolve(parse_host("h1", {"recipe": recipe.name}), old, None)


def test_gemma_26b_command(serve: Serve) -> None:
    plan = serve(recipe="gemma4-26b", auth="none")
    words = render_argv(plan.recipe.command.positional, plan.argv_flags)
    # Typed from the publisher's production profile, then the card's names and address.
    assert words == [
        "serve", "/model", "--quantization", "compressed-tensors", "--trust-remote-code",
        "--attention-backend", "triton_attn", "--linear-backend", "flashinfer_cutlass",
        "--max-model-len", "184320", "--max-num-seqs", "32",
        "--max-num-batched-tokens", "32768", "--gpu-memory-utilization", "0.68",
        "--enable-chunked-prefill", "--enable-prefix-caching", "--enable-auto-tool-choice",
        "--tool-call-parser", "gemma4", "--reasoning-parser", "gemma4", "--speculative-config",
        '{"method":"dflash","model":"/drafter","num_speculative_tokens":10,'
        '"attention_backend":"flash_attn"}',
        "--served-model-name", "gemma4-aeon-uncensored", "gemma4-fast", "gemma4-deep",
        "--host", "0.0.0.0", "--port", "8000", "--shutdown-timeout", "30",
    ]  # fmt: skip


def test_ornith_command(serve: Serve) -> None:
    plan = serve(recipe="ornith-35b", auth="none")
    words = render_argv(plan.recipe.command.positional, plan.argv_flags)
    assert words == [
        "serve", "/model", "--served-model-name", "ornith", "aeon-ultimate", "aeon-fast",
        "aeon-deep", "--quantization", "compressed-tensors", "--speculative-config",
        '{"method":"dflash","model":"/drafter","num_speculative_tokens":6}',
        "--gpu-memory-utilization", "0.6", "--max-model-len", "262144", "--max-num-seqs", "16",
        "--max-num-batched-tokens", "16384", "--mamba-cache-dtype", "float32",
        "--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser",
        "qwen3_coder", "--limit-mm-per-prompt", '{"image":4,"video":2}', "--mm-encoder-tp-mode",
        "data", "--attention-backend", "flash_attn", "--enable-chunked-prefill",
        "--enable-prefix-caching", "--trust-remote-code",
        "--host", "0.0.0.0", "--port", "8000", "--shutdown-timeout", "30",
    ]  # fmt: skip


def test_deckard_is_driven_by_its_environment(serve: Serve) -> None:
    plan = serve(recipe="gemma4-31b-deckard", preset="shared")
    assert plan.argv_flags == {}
    assert plan.env == {
        "MAX_MODEL_LEN": "32768",
        "MAX_NUM_SEQS": "8",
        "MAX_NUM_BATCHED_TOKENS": "32768",
        "GPU_MEMORY_UTILIZATION": "0.7",
        "NUM_SPECULATIVE_TOKENS": "15",
        "EXTRA_VLLM_ARGS": "--config /run/sparkfleet/engine.yaml",
    }
    assert serve(recipe="gemma4-31b-deckard", auth="none").env["EXTRA_VLLM_ARGS"] == ""
    longer = serve(recipe="gemma4-31b-deckard", flags={"max-model-len": 131072})
    assert longer.env["MAX_MODEL_LEN"] == "131072"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"flags": {"dtype": "float16"}}, "driven by its environment"),
        ({"flags": {"speculative-config": {"method": "ngram"}}}, "driven by its environment"),
        ({"env": {"MAX_NUM_SEQS": "64"}}, "say them under flags"),
        ({"env": {"EXTRA_VLLM_ARGS": "--x"}}, "say them under flags"),
    ],
)
def test_deckard_refuses_what_its_image_cannot_carry(
    refused: Refused, keys: dict[str, Any], words: str
) -> None:
    assert words in str(refused(recipe="gemma4-31b-deckard", **keys))


def test_presets_flags_only_with_a_preset(serve: Serve) -> None:
    deckard = {"recipe": "gemma4-31b-deckard"}
    assert serve(**deckard, preset="long").flags["max-num-seqs"] == 4
    assert serve(**deckard, utilization=0.8).flags["max-num-seqs"] == 16
