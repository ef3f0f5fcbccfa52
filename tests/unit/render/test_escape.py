"""Any text that a process can be given arrives unchanged, whatever the file it travels in."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkfleet import escape
from sparkfleet.spec.errors import SpecError

from . import formats

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NASTY = st.text(st.sampled_from("$%{}\"'\\ #:-@!~,a=\t\u2028é😀"))
ONE_LINE = (TEXT | NASTY).filter(lambda text: not escape.holds_control(text))

at_its_own_pace = settings(deadline=None)  # other jobs may hold the machine
every_text = given(TEXT | NASTY)


@at_its_own_pace
@every_text
@example("$")
@example("$$")
@example("${HOME:-x}")
@example("")
@example("- a: [b, {c")
@example("line\nbreak\r\n\ttab\x7f\x85\u2028\ufeff\U0001f600")
@example("~")
@example("x" * 5000 + " " + "y" * 5000)
def test_compose_reads_every_text_back(text: str) -> None:
    document = f"k:\n  - {escape.compose_scalar(text)}\n"
    assert formats.interpolate(yaml.safe_load(document)) == {"k": [text]}
    assert len(document.splitlines()) == 2  # no scalar spills over its line


@at_its_own_pace
@given(st.lists(ONE_LINE))
@example(["$HOME", "${X}", "%n", "%%", "a b", "", '"', "'", "\\", "\\n", "#", ";"])
def test_systemd_reads_every_word_back(words: list[str]) -> None:
    assert formats.unit_words(escape.unit_words(words)) == words
    assert formats.unit_command(escape.unit_command(words)) == words


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b", "a\x1bb"])
def test_a_unit_is_not_given_what_it_cannot_hold(text: str) -> None:
    with pytest.raises(SpecError, match="control character"):
        escape.unit_words([text])


@at_its_own_pace
@every_text
@example("100 %\nExecStart=/bin/sh \\")
def test_a_description_stays_one_line_and_expands_nothing(text: str) -> None:
    line = escape.unit_text(text)
    assert not escape.holds_control(line)
    assert not line.endswith("\\")  # which would join the next line to it
    assert "%" not in line.replace("%%", "")


def test_a_template_cannot_print_what_passed_no_filter() -> None:
    with pytest.raises(TypeError, match="without an escaping filter"):
        escape.escaped_only("plain")
    with pytest.raises(TypeError, match="whole number"):
        escape.number("8000")
