"""The engine's own figures of a boot: what its weights took, and what was left for the KV cache.

They replace the recipe's estimates, so they are kept beside the state of the service.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from sparkfleet.node.disk import read_json, write_whole
from sparkfleet.node.layout import Release

LINES = {
    "model_gib": re.compile(r"Model loading took ([\d.]+) GiB"),
    "kv_gib": re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
    "kv_tokens": re.compile(r"KV cache size: ([\d,]+) tokens"),
}
"""What is kept → the line that says it (vLLM 0.23 to 0.32; a CPU build says the last one only)."""


@dataclass
class Figures:
    """What the log of one boot has told so far."""

    found: dict[str, float] = field(default_factory=dict)
    """GiB; tokens."""

    def read(self, line: str) -> None:
        """Take in a line of the log; of one that stands there twice the last counts."""
        for name, pattern in LINES.items():
            said = pattern.search(line)
            if said is not None:
                number = said[1].replace(",", "")
                self.found[name] = int(number) if name == "kv_tokens" else float(number)

    def keep(self, release: Release) -> None:
        """Write them for the survey, with what they hold for. A full disk must not fail a boot."""
        if not self.found:
            return
        manifest = read_json(release.dir / "release.json")
        about = {
            "schema": 1,
            "release": release.hash,
            "image": release.image,
            "utilization": manifest.get("utilization") if isinstance(manifest, dict) else None,
            "models": {role: str(directory) for role, directory in release.models.items()},
            **self.found,
        }
        try:
            write_whole(release.figures, json.dumps(about, indent=1) + "\n")
        except OSError:
            return
