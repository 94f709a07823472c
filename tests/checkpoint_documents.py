"""What `penstock checkpoint ... --json` prints, as JSON Schema: keys stay between releases, none come unnoticed."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "array", "items": TEXT}


def maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def document(**keys: Schema) -> Schema:
    return {"type": "object", "properties": keys, "required": sorted(keys), "additionalProperties": False}


def listed(**keys: Schema) -> Schema:
    return {"type": "array", "items": document(**keys)}


def counts(schema: Schema = NUMBER) -> Schema:
    return {"type": "object", "additionalProperties": schema}


PLACE = {"topic": TEXT, "partition": NUMBER}
RANGES = listed(**PLACE, start=NUMBER, end=NUMBER)
DAMAGE = listed(file=TEXT, what=TEXT, source=maybe({"enum": ["a backup", "the ledger"]}))
ERROR: Schema = {"type": "object", "required": ["code", "what", "cause", "next", "retryable", "exit_status"]}

SCHEMAS: dict[str, Schema] = {
    "show": document(
        pipeline=TEXT,
        checkpoint=TEXT,
        query=maybe(TEXT),
        running=maybe(NUMBER),
        committed=maybe(NUMBER),
        planned=maybe(NUMBER),
        pending=maybe(document(batch=NUMBER, since=TEXT, seconds=NUMBER, written=FLAG, ranges=RANGES)),
        partitions=listed(**PLACE, next=NUMBER, first=maybe(NUMBER), end=maybe(NUMBER), lag=maybe(NUMBER)),
        lag=maybe(NUMBER),
        no_lag=maybe(TEXT),
        bytes=counts(),
        ledger=document(
            entries=NUMBER,
            first=maybe(NUMBER),
            last=maybe(NUMBER),
            time=maybe(TEXT),
            read=NUMBER,
            written=counts(),
            dead=NUMBER,
            lost=RANGES,
            skipped=RANGES,
            seeks={"type": "array", "items": NUMBER},
        ),
        state=listed(operator=NUMBER, partitions=NUMBER, bytes=NUMBER),
        damage=DAMAGE,
        backups=TEXTS,
        forked=maybe(document(of_pipeline=TEXT, of_query=TEXT, of_batch=maybe(NUMBER), time=TEXT)),
    ),
    "diff": document(
        pipeline=TEXT,
        checkpoint=TEXT,
        compatible=FLAG,
        changes=listed(what=TEXT, name=TEXT, effect=TEXT, compatible=FLAG),
        unchecked=TEXTS,
    ),
    "seek": document(
        pipeline=TEXT,
        dry_run=FLAG,
        batch=NUMBER,
        partitions=listed(**PLACE, **{"from": NUMBER}, to=NUMBER, skipped=NUMBER, again=NUMBER),
        skipped=NUMBER,
        again=NUMBER,
        refused=maybe(ERROR),
        backup=maybe(TEXT),
    ),
    "backup": document(
        pipeline=TEXT,
        backup=TEXT,
        query=TEXT,
        time=TEXT,
        committed=maybe(NUMBER),
        planned=maybe(NUMBER),
        ledger=maybe(NUMBER),
        files=NUMBER,
        bytes=NUMBER,
    ),
    "restore": document(
        pipeline=TEXT,
        backup=TEXT,
        dry_run=FLAG,
        query=TEXT,
        time=TEXT,
        committed=maybe(NUMBER),
        planned=maybe(NUMBER),
        replaced=maybe(TEXT),
        warnings=TEXTS,
    ),
    "fork": document(
        pipeline=TEXT,
        checkpoint=TEXT,
        query=TEXT,
        of_pipeline=TEXT,
        of_query=TEXT,
        of_batch=maybe(NUMBER),
        time=TEXT,
        begins=listed(**PLACE, next=NUMBER),
        anew=TEXTS,
        dry_run=FLAG,
    ),
    "repair": document(
        pipeline=TEXT, applied=FLAG, damage=DAMAGE, backup=maybe(TEXT), skipped=TEXTS, aside=maybe(TEXT)
    ),
}
