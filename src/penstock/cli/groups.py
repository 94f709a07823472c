"""`penstock groups`: consumer groups, their members and their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output, table
from penstock.cli.cluster import Bootstrap, Words, chosen, topics_of_spec
from penstock.cli.main import app
from penstock.cli.output import AsJson
from penstock.cli.table import Column
from penstock.errors import BadArgument, counted

if TYPE_CHECKING:
    from penstock.kafka.groups import Group, Groups, Position

_GROUPS = (
    Column("group", least=16),
    Column("state", spare=True),
    Column("members", right=True),
    Column("partitions", right=True),
    Column("lag", right=True),
    Column("topics", spare=True, least=10),
)
_POSITIONS = (
    Column("topic", least=12),
    Column("partition", right=True),
    Column("committed", right=True),
    Column("end", right=True),
    Column("lag", right=True),
    Column("member", spare=True, least=12),
)


@app.command()
def groups(
    words: Words = None,
    bootstrap: Bootstrap = None,
    all_: Annotated[bool, typer.Option("--all", help="Every partition of a group by itself.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show consumer groups: state, members, and how many offsets they are behind the ends.

    Of a spec the groups that read its topics, of a cluster all, or those that are named; '*' is every group.
    """
    from penstock.kafka.groups import look

    at = chosen(words, bootstrap)
    found = look(at.config, at.names, topics=None if at.names else topics_of_spec(at))
    if found.missing and found.complete:
        raise BadArgument(
            f"no group fits {', '.join(map(repr, found.missing))}",
            cause=f"cluster {at.servers}",
            next_command=f"penstock groups --bootstrap {at.servers}",
        )
    output.emit(document(at.servers, found), as_json, lambda: show(found, output.width(), all_=all_))


def document(bootstrap: str, found: Groups) -> dict[str, Any]:
    """What `--json` prints. Keys stay as they are between releases; new ones may come."""
    return {
        "bootstrap": bootstrap,
        "complete": found.complete,
        "groups": [
            {
                "group": group.name,
                "state": group.state,
                "kind": "ledger" if group.books else "reader",
                "lag": group.lag,
                "members": [
                    {
                        "member": member.id,
                        "client": member.client,
                        "host": member.host,
                        "partitions": [f"{topic}-{partition}" for topic, partition in member.partitions],
                    }
                    for member in group.members
                ],
                "partitions": [
                    {
                        "topic": each.topic,
                        "partition": each.partition,
                        "committed": each.committed,
                        "end": each.end,
                        "lag": None if group.books else each.lag,
                        "member": each.member,
                    }
                    for each in group.positions
                ],
            }
            for group in found.found
        ],
    }


def show(found: Groups, width: int | None, *, all_: bool) -> None:
    """The same as words."""
    if all_:
        for group in found.found:
            output.say(table.fitting(output.clean(_title(group)), width))
            for line in table.lines(_POSITIONS, (_position(group, each) for each in group.positions), width):
                output.say(line)
            output.say()
    elif found.found:
        for line in table.lines(_GROUPS, map(_row, found.found), width):
            output.say(line)
    books = sum(group.books for group in found.found)
    beside = f", {books} of them ledgers of Penstock: their offsets are numbers of batches" if books else ""
    output.say(counted(len(found.found), "group") + beside)
    if not found.complete:
        output.say("not every broker has answered: there may be more")


def _row(group: Group) -> tuple[object, ...]:
    topics = ",".join(sorted({each.topic for each in group.positions}))
    return group.name, group.state, len(group.members), len(group.positions), _lag(group, group.lag), topics


def _title(group: Group) -> str:
    return f"{group.name}: {group.state}, {counted(len(group.members), 'member')}, lag {_lag(group, group.lag)}"


def _position(group: Group, each: Position) -> tuple[object, ...]:
    return (
        each.topic,
        each.partition,
        "none" if each.committed is None else each.committed,
        "?" if each.end is None else each.end,
        _lag(group, each.lag),
        each.member or "",
    )


def _lag(group: Group, lag: int | None) -> str:
    if group.books:
        return "ledger"
    return "?" if lag is None else f"{lag:,}"
