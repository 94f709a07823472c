"""Errors that a row is to blame for, and what a dead letter says about them."""

from __future__ import annotations

import re

import psycopg

from penstock import record
from penstock.record import Failure, shortened

_CLASSES = {
    "22001": record.OUT_OF_RANGE,  # too long for the column
    "22003": record.OUT_OF_RANGE,
    "22008": record.OUT_OF_RANGE,
    "22021": record.MALFORMED,  # a NUL character, or bytes that are no text
    "22P05": record.MALFORMED,
    "23502": record.MISSING_FIELD,
}
_DEFAULTS = {"22": record.WRONG_TYPE, "23": record.BROKEN_RULE, "54": record.OUT_OF_RANGE, "P0": record.BROKEN_RULE}
_OUR_FAULT = "22P04"  # COPY could not make out the columns
_WHOLE_ROW = ("23502", "23514")  # their detail is the whole staging row
_STAGING = re.compile(r'(?: (?:of|for) relation)? "penstock_staging_[^"]*"')
_COLUMN = re.compile(r"^COPY .*, line \d+, column (.*?)(?:: |$)", re.MULTILINE)


def is_of_row(error: psycopg.Error) -> bool:
    """Whether another row could pass where this one failed: data, constraints, limits, what a trigger raised."""
    state = error.sqlstate or ""
    return state[:2] in _DEFAULTS and state != _OUR_FAULT


def failure(error: psycopg.Error) -> Failure:
    state, diag = error.sqlstate or "", error.diag
    said = _STAGING.sub("", diag.message_primary or str(error))
    column = _COLUMN.search(diag.context or "")
    if column:
        said = f"column '{column[1]}': {said}"
    if diag.message_detail and state not in _WHOLE_ROW:
        said = f"{said}: {diag.message_detail}"
    return Failure(_CLASSES.get(state, _DEFAULTS[state[:2]]), shortened(said.replace("\0", "\\0")))


def null_key(column: str) -> Failure:
    return Failure(record.MISSING_FIELD, f"key column '{column}' is null")
