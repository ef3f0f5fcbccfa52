"""The published command, as we render it, read by the real engine's own argument parser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lab.api import Lab
from sparkfleet.render import build_release
from sparkfleet.spec.catalog import load_catalog
from tests.lab.test_render_real import PROJECT, plan

pytestmark = [pytest.mark.lab, pytest.mark.engine]

JUDGE = Path(__file__).with_name("judge_argv.py")


def test_the_real_engine_takes_every_word(lab: Lab, host: str) -> None:
    release = build_release(plan())
    compose = yaml.safe_load(release.files["compose.yaml"].content)
    words = compose["services"]["engine"]["command"]
    config = release.files["engine.yaml"].content
    image = load_catalog(PROJECT, lab.catalog).recipes["lab-tiny"].image
    reference = f"{image.repository}:{image.tag}"
    request = json.dumps({"argv": words, "config": config})
    lab.exec(host, ["docker", "pull", "-q", reference], timeout=300, check=True)
    done = lab.exec(
        host,
        [
            *("docker", "run", "--rm", "--entrypoint", "python3", reference),
            *("-c", JUDGE.read_text(), request),
        ],
        timeout=300,
        check=True,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["unknown"] == []  # argparse takes abbreviations; none of ours may be one
    assert said["unknown_speculative_keys"] == []
    read = said["read"]
    assert read["served_model_name"] == ["qwen36-35b-heretic", "qwen36-fast", "qwen36-deep"]
    assert read["gpu_memory_utilization"] == 0.85
    assert read["limit_mm_per_prompt"] == {"image": 4, "video": 2}
    assert read["speculative_config"]["num_speculative_tokens"] == 11
    assert read["shutdown_timeout"] == 30
    assert read["middleware"] == ["sparkfleet_guard.KeyGuard"]
    assert not read["api_key"]
