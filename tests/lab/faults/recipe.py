"""The recipe that the fault tests serve: the stand-in engine over models of noise."""

from __future__ import annotations

import os
import platform
from typing import Any

STANDIN = os.environ.get("SPARKFLEET_TEST_STANDIN", "sparkfleet/standin")
"""Repository of the stand-in engine; its tags are its faults (lab/engine/standin/README.md)."""

MODEL, DRAFTER = "lab/big-1", "lab/big-2"
"""What is served: noise, which is all that a stand-in needs."""

HARDWARE = {
    "name": "gb10-lab",
    "inherits": "gb10",
    "description": "A Spark but for the architecture, so no check is softened.",
    "arch": platform.machine(),
    "sources": ["lab"],
}


def recipe(registry: str, **changes: Any) -> dict[str, Any]:
    """The recipe `standin`, as YAML has it; a change replaces a key at the top.

    `tag` and `version` are the image's, `repository` its name; `model` is the model's repository.
    """
    said = {"tag": "1", "version": "1.0.0", "repository": STANDIN, "model": MODEL} | changes
    changed = {key: said[key] for key in changes if key not in IMAGE_OR_MODEL}
    image = {key: said[key] for key in ("tag", "version", "digest", "floors") if key in said}
    model = {"repo": said["model"], "mount": "/model", "source": "lab"}
    drafter = {"repo": DRAFTER, "mount": "/drafter", "source": "lab"}
    return {
        "name": "standin",
        "title": "The stand-in engine",
        "description": "Plays faults.",
        "sources": ["lab"],
        "hardware": ["gb10"],
        "image": image
        | {"repository": f"{registry}/{said['repository']}", "entrypoint": ["vllm"]}
        | {"source": "lab"},
        "models": {"model": model, "drafter": drafter},
        "container": "standin",
        "command": {
            "positional": ["serve", "/model"],
            "flags": {
                "served-model-name": ["one", "two"],
                "port": 8000,
                "gpu-memory-utilization": "${utilization}",
                "speculative-config": DRAFTING,
            },
            "source": "lab",
        },
        "common_additions": ["guard"],
        "additions": [DRAIN],
        "presets": {"alone": 0.85, "shared": 0.7},
        "max_utilization": {"value": 0.88, "reason": "as on a Spark", "source": "lab"},
        "disk_gib": 1,
        "boot": boot(1),
        "logs": {"forbidden": [{"text": "not found in params_dict", "reason": "Weights skipped"}]},
        "names": ["one", "two"],
        "drafts": True,
        "proofs": [ARITHMETIC],
        "proof_timeout": 4,
    } | changed


DRAIN = {
    "flag": "shutdown-timeout",
    "value": 3,
    "reason": "As the recipes have it, but a request that hangs is not waited for so long",
    "source": "lab",
}
DRAFTING = {"method": "draft_model", "model": "/drafter", "num_speculative_tokens": 3}

IMAGE_OR_MODEL = ("tag", "version", "digest", "floors", "repository", "model")

ARITHMETIC = {
    "name": "arithmetic",
    "model": "one",
    "kind": "chat",
    "messages": [{"role": "user", "content": "What is 17 × 23?"}],
    "params": {"max_tokens": 256, "temperature": 0},
    "expect": {"contains": "391"},
}


def boot(seconds: float) -> dict[str, Any]:
    """Boot times of a recipe whose start has failed after so many minutes."""
    usual = {"first_minutes": [0, 1], "warm_minutes": [0, 1], "source": "lab"}
    return {"timeout_minutes": seconds, **usual}
