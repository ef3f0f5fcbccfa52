"""Hosts as the cases in tests/cases/survey describe them, and the plans that they are held to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sparkfleet.facts.host import HostFacts
from sparkfleet.facts.survey import Unreachable, parse_survey
from sparkfleet.spec.catalog import load_catalog
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.plan import HostPlan
from sparkfleet.spec.resolve import resolve

PROJECT = Path(__file__).parents[3]
CASES = PROJECT / "tests" / "cases" / "survey"
RECIPE = "qwen36-35b-heretic"
CATALOG = load_catalog(PROJECT)

LOCK = Lock.model_validate(
    {
        "schema": 1,
        "recipes": {
            RECIPE: {
                "image": {
                    "repository": "ghcr.io/aeon-7/aeon-vllm-ultimate",
                    "tag": "2026-06-18-v0.23.0-dflashfix",
                    "digest": "sha256:be9e05a11da6e72607ab6f3e960993b2"
                    "53b673af0727005122a3266129a518e3",
                    "version": "0.23.0",
                },
                "models": {
                    "model": {
                        "repo": "AEON-7/Qwen3.6-35B-A3B-heretic-NVFP4",
                        "commit": "a" * 40,
                        "date": "2026-06-18T12:00:00+00:00",
                        "files": [
                            {"path": "model.safetensors", "size": 23350000000, "sha256": "1" * 64}
                        ],
                    },
                    "drafter": {
                        "repo": "z-lab/Qwen3.6-35B-A3B-DFlash",
                        "commit": "b" * 40,
                        "date": "2026-04-19T12:00:00+00:00",
                        "files": [
                            {"path": "model.safetensors", "size": 905000000, "sha256": "2" * 64}
                        ],
                    },
                },
            }
        },
    }
)


def read(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return case


BASE = read(CASES / "_base.json")["answer"]


def plan_of(case: dict[str, Any], name: str = "spark-1") -> HostPlan:
    lock = LOCK if case.get("lock", True) else None
    return resolve(parse_host(name, {"recipe": RECIPE, **case.get("host", {})}), CATALOG, lock)


def facts_of(case: dict[str, Any]) -> HostFacts | Unreachable:
    if "unreachable" in case:
        return Unreachable(case["unreachable"])
    answer = {**BASE, **case.get("answer", {})}
    for section, changes in case.get("merge", {}).items():
        answer[section] = {**answer[section], **changes}
    received = answer["time"] + case.get("offset", 0)
    return parse_survey(["Welcome to DGX OS", json.dumps(answer, separators=(",", ":"))], received)
