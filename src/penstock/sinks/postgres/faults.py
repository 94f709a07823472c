"""Errors that a row is to blame for, and what a dead letter says about them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import psycopg

from penstock import record
from penstock.record import Failure, shortened

_NO_TEXT = "22021"  # a NUL character, or bytes that are no text
_CLASSES = {
    "22001": record.OUT_OF_RANGE,  # too long for the column
    "22003": record.OUT_OF_RANGE,
    "22008": record.OUT_OF_RANGE,
    _NO_TEXT: record.MALFORMED,
    "22P05": record.MALFORMED,
    "23502": record.MISSING_FIELD,
}
_DEFAULTS = {"22": record.WRONG_TYPE, "23": record.BROKEN_RULE, "54": record.OUT_OF_RANGE, "P0": record.BROKEN_RULE}
_OUR_FAULT = "22P04"  # COPY could not make out the columns
_WHOLE_ROW = ("23502", "23514")  # their detail is the whole staging row
_UNREADABLE = re.compile("[\0\udc80-\udcff]")
_STAGING = re.compile(r'(?: (?:of|for) relation)? "penstock_staging_[^"]*"')
_COLUMN = re.compile(r"^COPY .*, line \d+, column (.*?)(?:: |$)", re.MULTILINE)


def is_of_row(error: psycopg.Error) -> bool:
    """Whether another row could pass where this one failed: data, constraints, limits, what a trigger raised."""
    state = error.sqlstate or ""
    return state[:2] in _DEFAULTS and state != _OUR_FAULT


def failure(error: psycopg.Error, row: Mapping[str, object] | None = None) -> Failure:
    """`row`: the one that was refused, where it is at hand; its bytes that are no text by `surrogateescape`."""
    state, diag = error.sqlstate or "", error.diag
    said = _STAGING.sub("", diag.message_primary or str(error))
    found = _COLUMN.search(diag.context or "")
    column = found[1] if found else _of_no_text(row) if row and state == _NO_TEXT else None
    if column:
        said = f"column '{column}': {said}"
    if diag.message_detail and state not in _WHOLE_ROW:
        said = f"{said}: {diag.message_detail}"
    return Failure(_CLASSES.get(state, _DEFAULTS[state[:2]]), shortened(said.replace("\0", "\\0")))


def null_key(column: str) -> Failure:
    return Failure(record.MISSING_FIELD, f"key column '{column}' is null")


def changed(column: str, value: object, there: str) -> Failure:
    return Failure(record.OUT_OF_RANGE, shortened(f"column '{column}': {value} cannot be kept exactly as {there}"))


def of_sink(sink: str, why: Failure) -> Failure:
    """For a dead letter, which is read far from the sink."""
    return Failure(why.error_class, shortened(f"sink '{sink}': {why.reason}"))


def _of_no_text(row: Mapping[str, object]) -> str | None:
    """PostgreSQL reads text before it tells columns apart, and so does not say which one it cannot read."""
    for name, value in row.items():
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and _UNREADABLE.search(text) for text in texts):
            return name
    return None
