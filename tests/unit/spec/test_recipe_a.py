"""Recipe A: the published command, and each attempt to undo what its scars taught."""

from __future__ import annotations

import base64
import datetime
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from sparkfleet.spec.catalog import Catalog
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.proof import picture
from sparkfleet.spec.resolve import resolve
from tests.unit.spec.undone import ELEVEN, SPECULATIVE, UNDONE

Serve = Callable[..., ServicePlan]
Refused = Callable[..., SpecError]
ROWS = [(row.rule, row.keys, row.reason) for row in UNDONE]


def test_command_is_the_published_one(serve: Serve) -> None:
    flags = serve(auth="none").flags
    # Typed from the article's command, in its order.
    assert list(flags.items()) == [
        ("served-model-name", ["qwen36-35b-heretic", "qwen36-fast", "qwen36-deep"]),
        ("host", "0.0.0.0"),
        ("port", 8000),
        ("quantization", "compressed-tensors"),
        ("max-model-len", 262144),
        ("max-num-seqs", 64),
        ("max-num-batched-tokens", 16384),
        ("gpu-memory-utilization", 0.85),
        ("enable-chunked-prefill", True),
        ("enable-prefix-caching", True),
        ("trust-remote-code", True),
        ("limit-mm-per-prompt", {"image": 4, "video": 2}),
        ("enable-auto-tool-choice", True),
        ("tool-call-parser", "qwen3_coder"),
        ("reasoning-parser", "qwen3"),
        ("attention-backend", "flash_attn"),
        ("speculative-config", SPECULATIVE),
        ("shutdown-timeout", 30),
    ]
    speculative = json.dumps(flags["speculative-config"], separators=(",", ":"))
    assert speculative == '{"method":"dflash","model":"/drafter","num_speculative_tokens":11}'


def test_key_file_only_with_a_key(serve: Serve) -> None:
    assert serve().flags["config"] == "/run/sparkfleet/engine.yaml"
    assert "config" not in serve(auth="none").flags


@pytest.mark.parametrize(("rule", "keys", "reason"), ROWS, ids=[row[0] for row in ROWS])
def test_undoing_is_refused_with_the_reason(
    refused: Refused, rule: str, keys: dict[str, Any], reason: str
) -> None:
    error = refused(**keys)
    message = next(str(e) for e in error.errors if f"Rule {rule}:" in str(e))
    assert message.startswith("Host h1, service llm: ")
    assert reason in message


@pytest.mark.parametrize(("rule", "keys", "reason"), ROWS, ids=[row[0] for row in ROWS])
def test_a_named_override_lets_it_through_and_is_shown(
    catalog: Catalog, rule: str, keys: dict[str, Any], reason: str
) -> None:
    also = {"no-omni-q36": "image-proven", "max-utilization": "hardware-max-utilization"}
    overrides = dict.fromkeys((rule, also.get(rule, rule)), "we measured it here")
    host = parse_host("h1", {"recipe": "qwen36-35b-heretic", **keys, "overrides": overrides})
    plan = resolve(host, catalog, None)
    assert f"override {rule}: we measured it here" in plan.services[0].notes
    assert any(found.check == rule and found.level == "warn" for found in plan.findings)
    assert not any("can go" in found.what for found in plan.findings)


def test_all_eleven_are_tried(catalog: Catalog) -> None:
    """Each number of the operator's manual has a row here, and a row of the recipe names it."""
    recipe = catalog.recipes["qwen36-35b-heretic"]
    rows = [*recipe.rules, recipe.max_utilization]
    sources = {row.source.partition(";")[0] for row in rows}
    assert sources >= {f"AGENTS, do not undo {number}" for number in ELEVEN}
    assert {row.number for row in UNDONE if row.number} == set(ELEVEN)
    by_number = {row.number: row.rule for row in UNDONE if row.number}
    for rule in recipe.rules:
        number = rule.source.partition(";")[0].removeprefix("AGENTS, do not undo ")
        if number.isdigit():
            assert rule.name in {row.rule for row in UNDONE if row.number == int(number)}
    assert by_number[4] == "max-utilization"


def test_an_override_of_a_rule_that_holds_is_said(catalog: Catalog) -> None:
    spare = {"recipe": "qwen36-35b-heretic", "overrides": {"no-marlin": "just in case"}}
    found = resolve(parse_host("h1", spare), catalog, None).findings
    assert [row.check for row in found] == ["no-marlin"]
    assert "the override can go" in found[0].what


def test_eager_is_a_named_fallback(serve: Serve) -> None:
    plan = serve(fallbacks=["enforce-eager"])
    assert plan.flags["enforce-eager"] is True
    assert plan.notes == (
        "fallback enforce-eager, about 30% slower: A way round CUDA illegal-instruction errors of "
        "the four-bit decode kernel (vLLM#39761)",
    )
    assert "enforce_eager=True" not in [line.text for line in plan.logs.forbidden]
    assert "enforce_eager=True" in [line.text for line in serve().logs.forbidden]


def test_rollback_tag_needs_no_override(serve: Serve) -> None:
    plan = serve(image="2026-06-11-pr41703")
    assert plan.image.digest is None
    assert plan.lock_key == "qwen36-35b-heretic@2026-06-11-pr41703"


def test_unproven_image_is_refused_and_loses_its_version(serve: Serve, refused: Refused) -> None:
    assert "Rule image-proven" in str(refused(image="latest"))
    assert serve(image="latest", overrides={"image-proven": "trial"}).image.version is None


def test_short_form_of_a_ruled_flag(refused: Refused) -> None:
    assert "short form of kv-cache-dtype" in str(refused(flags={"kv-cache": "fp8"}))


@pytest.mark.parametrize("flag", ["port", "config", "api-key", "gpu-memory-utilization", "host"])
def test_flags_that_are_not_the_owners(refused: Refused, flag: str) -> None:
    assert refused(flags={flag: "x"}).key == f"flags.{flag}"


def test_drafting_room(serve: Serve, refused: Refused, catalog: Catalog) -> None:
    assert "16384 batched tokens − (11 − 1) × 1639 sequences = -6" in str(
        refused(flags={"max-num-seqs": 1639})
    )
    low = parse_host("h1", {"recipe": "qwen36-35b-heretic", "flags": {"max-num-seqs": 820}})
    assert [found.check for found in resolve(low, catalog, None).findings] == ["drafting-room"]


def _lock(day: str) -> Lock:
    model = {"repo": "AEON-7/Qwen3.6-35B-A3B-heretic-NVFP4", "commit": "a" * 40, "files": []}
    drafter = {"repo": "z-lab/Qwen3.6-35B-A3B-DFlash", "commit": "b" * 40, "files": []}
    image = {"repository": "ghcr.io/aeon-7/aeon-vllm-ultimate", "digest": "sha256:" + "c" * 64}
    pins = {
        "image": {**image, "tag": "2026-06-18-v0.23.0-dflashfix"},
        "models": {"model": {**model, "date": day}, "drafter": {**drafter, "date": "2026-05-01"}},
    }
    return Lock.model_validate({"schema": 1, "recipes": {"qwen36-35b-heretic": pins}})


def test_the_locks_commits_and_dates(catalog: Catalog) -> None:
    host = parse_host("h1", {"recipe": "qwen36-35b-heretic"})
    plan = resolve(host, catalog, _lock("2026-06-18T10:00:00Z")).services[0]
    assert plan.models[0].commit == "a" * 40
    assert plan.models[0].dir == (
        "/var/lib/sparkfleet/models/AEON-7--Qwen3.6-35B-A3B-heretic-NVFP4/" + "a" * 40
    )
    # The recipe's own digest is newer word than the lock's: an upgrade.
    assert plan.image.digest == catalog.recipes["qwen36-35b-heretic"].image.digest
    with pytest.raises(SpecError, match="Rule weights-date"):
        resolve(host, catalog, _lock("2026-06-17T23:59:00Z"))
    unsaid = resolve(host, catalog, _lock("unknown")).findings
    assert [(row.level, row.check) for row in unsaid] == [("unknown", "weights-date")]


def test_proofs_are_bounded_and_whole(serve: Serve) -> None:
    rows = {row["name"]: row for row in serve().proofs}
    assert set(rows) == {
        "arithmetic", "arithmetic-without-thinking", "tool-call", "sampled", "image",
    }  # fmt: skip
    assert rows["arithmetic"]["params"] == {"max_tokens": 2048, "temperature": 0}
    assert rows["arithmetic"]["read"] == ["content", "reasoning"]
    url = rows["image"]["messages"][0]["content"][1]["image_url"]["url"]
    assert url == picture("red", 64)
    assert url.startswith("data:image/png;base64,iVBORw0KGgo")


def test_picture_is_a_png_of_one_colour() -> None:
    data = base64.b64decode(picture("green", 16).partition(",")[2])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    start = data.index(b"IDAT") + 4
    length = int.from_bytes(data[start - 8 : start - 4], "big")
    assert zlib.decompress(data[start : start + length]) == (b"\0" + bytes((0, 160, 0)) * 16) * 16


def test_dates_are_dates(catalog: Catalog) -> None:
    models = catalog.recipes["qwen36-35b-heretic"].models
    assert models["model"].not_before == datetime.date(2026, 6, 18)
    assert models["drafter"].not_before == datetime.date(2026, 4, 19)
