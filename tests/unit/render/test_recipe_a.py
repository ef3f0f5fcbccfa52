"""Recipe A runs the published command; its words are typed from the article, not rendered."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sparkfleet.render import compose_file
from sparkfleet.spec.catalog import load_catalog
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.resolve import resolve

from .formats import interpolate

PROJECT = Path(__file__).resolve().parents[3]

PUBLISHED = [
    "serve",
    "/model",
    "--served-model-name",
    "qwen36-35b-heretic",
    "qwen36-fast",
    "qwen36-deep",
    "--host",
    "0.0.0.0",
    "--port",
    "8000",
    "--quantization",
    "compressed-tensors",
    "--max-model-len",
    "262144",
    "--max-num-seqs",
    "64",
    "--max-num-batched-tokens",
    "16384",
    "--gpu-memory-utilization",
    "0.85",
    "--enable-chunked-prefill",
    "--enable-prefix-caching",
    "--trust-remote-code",
    "--limit-mm-per-prompt",
    '{"image":4,"video":2}',
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "qwen3_coder",
    "--reasoning-parser",
    "qwen3",
    "--attention-backend",
    "flash_attn",
    "--speculative-config",
    '{"method":"dflash","model":"/drafter","num_speculative_tokens":11}',
]
"""Everything behind the image's name in the article's `docker run`, word by word."""

SHUTDOWN = ["--shutdown-timeout", "30"]
KEY = ["--config", "/run/sparkfleet/engine.yaml"]


def planned(**data: object) -> ServicePlan:
    host = parse_host("spark-a", {"recipe": "qwen36-35b-heretic", **data})
    lock = Lock(recipes={})
    return resolve(host, load_catalog(PROJECT), lock).services[0]


def command(plan: ServicePlan) -> list[str]:
    document = interpolate(yaml.safe_load(compose_file(plan)))
    words: list[str] = document["services"]["engine"]["command"]
    return words


def test_the_command_is_the_published_one_and_the_declared_additions() -> None:
    assert command(planned()) == PUBLISHED + SHUTDOWN + KEY


def test_without_a_key_nothing_but_the_graceful_end_is_added() -> None:
    assert command(planned(auth="none")) == PUBLISHED + SHUTDOWN


def test_each_addition_is_declared_with_its_reason() -> None:
    recipe = planned().recipe
    assert [row.flag for row in recipe.additions] == ["shutdown-timeout", "config"]
    assert all(row.reason and row.source for row in recipe.additions)


@pytest.mark.parametrize(
    ("data", "text"), [({"preset": "shared"}, "0.7"), ({"utilization": 0.6}, "0.6")]
)
def test_a_hosts_share_of_memory_changes_one_word(data: dict[str, object], text: str) -> None:
    expected = [text if word == "0.85" else word for word in PUBLISHED] + SHUTDOWN + KEY
    assert command(planned(**data)) == expected


def test_what_the_article_mounts_names_and_starts() -> None:
    part = interpolate(yaml.safe_load(compose_file(planned())))["services"]["engine"]
    assert part["entrypoint"] == ["vllm"]
    assert part["container_name"] == "qwen36-35b"
    assert part["image"].startswith("ghcr.io/aeon-7/aeon-vllm-ultimate@sha256:be9e05a1")
    mounts = {row["target"]: row["read_only"] for row in part["volumes"]}
    assert mounts["/model"] and mounts["/drafter"]
    assert mounts["/root/.cache/vllm"] is False
    assert "environment" not in part or set(part["environment"]) == {"PYTHONPATH"}
