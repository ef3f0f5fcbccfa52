"""Attempts to undo what recipe A's scars taught, as an owner would write them in the inventory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SPECULATIVE = {"method": "dflash", "model": "/drafter", "num_speculative_tokens": 11}

ELEVEN = range(1, 12)
"""The numbers of the manual's list "do not undo"."""


@dataclass(frozen=True)
class Undone:
    """One attempt."""

    number: int | None
    """Which of the eleven; None: the article's or everybody's rule."""
    rule: str
    keys: dict[str, Any]
    reason: str
    """Words of the rule's reason that the refusal must quote."""


UNDONE = [
    Undone(*row)
    for row in (
        (1, "no-marlin", {"env": {"VLLM_TEST_FORCE_FP8_MARLIN": "1"}}, "measured regression"),
        (2, "compressed-tensors", {"flags": {"quantization": "modelopt"}}, "not modelopt"),
        (3, "batched-tokens", {"flags": {"max-num-batched-tokens": 32768}}, "falls back to eager"),
        (3, "batched-tokens", {"flags": {"max-num-batched-tokens": 65536}}, "has hung a Spark"),
        (3, "batched-tokens", {"flags": {"max-num-batched-tokens": None}}, "falls back to eager"),
        (4, "max-utilization", {"utilization": 0.89}, "page-thrashes"),
        (5, "no-mamba-block-size", {"flags": {"mamba-block-size": 256}}, "Not needed"),
        (6, "no-kv-cache-dtype", {"flags": {"kv-cache-dtype": "fp8"}}, "BF16 KV"),
        (6, "no-drafter-backend",
         {"flags": {"speculative-config": {**SPECULATIVE, "attention_backend": "flash_attn"}}},
         "default attention backend"),
        (7, "eleven-tokens",
         {"flags": {"speculative-config": {**SPECULATIVE, "num_speculative_tokens": 15}}},
         "beyond 11"),
        (8, "keep-vision", {"flags": {"limit-mm-per-prompt": None}}, "Vision works"),
        (8, "keep-vision-tower", {"flags": {"language-model-only": True}}, "Vision works"),
        (9, "flash-attn", {"flags": {"attention-backend": "triton_attn"}}, "KV sharing of DFlash"),
        (10, "no-omni-q36", {"image": "ghcr.io/aeon-7/vllm-spark-omni-q36:v2"},
         "die at 32 streams"),
        (11, "no-pip-install", {"entrypoint": ["bash", "-c", "pip install x; vllm"]}, "patches"),
        (None, "no-enforce-eager", {"flags": {"enforce-eager": True}}, "about 30%"),
        (None, "no-dev-mode", {"env": {"VLLM_SERVER_DEV_MODE": "1"}}, "without a key"),
    )
]  # fmt: skip
