"""Checks of single rows: without a key, deleted, replaced, and refused by the sink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.sinks.contract import Written
from penstock.testing.portion import PLAIN, Listed
from penstock.testing.subject import TOPIC
from penstock.testing.trial import Trial, require

_CHANGES = f"{PLAIN}, _deleted boolean"


def null_keys(trial: Trial) -> None:
    """A row without a key is rejected by a sink that needs one, and held by another."""
    rows = [_row(1), {"id": None, "text": "no key", "n": 2}, _row(3)]
    portion = trial.listed(PLAIN, rows)
    if trial.subject.traits.upserts:
        _rejects(trial, portion, 1, "the first write")
        return
    trial.write(trial.begin(portion), portion, replay=True)
    trial.expect(portion, when="after a row without a key")


def rejected_row(trial: Trial) -> None:
    """A row that the sink cannot take is named by its offset, now and in a replay, and the others are held."""
    bad = trial.subject.traits.refuses or ({"id": None} if trial.subject.traits.upserts else {})
    require(bool(bad), "a sink declares what it refuses, or why it refuses nothing (`excused`)", trial.subject.traits)
    portion = trial.listed(PLAIN, [_row(1), _row(2), {**_row(3), **bad}, _row(4)])
    _rejects(trial, portion, 2, "the first write", "a replay")


def deletes(trial: Trial) -> None:
    """An upserting sink keeps the newest row of each key and none that was deleted; any other holds every row."""
    first = trial.listed(_CHANGES, [_change(1), _change(2), _change(3), _change(4)])
    second = trial.listed(
        _CHANGES,
        [
            _change(1, deleted=True),
            _change(2, "older"),
            _change(2, "newer"),
            _change(3, deleted=True),
            _change(3, "back again"),
            _change(5, "soon gone"),
            _change(5, deleted=True),
            _change(6, deleted=True),  # never there
        ],
    )
    sink = trial.begin(first)
    trial.write(sink, first, replay=True)
    done = trial.write(sink, second, replay=False)
    found = Counter(row["id"] for row in trial.subject.rows())
    if not trial.subject.traits.upserts:
        handed = Counter(row["id"] for row in (*first.rows, *second.rows))
        require(found == handed, "a sink that does not upsert holds every row, deletes among them", dict(found))
        return
    require(done.superseded == 3, "rows that a newer one of their key replaced are superseded: 3 of them", done)
    trial.expect_rows([_row(2, "newer"), _row(3, "back again"), _row(4)], "after updates and deletes")
    again = trial.write(trial.again(second, written=first), second, replay=True)
    require(_said(again) == _said(done), f"a replay says of the batch what the first write said: {done}", again)
    trial.expect_rows([_row(2, "newer"), _row(3, "back again"), _row(4)], "after a replay of updates and deletes")


def _rejects(trial: Trial, portion: Listed, place: int, *times: str) -> None:
    sink = trial.begin(portion)
    held = [row for i, row in enumerate(portion.rows) if i != place]
    for doing in times:
        done = trial.write(sink, portion, replay=True)
        named = {(r.topic, r.partition, r.offset) for r in done.rejected}
        wanted = {(TOPIC, 0, portion.offset_of(place))}
        require(named == wanted, f"{doing} rejects the row at {wanted}, so that it becomes a dead letter", done)
        require(
            all(r.why.error_class and r.why.reason for r in done.rejected), f"{doing} says why it rejects a row", done
        )
        trial.expect_rows(held, f"after {doing} with a row that is rejected")
        if not trial.exactly_once:
            return
        sink = trial.again(portion)


def _row(number: int, text: str = "") -> dict[str, Any]:
    return {"id": number, "text": text or f"row {number}", "n": number}


def _change(number: int, text: str = "", *, deleted: bool = False) -> Mapping[str, Any]:
    return {**_row(number, text), "_deleted": deleted}


def _said(done: Written) -> tuple[int, int, int]:
    return done.rows, done.superseded, len(done.rejected)
