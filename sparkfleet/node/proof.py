"""Proofs: what to ask of an engine, and whether what came back is right. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_PATHS = {"completion": "/v1/completions"}
#: Fields of a chat message by the name a proof reads; vLLM has spelt the thinking in two ways.
_FIELDS = {"content": ("content",), "reasoning": ("reasoning", "reasoning_content")}

#: Counters that climb with every request while a drafter works (vLLM, with or without `_total`).
DRAFT_COUNTERS = ("vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens")


def request_of(proof: Row) -> tuple[str, bytes]:
    """Path and JSON body of a proof's request."""
    body: dict[str, Any] = {"model": proof["model"]}
    if proof["kind"] == "completion":
        body["prompt"] = proof["prompt"]
    else:
        body["messages"] = proof["messages"]
    body |= proof.get("params") or {}
    body["stream"] = False
    return _PATHS.get(proof["kind"], "/v1/chat/completions"), json.dumps(body).encode()


def texts_of(proof: Row, answer: Any) -> list[str]:
    """The texts of an answer that the proof reads, in its order; absent and empty ones left out."""
    choice = _choice(answer)
    if proof["kind"] == "completion":
        return [choice["text"]] if isinstance(choice.get("text"), str) and choice["text"] else []
    message = choice.get("message") or {}
    names = [
        name
        for field in proof.get("read") or ("content", "reasoning")
        for name in _FIELDS.get(field, (field,))
    ]
    return [text for name in names if isinstance(text := message.get(name), str) and text]


def judge(proof: Row, status: int, answer: Any) -> tuple[bool, str]:
    """Whether the answer is right, and a sentence that says so or says what is wrong."""
    model = proof["model"]
    if status != 200:
        return False, f"{model} answered with HTTP {status}: {_error_of(answer)}"
    if not isinstance(answer, dict) or not answer.get("choices"):
        return False, f"{model} answered without any choice: {json.dumps(answer)[:200]}"
    expect = proof.get("expect") or {}
    texts = texts_of(proof, answer)
    if expect.get("tool"):
        good, words = _called(expect["tool"], answer)
        if not good:
            return False, f"{model} {words}{_cut_short(answer)}"
        if not any(expect.get(key) for key in ("contains", "equals", "nonempty")):
            return True, f"{model} {words}"
    shown = f"{model} answered {_short(texts[0])}" if texts else f"{model} answered nothing"
    wrong = _wrong(expect, texts)
    if wrong:
        return False, f"{shown}, which {wrong}{_cut_short(answer)}"
    return True, shown


def _wrong(expect: Row, texts: Sequence[str]) -> str:
    """What the texts lack, as the end of a sentence; empty when nothing."""
    wanted = expect.get("contains")
    if wanted is not None and not any(wanted.casefold() in text.casefold() for text in texts):
        return f"does not contain {_short(wanted)}"
    whole = expect.get("equals")
    # An empty text is left out of `texts`; where it is what is expected, nothing else may stand.
    if whole is not None and whole not in texts and not (whole == "" and not texts):
        return f"is not {_short(whole)}"
    if expect.get("nonempty") and not any(text.strip() for text in texts):
        return "is no text"
    return ""


def _called(tool: str, answer: Any) -> tuple[bool, str]:
    calls = (_choice(answer).get("message") or {}).get("tool_calls") or []
    functions = [call.get("function") or {} for call in calls]
    for function in functions:
        if function.get("name") != tool:
            continue
        arguments = function.get("arguments")
        try:
            json.loads(arguments) if isinstance(arguments, str) else None
        except ValueError:
            return (
                False,
                f"called {tool} with arguments that are not JSON: {_short(str(arguments))}",
            )
        return True, f"called {tool} with {_short(str(arguments))}"
    others = ", ".join(str(function.get("name")) for function in functions)
    return False, f"called {others}, not {tool}" if others else f"did not call the tool {tool}"


def _choice(answer: Any) -> dict[str, Any]:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _cut_short(answer: Any) -> str:
    if _choice(answer).get("finish_reason") == "length":
        return "; it was cut off at max_tokens"
    return ""


def _error_of(answer: Any) -> str:
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    words = error.get("message", error) if isinstance(error, dict) else error
    return _short(words if isinstance(words, str) else json.dumps(words))


def _short(text: str, limit: int = 120) -> str:
    flat = json.dumps(text if len(text) <= limit else text[:limit] + "…", ensure_ascii=False)
    return flat.replace("\\\\", "\\")


def judge_names(wanted: Sequence[str], answer: Any) -> tuple[bool, str]:
    """Whether /v1/models lists every name; case counts, as it does in requests."""
    rows = answer.get("data") if isinstance(answer, dict) else None
    listed = [str(row.get("id")) for row in rows or [] if isinstance(row, dict)]
    missing = [name for name in wanted if name not in listed]
    if not missing:
        return True, f"it lists {', '.join(listed)}"
    words = f"it lists {', '.join(listed) or 'no model'}; missing: {', '.join(missing)}"
    near = {name.casefold(): name for name in listed}
    hints = [f"{near[name.casefold()]} for {name}" for name in missing if name.casefold() in near]
    return False, words + (f" (case differs: {', '.join(hints)})" if hints else "")


def judge_version(wanted: str, answer: Any) -> tuple[bool, str]:
    """Whether /version is the recipe's; a local part (0.23.0+cpu) is the build's own affair."""
    version = answer.get("version") if isinstance(answer, dict) else None
    if isinstance(version, str) and version.partition("+")[0] == wanted.partition("+")[0]:
        return True, f"it is {version}"
    return False, f"it is {version}, and the recipe is for {wanted}"


_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{[^}]*\})?\s+(\S+)")


def sums(metrics: str) -> dict[str, float]:
    """Prometheus text as name → sum over labels, `_total` taken off the names."""
    found: dict[str, float] = {}
    for line in metrics.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        name = match[1].removesuffix("_total")
        found[name] = found.get(name, 0.0) + value
    return found


def judge_climb(before: Row, after: Row) -> tuple[bool, str]:
    """Whether every draft counter climbed between two readings."""
    absent = [name for name in DRAFT_COUNTERS if name not in after]
    if absent:
        return False, f"{', '.join(absent)} is not among the metrics: the engine does not draft"
    rise = {name: after[name] - before.get(name, 0.0) for name in DRAFT_COUNTERS}
    drafted, accepted = (rise[name] for name in DRAFT_COUNTERS)
    stuck = [name for name, value in rise.items() if value <= 0]
    if stuck:
        return False, f"{', '.join(stuck)} did not climb while the proofs were answered"
    return True, f"{accepted:.0f} of {drafted:.0f} draft tokens accepted"
