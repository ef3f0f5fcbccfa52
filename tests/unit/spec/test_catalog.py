"""A faulty recipe or hardware file is refused with its name, the line and a sentence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkfleet.spec.catalog import load_catalog
from sparkfleet.spec.errors import SpecError

PROJECT = Path(__file__).resolve().parents[3]
RECIPE = "recipes/qwen36-35b-heretic.yaml"
VARIANT = """
variants:
  one: {title: t, reason: r, source: s, extends: two}
  two: {title: t, reason: r, source: s, extends: one}
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "recipes").mkdir()
    for name in (RECIPE, "recipes/_common.yaml"):
        shutil.copy(PROJECT / name, tmp_path / name)
    shutil.copytree(PROJECT / "hardware", tmp_path / "hardware")
    return tmp_path


@pytest.fixture
def broken(copy: Path) -> Callable[..., SpecError]:
    """The error after one text of a file was replaced."""

    def one(old: str, new: str, file: str = RECIPE) -> SpecError:
        text = (copy / file).read_text()
        assert text.count(old) >= 1
        (copy / file).write_text(text.replace(old, new, 1))
        with pytest.raises(SpecError) as caught:
            load_catalog(copy)
        return caught.value

    return one


def line_of(old: str) -> int:
    return (PROJECT / RECIPE).read_text().split(old)[0].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("\ntitle:", "\ntitel:", ["titel", "Did you mean title?"]),
        ("disk_gib: 35", 'disk_gib: "35"', ["disk_gib", '"35"', "a number", "without quotes"]),
        ('version: "0.23.0"', "version: 0.23", ["image.version", "0.23", "in quotes"]),
        ("port: 8000", "port: 8000\n    port: 8001", ["port", "second time"]),
        ("kind: forbid\n    subject: flag:mamba", "kind: forbit\n    subject: flag:mamba",
         ["rules.3.kind", '"forbit"', "'forbid'"]),
        ("    source: AGENTS, do not undo 1\n", "", ["source is missing", "rules.0"]),
        ("subject: env:VLLM_TEST", "subject: environ:VLLM_TEST", ["rules.0.subject", "environ"]),
        ("    value: 16384\n", "", ["rules.2", "at_most needs a number"]),
        ("hardware: [gb10]", "hardware: [gb11]", ["hardware profile gb11", "Did you mean gb10?"]),
        ("rule: no-enforce-eager", "rule: no-eager", ["no rule no-eager"]),
        ("lifts: [no-enforce-eager]", "lifts: [nothing]", ["no rule nothing"]),
        ("model: qwen36-deep", "model: qwen36-deepest",
         ["proofs.3.model", "qwen36-deepest, not a served name"]),
        ("expect: {nonempty: true}", "expect: {}", ["expects nothing"]),
        ("params: {max_tokens: 2048, temperature: 0}", "params: {temperature: 0}",
         ["max_tokens", "bounded"]),
        ("not_before: 2026-06-18", "not_before: spring", ["not_before", '"spring"', "a date"]),
        ("shared: 0.70", "shared: 0.95", ["presets.shared", "is above max_utilization"]),
        ("mount: /model", "mount: model", ["models.model.mount", '"model"']),
        ("hardware: [gb10]", "hardware: [gb10", ["not YAML"]),
        ("name: qwen36-35b-heretic", "name: other", ["name is other", "qwen36-35b-heretic"]),
        ("\nnames:", VARIANT + "\nnames:", ["extend each other in a circle", "one → two → one"]),
        ("name: no-marlin", "name: no-dev-mode", ["no-dev-mode is a rule of every recipe"]),
        ("name: no-marlin", "name: flash-attn", ["flash-attn names another rule already"]),
        ("entrypoint: [vllm]", "entrypoint: [vllm]\n  floors: {vlm: 0.6.8}",
         ["image.floors.vlm is not known here", "'vllm', 'flashinfer' or 'cuda'"]),
        ("entrypoint: [vllm]", "entrypoint: [vllm]\n  floors: {vllm: newest}",
         ["image.floors.vllm", "must be a version such as 0.6.8"]),
        ("  disk_gib: S0", "  disc_gib: S0",
         ["sources_of.disc_gib", "names nothing that stands in this file"]),
        ("wedge: {seconds: 300}", "wedge: {seconds: 200}",
         ["choices.0.value", "is not what wedge.seconds says here, which is 200"]),
    ],
)  # fmt: skip
def test_recipe_faults(
    broken: Callable[..., SpecError], old: str, new: str, words: list[str]
) -> None:
    error = broken(old, new)
    message = str(error)
    assert message.startswith("recipes/qwen36-35b-heretic.yaml")
    for word in words:
        assert word in message
    assert error.errors[0].file and error.errors[0].file.endswith(RECIPE)


def test_the_line_is_the_faults(broken: Callable[..., SpecError]) -> None:
    old = "disk_gib: 35"
    assert f"line {line_of(old)}: disk_gib" in str(broken(old, "disk_gib: much"))


BAD = {
    "typo": ("disk_gib: 35", "disc_gib: 35", "disc_gib: 35", "disc_gib (value 35) is not a known"),
    "wrong type": ("burst: 3", "burst: three", "restart:", 'restart.burst is "three", but must be'),
    "duplicate flag": ("    port: 8000\n", "    port: 8000\n    port: 8001\n", "    port: 8001",
                       'the key "port" stands here a second time, first in line'),
    "unknown kind": ("    kind: at_most\n", "    kind: at_mots\n", "    kind: at_mots",
                     'rules.2.kind is "at_mots", but must be'),
    "missing source": ("    source: AGENTS, do not undo 5\n", "", "name: no-mamba-block-size",
                       "rules.3.source is missing"),
    "cyclic variant": ("\nnames:", VARIANT + "\nnames:", "  one: {title",
                       "variants extend each other in a circle: one → two → one"),
    "untrue choice": ("value: 300", "value: 301", "    value: 301",
                      "choices.0.value is not what wedge.seconds says here, which is 300."),
}  # fmt: skip
"""What was written: what for it, where the message must point, and what it must say."""


@pytest.mark.parametrize("fault", BAD)
def test_bad_input_is_told_by_file_line_and_sentence(
    broken: Callable[..., SpecError], copy: Path, fault: str
) -> None:
    old, new, at, sentence = BAD[fault]
    message = str(broken(old, new)).splitlines()[0]
    line = (copy / RECIPE).read_text().split(at)[0].count("\n") + 1
    assert message.startswith(f"{RECIPE}, line {line}: {sentence}"), message
    assert message.endswith((".", ")", "?"))


def test_all_faults_of_all_files_at_once(broken: Callable[..., SpecError], copy: Path) -> None:
    gb10 = copy / "hardware/gb10.yaml"
    gb10.write_text(gb10.read_text().replace("memory_gib: 121.7", "memory_gib: lots"))
    error = broken("disk_gib: 35", "disk_gib: -1\nport: 1")
    files = sorted({str(part.file).rpartition("/")[2] for part in error.errors})
    assert files == ["gb10.yaml", "qwen36-35b-heretic.yaml"]


def test_hardware_inherits_and_replaces_images(copy: Path) -> None:
    (copy / "hardware/lab.yaml").write_text(
        "name: lab\ninherits: gb10\narch: x86_64\nimages:\n"
        "  ghcr.io/aeon-7/aeon-vllm-ultimate: {repository: 10.0.0.1:5000/engine, tag: one}\n"
    )
    lab = load_catalog(copy).hardware["lab"]
    assert (lab.arch, lab.memory_gib, lab.lineage) == ("x86_64", 121.7, ("lab", "gb10"))
    assert lab.images["ghcr.io/aeon-7/aeon-vllm-ultimate"].version is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: lab\ninherits: gb100\n", ["line 2", "names gb100", "Did you mean gb10?"]),
        ("name: lab\ninherits: lab\n", ["circle: lab → lab"]),
        ("name: lab\ninherits: gb10\nimages: [a]\n", ["images", "mapping"]),
        ("- a\n", ["must hold a mapping"]),
        ("", ["must hold a mapping"]),
    ],
)
def test_hardware_faults(copy: Path, text: str, words: list[str]) -> None:
    (copy / "hardware/lab.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_catalog(copy)
    for word in ["hardware/lab.yaml", *words]:
        assert word in str(caught.value)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="There is no directory"):
        load_catalog(tmp_path / "nowhere")


def test_a_second_directory_adds_and_may_not_redefine(copy: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    (more / "recipes").mkdir(parents=True)
    shutil.copy(copy / RECIPE, more / RECIPE)
    with pytest.raises(SpecError, match="defined already in another directory"):
        load_catalog(copy, more)


def test_a_recipe_that_is_not_asked_for_is_known_but_not_read(copy: Path) -> None:
    name = Path(RECIPE).stem
    (copy / "recipes/draft.yaml").write_text("name: [half")
    known = load_catalog(copy, only={name, "elsewhere"})
    assert list(known.recipes) == [name]
    assert set(known.names) == {name, "draft"}
    with pytest.raises(SpecError, match=r"draft\.yaml"):
        load_catalog(copy)
    with pytest.raises(SpecError, match=r"draft\.yaml"):
        load_catalog(copy, only={"draft"})
