"""What a switch is asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from sparkfleet.node.faults import Fault
from sparkfleet.node.quiesce import THEN, Then


@dataclass(frozen=True)
class Request:
    """The JSON of a switch job: root, service and release (its hash) are required."""

    root: Path
    service: str
    release: str
    gpu_check: bool = True
    drain_timeout: float = 60.0
    """Seconds to wait for running requests before the engine is stopped."""
    drain_then: Then = "proceed"
    """What then: `wait` on, `proceed` to the stop, `abort` the switch."""
    soak: float = 0.0
    """Seconds in which the new release, serving already, must not falter."""
    keep: int = 3
    """Releases to keep, those that could run again by themselves among them."""
    restart: bool = False
    """Start it again though it runs and is proven: its files were changed under it."""
    who: str = ""
    """For the history: who asked."""
    adopt: dict[str, Any] = field(default_factory=dict)
    """The owner's own containers that make way, with his word: `ids`, and `park` and `put_back`,
    the shell text that stops and renames them and that undoes it. Empty: there are none."""

    @classmethod
    def parse(cls, raw: Any) -> Request:
        """Raises Fault naming the key that is missing or wrong."""
        try:
            return cls(
                root=Path(raw["root"]),
                service=str(raw["service"]),
                release=str(raw["release"]),
                gpu_check=bool(raw.get("gpu_check", True)),
                drain_timeout=float(raw.get("drain_timeout", 60.0)),
                drain_then=_then(raw.get("drain_then", "proceed")),
                soak=float(raw.get("soak", 0.0)),
                keep=int(raw.get("keep", 3)),
                restart=bool(raw.get("restart", False)),
                who=str(raw.get("who", "")),
                adopt=dict(raw.get("adopt") or {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Fault(
                f"The switch's request is wrong or lacks {error}.", code="request"
            ) from None

    @property
    def adopted(self) -> frozenset[str]:
        """Ids of the containers that make way."""
        return frozenset(str(one) for one in self.adopt.get("ids") or ())

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**asdict(self), "root": str(self.root)}


def _then(raw: Any) -> Then:
    if raw not in THEN:
        raise ValueError(f"drain_then {raw!r}")
    return cast(Then, raw)
