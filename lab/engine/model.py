"""The lab's models: made once inside the engine, and put on the hub stand-in."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Literal

from lab.engine import chroot, plan
from lab.engine.workshop import Workshop
from lab.hub.store import Store, write_safetensors

SEED = 219
"""Found by trying 400: the one whose greedy text for PROMPTS is the least in doubt."""
PROMPTS = ("What is 17 × 23?", "Say hello.")
MAKER = plan.HERE / "make_model.py"

MODEL, DRAFTER = "lab/tiny-qwen3", "lab/tiny-qwen3-drafter"
OTHER = "lab/tiny-qwen3-other"
"""Same shape, another seed: passes every check of files and fails the exact proof."""
PUBLISHED = "2026-11-01T00:00:00.000Z"

WEIGHTS_A = "AEON-7/Qwen3.6-35B-A3B-heretic-NVFP4"
DRAFTER_A = "z-lab/Qwen3.6-35B-A3B-DFlash"
"""Recipe A's repositories in name and layout, for the stand-in engine: a few kilobytes each."""
GOOD_KEYS = ("model.language_model.layers.0.mlp.gate.weight", "model.visual.blocks.0.norm1.weight")
BROKEN_KEYS = (GOOD_KEYS[0], "model.language_model.visual.blocks.0.norm1.weight")


def ensure(workshop: Workshop, hub: Path) -> dict[str, str]:
    """Make and publish what is missing; returns the exact greedy text per prompt."""
    made = _made(workshop)
    store = Store(hub)
    for repo, name in ((MODEL, "model"), (DRAFTER, "drafter"), (OTHER, "other")):
        _publish(store, repo, made / name)
    _publish(store, "lab/gated", made / "model", gated=True)
    _publish(store, "lab/private", made / "model", private=True)
    _recipe_a(store, workshop.room / "recipe-a")
    expected: dict[str, str] = json.loads((made / "expected.json").read_text())
    return expected


def _made(workshop: Workshop) -> Path:
    facts = MAKER.read_bytes() + json.dumps([SEED, PROMPTS, plan.VERSIONS[-1]]).encode()
    ready = workshop.room / f"model-{hashlib.sha256(facts).hexdigest()[:12]}"
    if ready.exists():
        return ready
    building = ready.with_name(ready.name + ".partial")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    print("engine images: making the tiny model …", flush=True)
    chroot.run(
        workshop.engine_trees(plan.VERSIONS[-1]),
        ["python3", "/lab/make_model.py", "/out", str(SEED), json.dumps(PROMPTS)],
        binds={building: "/out", plan.HERE: "/lab"},
    )
    building.rename(ready)
    return ready


def _publish(
    store: Store, repo: str, source: Path, *, gated: bool = False, private: bool = False
) -> None:
    """Publish unless it is there: a head that a test moved stays where it is."""
    gate: Literal[False, "manual"] = "manual" if gated else False
    store.publish(repo, source, date=PUBLISHED, gated=gate, private=private, keep_head=True)


def _recipe_a(store: Store, room: Path) -> None:
    """Weights before and after the fix of 2026-06-18, and a drafter, as far as headers tell."""
    dated = (
        (WEIGHTS_A, BROKEN_KEYS, "2026-06-10T08:00:00.000Z"),
        (WEIGHTS_A, GOOD_KEYS, "2026-06-18T20:00:00.000Z"),
        (DRAFTER_A, ("layers.0.self_attn.q_proj.weight",), "2026-04-20T08:00:00.000Z"),
    )
    for repo, keys, date in dated:
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir(parents=True)
        (room / "config.json").write_text('{"model_type": "qwen3_5_moe"}\n')
        write_safetensors(room / "model.safetensors", dict.fromkeys(keys, 4096), seed=len(date))
        store.publish(repo, room, date=date, title=f"Weights of {date[:10]}", keep_head=True)
