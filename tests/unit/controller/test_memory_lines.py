"""The plan of a box's memory, as it is read."""

from __future__ import annotations

from sparkfleet.console.memory import WIDTH, BoxMemory, Share, memory_lines
from sparkfleet.spec.estimate import Figure, Spent
from sparkfleet.spec.memory import judge


def share(name: str, utilization: float, **spent: object) -> Share:
    whole = {
        "claim_gib": 121.7 * utilization,
        "weights": Figure(22.6, "recipe"),
        "kv_gib": Figure(121.7 * utilization - 22.6, "weights by recipe"),
        "kv_tokens": Figure(3_281_000, "recipe"),
        "length": 262144,
    } | spent
    return Share(name, "qwen36-35b-heretic", "preset shared", utilization, Spent(**whole))  # type: ignore[arg-type]


def test_one_service() -> None:
    box = BoxMemory("spark-1", 121.7, [share("llm", 0.7)], 0.88, judge({"llm": 0.7}, 121.7, 96.0))
    assert list(memory_lines(box)) == [
        "spark-1",
        "  llm       qwen36-35b-heretic, preset shared",
        "            121.7 GiB × 0.70 = 85.2; available 96.0; KV room ≈ 62.6 (weights by",
        "            recipe)",
        "            weights ≈ 22.6 (recipe)",
        "            KV cache ≈ 3,281,000 tokens, 12.5 sequences of 262,144 (recipe)",
        "            left to everything else: 36.5 GiB",
    ]


def test_two_services_that_do_not_fit() -> None:
    claims = {"chat": 0.5, "batch": 0.3}
    shares = [share("chat", 0.5, kv_gib=Figure(40.1, "boot log", exact=True)),
              share("batch", 0.3, weights=None, kv_gib=None, kv_tokens=None)]  # fmt: skip
    box = BoxMemory("spark-1", 121.7, shares, 0.88, judge(claims, 121.7, 60.0))
    text = "\n".join(memory_lines(box))
    assert "121.7 GiB × 0.50 = 60.9; KV room = 40.1 (boot log)" in text
    assert "121.7 GiB × 0.30 = 36.5; KV room not known before the first boot" in text
    assert "together  121.7 GiB × (0.50 + 0.30) = 97.4; available 60.0" in text
    assert "0.80 of at most 0.88" in text
    flat = " ".join(text.split())
    assert "DOES NOT FIT. It would fit with chat: utilization 0.30, batch: utilization 0.18" in flat


def test_a_recipe_that_wants_more_free_than_it_takes() -> None:
    """Ornith's 100 GiB, though its share is 73."""
    verdict = judge({"llm": 0.6}, 121.7, 96.0)
    box = BoxMemory("spark-1", 121.7, [share("llm", 0.6)], 0.88, verdict, least=100.0)
    text = " ".join(" ".join(memory_lines(box)).split())
    assert "DOES NOT FIT. 96.0 GiB will be free at start; the recipe wants 100." in text
    assert box.short
    enough = BoxMemory("spark-1", 121.7, box.shares, 0.88, judge({"llm": 0.6}, 121.7, 101.0))
    assert not enough.short


def test_a_box_out_of_reach_is_planned_by_its_profile() -> None:
    box = BoxMemory("spark-1", 121.7, [share("llm", 0.7)], 0.88, None, "Connection refused")
    lines = list(memory_lines(box))
    assert lines[2].startswith("            121.7 GiB × 0.70 = 85.2; KV room")
    assert lines[-1] == "            available: not known, Connection refused"


def test_it_is_read_at_80_columns() -> None:
    names = ["a-service-with-quite-a-long-name", "b"]
    box = BoxMemory("spark-1", 121.7, [share(name, 0.44) for name in names], 0.88, None, "x " * 99)
    assert max(map(len, memory_lines(box))) <= WIDTH
