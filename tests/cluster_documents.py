"""What `--json` of the commands for a cluster prints, as JSON Schemas that allow nothing else."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

TEXT, NUMBER, YES_NO = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
MAYBE_TEXT, MAYBE_NUMBER = {"type": ["string", "null"]}, {"type": ["integer", "null"]}
ANY: dict[str, Any] = {}


def exactly(**of: Any) -> dict[str, Any]:
    return {"type": "object", "properties": of, "required": list(of), "additionalProperties": False}


def many(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


_CHANGE = exactly(
    setting=TEXT, found=TEXT, spec=TEXT, fate={"enum": ["change", "force", "left", "impossible"]}, effect=TEXT
)
APPLY = exactly(
    bootstrap=TEXT,
    complete=YES_NO,
    topics=many(
        exactly(
            topic=TEXT,
            created=YES_NO,
            partitions=NUMBER,
            replication=NUMBER,
            wanted_partitions=MAYBE_NUMBER,
            changed=many(_CHANGE),
            left=many(_CHANGE),
        )
    ),
)
TOPICS = exactly(
    bootstrap=TEXT,
    brokers=many(NUMBER),
    under_replicated=NUMBER,
    offline=NUMBER,
    missing=many(TEXT),
    topics=many(
        exactly(
            topic=TEXT,
            id=MAYBE_TEXT,
            internal=YES_NO,
            replication=NUMBER,
            min_in_sync=MAYBE_NUMBER,
            retention_ms=MAYBE_NUMBER,
            retention_bytes=MAYBE_NUMBER,
            cleanup_policy=MAYBE_TEXT,
            offsets=MAYBE_NUMBER,
            under_replicated=many(NUMBER),
            offline=many(NUMBER),
            read_only=many(NUMBER),
            silent=many(NUMBER),
            partitions=many(
                exactly(
                    partition=NUMBER,
                    leader=MAYBE_NUMBER,
                    replicas=many(NUMBER),
                    in_sync=many(NUMBER),
                    first=MAYBE_NUMBER,
                    end=MAYBE_NUMBER,
                    offsets=MAYBE_NUMBER,
                )
            ),
        )
    ),
)
GROUPS = exactly(
    bootstrap=TEXT,
    complete=YES_NO,
    groups=many(
        exactly(
            group=TEXT,
            state=TEXT,
            kind={"enum": ["reader", "ledger"]},
            lag=MAYBE_NUMBER,
            members=many(exactly(member=TEXT, client=TEXT, host=TEXT, partitions=many(TEXT))),
            partitions=many(
                exactly(
                    topic=TEXT,
                    partition=NUMBER,
                    committed=MAYBE_NUMBER,
                    end=MAYBE_NUMBER,
                    lag=MAYBE_NUMBER,
                    member=MAYBE_TEXT,
                )
            ),
        )
    ),
)
_LETTER = exactly(
    pipeline=TEXT, topic=TEXT, partition=NUMBER, offset=NUMBER, batch=NUMBER, stage=TEXT, reason=TEXT,
    schema_id=MAYBE_NUMBER, **{"class": TEXT},
)  # fmt: skip
TAIL = exactly(
    topic=TEXT,
    partition=NUMBER,
    offset=NUMBER,
    timestamp=MAYBE_TEXT,
    key=ANY,
    value=ANY,
    headers=many({"type": "array", "minItems": 2, "maxItems": 2}),
    schema_id=MAYBE_NUMBER,
    deleted=YES_NO,
    error={"anyOf": [{"type": "null"}, exactly(reason=TEXT, **{"class": TEXT})]},
    dead_letter={"anyOf": [{"type": "null"}, _LETTER]},
)


def checked(document: Any, schema: dict[str, Any]) -> Any:
    """The document, if it is what was promised."""
    Draft202012Validator(schema).validate(document)
    return document
