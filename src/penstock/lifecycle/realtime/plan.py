"""The path of a record in real-time mode: one plan of the engine's own expressions, from Kafka to Kafka.

    1. decode and judge every record (`decode/catalyst.py`, `contract/verdict.py`)
    2. beside it, for each sink, the record that the steps make of it (`transform/carried.py`, `encode`)
    3. what is sent: those records, or a dead letter, or both, or nothing; counted on the way

Each record is whole at the end, so none can be lost between: it is sent, dead, dropped by a rule, or left out by a
step or the `where` of a sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.batch.run import Assembly
from penstock.batch.source_view import Inlet
from penstock.checkpoint.ledger import Entry, SinkCount, ViewCount
from penstock.contract.verdict import Contract
from penstock.deadletters import as_columns
from penstock.deadletters.topic import DeadLetterTopics
from penstock.decode import catalyst
from penstock.decode.stage import EXPRESSION
from penstock.decode.variant import ERROR_TYPE
from penstock.encode.stage import NO_KEY, OVERHEAD, OVERHEAD_OF_HEADER, numbered
from penstock.record import KAFKA, OUTGOING
from penstock.sinks.kafka.encoding import Encoding
from penstock.sinks.kafka.stock import StockKafkaSink
from penstock.spec.words import TOPIC_NAME
from penstock.transform.carried import carried

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OBSERVED = "penstock"
_RAW = f"{KAFKA}_raw"  # the record as it came; `_kafka...` is reserved: no field can clash


@dataclass(frozen=True)
class _Sent:
    """What one sink gets of a record: a struct or null; why it does not get it; of what stage."""

    name: str
    view: str
    row: Column
    failed: Column  # in a step
    refused: Column  # by the sink: a failure, or null


def outgoing(assembly: Assembly, raw: DataFrame, query: str) -> DataFrame:
    """The records to send, for Spark's Kafka sink. Raises NotInRealTime for steps that cannot be run beside a record.

    The assembly must be settled: its sinks know their columns."""
    from pyspark.sql import functions as F

    inlet = assembly.inlets[0]
    base = inlet.contract.judged(_decoded(inlet, raw))
    passed = base.where(F.col(record.RULE).isNull()).drop(record.ERROR, record.RULE, _RAW)
    made = assembly.transform.views({inlet.view: passed})
    rows, sent = base, []
    for i, outlet in enumerate(assembly.outlets):
        sink = outlet.sink
        assert isinstance(sink, StockKafkaSink)
        beside = carried(rows, base, sink.encoding.rows(outlet.rows(made)), sink.name, outlet.view)
        rows = beside.rows.withColumnsRenamed({beside.made: f"{KAFKA}_row_{i}", beside.failed: f"{KAFKA}_failed_{i}"})
        row = F.col(f"{KAFKA}_row_{i}")
        sent.append(_Sent(sink.name, outlet.view, row, F.col(f"{KAFKA}_failed_{i}"), _refused(row, sink.encoding)))
    dead = _letter(assembly, inlet, base, sent, query)
    rows = rows.withColumn(f"{KAFKA}_letter", dead).observe(OBSERVED, *_counts(inlet, sent))
    goes = [F.when(each.refused.isNull(), _only_outgoing(each.row)) for each in sent]
    every = F.array(*goes, F.col(f"{KAFKA}_letter"))
    return rows.select(F.explode(F.filter(every, lambda one: one.isNotNull())).alias("one")).select("one.*")


def entry_of(assembly: Assembly, batch: int, counted: dict[str, Any] | None) -> Entry:
    """The ledger entry of a batch that Spark has committed; without counts where they died with the process."""
    ranges = assembly.log.ranges(batch)
    entry = Entry(
        pipeline=assembly.pipeline.name,
        query=assembly.log.query_id() or "",
        batch=batch,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        start=assembly.began,
        ranges=ranges,
        topics=assembly.topics.facts(r.topic for r in ranges),
        views={},
        sinks={},
        accepted=assembly.accepted if assembly.first else [],
        real_time=True,
    )
    if counted is None:
        return entry
    inlet = assembly.inlets[0]
    view = counts_of(inlet.contract, counted)
    entry.views[inlet.view] = view
    for i, outlet in enumerate(assembly.outlets):
        written, rejected = counted[f"written_{i}"], counted[f"rejected_{i}"]
        entry.sinks[outlet.sink.name] = SinkCount(written, view.passed - written - rejected, rejected=rejected)
    loss = assembly.topics.afterwards(ranges, [], {inlet.view: view.read})
    return replace(entry, lost=loss.lost, doubtful=loss.doubtful)


def counts_of(contract: Contract, counted: Mapping[str, Any]) -> ViewCount:
    """What the engine observed of one view, as `_counts` has asked for it."""
    took = {name: counted[f"verdict_{i}"] for i, name in enumerate(contract.verdicts)}
    return contract.counted(counted["read"], counted["passed"], took, counted["rejected"])


def _decoded(inlet: Inlet, raw: DataFrame) -> DataFrame:
    """As `Decode.rows` gives it, with the record itself in a column of its own."""
    from pyspark.sql import functions as F

    decode = inlet.decode
    value = catalyst.decoded(decode.value, raw, F.col("value"), f"{KAFKA}_v")
    rows, error, deleted = value.rows, value.error, F.col("value").isNull()
    deletes = decode.read.value.tombstones == "delete"
    if deletes:
        error = F.when(~deleted, error)
    columns = list(value.fields)
    if decode.key:
        of_key = catalyst.decoded(decode.key, rows, F.col("key"), f"{KAFKA}_k")
        rows, columns = of_key.rows, [*columns, _key(decode.key.is_scalar, of_key.fields).alias(record.KEY)]
        wrong = F.when(of_key.error["class"] != record.NULL_VALUE, of_key.error)
        said = F.struct(wrong["class"].alias("class"), F.concat(F.lit(record.OF_KEY), wrong["reason"]).alias("reason"))
        error = F.coalesce(error, F.when(wrong.isNotNull(), said))
    told = dict.fromkeys((*record.ORIGIN, *decode.read.kafka_columns))
    origin = F.struct(*(F.expr(EXPRESSION.get(name, name)).alias(name) for name in told))
    whole = F.struct("key", "value", "headers", *record.ORIGIN, F.col("timestampType").alias("timestamp_type"))
    return rows.select(
        *columns,
        *([deleted.alias(record.DELETED)] if deletes else []),
        origin.alias(KAFKA),
        error.alias(record.ERROR),
        whole.alias(_RAW),
    )


def _key(scalar: bool, fields: list[Column]) -> Column:
    from pyspark.sql import functions as F

    return fields[0] if scalar else F.when(F.col(f"{KAFKA}_k_failed").isNull(), F.struct(*fields))


def _refused(row: Column, to: Encoding) -> Column:
    """Why a sink cannot take a record that the steps made, as `encode/stage.py` says it; null where it can."""
    from pyspark.sql import functions as F

    def failure(error_class: str, reason: Column) -> Column:
        return F.struct(F.lit(error_class).alias("class"), reason.alias("reason"))

    named = F.coalesce(row["topic"].rlike(TOPIC_NAME.removesuffix("$") + r"\z"), F.lit(False))
    bad_name = failure(
        record.WRONG_TYPE, F.concat(F.coalesce(row["topic"], F.lit("null")), F.lit(" is no name of a topic"))
    )
    refused = F.when(row.isNull(), F.lit(None).cast(ERROR_TYPE)).when(~named, bad_name)
    if to.keyed:
        refused = refused.when(row["key"].isNull(), failure(record.MISSING_FIELD, F.lit(NO_KEY)))
    if to.has_partition:
        at, count = row["partition"], to.partitions
        outside = at < 0 if count is None else (at < 0) | (at >= count)
        said = F.concat(F.lit("its partition is "), at.cast("string"), F.lit(f", {numbered(count)}"))
        refused = refused.when(outside, failure(record.OUT_OF_RANGE, said))
    if to.largest is None:
        return refused
    of_headers = F.aggregate(
        row["headers"],
        F.lit(0),
        lambda so_far, each: (
            so_far
            + F.octet_length(each["key"])
            + F.coalesce(F.octet_length(each["value"]), F.lit(0))
            + OVERHEAD_OF_HEADER
        ),
    )
    sizes = (F.octet_length(row["key"]), F.octet_length(row["value"]), of_headers)
    size = reduce(lambda a, b: a + b, (F.coalesce(each, F.lit(0)) for each in sizes)) + OVERHEAD
    why = F.concat(
        F.lit("the record has "),
        F.format_number(size, 0),
        F.lit(f" bytes, the topic takes {to.largest:,} (`max.message.bytes`)"),
    )
    return refused.when(size > to.largest, failure(record.TOO_LARGE, why))


def _letter(assembly: Assembly, inlet: Inlet, base: DataFrame, sent: list[_Sent], query: str) -> Column:
    """The dead letter of a record, or null. A step or a sink that fails takes the record from its own sink only."""
    from pyspark.sql import functions as F

    raw, died = F.col(_RAW), F.coalesce(F.col(record.RULE).isin(inlet.contract.deadly), F.lit(False))
    stage, error_class, reason = inlet.contract.reason(base)
    verdict = F.when(died, F.struct(stage.alias("stage"), error_class.alias("class"), reason.alias("reason")))
    for each in sent:
        said = f"sink '{each.name}': a step up to view '{each.view}', or the sink's condition, fails on this record"
        step = F.struct(
            F.lit(record.TRANSFORM).alias("stage"),
            F.lit(record.FAILED_STEP).alias("class"),
            F.lit(said).alias("reason"),
        )
        sink = F.struct(
            F.lit(record.SINK).alias("stage"),
            each.refused["class"].alias("class"),
            F.concat(F.lit(f"sink '{each.name}': "), each.refused["reason"]).alias("reason"),
        )
        verdict = verdict.when(each.failed, step).when(each.refused.isNotNull(), sink)
    without = F.array_sort(
        F.array_compact(F.array(*(F.when(each.failed | each.refused.isNotNull(), F.lit(each.name)) for each in sent)))
    )
    topics = assembly.dead_letters
    assert isinstance(topics, DeadLetterTopics)
    letter = {
        **{name: raw[name] for name in ("key", "value", "headers", "topic", "partition", "offset", "timestamp_type")},
        "timestamp_ms": F.unix_millis(raw["timestamp"]),
        "stage": verdict["stage"],
        "error_class": verdict["class"],
        "reason": F.substring(verdict["reason"], 1, record.REASON_LIMIT),
        "pipeline": F.lit(assembly.pipeline.name),
        "query": F.lit(query),
        "batch": F.lit(as_columns.NO_BATCH),
        "schema_id": F.lit(None).cast("int"),
        "sinks": F.when(~died, F.concat_ws(",", without)),
    }
    return F.when(verdict.isNotNull(), as_columns.outgoing(letter, topics.topic))


def _only_outgoing(row: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(row.isNotNull(), F.struct(*(row[name].cast(type_).alias(name) for name, type_ in OUTGOING.items())))


def _counts(inlet: Inlet, sent: list[_Sent]) -> list[Column]:
    from pyspark.sql import functions as F

    verdict = F.col(record.RULE)
    lacking = [each.failed | each.refused.isNotNull() for each in sent]
    wanted = {
        "read": F.lit(True),
        "passed": verdict.isNull(),
        "rejected": reduce(lambda a, b: a | b, lacking),
        **{f"verdict_{i}": verdict == name for i, name in enumerate(inlet.contract.verdicts)},
        **{f"written_{i}": each.row.isNotNull() & each.refused.isNull() for i, each in enumerate(sent)},
        **{f"rejected_{i}": lack for i, lack in enumerate(lacking)},
    }
    return [F.count_if(column).alias(name) for name, column in wanted.items()]
