"""What a service's share of memory is spent on: the engine's own figures, else estimates.

All sizes are GiB (2**30 bytes). An estimate says what it rests on; the log of a boot with the same
image and models replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkfleet.spec.lock import Lock
from sparkfleet.spec.memory import GIB
from sparkfleet.spec.plan import ServicePlan

KV_BYTES = {"fp8": 1.0, "int8": 1.0, "nvfp4": 0.5, "float32": 4.0}
"""Beginning of --kv-cache-dtype → bytes a number; any other, and auto, is two."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and what it rests on."""

    value: float
    origin: str
    """Such as `recipe`, `pinned files`, `config.json`, `last boot`."""
    exact: bool = False
    """The engine said it of this very release."""

    @property
    def sign(self) -> str:
        """What stands before it: `=` or `≈`."""
        return "=" if self.exact else "≈"


@dataclass(frozen=True, slots=True)
class Seen:
    """The engine's own figures of a boot, as the node keeps them (node/figures.py)."""

    release: str
    utilization: float | None
    model_gib: float | None
    kv_gib: float | None
    kv_tokens: float | None

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None, service: ServicePlan) -> Seen | None:
        """Those that hold for this service: a boot of the same image with the same models."""
        if raw is None or service.image.digest is None:
            return None
        models = {model.role: model.dir for model in service.models}
        if (raw.get("image"), raw.get("models")) != (service.image.pinned, models):
            return None
        names = ("utilization", "model_gib", "kv_gib", "kv_tokens")
        numbers = {name: _positive(raw.get(name)) for name in names}
        return cls(str(raw.get("release", "")), **numbers)

    @property
    def bytes_a_token(self) -> float | None:
        """KV cache, bytes a token."""
        if self.kv_gib is None or self.kv_tokens is None:
            return None
        return self.kv_gib * GIB / self.kv_tokens

    def other_gib(self, total_gib: float) -> float | None:
        """What of its share was not KV cache: weights, activations, graphs."""
        if self.kv_gib is None or self.utilization is None:
            return None
        return max(total_gib * self.utilization - self.kv_gib, 0.0)


@dataclass(frozen=True, slots=True)
class Spent:
    """One service's share and what it goes into. None: not known, and not guessed."""

    claim_gib: float
    weights: Figure | None
    kv_gib: Figure | None
    kv_tokens: Figure | None
    length: int | None
    """Tokens of one full-length sequence (--max-model-len)."""

    @property
    def sequences(self) -> float | None:
        """Full-length sequences that the KV cache holds at once."""
        if self.kv_tokens is None or not self.length:
            return None
        return self.kv_tokens.value / self.length


def spend(
    service: ServicePlan,
    total_gib: float,
    *,
    lock: Lock | None = None,
    config: Mapping[str, Any] | None = None,
    seen: Seen | None = None,
    release: str | None = None,
) -> Spent:
    """The share of a service on a box that reports `total_gib`.

    `config` is the staged model's config.json, `release` the hash of what would run: figures of a
    boot of that release are exact, those of another one with the same image and models are near.
    """
    claim = total_gib * service.utilization
    same = seen is not None and seen.release == release
    weights = _weights(service, lock, seen)
    kv, tokens = None, None
    other = seen.other_gib(total_gib) if seen else None
    if seen and same and seen.kv_gib is not None:
        kv = Figure(seen.kv_gib, "boot log", exact=True)
    elif other is not None:
        kv = Figure(max(claim - other, 0.0), "last boot")
    elif weights is not None:
        kv = Figure(max(claim - weights.value, 0.0), f"weights by {weights.origin}")
    if seen and same and seen.kv_tokens is not None:
        tokens = Figure(seen.kv_tokens, "boot log", exact=True)
    elif kv is not None and (each := _bytes_a_token(service, config, seen)) is not None:
        tokens = Figure(kv.value * GIB / each.value, each.origin)
    length = service.flags.get("max-model-len")
    return Spent(claim, weights, kv, tokens, length if isinstance(length, int) else None)


def _weights(service: ServicePlan, lock: Lock | None, seen: Seen | None) -> Figure | None:
    if seen is not None and seen.model_gib is not None:
        return Figure(seen.model_gib, "boot log", exact=True)
    recipe = service.recipe
    if recipe.memory.weights_gib is not None:
        return Figure(recipe.memory.weights_gib, "recipe")
    locked = lock.recipes.get(service.lock_key) if lock else None
    if locked is not None and locked.models.keys() >= recipe.models.keys():
        size = sum(locked.models[role].size for role in recipe.models)
        return Figure(size / GIB, "pinned files")
    sizes = [model.weights_gib for model in recipe.models.values()]
    known = [size for size in sizes if size is not None]
    return Figure(sum(known), "recipe") if len(known) == len(sizes) else None


def _bytes_a_token(
    service: ServicePlan, config: Mapping[str, Any] | None, seen: Seen | None
) -> Figure | None:
    if seen is not None and seen.bytes_a_token is not None:
        return Figure(seen.bytes_a_token, "last boot")
    if service.recipe.memory.kv_bytes_per_token is not None:
        return Figure(service.recipe.memory.kv_bytes_per_token, "recipe")
    dtype = str(service.flags.get("kv-cache-dtype", "auto"))
    size = kv_bytes_per_token(config or {}, dtype)
    return Figure(size, "config.json") if size else None


def kv_bytes_per_token(config: Mapping[str, Any], dtype: str = "auto") -> float | None:
    """Bytes of KV cache a token takes by a model's config.json; None where it does not say.

    Keys and values of each layer with full attention: linear and sliding layers hold a fixed amount
    whatever the length. The drafter's own cache is beside it.
    """
    layers = _positive(config.get("num_hidden_layers"))
    heads = _positive(config.get("num_key_value_heads", config.get("num_attention_heads")))
    if layers is None or heads is None:
        return None
    width = _positive(config.get("head_dim"))
    if width is None:
        hidden = _positive(config.get("hidden_size"))
        queries = _positive(config.get("num_attention_heads"))
        if hidden is None or queries is None:
            return None
        width = hidden / queries
    kinds, interval = config.get("layer_types"), _positive(config.get("full_attention_interval"))
    if isinstance(kinds, list) and kinds:
        layers = sum(kind == "full_attention" for kind in kinds)
    elif interval is not None:
        layers = layers // interval
    each = next((size for name, size in KV_BYTES.items() if dtype.startswith(name)), 2.0)
    return 2 * layers * heads * width * each or None


def _positive(value: object) -> float | None:
    """A number above zero; None for anything else: the file is somebody else's."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return float(value)
