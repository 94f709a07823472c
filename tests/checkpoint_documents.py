"""What `penstock checkpoint ... --json` prints."""

from __future__ import annotations

from tests.documents import FLAG, NUMBER, TEXT, Schema, by_name, exactly, many, maybe

PLACE = {"topic": TEXT, "partition": NUMBER}
RANGES = many(exactly(**PLACE, start=NUMBER, end=NUMBER))
DAMAGE = many(exactly(file=TEXT, what=TEXT, source=maybe({"enum": ["a backup", "the ledger"]})))
ERROR: Schema = {"type": "object", "required": ["code", "what", "cause", "next", "retryable", "exit_status"]}

SCHEMAS: dict[str, Schema] = {
    "show": exactly(
        pipeline=TEXT,
        checkpoint=TEXT,
        query=maybe(TEXT),
        running=maybe(NUMBER),
        committed=maybe(NUMBER),
        planned=maybe(NUMBER),
        pending=maybe(exactly(batch=NUMBER, since=TEXT, seconds=NUMBER, written=FLAG, ranges=RANGES)),
        partitions=many(exactly(**PLACE, next=NUMBER, first=maybe(NUMBER), end=maybe(NUMBER), lag=maybe(NUMBER))),
        lag=maybe(NUMBER),
        no_lag=maybe(TEXT),
        bytes=by_name(NUMBER),
        ledger=exactly(
            entries=NUMBER,
            first=maybe(NUMBER),
            last=maybe(NUMBER),
            time=maybe(TEXT),
            read=NUMBER,
            written=by_name(NUMBER),
            dead=NUMBER,
            lost=RANGES,
            doubtful=RANGES,
            skipped=RANGES,
            seeks=many(NUMBER),
        ),
        state=many(exactly(operator=NUMBER, partitions=NUMBER, bytes=NUMBER)),
        damage=DAMAGE,
        backups=many(TEXT),
        aside=many(TEXT),
        forked=maybe(exactly(of_pipeline=TEXT, of_query=TEXT, of_batch=maybe(NUMBER), time=TEXT)),
    ),
    "diff": exactly(
        pipeline=TEXT,
        checkpoint=TEXT,
        compatible=FLAG,
        changes=many(exactly(what=TEXT, name=TEXT, effect=TEXT, compatible=FLAG)),
        unchecked=many(TEXT),
    ),
    "seek": exactly(
        pipeline=TEXT,
        dry_run=FLAG,
        batch=NUMBER,
        partitions=many(exactly(**PLACE, **{"from": NUMBER}, to=NUMBER, skipped=NUMBER, again=NUMBER, unread=NUMBER)),
        skipped=NUMBER,
        again=NUMBER,
        unread=NUMBER,
        renewed=many(TEXT),
        taken_back=maybe(NUMBER),
        refused=maybe(ERROR),
        backup=maybe(TEXT),
    ),
    "backup": exactly(
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
    "restore": exactly(
        pipeline=TEXT,
        backup=TEXT,
        dry_run=FLAG,
        query=TEXT,
        time=TEXT,
        committed=maybe(NUMBER),
        planned=maybe(NUMBER),
        replaced=maybe(TEXT),
        warnings=many(TEXT),
    ),
    "fork": exactly(
        pipeline=TEXT,
        checkpoint=TEXT,
        query=TEXT,
        of_pipeline=TEXT,
        of_query=TEXT,
        of_batch=maybe(NUMBER),
        time=TEXT,
        begins=many(exactly(**PLACE, next=NUMBER)),
        anew=many(TEXT),
        missing_topics=maybe(many(TEXT)),
        next=TEXT,
        dry_run=FLAG,
    ),
    "repair": exactly(
        pipeline=TEXT, applied=FLAG, damage=DAMAGE, backup=maybe(TEXT), skipped=many(TEXT), aside=maybe(TEXT)
    ),
}
