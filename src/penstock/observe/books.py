"""What became of the records of a batch, sink by sink, in numbers that add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.checkpoint.ledger import Entry, SinkCount


@dataclass(frozen=True)
class Share:
    """One sink's part. Where steps keep rows one for one, so that `left_out` is known:

    read = written + superseded + left_out + elsewhere + dead letters - dead_elsewhere + dropped by rules
    """

    written: int = 0
    superseded: int = 0  # a newer row of the same key took their place
    left_out: int = 0  # by steps or the sink's `where`
    elsewhere: int = 0  # of source views that the sink does not read
    dead_elsewhere: int = 0  # dead letters because another sink refused them: this one has its part of them

    def __add__(self, other: Share) -> Share:
        return Share(
            self.written + other.written,
            self.superseded + other.superseded,
            self.left_out + other.left_out,
            self.elsewhere + other.elsewhere,
            self.dead_elsewhere + other.dead_elsewhere,
        )


def shares(entry: Entry) -> dict[str, Share]:
    """By sink. Shown by a run, kept in its events and metrics."""
    return {name: _share(entry, sink) for name, sink in entry.sinks.items()}


def apart(by_sink: Mapping[str, Share]) -> Iterator[str]:
    """What a line that says read, written, dead and dropped needs to add up."""
    for name, share in by_sink.items():
        for number, what in (
            (share.superseded, f"superseded in sink {name}"),
            (share.left_out, f"left out before sink {name}"),
            (share.elsewhere, f"of views that sink {name} does not read"),
            (share.dead_elsewhere, f"of the dead letters not those of sink {name}"),
        ):
            if number:
                yield f"{number:,} {what}"


def _share(entry: Entry, sink: SinkCount) -> Share:
    if sink.dropped is None:
        return Share(sink.written, sink.superseded)
    taken = sink.written + sink.superseded + sink.dropped
    # The ledger does not name the view of a sink. Views that passed as many records come to the same sum.
    view = next((each for each in entry.views.values() if each.passed == taken + sink.rejected), None)
    if view is None:
        return Share(sink.written, sink.superseded, sink.dropped)
    dead_elsewhere = view.rejected - sink.rejected
    elsewhere = entry.read - entry.dead - entry.dropped - taken + dead_elsewhere
    return Share(sink.written, sink.superseded, sink.dropped, elsewhere, dead_elsewhere)
