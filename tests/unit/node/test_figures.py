"""A boot's log tells what the weights took and what was left; the survey finds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkfleet.node.boot import BootWatch
from sparkfleet.node.figures import Figures
from sparkfleet.node.layout import load_release
from sparkfleet.node.survey_fleet import model, service

from .world import Engine, World

ONE = "a" * 12
LOGS = Path(__file__).resolve().parents[2] / "cases/engine-logs"
LINES = [
    "INFO gpu_model_runner.py:5150] Model loading took 22.11 GiB memory and 181.3 seconds",
    "INFO gpu_worker.py:760] Available KV cache memory: 55.32 GiB",
    "INFO kv_cache_utils.py:2328] GPU KV cache size: 2,900,496 tokens, Maximum concurrency for "
    "262,144 tokens per request: 11.06x",
]
"""As vLLM 0.32 writes them; 0.23 says `took 22.11 GiB and`."""


@pytest.mark.parametrize("took", ["22.11 GiB memory and", "22.11 GiB and"])
def test_the_lines_of_a_gpu_build(took: str) -> None:
    figures = Figures()
    for line in LINES:
        figures.read(line.replace("22.11 GiB memory and", took))
    assert figures.found == {"model_gib": 22.11, "kv_gib": 55.32, "kv_tokens": 2_900_496}


@pytest.mark.parametrize("name", ["vllm-0.31.0-cpu.log", "vllm-0.32.0-cpu.log"])
def test_a_captured_log_of_a_cpu_build(name: str) -> None:
    figures = Figures()
    for line in (LOGS / name).read_text().splitlines():
        figures.read(line)
    assert figures.found == {"kv_tokens": 1_048_576}


def test_a_boot_that_is_ready_leaves_them_for_the_survey(world: World) -> None:
    log = [(5.0 + i, line) for i, line in enumerate(LINES)]
    models = {"model": {"dir": "/m/one"}}
    world.release(ONE, Engine(log=log), utilization=0.7, models=models)
    release = load_release(world.service.release_dir(ONE))
    world.service.trial.parent.mkdir()
    world.service.trial.write_text(f"{release.dir}\n")
    world.run(["systemctl", "start", "x"], 1)
    means = world.means()
    watch = BootWatch(release, world, begun=world.now, clock=means.clock, health=means.health)  # type: ignore[arg-type]
    while watch.step().outcome == "waiting":
        assert not release.figures.exists(), "a boot that is not ready tells nothing yet"
        world.now += 1
    found = service(world.service.dir, "llm")["figures"]
    assert found == {
        "schema": 1,
        "release": ONE,
        "image": release.image,
        "utilization": 0.7,
        "models": {"model": "/m/one"},
        "model_gib": 22.11,
        "kv_gib": 55.32,
        "kv_tokens": 2_900_496,
    }


def test_an_engine_that_says_nothing_leaves_what_was_known(world: World) -> None:
    release = load_release(world.service.release_dir(world.release(ONE)))
    release.figures.write_text('{"schema": 1}')
    Figures().keep(release)
    assert release.figures.read_text() == '{"schema": 1}'


@pytest.mark.parametrize("text", ["", "[1]", "{", "\x00"])
def test_figures_that_are_no_json_cost_nothing_else(world: World, text: str) -> None:
    (world.service.dir / "figures.json").write_text(text)
    assert service(world.service.dir, "llm")["figures"] is None


def test_the_survey_reads_what_config_json_says_of_the_cache(tmp_path: Path) -> None:
    assert model(str(tmp_path))["config"] is None
    text = {"num_hidden_layers": 40, "head_dim": 256, "vocab_size": 1}
    whole = {"architectures": ["x"], "text_config": text, "vision_config": {"num_layers": 27}}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    assert model(str(tmp_path))["config"] == {"num_hidden_layers": 40, "head_dim": 256}
    (tmp_path / "config.json").write_text(json.dumps(text))
    assert model(str(tmp_path))["config"] == {"num_hidden_layers": 40, "head_dim": 256}
    (tmp_path / "config.json").write_text('{"text_config": 1}')
    assert model(str(tmp_path))["config"] is None
