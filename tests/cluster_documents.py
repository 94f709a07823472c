"""What `--json` of the commands for a cluster prints."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from tests.documents import ANY, FLAG, NUMBER, TEXT, Schema, exactly, many, maybe

_CHANGE = exactly(
    setting=TEXT, found=TEXT, spec=TEXT, fate={"enum": ["change", "force", "left", "impossible"]}, effect=TEXT
)
APPLY = exactly(
    bootstrap=TEXT,
    complete=FLAG,
    topics=many(
        exactly(
            topic=TEXT,
            created=FLAG,
            partitions=NUMBER,
            replication=NUMBER,
            wanted_partitions=maybe(NUMBER),
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
            id=maybe(TEXT),
            internal=FLAG,
            replication=NUMBER,
            min_in_sync=maybe(NUMBER),
            retention_ms=maybe(NUMBER),
            retention_bytes=maybe(NUMBER),
            cleanup_policy=maybe(TEXT),
            offsets=maybe(NUMBER),
            under_replicated=many(NUMBER),
            offline=many(NUMBER),
            read_only=many(NUMBER),
            silent=many(NUMBER),
            partitions=many(
                exactly(
                    partition=NUMBER,
                    leader=maybe(NUMBER),
                    replicas=many(NUMBER),
                    in_sync=many(NUMBER),
                    first=maybe(NUMBER),
                    end=maybe(NUMBER),
                    offsets=maybe(NUMBER),
                )
            ),
        )
    ),
)
GROUPS = exactly(
    bootstrap=TEXT,
    complete=FLAG,
    groups=many(
        exactly(
            group=TEXT,
            state=TEXT,
            kind={"enum": ["reader", "ledger"]},
            lag=maybe(NUMBER),
            members=many(exactly(member=TEXT, client=TEXT, host=TEXT, partitions=many(TEXT))),
            partitions=many(
                exactly(
                    topic=TEXT,
                    partition=NUMBER,
                    committed=maybe(NUMBER),
                    end=maybe(NUMBER),
                    lag=maybe(NUMBER),
                    member=maybe(TEXT),
                )
            ),
        )
    ),
)
_LETTER = exactly(
    pipeline=TEXT, topic=TEXT, partition=NUMBER, offset=NUMBER, batch=NUMBER, stage=TEXT, reason=TEXT,
    schema_id=maybe(NUMBER), **{"class": TEXT},
)  # fmt: skip
TAIL = exactly(
    topic=TEXT,
    partition=NUMBER,
    offset=NUMBER,
    timestamp=maybe(TEXT),
    key=ANY,
    value=ANY,
    headers=many({"type": "array", "minItems": 2, "maxItems": 2}),
    schema_id=maybe(NUMBER),
    deleted=FLAG,
    error=maybe(exactly(reason=TEXT, **{"class": TEXT})),
    dead_letter=maybe(_LETTER),
)


def checked(document: Any, schema: Schema) -> Any:
    """The document, if it is what was promised."""
    Draft202012Validator(schema).validate(document)
    return document
