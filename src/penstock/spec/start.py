"""Where a pipeline begins: a position per partition, written in one of several ways."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WrapValidator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from penstock.errors import BadArgument
from penstock.spec import duration
from penstock.spec.words import Part, TopicName

_SECONDS = range(10**8, 10**11)  # as milliseconds these are of 1970 to 1973, when there was no Kafka
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST, LATEST = -2, -1  # Kafka's own markers, accepted wherever an offset is


def milliseconds(text: str) -> int:
    """An RFC 3339 time as Kafka counts time; without an offset it is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def time_text(at: int) -> str | int:
    """The inverse of `milliseconds`; a number that is no date stays a number."""
    try:
        found = _EPOCH + timedelta(milliseconds=at)
    except OverflowError:
        return at
    return found.isoformat(timespec="milliseconds" if at % 1000 else "seconds").replace("+00:00", "Z")


def moment(text: str) -> int:
    """A time, or how long ago: `2h`, as Kafka counts time. For what is given on a command line."""
    try:
        return milliseconds(text)
    except ValueError:
        pass
    try:
        return round((datetime.now(UTC) - duration.parse(text)).timestamp() * 1000)
    except ValueError:
        raise BadArgument(
            f"'{text}' is no time",
            cause="expected a time such as 2026-11-01T00:00:00Z, or how long ago: 30m, 2h, 1d",
            next_command="correct it, or leave it out",
        ) from None


def _time(value: Any, _handler: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise PydanticCustomError("time", "expected a time such as 2026-11-01T00:00:00Z, or milliseconds since 1970")
    if isinstance(value, int) and value in _SECONDS:
        raise PydanticCustomError(
            "time",
            "{value} looks like seconds since 1970: write milliseconds, {ms}",
            {"value": value, "ms": value * 1000},
        )
    try:
        return value if isinstance(value, int) else milliseconds(value)
    except ValueError:
        raise PydanticCustomError(
            "time", "'{value}' is no time: write 2026-11-01T00:00:00Z, or milliseconds since 1970", {"value": value}
        ) from None


class _AsTextOrNumber:
    def __get_pydantic_json_schema__(self, _core: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer"}]}


Time = Annotated[int, WrapValidator(_time), _AsTextOrNumber()]
"""A moment, as milliseconds since 1970."""

Partition = Annotated[int, Field(ge=0)]


def _number(key: Any) -> Any:
    """A key of YAML or JSON is text, of Python a number."""
    return int(key) if isinstance(key, str) and key.isdecimal() else key


PartitionKey = Annotated[Partition, BeforeValidator(_number)]


class StartAt(Part):
    """Positions, for the first run: exactly one of `offsets` and `timestamp`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["offsets"]}, {"required": ["timestamp"]}]})

    offsets: dict[TopicName, dict[PartitionKey, Annotated[int, Field(ge=EARLIEST)]]] | None = Field(
        None, description="Offset per topic and partition; -2 is the first one there is, -1 the end."
    )
    timestamp: Time | dict[TopicName, Time | dict[PartitionKey, Time]] | None = Field(
        None,
        description="The first record that is not older than this: one time for all, or a time per topic or partition; "
        "2026-11-01T00:00:00Z, or milliseconds since 1970.",
    )
    others: Literal["earliest", "latest"] = Field(
        "earliest", description="Where partitions begin that are not named above."
    )
    no_such_record: Literal["latest", "fail"] = Field(
        "fail", description="A partition that holds no record that new: begin at its end, or do not start."
    )

    @model_validator(mode="after")
    def _one_way(self) -> StartAt:
        if (self.offsets is None) == (self.timestamp is None):
            raise PydanticCustomError("one_kind", "start needs exactly one of: offsets, timestamp")
        return self

    def names(self) -> set[str]:
        """Topics that are named."""
        given = self.offsets if self.offsets is not None else self.timestamp
        return set(given) if isinstance(given, dict) else set()

    def places(self) -> set[tuple[str, int]]:
        """Partitions that are named."""
        given = self.offsets if self.offsets is not None else self.timestamp
        by_topic = given.items() if isinstance(given, dict) else ()
        return {(topic, p) for topic, parts in by_topic if isinstance(parts, dict) for p in parts}


Start = Literal["earliest", "latest"] | StartAt


def start_text(start: Start) -> str:
    """A start position in one line, to compare and to show. The ledger keeps it."""
    if isinstance(start, str):
        return start
    return json.dumps(start.model_dump(exclude_defaults=True) | _dated(start), sort_keys=True)


def start_text_of(kept: str) -> str:
    """The same, of what a ledger kept: older versions wrote times as milliseconds."""
    return start_text(StartAt.model_validate_json(kept)) if kept.startswith("{") else kept


def _dated(start: StartAt) -> dict[str, Any]:
    def dated(given: Any) -> Any:
        return {name: dated(value) for name, value in given.items()} if isinstance(given, dict) else time_text(given)

    return {} if start.timestamp is None else {"timestamp": dated(start.timestamp)}
