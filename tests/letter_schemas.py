"""What `penstock dlq … --json` prints: the keys, and their types, that scripts rely on."""

from __future__ import annotations

from typing import Any

TEXT, COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
OR_NULL: dict[str, Any] = {"type": ["string", "null"]}
BASE64 = {"type": ["string", "null"], "pattern": "^[A-Za-z0-9+/]*={0,2}$"}
BY_NAME = {"type": "object", "additionalProperties": COUNT}


def _exactly(**keys: Any) -> dict[str, Any]:
    return {"type": "object", "properties": keys, "required": list(keys), "additionalProperties": False}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


_DEATH = {
    "by": TEXT,
    "query": TEXT,
    "batch": COUNT,
    "stage": {"enum": ["decode", "contract", "transform", "sink"]},
    "class": TEXT,
    "reason": TEXT,
    "schema_id": {"type": ["integer", "null"]},
    "sinks": {"anyOf": [{"type": "null"}, _list(TEXT)]},
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
    "replays": _list(TEXT),
}
_RECORD = {
    "key": BASE64,
    "value": BASE64,
    "headers": _list({"type": "array", "prefixItems": [TEXT, BASE64], "minItems": 2, "maxItems": 2}),
    "timestamp_type": {"type": "integer"},
    "timestamp_ms": {"type": "integer"},
}
LS = _exactly(total=COUNT, replayed_hidden=COUNT, letters=_list(_exactly(**_LETTER)))
SHOW = _exactly(letters=_list(_exactly(**_LETTER, **_RECORD, history=_list(_exactly(**_DEATH, died=OR_NULL)))))
STATS = _exactly(
    total=COUNT,
    replayed=COUNT,
    groups=_list(
        _exactly(
            **{"topic": TEXT, "stage": TEXT, "class": TEXT, "reason": TEXT, "sample": TEXT},
            schema_ids=_list(COUNT),
            count=COUNT,
        )
    ),
)
EXPORT = _exactly(exported=COUNT, to=TEXT)
EXPORTED_LINE = _exactly(
    **{name: _LETTER[name] for name in ("id", "topic", "partition", "offset", "stage", "reason", "state")},
    **_RECORD,
    **{"error_class": TEXT, "pipeline": TEXT, "query": TEXT, "batch": COUNT},
    schema_id=_DEATH["schema_id"],
    sinks=OR_NULL,
    history=_list(_exactly(**_DEATH)),
)
DRY_RUN = _exactly(
    applied={"const": False},
    goes_on=OR_NULL,
    letters=COUNT,
    left_out=BY_NAME,
    would_pass=COUNT,
    would_die_again=COUNT,
    would_be_dropped=COUNT,
    rows=BY_NAME,
    reasons=_list(_exactly(**{"stage": TEXT, "class": TEXT, "reason": TEXT, "sample": TEXT}, count=COUNT)),
    warnings=_list(TEXT),
)
REPLAY = _exactly(
    applied={"const": True},
    replay=OR_NULL,
    letters=COUNT,
    passed=COUNT,
    dead_again=COUNT,
    dropped=COUNT,
    written=BY_NAME,
    left_out=BY_NAME,
)
