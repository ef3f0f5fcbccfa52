"""The engine's argv, word by word; the published command is typed here, not rendered."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkfleet.spec.command import flag_words, render_argv
from sparkfleet.spec.errors import SpecError

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--x"]),
        (False, ["--no-x"]),
        (None, []),
        (8000, ["--x", "8000"]),
        (0.85, ["--x", "0.85"]),
        (-1, ["--x", "-1"]),
        (-0.5, ["--x", "-0.5"]),
        ("qwen3_coder", ["--x", "qwen3_coder"]),
        ("", ["--x", ""]),
        ("two words", ["--x", "two words"]),
        ("-looks-like-an-option", ["--x=-looks-like-an-option"]),
        (["a", "b", 3], ["--x", "a", "b", "3"]),
        ({"image": 4, "video": 2}, ["--x", '{"image":4,"video":2}']),
        ({"on": True, "off": None, "é": "日本"}, ["--x", '{"on":true,"off":null,"é":"日本"}']),
        ({}, ["--x", "{}"]),
    ],
)
def test_each_kind_of_value_has_its_words(value: object, words: list[str]) -> None:
    assert flag_words("x", value) == words


def test_positional_words_come_first_and_flags_keep_their_order() -> None:
    argv = render_argv(["serve", "/model"], {"zeta": 1, "alpha": True, "mid": ["a", "b"]})
    assert argv == ["serve", "/model", "--zeta", "1", "--alpha", "--mid", "a", "b"]


@settings(deadline=None)  # other jobs may hold the machine
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | WORDS,
        lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner),
    )
)
def test_a_mapping_is_one_word_that_reads_back_whole(inner: object) -> None:
    option, word = flag_words("x", {"k": inner})
    assert option == "--x"
    assert json.loads(word) == {"k": inner}


@pytest.mark.parametrize(
    ("value", "telling"),
    [
        ("a\0b", "NUL"),
        ("\ud83d", "surrogate"),
        (float("nan"), "finite number"),
        ({"x": float("inf")}, "JSON"),
        ([["nested"]], "no form as one argument"),
        ([True], "no form as one argument"),
        (object(), "no form as one argument"),
    ],
)
def test_what_no_process_can_be_given_is_refused(value: object, telling: str) -> None:
    with pytest.raises(SpecError, match=telling):
        render_argv([], {"x": value})
