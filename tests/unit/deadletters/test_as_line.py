"""A dead letter as a line of JSON comes back byte for byte."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from tests.unit.deadletters.test_dead_letter_headers import LETTER, letters, patient

from penstock.deadletters.as_line import from_line, to_line
from penstock.deadletters.dead_letter import DeadLetter


@patient
@given(letters)
def test_any_letter_comes_back_from_its_line(letter: DeadLetter) -> None:
    line = to_line(letter, id="x", history=[{"by": "stream"}])
    assert line.count("\n") == 1
    assert from_line(line) == letter


def test_bytes_are_base64_that_any_program_can_read() -> None:
    said = json.loads(to_line(LETTER))
    assert base64.b64decode(said["value"]) == b"{"
    assert said["headers"] == [["trace", base64.b64encode(b"1").decode()], ["trace", None]]
