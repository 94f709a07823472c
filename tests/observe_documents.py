"""What `penstock lag --json` and `penstock doctor --json` print."""

from __future__ import annotations

from tests.documents import COUNT, FLAG, NUMBER, TEXT, Schema, exactly, many, maybe

RATE: Schema = {"type": "number", "minimum": 0}
PLACE = {"topic": TEXT, "partition": COUNT}

LAG = exactly(
    pipeline=TEXT,
    running=FLAG,
    started=FLAG,
    real_time=FLAG,
    group=TEXT,
    complete=FLAG,
    lag=COUNT,
    expired=COUNT,
    gone=COUNT,
    behind_s=maybe(RATE),
    capacity=maybe(RATE),
    arriving=maybe(RATE),
    catch_up_s=maybe(RATE),
    catching_up=maybe(FLAG),
    partitions=many(
        exactly(
            **PLACE,
            position=maybe(NUMBER),
            group=maybe(NUMBER),
            end=maybe(NUMBER),
            lag=maybe(COUNT),
            expired=COUNT,
            gone=COUNT,
            group_lag=maybe(COUNT),
            behind_s=maybe(RATE),
            estimated=FLAG,
            arriving=maybe(RATE),
            state=maybe({"enum": ["silent", "offline"]}),
            hot=FLAG,
        )
    ),
)
DOCTOR = exactly(
    pipeline=TEXT,
    running=FLAG,
    lag=COUNT,
    complete=FLAG,
    findings=many(
        exactly(
            cause=TEXT,
            severity={"enum": ["critical", "warning", "note"]},
            what=TEXT,
            evidence=many(TEXT),
            fix=TEXT,
            facts={"type": "object"},
        )
    ),
    verdicts=many(exactly(**PLACE, verdict={"enum": ["OK", "WARN", "STALL", "STOP", "REWIND"]})),
)
