"""The probe, against a server that speaks the engine's routes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.node import probe as probe_module
from sparkfleet.node.docker import Docker
from sparkfleet.node.faults import Fault
from sparkfleet.node.probe import Probe, read_key, table

from .servers import KEY, DockerSocket, Engine, Handler, running

ARITHMETIC = {
    "name": "arithmetic",
    "model": "qwen36-fast",
    "kind": "chat",
    "messages": [{"role": "user", "content": "What is 17 × 23?"}],
    "params": {"max_tokens": 2048, "temperature": 0},
    "expect": {"contains": "391"},
    "read": ["content", "reasoning"],
}
WEATHER = {
    "name": "tool",
    "model": "qwen36-fast",
    "kind": "tool",
    "messages": [{"role": "user", "content": "Weather in Oslo?"}],
    "params": {"max_tokens": 512, "tools": [{"type": "function"}]},
    "expect": {"tool": "get_weather"},
}


@pytest.fixture
def engine() -> Iterator[Engine]:
    server = Engine()
    with running(server):
        yield server


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[DockerSocket]:
    server = DockerSocket(tmp_path / "docker.sock")
    with running(server):
        yield server


@pytest.fixture
def ask(engine: Engine, docker: DockerSocket, tmp_path: Path) -> Any:
    """Run a probe request, given as changes to a good one."""
    key_file = tmp_path / "engine.yaml"
    key_file.write_text(f"api-key: {KEY}\n")

    def asking(**changes: Any) -> dict[str, Any]:
        request = {
            "url": engine.url,
            "key_file": str(key_file),
            "names": ["qwen36-35b-heretic", "qwen36-fast"],
            "version": "0.23.0",
            "timeout": 5,
            "draft_counters": True,
            "logs": {
                "container": "qwen36-35b",
                "forbidden": [{"text": "not found in params_dict", "reason": "Weights skipped."}],
                "required": ["started"],
            },
            "proofs": [ARITHMETIC],
        }
        return Probe(request | changes, docker=Docker(docker.path)).run()

    return asking


def last(result: dict[str, Any]) -> dict[str, Any]:
    check: dict[str, Any] = result["checks"][-1]
    return check


def test_a_serving_engine_passes_every_check_in_order(ask: Any, engine: Engine) -> None:
    result = ask()
    assert result["ok"] and result["failure"] is None and result["skipped"] == []
    names = [check["name"] for check in result["checks"]]
    assert names == [
        "alive",
        "version",
        "names",
        "counters",
        "arithmetic",
        "drafts",
        "log",
    ]
    assert engine.requests == [
        {
            "model": "qwen36-fast",
            "messages": ARITHMETIC["messages"],
            "max_tokens": 2048,
            "temperature": 0,
            "stream": False,
        }
    ]
    assert KEY not in json.dumps(result)
    assert "proven" in table(result)


@pytest.mark.parametrize("field", ["content", "reasoning", "reasoning_content"])
def test_the_answer_may_stand_in_the_thinking(ask: Any, engine: Engine, field: str) -> None:
    engine.message = {"content": None, field: "so it is 391."}
    assert ask()["ok"]


def test_a_proof_that_reads_content_only_does_not_take_the_thinking(
    ask: Any, engine: Engine
) -> None:
    engine.message = {"content": None, "reasoning": "391"}
    result = ask(proofs=[ARITHMETIC | {"read": ["content"]}])
    assert last(result)["detail"].startswith("qwen36-fast answered nothing")


@pytest.mark.parametrize(
    ("wrong", "check", "words"),
    [
        ({"version": "0.27.1"}, "version", "is 0.27.1, and the recipe is for 0.23.0"),
        ({"names": ["qwen36-35b-heretic"]}, "names", "missing: qwen36-fast"),
        ({"names": ["qwen36-35b-heretic", "Qwen36-Fast"]}, "names", "case differs: Qwen36-Fast"),
        ({"message": {"content": "390"}}, "arithmetic", 'does not contain "391"'),
        ({"message": {}, "finish": "length"}, "arithmetic", "cut off at max_tokens"),
        ({"status": 400}, "arithmetic", 'HTTP 400: "max_tokens is too large"'),
        ({"step": 0.0}, "drafts", "did not climb"),
    ],
    ids=["version", "name", "case", "answer", "length", "refusal", "counters"],
)
def test_the_check_that_fails_is_named_and_ends_the_probe(
    ask: Any,
    engine: Engine,
    wrong: dict[str, Any],
    check: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe_module, "LAG", 0.0)
    for name, value in wrong.items():
        setattr(engine, name, value)
    result = ask()
    assert not result["ok"] and result["failure"] == last(result)["name"] == check
    assert words in last(result)["detail"]
    assert result["skipped"][-1] == "log"


def test_counters_may_lag_behind_the_answer(ask: Any, engine: Engine) -> None:
    readings = [(100.0, 40.0), (100.0, 40.0), (111.0, 45.0)]

    def slow(handler: Handler) -> tuple[int, str]:
        engine.drafted, engine.accepted = readings.pop(0) if len(readings) > 1 else readings[0]
        return 200, engine.metrics()

    engine.routes["/metrics"] = slow
    assert ask()["checks"][5]["detail"] == "5 of 11 draft tokens accepted"


def test_an_engine_without_a_drafter_is_told_so(
    ask: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module, "LAG", 0.0)
    engine.routes["/metrics"] = lambda handler: (200, "vllm:num_requests_running 0\n")
    assert "does not draft" in last(ask())["detail"]


def test_forbidden_and_missing_log_lines_fail(ask: Any, docker: DockerSocket) -> None:
    stamp = "2026-11-02T10:00:02.000000000Z"
    docker.log.append((stamp, b"Parameter x not found in params_dict, skip loading \xff"))
    assert "Weights skipped. The line: Parameter x" in last(ask())["detail"]
    docker.log = [(stamp, b"nothing of note")]
    assert "lacks “started”" in last(ask())["detail"]


def test_a_tool_call_is_proven_by_its_name_and_arguments(ask: Any, engine: Engine) -> None:
    call = {"function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    engine.message = {"content": None, "tool_calls": [call]}
    assert ask(proofs=[WEATHER])["ok"]
    call["function"]["arguments"] = "{city"
    assert "not JSON" in last(ask(proofs=[WEATHER]))["detail"]
    engine.message = {"content": "It is sunny."}
    assert "did not call the tool get_weather" in last(ask(proofs=[WEATHER]))["detail"]


def test_a_completion_is_compared_exactly(ask: Any, engine: Engine) -> None:
    proof = {
        "name": "exact",
        "model": "m",
        "kind": "completion",
        "prompt": "a",
        "params": {"max_tokens": 3},
        "expect": {"equals": "abc"},
    }
    assert ask(proofs=[proof])["ok"] and engine.requests[-1]["prompt"] == "a"
    assert 'is not "abcd"' in last(ask(proofs=[proof | {"expect": {"equals": "abcd"}}]))["detail"]


@pytest.mark.parametrize("path", ["/health", "/v1/chat/completions"])
def test_a_server_that_drips_does_not_hold_the_probe(
    ask: Any, engine: Engine, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module, "QUICK", 1.0)

    def drip(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not engine.ended.wait(0.05):
            handler.wfile.write(b" ")

    engine.routes[path] = drip
    begun = time.monotonic()
    result = ask(timeout=1)
    assert time.monotonic() - begun < 5
    assert "gave no whole answer in 1 s" in last(result)["detail"]


def test_a_wrong_key_is_said_without_the_key(ask: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text('api-key: "sk-some-other-key"\n')
    result = ask(key_file=str(other))
    assert "refuses the key of" in last(result)["detail"]
    assert "sk-some" not in json.dumps(result)


def test_a_key_that_an_engine_echoes_is_hidden(ask: Any, engine: Engine) -> None:
    engine.message = {"content": f"your key is {KEY}"}
    assert KEY not in json.dumps(ask())


def test_nothing_there_is_refused_in_words(ask: Any) -> None:
    result = ask(url="http://127.0.0.1:9")
    assert last(result)["detail"] == "it could not be asked: nothing listens at 127.0.0.1:9"


def test_a_key_file_without_a_key_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="can't be read"):
        read_key(tmp_path / "absent.yaml")
    (tmp_path / "k.yaml").write_text("middleware: x\n")
    with pytest.raises(Fault, match="holds no line"):
        read_key(tmp_path / "k.yaml")


def test_by_hand_it_says_what_is_wrong_without_a_traceback(tmp_path: Path) -> None:
    program = Path(probe_module.__file__)
    argv = [sys.executable, "-I", str(program), "--release", str(tmp_path)]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 2
    assert "release.json" in said.stdout and "Traceback" not in said.stdout + said.stderr
