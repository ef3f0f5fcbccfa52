"""What the real engine said, captured: the lab's recipe and its stand-in are held against it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.engine import catalog, plan
from lab.engine.standin.answers import Answer
from lab.engine.standin.app import part, whole
from lab.engine.standin.counters import Counters

CASES = Path(__file__).resolve().parents[1] / "cases"
BOOTS = ("vllm-0.31.0-cpu", "vllm-0.32.0-cpu", "vllm-0.32.0-cpu-no-spec")
PATH = "/v1/chat/completions"


def log(name: str) -> str:
    return (CASES / "engine-logs" / f"{name}.log").read_text()


def captured(version: str, name: str) -> str:
    return (CASES / "engine-http" / version / name).read_text()


@pytest.mark.parametrize("name", BOOTS)
def test_the_markers_of_the_labs_recipe_come_in_their_order(name: str) -> None:
    text = log(name)
    places = [text.index(str(marker["text"])) for marker in catalog.CPU_MARKERS]
    assert places == sorted(places)
    assert "not found in params_dict" not in text


def test_a_boot_without_memory_says_so_and_never_serves() -> None:
    text = log("vllm-0.32.0-cpu-no-memory")
    assert "is less than requested memory for kv" in text
    assert "Application startup complete" not in text


@pytest.mark.parametrize("version", plan.VERSIONS)
def test_the_stand_in_uses_the_engines_own_metric_names(version: str) -> None:
    def names(text: str) -> set[str]:
        return {line.split("{")[0] for line in text.splitlines() if line.startswith("vllm:")}

    played = Counters("tiny", drafts=3, steps=29, accepted=60)
    assert names(played.text()) <= names(captured(version, "metrics.txt"))


@pytest.mark.parametrize("version", plan.VERSIONS)
def test_the_stand_in_answers_in_the_engines_shape(version: str) -> None:
    real = json.loads(captured(version, "chat.json"))
    said = whole({"model": "tiny"}, PATH, Answer("x", "y", tokens=1))
    assert set(said) <= set(real)
    message, spoken = (answer["choices"][0]["message"] for answer in (real, said))
    # vLLM leaves tool_calls out where there are none.
    assert set(spoken) - {"tool_calls"} <= set(message)
    assert set(said["usage"]) <= set(real["usage"])
    events = captured(version, "chat-stream.txt").splitlines()
    first = json.loads(events[0].removeprefix("data: "))
    assert set(part({"model": "tiny"}, PATH, {"content": ""})) <= set(first)
    assert [line for line in events if line][-1] == "data: [DONE]"


@pytest.mark.parametrize("version", plan.VERSIONS)
def test_both_versions_give_the_same_text(version: str) -> None:
    text = json.loads(captured(version, "chat.json"))["choices"][0]["message"]["content"]
    assert text == "xpwpwpwpoinoinfrrfrfrfrfrfrfrfrx"
    assert json.loads(captured(version, "version.json")) == {"version": version}
