"""Steps that keep state between batches: windows, de-duplication, joins of two streams, state per key.

They run in the stream itself, before a batch is handed over. The watermark (how far event time has come, less what may
be late) decides when a window closes, when a key is forgotten, and which records come too late.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, NamedTuple

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.duration import Duration, text
from penstock.spec.fields import FieldOrType
from penstock.spec.python_step import Named
from penstock.spec.rules import Rule
from penstock.spec.types import quoted
from penstock.spec.words import Part, Text, ViewName

Emit = Literal["append", "update", "complete"]

_LATE_AFTER = (
    "How far behind the newest event time a record may be; later ones are late. Needed, but for a step over the view "
    "of another stateful one: that one's counts."
)
_AHEAD = (
    "How far ahead of the clock an event time may be. Past that a record is a dead letter: otherwise it "
    "would advance the watermark and make all other records late."
)
_HOUR = timedelta(hours=1)
_EMIT = "`append`: a row once, when it is final. `update`: a row whenever it has changed, for sinks that upsert. "
WINDOW = ("window_start", "window_end")
WINDOW_TIME = "window_time"


class Window(Part):
    """Rows are grouped by event time: a window every `size`, overlapping ones with `slide`, or with `session` one that
    ends when nothing came for so long. The view has `window_start`, `window_end`, the columns of `by`, and `columns`.
    """

    from_: ViewName = Field(alias="from", description="The view that is grouped.")
    time: Text = Field(description="Its column with the event time, a timestamp.", examples=["event_time"])
    late_after: Duration | None = Field(None, description=_LATE_AFTER, examples=["10m"])
    ahead: Duration = Field(_HOUR, description=_AHEAD)
    size: Duration | None = Field(None, description="Length of a window.", examples=["1m"])
    slide: Duration | None = Field(None, description="A window begins so often. Default: as long as `size`.")
    session: Duration | None = Field(None, description="Instead of `size`: a window ends after so long without a row.")
    by: list[Text] = Field(default_factory=list, description="Columns whose values have windows of their own.")
    columns: dict[ViewName, Text] = Field(
        min_length=1, description="Name of a column -> the aggregate it holds.", examples=['{total: "sum(amount)"}']
    )
    emit: Emit = Field("append", description=_EMIT + "`complete`: every row again with every batch.")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.from_,)

    @property
    def drops_late(self) -> bool:
        """Whether a row can come too late: the engine then drops it. With `complete` no window is ever closed."""
        return self.emit != "complete"

    @property
    def keys(self) -> tuple[str, ...]:
        return (*WINDOW, *self.by)

    @model_validator(mode="after")
    def _one_shape(self) -> Window:
        if (self.size is None) == (self.session is None):
            raise PydanticCustomError("one_kind", "a window needs exactly one of: size, session")
        if self.slide is not None and (self.size is None or self.slide > self.size):
            raise PydanticCustomError("stateful", "`slide` goes with `size` and is not longer: rows would be left out")
        if self.session is not None and self.emit != "append":
            raise PydanticCustomError("stateful", "a session is known when it has ended: `emit: append` only")
        own = {*WINDOW, WINDOW_TIME, "window", "session_window"}
        taken = ({*own, *self.by} & self.columns.keys()) | (own & {*self.by})
        if taken:
            raise PydanticCustomError("stateful", f"'{min(taken)}' is a column of the window already")
        return self

    def said(self) -> str:
        if self.session is not None:
            shape = f"sessions that end after {text(self.session)}"
        else:
            shape = f"windows of {text(self.size or timedelta())}" + (
                f" every {text(self.slide)}" if self.slide else ""
            )
        by = f" by {', '.join(self.by)}" if self.by else ""
        made = ", ".join(f"{what} as {name}" for name, what in self.columns.items())
        return f"{shape} over {self.time} of {self.from_}{by}: {made}{_late(self.late_after)}; emits {self.emit}"


class Deduplicate(Part):
    """Of rows with one key only the first is kept, for as long as `within` says."""

    from_: ViewName = Field(alias="from", description="The view that is read.")
    key: list[Text] = Field(min_length=1, description="Columns that make the key.")
    time: Text = Field(description="Its column with the event time, a timestamp.", examples=["event_time"])
    within: Duration | None = Field(
        None,
        description="How far apart, in event time, rows of one key may be to count as the same. A row that is further "
        "behind the newest one is late. Needed, but for a step over the view of another stateful one.",
        examples=["10m"],
    )
    ahead: Duration = Field(_HOUR, description=_AHEAD)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.from_,)

    @property
    def drops_late(self) -> bool:
        """As for windows."""
        return True

    @property
    def late_after(self) -> timedelta | None:
        return self.within

    @property
    def emit(self) -> Emit:
        return "append"

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.key)

    def said(self) -> str:
        within = f" within {text(self.within)}" if self.within else ""
        return f"the first row of {self.from_} per {', '.join(self.key)}{within} of {self.time}"


class Side(Part):
    """One side of a join."""

    from_: ViewName = Field(alias="from", description="The view.")
    time: Text = Field(description="Its column with the event time, a timestamp.")
    late_after: Duration = Field(description="How far behind the newest event time of this side a record may be.")
    ahead: Duration = Field(_HOUR, description=_AHEAD)


class Join(Part):
    """Rows of two streams that belong together and are not further apart than the bounds say. With `left`, `right` or
    `full` a row without a counterpart is there too, once no counterpart can come any more.
    """

    left: Side = Field(description="One stream.")
    right: Side = Field(description="The other.")
    on: list[Text] | Text = Field(
        description="Columns that are equal on both sides, or a SQL condition with an equality: "
        "`orders.id = payments.order_id`."
    )
    within: Duration = Field(description="The right row is at most so much later than the left one.", examples=["1h"])
    before: Duration | None = Field(
        None, description="The right row may also be earlier than the left one, at most so much. Default: not at all."
    )
    type: Literal["inner", "left", "right", "full"] = Field(
        "inner", description="Which rows without a counterpart stay."
    )
    columns: dict[ViewName, Text] = Field(
        min_length=1,
        description="Name of a column -> an expression over both views, which are called by their names.",
        examples=['{order_id: "orders.id", paid: "payments.amount"}'],
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.left.from_, self.right.from_)

    @property
    def drops_late(self) -> bool:
        """As for windows."""
        return True

    @property
    def emit(self) -> Emit:
        return "append"

    @property
    def keys(self) -> tuple[str, ...]:
        return ()

    @model_validator(mode="after")
    def _two_views(self) -> Join:
        if self.left.from_.lower() == self.right.from_.lower():
            raise PydanticCustomError("stateful", "a view cannot be joined with itself: make a second one with SQL")
        return self

    def said(self) -> str:
        on = self.on if isinstance(self.on, str) else ", ".join(self.on)
        bounds = f"{self.right.time} up to {text(self.within)} after {self.left.time}"
        bounds += f" or {text(self.before)} before" if self.before else ""
        sides = ", ".join(f"{s.from_} late after {text(s.late_after)}" for s in (self.left, self.right))
        made = ", ".join(f"{what} as {name}" for name, what in self.columns.items())
        return f"{self.type} join of {self.left.from_} and {self.right.from_} on {on}, {bounds}; {sides}: {made}"


class State(Part):
    """State per key, kept by a class of your own: Spark's `StatefulProcessor`, which gets the rows of one key and, with
    `timers`, is called when a time has come.
    """

    from_: ViewName = Field(alias="from", description="The view whose rows the processor gets.")
    key: list[Text] = Field(min_length=1, description="Columns that make the key.")
    processor: Named = Field(
        description="`module:Class`. The module is a file in the directory of the spec, or installed.",
        examples=["streaks:Streaks"],
    )
    fields: dict[str, FieldOrType] = Field(
        min_length=1, description="The columns of the rows it gives, with their types."
    )
    timers: Literal["none", "event", "processing"] = Field(
        "none", description="The time its timers are in: that of the records, or the clock."
    )
    time: Text | None = Field(None, description="Column with the event time, a timestamp. Needed for `timers: event`.")
    late_after: Duration | None = Field(
        None, description="As for windows: needed with `time`, but for a step over the view of another stateful one."
    )
    ahead: Duration = Field(_HOUR, description=_AHEAD)
    emit: Literal["append", "update"] = Field("append", description=_EMIT)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.from_,)

    @property
    def drops_late(self) -> bool:
        """As for windows. Where timers are not in event time the class gets every row."""
        return self.timers == "event"

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.key)

    @model_validator(mode="after")
    def _timed(self) -> State:
        if self.timers == "event" and self.time is None:
            raise PydanticCustomError("stateful", "`timers: event` needs `time`")
        if self.late_after is not None and self.time is None:
            raise PydanticCustomError("stateful", "`late_after` is about an event time: it needs `time`")
        return self

    def said(self) -> str:
        timed = f" by {self.time}{_late(self.late_after)}" if self.time else ""
        made = ", ".join(f"{name} {field.type}" for name, field in self.fields.items())
        return (
            f"{self.processor} over {self.from_} per {', '.join(self.key)}{timed}, timers: {self.timers}: {made}; "
            f"emits {self.emit}"
        )


AnyStateful = Window | Deduplicate | Join | State


class Input(NamedTuple):
    """A view that a step reads."""

    view: str
    time: str | None  # its column with the event time
    late_after: timedelta | None  # None: the step makes no watermark of it
    ahead: timedelta | None  # how far ahead of the clock a time may be; None: without a watermark there is no bound

    def in_bound(self, clock_ms: int | None = None) -> str:
        """A SQL condition over rows with an event time. Without `clock_ms` it is for the stream, where the engine takes
        the time at which the batch was planned for `current_timestamp()`: the same one when the batch is run again."""
        assert self.time is not None and self.ahead is not None
        clock = "current_timestamp()" if clock_ms is None else f"timestamp_millis({clock_ms})"
        # What is not a timestamp is refused by the step, in words of its own.
        at = f"try_cast({quoted(self.time)} as timestamp)"
        return f"{at} <= {clock} + interval {round(self.ahead.total_seconds() * 1000)} milliseconds"

    @property
    def bound(self) -> str:
        """The same for people."""
        return f"{self.time} is at most {text(self.ahead or timedelta())} ahead of the clock"


class AheadRule(Rule):
    """The rule that a stateful step brings along for a source view: its event times are not too far in the future."""

    input: Input
    clock_ms: int | None = None

    @property
    def condition(self) -> str:
        return self.input.in_bound(self.clock_ms)

    @property
    def text(self) -> str:
        return self.input.bound

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.input.time or "",)

    def at(self, clock_ms: int | None) -> AheadRule:
        return self.model_copy(update={"clock_ms": clock_ms})


def sides(of: AnyStateful) -> tuple[Input, ...]:
    """What a step reads: of a join its two sides, the left one first."""
    return tuple(
        Input(each.from_, each.time, each.late_after, each.ahead if each.late_after else None)
        for each in ((of.left, of.right) if isinstance(of, Join) else (of,))
    )


def bounds(of: AnyStateful | None) -> str:
    """What is asked of the event times that a step reads; empty where nothing is. Not part of what a step does
    (`said`), by which state is known: a bound may change."""
    return " and ".join(each.bound for each in sides(of) if each.ahead) if of else ""


def keeps_for(of: AnyStateful | None) -> timedelta | None:
    """How long a row stays in the state of a step, in event time; None where that is not for the spec to say."""
    none = timedelta()
    if isinstance(of, Window) and of.emit != "complete":
        return (of.size or of.session or none) + (of.late_after or none)
    if isinstance(of, Deduplicate):
        return 2 * of.within if of.within else None
    if isinstance(of, Join):
        return of.within + (of.before or none) + max(of.left.late_after, of.right.late_after)
    return None


def time_rule(view: str) -> str:
    """What a rule is called that nobody writes: records without the event time of a step are dead letters."""
    return f"time of {view}"


def ahead_rule(view: str) -> str:
    """The same for records whose event time is too far ahead of the clock."""
    return f"ahead of {view}"


def late_views(view: str, of: AnyStateful) -> tuple[str, ...]:
    """The views that hold the rows that came too late for a step, in the order of `sides`."""
    if isinstance(of, Join):
        return (f"{view}_late_left", f"{view}_late_right")
    return (f"{view}_late",)


def _late(after: timedelta | None) -> str:
    return f", late after {text(after)}" if after else ""
