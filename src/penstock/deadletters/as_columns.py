"""A dead letter as columns of a Kafka record, for a stream that sends letters along with its other records.

What `kafka_topic.py` writes record by record is here an expression: the same topic, key, value and headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.deadletters.dead_letter import AS_HEADERS
from penstock.record import HEADER_PREFIX, OUTGOING

if TYPE_CHECKING:
    from pyspark.sql import Column

NO_BATCH = -1
"""The batch of a letter that was sent before its batch had ended."""


def outgoing(letter: Mapping[str, Column], topic: str) -> Column:
    """A struct of the columns that Spark's Kafka sink takes. `letter`: key, value, headers and the fields of a letter;
    `topic`: the topic it goes to, with `{topic}` for the one that the record came from."""
    from pyspark.sql import functions as F

    type_ = OUTGOING["headers"]
    ours = [
        F.when(
            letter[name].isNotNull(),
            F.struct(
                F.lit(HEADER_PREFIX + name).alias("key"), letter[name].cast("string").cast("binary").alias("value")
            ),
        )
        for name in AS_HEADERS
    ]
    headers = F.concat(
        F.coalesce(letter["headers"], F.array().cast(type_)),
        F.filter(F.array(*ours).cast(type_), lambda header: header.isNotNull()),
    )
    to = F.replace(F.lit(topic), F.lit("{topic}"), letter["topic"])
    parts = {"topic": to, "partition": F.lit(None), "key": letter["key"], "value": letter["value"], "headers": headers}
    return F.struct(*(parts[name].cast(type_).alias(name) for name, type_ in OUTGOING.items()))
