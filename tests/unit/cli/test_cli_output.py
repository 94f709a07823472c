"""Text that came from messages, on its way to a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import output
from penstock.cli.output import clean
from penstock.errors import TopicMissing


@given(st.text())
def test_no_control_character_but_tab_and_newline_reaches_the_terminal(text: str) -> None:
    assert [c for c in clean(text) if unicodedata.category(c) == "Cc" and c not in "\t\n"] == []


@given(st.text(st.characters(exclude_categories=["Cc"]) | st.sampled_from("\t\n")))
def test_text_without_control_characters_is_left_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("done\rfail", "done\\x0dfail"),
        ("a\x00b\x7f", "a\\x00b\\x7f"),
        ("é 😀 …", "é 😀 …"),
    ],
)
def test_control_character_is_shown_as_its_code(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_note_goes_to_standard_error_cleaned_and_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output.note("one\x1b[31m\ntwo")
    assert capsys.readouterr() == ("", "one\\x1b[31m\ntwo\n")


def test_further_lines_of_an_error_stand_below_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    output.report(TopicMissing("no topic", cause="one\ntwo", next_command="penstock apply FILE"), as_json=False)
    assert capsys.readouterr().err == (
        "error[topic-missing]: no topic\n  cause: one\n         two\n  next:  penstock apply FILE\n"
    )
