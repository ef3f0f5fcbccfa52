"""The stand-in engine: that it plays vLLM well enough, and each of its faults."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lab.engine.standin import app, faults
from lab.engine.standin.answers import answer
from lab.engine.standin.app import Engine
from lab.engine.standin.args import UsageError, parse
from lab.engine.standin.faults import Fault
from lab.engine.standin.main import boot
from lab.engine.standin.picture import colour
from sparkfleet.engine.guard import KeyGuard
from sparkfleet.spec.proof import COLOURS, picture

SERVE = [
    *("serve", "/model", "--served-model-name", "a", "a-fast", "a-deep"),
    *("--host=0.0.0.0", "--port", "8000", "--enable-auto-tool-choice"),
    *("--reasoning-parser", "qwen3", "--some-flag-of-tomorrow", "x"),
]
SUM = {"messages": [{"role": "user", "content": "What is 17 × 23?"}], "max_tokens": 256}


@pytest.fixture(autouse=True)
def no_live_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place for live faults of this test's own."""
    live = tmp_path / "live"
    monkeypatch.setattr(app, "now", lambda boot_fault: faults.now(boot_fault, live))
    return live


def engine(fault: str = "", **kwargs: Any) -> Engine:
    settings = {"version": "1.0.0", "drafts": 3, "thinks": True, "rate": 1e6} | kwargs
    return Engine(["a", "a-fast", "a-deep"], boot_fault=faults.parse(fault), **settings)


def ask(
    target: Any, path: str, request: dict[str, Any] | None = None, key: str = "", timeout: float = 5
) -> tuple[int, str]:
    """One request to an ASGI application: status and body."""

    async def call() -> tuple[int, str]:
        said: list[dict[str, Any]] = []
        asked = iter([{"type": "http.request", "body": json.dumps(request).encode()}])

        async def receive() -> dict[str, Any]:
            for message in asked:
                return message
            return await asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            said.append(message)

        headers = [(b"authorization", f"Bearer {key}".encode())] if key else []
        method = "GET" if request is None else "POST"
        scope = {"type": "http", "path": path, "method": method, "headers": headers}
        await asyncio.wait_for(target(scope, receive, send), timeout)
        body = b"".join(m.get("body", b"") for m in said).decode()
        return said[0]["status"], body

    return asyncio.run(call())


def chat(target: Any, model: str = "a-fast", **more: Any) -> dict[str, Any]:
    status, body = ask(target, "/v1/chat/completions", {"model": model, **SUM, **more})
    assert status == 200, body
    choice: dict[str, Any] = json.loads(body)["choices"][0]
    return choice


def metric(target: Any, name: str) -> float:
    lines = ask(target, "/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))


def test_the_command_line_is_read_as_vllm_reads_it(tmp_path: Path) -> None:
    args = parse(SERVE)
    assert args.names == ["a", "a-fast", "a-deep"]
    assert args.one("port", "") == "8000" and args.has("enable-auto-tool-choice")
    config = tmp_path / "engine.yaml"
    config.write_text("api-key: secret\nport: 9\n")
    args = parse([*SERVE, "--config", str(config)])
    assert args.many("api-key") == ["secret"]
    assert args.one("port", "") == "8000", "the command line stands before the file"
    assert "secret" not in str(args.shown())
    with pytest.raises(UsageError, match="does not exist"):
        parse([*SERVE, "--config", "/nowhere.yaml"])
    with pytest.raises(UsageError, match="one model"):
        parse(["serve"])


def test_it_proves_like_a_thinking_model() -> None:
    one = engine()
    said = chat(one)["message"]
    assert "391" in said["content"] and said["reasoning"]
    plain = chat(one, chat_template_kwargs={"enable_thinking": False})["message"]
    assert "391" in plain["content"] and plain["reasoning"] is None
    short = chat(one, max_tokens=8)
    assert short["message"]["content"] is None and short["finish_reason"] == "length"


def test_it_calls_the_tool_it_is_offered() -> None:
    schema = {"properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}]
    choice = chat(engine(), tools=tools, tool_choice="auto")
    call = choice["message"]["tool_calls"][0]["function"]
    assert call["name"] == "get_weather" and json.loads(call["arguments"]) == {"city": "Lisbon"}
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("name", COLOURS)
def test_it_sees_the_picture_that_arrived(name: str) -> None:
    part = {"type": "image_url", "image_url": {"url": picture(name, 16)}}
    text = {"type": "text", "text": "What colour?"}
    choice = chat(engine(), messages=[{"role": "user", "content": [text, part]}])
    assert choice["message"]["content"] == name


def test_a_broken_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="no PNG"):
        colour("data:image/png;base64,aGVsbG8=")
    with pytest.raises(ValueError, match="no data URL"):
        colour("https://example.org/red.png")


def test_routes_counters_and_version() -> None:
    one = engine()
    assert ask(one, "/health") == (200, "")
    assert json.loads(ask(one, "/version")[1]) == {"version": "1.0.0"}
    listed = json.loads(ask(one, "/v1/models")[1])["data"]
    assert [m["id"] for m in listed] == ["a", "a-fast", "a-deep"]
    before = metric(one, "vllm:spec_decode_num_draft_tokens_total")
    chat(one)
    assert metric(one, "vllm:spec_decode_num_draft_tokens_total") > before
    assert metric(one, "vllm:spec_decode_num_accepted_tokens_total") > 0
    assert metric(one, "vllm:generation_tokens_total") > 0
    assert metric(one, "vllm:num_requests_running") == 0
    assert ask(one, "/v1/chat/completions", {"model": "b", **SUM})[0] == 404


def test_streams_end_with_done_and_usage() -> None:
    request = {"model": "a", **SUM, "stream": True, "stream_options": {"include_usage": True}}
    status, body = ask(engine(), "/v1/chat/completions", request)
    events = [line.removeprefix("data: ") for line in body.splitlines() if line]
    assert status == 200 and events[-1] == "[DONE]"
    parts = [json.loads(event) for event in events[:-1]]
    text = "".join(p["choices"][0]["delta"].get("content", "") for p in parts if p["choices"])
    assert "391" in text and parts[-1]["usage"]["completion_tokens"] > 0


def test_ignore_eos_gives_exactly_that_many_tokens() -> None:
    request = {"model": "a", "prompt": "x", "max_tokens": 77, "ignore_eos": True}
    body = json.loads(ask(engine(), "/v1/completions", request)[1])
    assert body["usage"]["completion_tokens"] == 77
    assert len(body["choices"][0]["text"].split()) == 77


def test_api_key_guards_v1_only_and_the_projects_guard_fits_before_it(tmp_path: Path) -> None:
    one = engine(keys=("k",))
    assert ask(one, "/v1/models")[0] == 401 and ask(one, "/v1/models", key="k")[0] == 200
    assert ask(one, "/metrics")[0] == 200
    (tmp_path / "key.yaml").write_text("api-key: k\n")
    shut = KeyGuard(engine(), str(tmp_path / "key.yaml"))
    assert ask(shut, "/v1/models")[0] == 401 and ask(shut, "/v1/models", key="k")[0] == 200


def test_faults_of_answers() -> None:
    assert "391" not in chat(engine("wrong-answer"))["message"]["content"]
    assert json.loads(ask(engine("wrong-version"), "/version")[1]) == {"version": "0.0.0"}
    missing = engine("missing-name")
    assert [m["id"] for m in json.loads(ask(missing, "/v1/models")[1])["data"]] == ["a"]
    assert ask(missing, "/v1/chat/completions", {"model": "a-fast", **SUM})[0] == 404
    still = engine("still-counters")
    assert metric(still, "vllm:spec_decode_num_draft_tokens_total") == 0
    chat(still)
    assert metric(still, "vllm:spec_decode_num_draft_tokens_total") == 0
    assert metric(still, "vllm:generation_tokens_total") > 0


def test_mute_is_healthy_and_never_answers() -> None:
    mute = engine("mute")
    assert ask(mute, "/health")[0] == 200
    with pytest.raises(TimeoutError):
        ask(mute, "/v1/chat/completions", {"model": "a", **SUM}, timeout=0.2)


def test_wedges_after_so_many_and_the_request_counts_as_running() -> None:
    one = engine("wedges:1")
    chat(one)
    tokens = metric(one, "vllm:generation_tokens_total")

    async def look() -> int:
        def scope(path: str) -> dict[str, Any]:
            return {"type": "http", "path": path, "method": "POST", "headers": []}

        async def receive() -> dict[str, Any]:
            if not sent:
                sent.append(1)
                body = json.dumps({"model": "a", **SUM}).encode()
                return {"type": "http.request", "body": body}
            return await asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            raise AssertionError("a wedged engine says nothing")

        sent: list[int] = []
        hanging = asyncio.create_task(one(scope("/v1/chat/completions"), receive, send))
        await asyncio.sleep(0)
        while not sent:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        running = one.counters.running
        hanging.cancel()
        return running

    assert asyncio.run(look()) == 1
    assert metric(one, "vllm:generation_tokens_total") == tokens
    assert ask(one, "/health")[0] == 200


@pytest.mark.parametrize(("fault", "status"), [("dead:1", None), ("dies:1", 1), ("dies-0:1", 0)])
def test_death_shows_in_health_and_ends_the_process(fault: str, status: int | None) -> None:
    ended: list[int] = []
    one = engine(fault, on_death=ended.append)

    async def die() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later = lambda delay, call, *a: call(*a)  # type: ignore[method-assign,assignment]
        one._strike(one.fault())

    chat(one)
    assert ask(one, "/health")[0] == 200
    asyncio.run(die())
    assert ask(one, "/health")[0] == 503
    assert ask(one, "/v1/chat/completions", {"model": "a", **SUM})[0] == 500
    assert ended == ([] if status is None else [status])


def test_a_live_fault_comes_and_goes(no_live_fault: Path) -> None:
    one = engine()
    no_live_fault.write_text("wrong-version\n")
    assert json.loads(ask(one, "/version")[1]) == {"version": "0.0.0"}
    no_live_fault.write_text("")
    assert json.loads(ask(one, "/version")[1]) == {"version": "1.0.0"}


def test_where_a_fault_is_asked_for(tmp_path: Path) -> None:
    assert faults.at_boot(str(tmp_path), {}) == Fault()
    (tmp_path / "standin-fault.json").write_text('{"fault": "dies:3"}')
    assert faults.at_boot(str(tmp_path), {}) == Fault("dies", 3)
    assert faults.at_boot(str(tmp_path), {"SPARKFLEET_STANDIN_FAULT": "mute"}) == Fault("mute")
    with pytest.raises(ValueError, match="knows no fault"):
        faults.parse("explode")


def boot_log(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, object]:
    args = parse([word.replace("/model", str(tmp_path)) for word in SERVE])
    try:
        boot(args, faults.parse(fault), "1.0.0", 0)
    except SystemExit as end:
        return capsys.readouterr().err, end.code
    return capsys.readouterr().err, None


def test_the_boot_writes_vllms_markers_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, code = boot_log("", tmp_path, capsys)
    markers = ("non-default args:", "Model loading took", "GPU KV cache size:", "init engine")
    places = [log.index(marker) for marker in markers]
    assert code is None and places == sorted(places)
    assert "not found in params_dict" not in log


def test_faults_of_the_boot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, code = boot_log("crash:3", tmp_path, capsys)
    assert code == 3 and "less than desired GPU memory utilization" in log
    assert boot_log("exit0", tmp_path, capsys)[1] == 0
    log, code = boot_log("forbidden-log", tmp_path, capsys)
    assert code is None and "not found in params_dict, skip loading" in log
    log, code = boot_log("", tmp_path / "absent", capsys)
    assert code == 1 and "is not a local folder" in log


def test_answers_stay_within_max_tokens() -> None:
    said = answer({**SUM, "max_tokens": 3, "prompt": ""}, thinks=False)
    assert said.finish == "length" and said.content == "17 × 23"
