"""The lab's own recipes and hardware profile, written beside its images: a catalog to add."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.engine import model, plan

HARDWARE = "gb10-lab"
ENGINE_A = "ghcr.io/aeon-7/aeon-vllm-ultimate"
NAMES = ["tiny", "tiny-fast", "tiny-deep"]
SOURCE = "the lab's own, see lab/engine"
CPU_MARKERS = [
    {"text": "non-default args:", "label": "the engine read its arguments", "usual_seconds": 15},
    {"text": "Initializing a V1 LLM engine", "label": "the engine core runs", "usual_seconds": 30},
    {"text": "Loading weights took", "label": "weights are loaded", "usual_seconds": 32},
    {"text": "KV cache size:", "label": "memory is shared out", "usual_seconds": 33},
    {"text": "init engine", "label": "the engine is warm", "usual_seconds": 34},
    {"text": "Application startup complete", "label": "serving", "usual_seconds": 36},
]


def write(catalog: Path, registry: str, expected: Mapping[str, str]) -> None:
    """Write the catalog; a file whose content stays the same is not touched."""
    _write(catalog / "hardware" / f"{HARDWARE}.yaml", hardware(registry))
    tiny = recipe("lab-tiny", registry, expected)
    _write(catalog / "recipes/lab-tiny.yaml", tiny)
    _write(catalog / "recipes/lab-standin.yaml", standin(registry))
    for fault in plan.FAULTS:
        _write(catalog / f"recipes/lab-{fault}.yaml", standin(registry, fault))


def hardware(registry: str) -> dict[str, Any]:
    """GB10's profile with two lines changed: the processor, and which engine image is run."""
    stand_in = {"repository": f"{registry}/{plan.STANDIN}", "tag": "1", "version": "1.0.0"}
    return {
        "name": HARDWARE,
        "inherits": "gb10",
        "arch": platform.machine(),
        "images": {ENGINE_A: stand_in},
        "description": "A simulated Spark of the lab: GB10's checks on this machine's processor.",
    }


def recipe(name: str, registry: str, expected: Mapping[str, str]) -> dict[str, Any]:
    """The real engine with a real model and drafter, all tiny."""
    older, newer = plan.VERSIONS
    text = expected[model.PROMPTS[0]]
    asked = [{"role": "user", "content": model.PROMPTS[0]}]
    exact = {"max_tokens": 32, "temperature": 0}
    return {
        "name": name,
        "title": "Tiny Qwen3 of the lab, drafter and all",
        "description": "A random model of two layers on the real engine's CPU build. It talks "
        "nonsense, but always the same: the proof knows the exact text.",
        "sources": [SOURCE],
        "hardware": [HARDWARE],
        "image": {
            "repository": f"{registry}/{plan.ENGINE}",
            "tag": older,
            "version": older,
            "entrypoint": ["vllm"],
            "proven": [{"tag": newer, "version": newer}],
            "source": SOURCE,
        },
        "models": {
            "model": {"repo": model.MODEL, "mount": "/model", "source": SOURCE},
            "drafter": {"repo": model.DRAFTER, "mount": "/drafter", "source": SOURCE},
        },
        "container": "lab-tiny",
        "command": {
            "positional": ["serve", "/model"],
            "flags": {
                "served-model-name": NAMES,
                "host": "0.0.0.0",
                "port": 8000,
                "max-model-len": 2048,
                "max-num-seqs": 8,
                "gpu-memory-utilization": "${utilization}",
                "enforce-eager": True,
                "speculative-config": {
                    "method": "draft_model",
                    "model": "/drafter",
                    "num_speculative_tokens": 3,
                },
            },
            "source": SOURCE,
        },
        "additions": _additions(),
        "env": {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            # One process less to start on two cores: 24 s to healthy in the place of 40.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            # The CPU sampler would be compiled with a C++ compiler that the image lacks.
            "TORCHDYNAMO_DISABLE": "1",
        },
        "caches": {"vllm": "/root/.cache/vllm"},
        # Simulated hosts share this machine's page cache: dropped at each start, every other
        # host would read its engine from the disk again. A test of its own covers the dropping.
        "drop_page_cache": False,
        "presets": {"alone": 0.85, "shared": 0.7},
        "max_utilization": {
            "value": 0.88, "reason": "As on a Spark, so that no check is softer.", "source": SOURCE,
        },
        "disk_gib": 0.1,
        "boot": {
            "timeout_minutes": 8,
            "first_minutes": [0.5, 3],
            "warm_minutes": [0.5, 3],
            "markers": CPU_MARKERS,
            "source": "measured on two cores, by lab/engine",
        },
        "logs": {"forbidden": _forbidden()},
        "names": NAMES,
        "drafts": True,
        "proof_timeout": 120,
        "proofs": [
            {"name": "exact", "model": "tiny-fast", "kind": "chat", "messages": asked,
             "params": exact, "expect": {"equals": text}},
            {"name": "exact-without-thinking", "model": "tiny-fast", "kind": "chat",
             "messages": asked,
             "params": exact | {"chat_template_kwargs": {"enable_thinking": False}},
             "expect": {"equals": text}, "read": ["content"]},
            {"name": "sampled", "model": "tiny-deep", "kind": "chat",
             "messages": [{"role": "user", "content": model.PROMPTS[1]}],
             "params": {"max_tokens": 16, "temperature": 0.7}, "expect": {"nonempty": True}},
        ],
        "wedge": {"seconds": 60},
        "restart": {"burst": 3},
    }  # fmt: skip


def standin(registry: str, fault: str | None = None) -> dict[str, Any]:
    """The stand-in engine: a healthy one, or one with a fault."""
    name = f"lab-{fault or 'standin'}"
    served = [name, f"{name}-fast", f"{name}-deep"]
    sum_ = [{"role": "user", "content": model.PROMPTS[0]}]
    bounded = {"max_tokens": 256, "temperature": 0}
    base = recipe(name, registry, {model.PROMPTS[0]: ""})
    image: dict[str, Any] = {
        "repository": f"{registry}/{plan.STANDIN}",
        "tag": fault or "1",
        "version": "2.0.0" if fault else "1.0.0",
        "entrypoint": ["vllm"],
        "source": SOURCE,
    }
    if fault is None:
        image["proven"] = [{"tag": "2", "version": "2.0.0"}]
    return base | {
        "title": f"Stand-in engine, fault: {fault}" if fault else "Stand-in engine",
        "description": "Not an engine: what lab/engine/standin plays, for faults on demand.",
        "image": image,
        "container": name,
        "command": {
            "positional": ["serve", "/model"],
            "flags": {
                "served-model-name": served,
                "host": "0.0.0.0",
                "port": 8000,
                "max-model-len": 2048,
                "gpu-memory-utilization": "${utilization}",
                "enable-auto-tool-choice": True,
                "tool-call-parser": "qwen3_coder",
                "reasoning-parser": "qwen3",
                "speculative-config": {
                    "method": "draft_model",
                    "model": "/drafter",
                    "num_speculative_tokens": 3,
                },
            },
            "source": SOURCE,
        },
        "env": {},
        "caches": {},
        "boot": {
            "timeout_minutes": 0.5,
            "first_minutes": [0, 0.1],
            "warm_minutes": [0, 0.1],
            "source": SOURCE,
        },
        "names": served,
        "proof_timeout": 10,
        "proofs": [
            {"name": "arithmetic", "model": served[1], "kind": "chat", "messages": sum_,
             "params": bounded, "expect": {"contains": "391"}},
            {"name": "arithmetic-without-thinking", "model": served[1], "kind": "chat",
             "messages": sum_,
             "params": bounded | {"chat_template_kwargs": {"enable_thinking": False}},
             "expect": {"contains": "391"}, "read": ["content"]},
            {"name": "tool-call", "model": served[1], "kind": "tool", "params": bounded},
            {"name": "sampled", "model": served[2], "kind": "chat",
             "messages": [{"role": "user", "content": "Say hello."}],
             "params": {"max_tokens": 64, "temperature": 0.7}, "expect": {"nonempty": True}},
            {"name": "image", "model": served[1], "kind": "image", "picture": {"colour": "red"},
             "params": bounded},
        ],
        "wedge": {"seconds": 5},
    }  # fmt: skip


def _additions() -> list[dict[str, Any]]:
    return [
        {"flag": "shutdown-timeout", "value": 20, "source": SOURCE,
         "reason": "The default, 0, cuts every running answer when the engine is stopped"},
        {"flag": "config", "value": "/run/sparkfleet/engine.yaml", "when": "auth-key",
         "source": SOURCE,
         "reason": "It loads the guard that asks for the API key, which stands in a file"},
    ]  # fmt: skip


def _forbidden() -> list[dict[str, str]]:
    reason = "A part of the model was skipped while loading"
    return [{"text": "not found in params_dict", "reason": reason, "source": SOURCE}]


def _write(path: Path, content: Mapping[str, Any]) -> None:
    # JSON is YAML, and needs no library to be written; people read the recipes of the project.
    text = "# Written by lab.engine; changes are lost.\n"
    text += json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)
