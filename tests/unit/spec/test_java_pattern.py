"""Patterns of topic names: what Java reads otherwise than Python is refused by `check`."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from penstock.spec.java_pattern import differs
from penstock.spec.source import Pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "payments-.*",
        r"payments(-[a-z]+)?",
        r"(?:eu|us)\.orders\.v\d{1,3}",
        r"(?i)orders[._-][0-9]{2,}",
        r"(?!test)[^.]+\.events",
        r"a{3}b*+c??[\w.\-\]]+\Z",
        r"(a|b)\1",
        r"x\{y\}",
        r"[a^&]",
    ],
)
def test_pattern_that_means_the_same_to_both_is_taken(pattern: str) -> None:
    re.compile(pattern)
    assert differs(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "piece"),
    [
        ("(?P<region>eu|us)-.*", "(?P"),
        ("(a)?(?(1)b|c)", "(?("),
        ("orders(?#of shops)", "(?#"),
        ("(?a)orders", "(?a"),
        ("(?x) orders", "(?x"),
        ("orders{,3}", "{,3}"),
        ("orders{x}", "{x}"),
        ("orders{", "{"),
        ("[a-z&&b]", "&&"),
        ("[a[b]", "[b"),
        ("[]a]", "[]"),
        ("[^]a]", "[^]"),
        (r"[\b]", r"\b"),
        (r"a\vb", r"\v"),
        (r"a\0", r"\0"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_pattern_that_java_reads_otherwise_is_refused_with_the_piece(pattern: str, piece: str) -> None:
    re.compile(pattern)  # Python takes it
    assert differs(pattern) == piece
    with pytest.raises(ValidationError, match="does not mean the same to Spark"):
        Pattern.model_validate({"match": pattern, "view": "v", "value": {"format": "string"}})
