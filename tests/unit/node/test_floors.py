"""The staged image is asked what it holds before anything that runs is stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sparkfleet.node import floors
from sparkfleet.node.commands import Outcome
from sparkfleet.node.faults import Fault
from sparkfleet.node.layout import load_release

from .world import World

ONE, TWO = "a" * 12, "b" * 12
FLOORS = {"vllm": "0.19.1rc1.dev374", "flashinfer": "0.6.8", "cuda": "12.9"}


def said(below: Sequence[str] = (), **found: str | None) -> Outcome:
    """What the image answers, after a line of its own."""
    answer = {"found": dict.fromkeys(FLOORS, "99") | found, "below": list(below)}
    return Outcome(0, f"entering\n{json.dumps(answer)}\n")


def refusal(world: World, answer: Outcome, wanted: dict[str, str] = FLOORS) -> str:
    """What check_floors says of an answer; empty where it is content."""
    hash = f"{len(world.engines):012x}"
    release = load_release(world.service.release_dir(world.release(hash, floors=wanted)))
    try:
        floors.check_floors(release, world, lambda argv, seconds: answer)  # type: ignore[arg-type]
    except Fault as fault:
        assert fault.code == "floors" and 'overrides: {"image-floors"' in fault.next
        return str(fault)
    return ""


def test_what_is_met_is_not_spoken_of(world: World) -> None:
    assert refusal(world, said()) == ""


def test_below_a_floor(world: World) -> None:
    words = refusal(world, said(["flashinfer"], flashinfer="0.6.7"))
    assert "holds FlashInfer 0.6.7, and the recipe needs 0.6.8 or newer" in words


def test_what_the_image_does_not_tell_is_not_taken_for_met(world: World) -> None:
    assert "does not tell its version of CUDA" in refusal(world, said(cuda=None))


@pytest.mark.parametrize("answer", [Outcome(127, err="python3: not found"), Outcome(0, "[]\n")])
def test_an_image_that_can_not_be_asked(world: World, answer: Outcome) -> None:
    assert "could not be asked which versions" in refusal(world, answer)


def test_a_recipe_without_floors_asks_nothing(world: World) -> None:
    assert refusal(world, Outcome(1), {}) == ""


def test_nothing_is_stopped_for_an_image_below_its_floor(world: World) -> None:
    world.release(ONE)
    world.serving(ONE)
    made = world.made
    world.release(TWO, floors=FLOORS)
    world.versions = said(["vllm"], vllm="0.18.0")
    done = world.switch(TWO)
    assert done["result"]["result"] == "refused"
    assert "vLLM 0.18.0" in done["error"]["why"]
    assert (world.made, world.serves, world.state.phase) == (made, ONE, "proven")


# The program that runs inside the image, on this machine's Python with packages that are made up.


def package(site: Path, name: str, version: str) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def ask(site: Path, wanted: dict[str, str], **environment: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", floors.PROGRAM.read_text(), json.dumps(wanted)],
        env={"PYTHONPATH": str(site), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("version", "floor", "low"),
    [
        ("0.23.0", "0.19.1rc1.dev374", False),
        ("0.19.1rc1.dev374+g1174723eb", "0.19.1rc1.dev374", False),
        ("0.19.1rc1.dev373", "0.19.1rc1.dev374", True),
        ("0.19.1", "0.19.1rc1.dev374", False),
        ("0.9.2", "0.19.1rc1.dev374", True),
    ],
)
def test_versions_are_ordered_as_python_orders_them(
    tmp_path: Path, version: str, floor: str, low: bool
) -> None:
    package(tmp_path, "vllm", version)
    answer = ask(tmp_path, {"vllm": floor})
    assert answer == {"found": {"vllm": version}, "below": ["vllm"] if low else []}


def test_cuda_is_what_torch_was_built_for_and_torch_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise RuntimeError('loaded')\n")
    (tmp_path / "torch/version.py").write_text("cuda = '12.8'\n")
    package(tmp_path, "flashinfer-python", "0.6.8")
    answer = ask(tmp_path, FLOORS, CUDA_VERSION="13.0.1")
    assert answer == {
        "found": {"vllm": None, "flashinfer": "0.6.8", "cuda": "12.8"},
        "below": ["cuda"],
    }


def test_without_torch_the_images_own_word_counts(tmp_path: Path) -> None:
    answer = ask(tmp_path, {"cuda": "12.9"}, CUDA_VERSION="13.0.1")
    assert answer == {"found": {"cuda": "13.0.1"}, "below": []}
