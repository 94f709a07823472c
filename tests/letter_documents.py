"""What `penstock dlq … --json` prints: the keys, and their types, that scripts rely on."""

from __future__ import annotations

from tests.documents import COUNT, NUMBER, TEXT, by_name, exactly, many, maybe

BASE64 = maybe({"type": "string", "pattern": "^[A-Za-z0-9+/]*={0,2}$"})

_DEATH = {
    "by": TEXT,
    "query": TEXT,
    "batch": COUNT,
    "stage": {"enum": ["decode", "contract", "transform", "sink"]},
    "class": TEXT,
    "reason": TEXT,
    "schema_id": maybe(NUMBER),
    "sinks": maybe(many(TEXT)),
}
_LETTER = {
    "id": {"type": "string", "pattern": "^.+:[0-9]+:[0-9]+$"},
    "topic": TEXT,
    "partition": COUNT,
    "offset": COUNT,
    "time": TEXT,
    "stage": _DEATH["stage"],
    "class": TEXT,
    "reason": TEXT,
    "bytes": COUNT,
    "deaths": {"type": "integer", "minimum": 1},
    "state": {"enum": ["dead", "replaying", "replayed"]},
    "replays": many(TEXT),
}
_RECORD = {
    "key": BASE64,
    "value": BASE64,
    "headers": many({"type": "array", "prefixItems": [TEXT, BASE64], "minItems": 2, "maxItems": 2}),
    "timestamp_type": NUMBER,
    "timestamp_ms": NUMBER,
}
LS = exactly(total=COUNT, replayed_hidden=COUNT, letters=many(exactly(**_LETTER)))
SHOW = exactly(letters=many(exactly(**_LETTER, **_RECORD, history=many(exactly(**_DEATH, died=maybe(TEXT))))))
STATS = exactly(
    total=COUNT,
    replayed=COUNT,
    groups=many(
        exactly(
            **{"topic": TEXT, "stage": TEXT, "class": TEXT, "reason": TEXT, "sample": TEXT},
            schema_ids=many(COUNT),
            count=COUNT,
        )
    ),
)
EXPORT = exactly(exported=COUNT, to=TEXT)
EXPORTED_LINE = exactly(
    **{name: _LETTER[name] for name in ("id", "topic", "partition", "offset", "stage", "reason", "state")},
    **_RECORD,
    **{"error_class": TEXT, "pipeline": TEXT, "query": TEXT, "batch": COUNT},
    schema_id=_DEATH["schema_id"],
    sinks=maybe(TEXT),
    history=many(exactly(**_DEATH)),
)
DRY_RUN = exactly(
    applied={"const": False},
    goes_on=maybe(TEXT),
    letters=COUNT,
    left_out=by_name(COUNT),
    would_pass=COUNT,
    would_die_again=COUNT,
    would_be_dropped=COUNT,
    rows=by_name(COUNT),
    reasons=many(exactly(**{"stage": TEXT, "class": TEXT, "reason": TEXT, "sample": TEXT}, count=COUNT)),
    warnings=many(TEXT),
)
REPLAY = exactly(
    applied={"const": True},
    replay=maybe(TEXT),
    letters=COUNT,
    passed=COUNT,
    dead_again=COUNT,
    dropped=COUNT,
    written=by_name(COUNT),
    superseded=by_name(COUNT),
    left_out_before=by_name(COUNT),
    there_before=by_name(COUNT),
    left_out=by_name(COUNT),
)
