"""A small service, whole and made up, that each test changes in one place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkfleet.spec.image import ImageRef
from sparkfleet.spec.inventory import ServiceSpec
from sparkfleet.spec.memory import MemoryPlan
from sparkfleet.spec.plan import ModelPlan, ServicePlan
from sparkfleet.spec.recipe import Recipe

DIGEST = "sha256:" + "0123456789ab" + "c" * 52
COMMIT = "a" * 40

RECIPE: dict[str, Any] = {
    "name": "small",
    "title": "A small model",
    "description": "Made up for tests.",
    "sources": ["ours"],
    "hardware": ["gb10"],
    "image": {
        "repository": "registry.test/engine",
        "tag": "one",
        "version": "0.23.0",
        "entrypoint": ["vllm"],
        "source": "ours",
    },
    "models": {
        "model": {"repo": "owner/model", "mount": "/model", "source": "ours"},
        "drafter": {"repo": "owner/drafter", "mount": "/drafter", "source": "ours"},
    },
    "container": "small",
    "command": {
        "positional": ["serve", "/model"],
        "flags": {"served-model-name": ["small", "small-fast"], "port": 8000},
        "source": "ours",
    },
    "caches": {"vllm": "/root/.cache/vllm"},
    "presets": {"alone": 0.85},
    "max_utilization": {"value": 0.88, "reason": "ours", "source": "ours"},
    "disk_gib": 1.0,
    "boot": {
        "timeout_minutes": 30.0,
        "first_minutes": [10.0, 12.0],
        "warm_minutes": [3.0, 5.0],
        "markers": [{"text": "startup complete", "label": "serving"}],
        "source": "ours",
    },
    "names": ["small", "small-fast"],
    "drafts": True,
    "proofs": [
        {
            "name": "sum",
            "model": "small",
            "kind": "chat",
            "messages": [{"role": "user", "content": "1 + 1"}],
            "params": {"max_tokens": 16},
            "expect": {"contains": "2"},
        }
    ],
}


def recipe(**changes: Any) -> Recipe:
    return Recipe.model_validate(RECIPE | changes)


def service(**changes: Any) -> ServicePlan:
    """The small service, with fields of its plan replaced."""
    plan = ServicePlan(
        host="spark-a",
        name="llm",
        spec=ServiceSpec(recipe="small"),
        recipe=recipe(),
        root="/var/lib/sparkfleet",
        utilization=0.85,
        memory=MemoryPlan(total_gib=121.7, utilization=0.85, origin="preset alone"),
        flags={
            "served-model-name": ["small", "small-fast"],
            "port": 8000,
            "shutdown-timeout": 30,
            "config": "/run/sparkfleet/engine.yaml",
        },
        env={},
        image=ImageRef("registry.test/engine", "one", DIGEST, "0.23.0"),
        models=tuple(
            ModelPlan(
                role=role,
                repo=f"owner/{role}",
                revision="main",
                commit=COMMIT,
                mount=f"/{role}",
                include=None,
                exclude=(),
                dir=f"/var/lib/sparkfleet/models/owner--{role}/{COMMIT}",
            )
            for role in ("model", "drafter")
        ),
        container="small",
        port=8000,
        bind="127.0.0.1",
        auth="key",
        logs=recipe().logs,
        notes=(),
        lock_key="small",
    )
    return replace(plan, **changes)
