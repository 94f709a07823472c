"""Messages of a topic as a person wants to see them: decoded as the pipeline would, or the reason why they cannot be.

The decoders are those of a run, called here instead of in a Spark worker: no engine is started, and nothing is written
into the checkpoint. A topic that the pipeline does not read has no decoder: its messages are shown as they are, dead
letters with what their headers say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.checkpoint.home import Home
from penstock.checkpoint.scratch import set_aside
from penstock.deadletters import dead_letter
from penstock.deadletters.dead_letter import DeadLetter
from penstock.decode.worker import RAW_KEY, RAW_VALUE, SCHEMA_ID, DecodeBatches
from penstock.errors import BadArgument, TopicMissing
from penstock.kafka import recent
from penstock.kafka.connection import client_config
from penstock.kafka.consume import headers_of, position
from penstock.plan import build
from penstock.record import DELETED, ERROR, KEY, Failure
from penstock.spec.model import Pipeline
from penstock.spec.topics import topics_of

if TYPE_CHECKING:
    from confluent_kafka import Message


@dataclass(frozen=True)
class Wanted:
    """Which messages. `last` or `first` says where to begin."""

    last: int | None = 10  # the newest, over all partitions
    first: str | None = None  # earliest, latest, an offset, a time
    partition: int | None = None
    follow: bool = False
    count: int | None = None  # no more than this
    raw: bool = False
    told: Callable[[str], None] = lambda _: None  # what cannot be read


@dataclass(frozen=True)
class Seen:
    """A message. Key and value are bytes where nothing decodes them."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    failure: Failure | None = None
    deleted: bool = False  # its value is null, and that means a delete
    schema_id: int | None = None
    letter: DeadLetter | None = None


def topic_of(pipeline: Pipeline, topic: str | None) -> str:
    """The topic to look at: the one that is named, or the only one that is read."""
    if topic is not None:
        return topic
    read = list(pipeline.source.topics)
    if len(read) == 1:
        return read[0]
    raise BadArgument(
        "which topic?",
        cause=f"the pipeline reads {', '.join(read)}" if read else "the pipeline reads topics by a pattern",
        next_command="penstock tail FILE TOPIC",
    )


def tail(pipeline: Pipeline, topic: str, wanted: Wanted) -> Iterator[Seen]:
    """Ends with what is there now, unless it follows."""
    with ExitStack() as stack:
        decode = None
        if pipeline.source.reads_topic(topic) and not wanted.raw:
            aside = stack.enter_context(set_aside(pipeline, Home.of(pipeline), purpose="tail"))
            decode = _decoder(aside, topic)
        found = _decoded(_chunks(pipeline, topic, wanted), decode) if decode else _as_it_is(pipeline, topic, wanted)
        yield from islice(found, wanted.count)


def _as_it_is(pipeline: Pipeline, topic: str, wanted: Wanted) -> Iterator[Seen]:
    for chunk in _chunks(pipeline, topic, wanted):
        for message in chunk:
            letter = dead_letter.from_headers(message.key(), message.value(), headers_of(message))
            headers = letter.headers if letter else headers_of(message)
            yield Seen(*_place(message), message.key(), message.value(), headers, letter=letter)


def _chunks(pipeline: Pipeline, topic: str, wanted: Wanted) -> Iterator[list[Message]]:
    config = client_config(pipeline)
    try:
        within, silent = recent.bounds(config, topic, wanted.partition)
    except TopicMissing as error:
        raise not_there(pipeline, topic, error) from None
    if silent:
        wanted.told(unread(topic, silent))
    if wanted.first is not None:
        begins = recent.since(config, topic, within, wanted.first)
        yield from recent.chunks(recent.between(config, topic, begins, within))
    else:
        yield recent.newest(config, topic, within, wanted.last or 0)
    if wanted.follow:
        yield from recent.following(config, topic, {p: end for p, (_, end) in within.items()})


def not_there(pipeline: Pipeline, topic: str, error: TopicMissing) -> TopicMissing:
    """`penstock apply` creates the topics that the spec speaks of, and no others."""
    if topic in topics_of(pipeline) or error.facts.get("missing") != [topic]:
        return error
    return TopicMissing(error.what, cause=error.cause, next_command="penstock topics FILE '*'", facts=error.facts)


def unread(topic: str, silent: Sequence[int]) -> str:
    places = ", ".join(f"{topic}-{p}" for p in silent[:10]) + f" and {len(silent) - 10} more" * (len(silent) > 10)
    return f"not read: {places}; no copy leads, or the broker that leads does not answer"


def _decoder(pipeline: Pipeline, topic: str) -> DecodeBatches:
    reading = build.readers(pipeline)
    # A registry that is away is the reason of a message that needs it, not the end of looking.
    reading.given_up = True
    decode = build.inlet(pipeline, pipeline.source.view_of(topic), reading).decode
    deletes = decode.read.value.tombstones == "delete"
    return DecodeBatches(decode.value, decode.key, deletes, with_ids=True, passed_on=())


def _decoded(chunks: Iterable[list[Message]], decode: DecodeBatches) -> Iterator[Seen]:
    under_way: deque[list[Message]] = deque()

    def batches() -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            if chunk:
                under_way.append(chunk)
                keys, values = [m.key() for m in chunk], [m.value() for m in chunk]
                yield pa.record_batch({RAW_VALUE: pa.array(values, pa.binary()), RAW_KEY: pa.array(keys, pa.binary())})

    for decoded in decode(batches()):  # one for one
        columns = {name: _objects(decoded.column(name)) for name in decoded.schema.names}
        for i, message in enumerate(under_way.popleft()):
            yield _seen(message, decode, {name: column[i] for name, column in columns.items()})


def _seen(message: Message, decode: DecodeBatches, row: dict[str, Any]) -> Seen:
    error = row[ERROR]
    deleted = bool(row.get(DELETED))
    fields = {member.name: row[member.name] for member in decode.value.struct.members}
    value: Any = fields
    if error or deleted:
        value = message.value()
    elif decode.value.is_scalar:
        [value] = fields.values()
    return Seen(
        *_place(message),
        row[KEY] if decode.key and row[KEY] is not None else message.key(),
        value,
        headers_of(message),
        Failure(error["class"], error["reason"]) if error else None,
        deleted,
        row[SCHEMA_ID],
    )


def _place(message: Message) -> tuple[str, int, int, int | None]:
    kind, moment = message.timestamp()
    return message.topic() or "", *position(message), moment if kind else None


def _objects(column: pa.Array) -> list[Any]:
    """Plain Python values, maps as dictionaries."""
    try:
        return [_plain(value, column.type) for value in column.to_pylist()]
    except (ValueError, OverflowError):  # a time that Python cannot hold
        return [_shown(value) for value in column]


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(each, kind.item_type) for key, each in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {of.name: _plain(value[of.name], of.type) for of in kind}
    return value


def _shown(value: pa.Scalar) -> Any:
    try:
        return _plain(value.as_py(), value.type)
    except (ValueError, OverflowError):
        pass
    try:
        return value.cast(pa.string()).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return "cannot be shown"
