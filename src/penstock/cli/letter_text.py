"""Dead letters on a terminal: lines that fit its width, and whole ones where there is none."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli import output
from penstock.cli.output import clean
from penstock.cli.table import fitting
from penstock.errors import counted

if TYPE_CHECKING:
    from penstock.deadletters.browse import Letter
    from penstock.deadletters.dead_letter import DeadLetter

_REASON = 40  # columns: where fewer are left beside the rest, the reason has a line of its own
_BYTES = 4096  # of a value; --json has all of it
_LABEL = 11
_SHOWN = 5  # schema ids; --json has them all


def moment(milliseconds: int) -> str:
    """A record of an old format has no time."""
    return "no time" if milliseconds < 0 else output.moment(milliseconds)


def listed(
    letters: Sequence[Letter], more: int, hidden: int, columns: int | None, others: Mapping[str, int] | None = None
) -> Iterator[str]:
    """`more`: letters that match and are not shown. `hidden`: those that match and were replayed. `others`: where
    nothing matches, what there is instead."""
    yield counted(len(letters) + more, "dead letter") + (f" ({hidden:,} replayed ones: --all)" if hidden else "")
    rows = [(clean(each.id), moment(each.timestamp_ms), each.last.error_class) for each in letters]
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    beside = sum(sizes) + 2 * len(sizes)
    for (id_, when, kind), letter in zip(rows, letters, strict=True):
        begin = f"{id_:<{sizes[0]}}  {when:<{sizes[1]}}  {kind:<{sizes[2]}}"
        said = clean(_marked(letter)).replace("\n", " ")
        if columns is None or columns - beside >= _REASON:
            yield fitting(f"{begin}  {said}", columns)
        else:
            yield fitting(begin.rstrip(), columns)
            yield fitting(f"    {said}", columns)
    if more:
        yield f"{more:,} more: --limit {len(letters) + more}"
    for kind, number in sorted((others or {}).items()):
        yield from count_lines(number, f"of another kind: {kind}", columns)


def _marked(letter: Letter) -> str:
    marks = []
    if letter.state == "replayed":
        marks.append(f"replayed by {letter.replays[-1]}")
    if letter.state == "replaying":
        marks.append(f"in replay {letter.replays[-1]}, not finished")
    if len(letter.deaths) > 1:
        marks.append(f"died {counted(len(letter.deaths), 'time')}")
    return f"[{', '.join(marks)}] {letter.last.reason}" if marks else letter.last.reason


def shown(letter: Letter, whole: DeadLetter, died: Mapping[tuple[str, int], str], columns: int | None) -> Iterator[str]:
    """Everything about one letter. `died`: when the batches of its deaths ended, where that is known."""
    kind = {0: "when it was created", 1: "when it was appended"}.get(whole.timestamp_type, "of no known kind")
    state = {"replaying": "on the list of a replay that is not finished"}.get(letter.state, letter.state)
    yield clean(letter.id)
    yield from _field("time", f"{moment(letter.timestamp_ms)}, {kind}", columns)
    by = f", taken by replay {', '.join(letter.replays)}" if letter.replays else ""
    yield from _field("state", f"{state}{by}", columns)
    yield from _field("key", _bytes(whole.key), columns)
    yield from _field("value", _bytes(whole.value), columns)
    for number, (name, value) in enumerate(whole.headers):
        yield from _field("" if number else "headers", f"{name}: {_bytes(value)}", columns)
    for number, death in enumerate(letter.deaths):
        when = died.get((death.query, death.batch))
        schema = f", schema {death.schema_id}" if death.schema_id is not None else ""
        text = f"{death.by}, batch {death.batch}{f', {when}' if when else ''}{schema}"
        yield from _field("" if number else "deaths", text, columns)
        only = f" (not in {death.sinks.replace(',', ', ')})" if death.sinks else ""
        yield from _field("", f"  {death.stage}, {death.error_class}{only}: {death.reason}", columns)


def grouped(groups: Sequence[Mapping[str, Any]], total: int, replayed: int, columns: int | None) -> Iterator[str]:
    yield counted(total, "dead letter") + (f", {replayed:,} more were replayed" if replayed else "")
    for group in groups:
        ids = ", ".join(map(str, group["schema_ids"][:_SHOWN])) + ", …" * (len(group["schema_ids"]) > _SHOWN)
        where = clean(group["topic"]) + (f" (schema {ids})" if ids else "")
        said = f"{where}: {group['stage']}, {group['class']}: {clean(group['reason'])}"
        yield from count_lines(group["count"], said, columns)
        yield fitting(f"{'':>10}e.g. {clean(group['sample'])}".replace("\n", " "), columns)


def wrapped(text: str, columns: int | None, indent: str = "") -> Iterator[str]:
    for line in text.split("\n"):
        if columns is None:
            yield indent + line
            continue
        parts = textwrap.wrap(line, max(20, columns - len(indent)), replace_whitespace=False)
        yield from (indent + part for part in parts or [""])


def count_lines(number: int, text: str, columns: int | None, indent: int = 0) -> Iterator[str]:
    """A number, and what it is the number of: on as many lines as that needs."""
    for at, line in enumerate(wrapped(text.replace("\n", " "), columns, " " * (indent + 10))):
        yield line if at else f"{'':>{indent}}{number:>8,}  {line[indent + 10 :]}"


def _field(name: str, text: str, columns: int | None) -> Iterator[str]:
    for number, line in enumerate(wrapped(clean(text), columns, " " * _LABEL)):
        yield f"  {name:<{_LABEL - 2}}{line[_LABEL:]}".rstrip() if not number else line


def _bytes(value: bytes | None) -> str:
    """As text where it is text, else as hexadecimal digits."""
    if value is None:
        return "null"
    head = value[:_BYTES]
    more = f" … and {counted(len(value) - _BYTES, 'byte')} more: --json" if len(value) > _BYTES else ""
    try:
        text = head.decode("utf-8", "strict" if not more else "ignore")
    except UnicodeDecodeError:
        text = ""
    readable = bool(text) and all(c.isprintable() or c in "\n\t" for c in text)
    return (text if readable else head.hex(" ")) + more + f" ({counted(len(value), 'byte')})"
