"""What the layers of a pull are doing, counted from the messages that Docker streams. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

#: Status words of a layer, as both of Docker's image stores use them.
CAME = ("Download complete", "Verifying Checksum", "Pull complete", "Already exists", "Extracting")
READY = ("Pull complete", "Already exists")


@dataclass
class Layer:
    """One layer: bytes that came and its size (None until Docker says it)."""

    came: int = 0
    total: int | None = None
    ready: bool = False
    done: bool = False


@dataclass
class Layers:
    """All layers of one pull."""

    layers: dict[str, Layer] = field(default_factory=dict)
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, message: dict[str, Any]) -> bool:
        """Count one message; False when it is not about a layer."""
        status, name = str(message.get("status", "")), message.get("id")
        if not name or status.startswith(("Pulling from", "Digest", "Status")):
            return False
        layer = self.layers.setdefault(str(name), Layer())
        detail = message.get("progressDetail") or {}
        if status == "Downloading" and "current" in detail:
            layer.came = int(detail["current"])
            layer.total = int(detail["total"]) if detail.get("total") else layer.total
        elif status.startswith(CAME):
            layer.done = True
            layer.came = layer.total or layer.came
        layer.ready = layer.ready or status in READY
        return True

    @property
    def count(self) -> int:
        return len(self.layers)

    @property
    def ready(self) -> int:
        """Layers that are unpacked, or were there before."""
        return sum(layer.ready for layer in self.layers.values())

    @property
    def came(self) -> int:
        """Bytes downloaded; compressed, as the registry has them."""
        return sum(layer.came for layer in self.layers.values())

    @property
    def total(self) -> int | None:
        """Bytes of the layers whose size is known; grows as Docker begins more of them."""
        known = [layer.total for layer in self.layers.values() if layer.total]
        return sum(known) if known else None

    @property
    def downloading(self) -> bool:
        """Whether bytes are still to come."""
        return any(not layer.done for layer in self.layers.values())

    def rate(self, now: float) -> float | None:
        """Bytes a second in the last ten seconds; None before there are two looks."""
        self._recent.append((now, self.came))
        while len(self._recent) > 2 and now - self._recent[0][0] > 10:
            self._recent.popleft()
        (then, before), (_, after) = self._recent[0], self._recent[-1]
        return max(after - before, 0) / (now - then) if now > then else None
