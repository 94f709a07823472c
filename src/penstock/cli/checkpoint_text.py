"""What `penstock checkpoint` prints, as lines: a pure function of the JSON document and the width."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from penstock.cli.output import clean, wrapped
from penstock.cli.plan import change_in_words
from penstock.errors import counted

Document = dict[str, Any]
_SHOWN = 20  # partitions; past these only their number is said, and --json has them all
_FEW = 5  # ranges


def show(found: Document, columns: int) -> list[str]:
    lines = wrapped(f"pipeline {found['pipeline']}: checkpoint {found['checkpoint']}", columns)
    lines += wrapped(f"query {found['query'] or 'none yet'}; {_running(found['running'])}", columns)
    if found["forked"]:
        of = found["forked"]
        after = "" if of["of_batch"] is None else f", after its batch {of['of_batch']}"
        lines += wrapped(f"forked from {of['of_pipeline']}{after}, {of['time']}", columns)
    lines += ["batches", *_batches(found, columns)]
    lines += ["positions", *_positions(found, columns)]
    lines += ["ledger", *_ledger(found["ledger"], columns)]
    lines += ["sizes", *_sizes(found["bytes"], columns)]
    if found["state"]:
        lines.append("state stores")
    for store in found["state"]:
        said = f"operator {store['operator']}: {counted(store['partitions'], 'partition')}, {_size(store['bytes'])}"
        lines += wrapped(said, columns, 1)
    if found["backups"]:
        lines += ["backups", *(f"  {clean(path)}" for path in found["backups"])]
    if found["aside"]:
        lines += ["replaced or damaged, and kept aside", *(f"  {clean(path)}" for path in found["aside"])]
    lines += _damage(found["damage"], columns)
    return lines


def diff(found: Document, columns: int) -> list[str]:
    lines = wrapped(f"pipeline {found['pipeline']}: the spec against checkpoint {found['checkpoint']}", columns)
    for change in found["changes"]:
        lines += wrapped(change_in_words(change), columns, 1)
    lines += [line for text in found["unchecked"] for line in wrapped(f"not checked: {text}", columns, 1)]
    wrong = sum(not change["compatible"] for change in found["changes"])
    if wrong:
        return [*lines, f"{counted(wrong, 'change')} that a start does not go on with"]
    return [*lines, "a start goes on with it" if found["changes"] else "no changes"]


def seek(found: Document, columns: int) -> list[str]:
    what = "would begin" if found["dry_run"] else "begins"
    lines = wrapped(f"pipeline {found['pipeline']}: the next batch {what} here", columns)
    for topic in found["renewed"]:
        text = f"{topic} was deleted and created again: it begins anew, and what was not read of the old one is lost"
        lines += wrapped(text, columns, 1)
    if found["taken_back"] is not None:
        taken = f"taken back{', if' if found['dry_run'] else ':'} nobody holds any of it"
        lines += wrapped(f"batch {found['taken_back']} was planned and not committed; it is {taken}", columns, 1)
    moves = [m for m in found["partitions"] if m["from"] != m["to"] or m["topic"] in found["renewed"]]
    counts = ["from", "to", "skipped", "again"] + ["unread"] * bool(found["unread"])
    titles = {"again": "read again", "unread": "never read"}
    rows = [(f"{m['topic']}-{m['partition']}", *(f"{m[count]:,}" for count in counts)) for m in moves]
    lines += _table(("partition", *(titles.get(count, count) for count in counts)), rows, columns)
    stay = len(found["partitions"]) - len(moves)
    if stay:
        lines.append(
            f"  {counted(stay, 'partition')} stay{'s' * (stay == 1)} as {'it is' if stay == 1 else 'they are'}"
        )
    if found["refused"]:
        error = found["refused"]
        lines += wrapped(f"refused[{error['code']}]: {error['what']}", columns)
        lines += wrapped(f"cause: {error['cause']}", columns, 1) if error["cause"] else []
        for other in (error.get("facts") or {}).get("alternatives", [error["next"]]):
            lines += wrapped(f"instead: {other}", columns, 1)
        return lines
    if found["dry_run"]:
        return [*lines, *wrapped(f"nothing was changed; it would be batch {found['batch']} of the log", columns)]
    lines += wrapped(f"done, as batch {found['batch']} of the log; a run goes on from there", columns)
    return [*lines, f"before: {clean(found['backup'])}"]


def backup(found: Document, columns: int) -> list[str]:
    lines = [f"backup {clean(found['backup'])}"]
    batches = "no batch committed" if found["committed"] is None else f"batches up to {found['committed']}"
    open_ = found["planned"] is not None and found["planned"] != found["committed"]
    batches += f", and batch {found['planned']} that is under way" if open_ else ""
    return lines + wrapped(f"{batches}; {counted(found['files'], 'file')}, {_size(found['bytes'])}", columns, 1)


def restored(found: Document, columns: int) -> list[str]:
    what = "would be restored" if found["dry_run"] else "restored"
    at = "before its first batch" if found["committed"] is None else f"after batch {found['committed']}"
    lines = wrapped(f"pipeline {found['pipeline']}: {what}, as it was on {found['time']}, {at}", columns)
    lines += [line for text in found["warnings"] for line in wrapped(f"warning: {text}", columns, 1)]
    return lines + ([f"before: {clean(found['replaced'])}"] if found["replaced"] else [])


def fork(found: Document, columns: int) -> list[str]:
    what = "would begin" if found["dry_run"] else "begins"
    after = "at its start" if found["of_batch"] is None else f"after its batch {found['of_batch']}"
    lines = wrapped(
        f"pipeline {found['pipeline']} {what} where {found['of_pipeline']} is, {after}: {found['checkpoint']}", columns
    )
    rows = [(f"{r['topic']}-{r['partition']}", f"{r['next']:,}") for r in found["begins"]]
    lines += _table(("partition", "next"), rows, columns)
    lines += [f"  {clean(topic)}: from its first offset on" for topic in found["anew"]]
    missing = found["missing_topics"]
    if missing is None:
        lines += wrapped("Kafka does not answer: whether it has the topics of the new pipeline is not known", columns)
    elif missing:
        lines += wrapped(f"Kafka lacks topics that the new pipeline needs: {clean(', '.join(missing))}", columns)
    return lines if missing == [] else [*lines, f"  before its first run: {clean(found['next'])}"]


def repair(found: Document, columns: int) -> list[str]:
    passed_over = [line for each in found["skipped"] for line in wrapped(f"passed over: {clean(each)}", columns)]
    if not found["damage"]:
        sound = f"pipeline {found['pipeline']}: every file of the checkpoint is there and whole"
        return [*wrapped(sound, columns), *passed_over]
    lines = wrapped(f"pipeline {found['pipeline']}: {counted(len(found['damage']), 'damaged file')}", columns)
    for each in found["damage"]:
        how = "cannot be made again from what is here"
        if each["source"]:
            how = f"{'made' if found['applied'] else 'can be made'} again from {each['source']}"
        lines += wrapped(f"{each['file']} {each['what']}; {how}", columns, 1)
    lines += passed_over
    if found["backup"]:
        lines.append(f"looked into backup {clean(found['backup'])}")
    left = sum(each["source"] is None for each in found["damage"])
    if left:
        which = "another" if found["backup"] or found["skipped"] else "a"
        said = f"{counted(left, 'file')} cannot be repaired: name {which} backup (--from), or restore one"
        lines += wrapped(said, columns)
    if found["applied"]:
        return [*lines, f"before: {clean(found['aside'])}"]
    return lines if left == len(found["damage"]) else [*lines, "nothing was changed; to repair: --apply"]


def _batches(found: Document, columns: int) -> list[str]:
    committed = "none committed" if found["committed"] is None else f"committed up to {found['committed']}"
    lines = wrapped(committed, columns, 1)
    pending = found["pending"]
    if pending is None:
        return lines
    age = timedelta(seconds=pending["seconds"])
    fate = "it is running" if found["running"] else "no run holds the lock: it runs again at the next start"
    fate += "; sinks and ledger have it, only Spark's commit is missing" if pending["written"] else ""
    said = f"batch {pending['batch']} is planned and not committed since {pending['since']} ({age}): {fate}"
    lines += wrapped(said, columns, 1)
    return lines + _ranges(pending["ranges"], columns)


def _positions(found: Document, columns: int) -> list[str]:
    places = found["partitions"]
    if not places:
        return ["  none yet"]
    rows = [
        (f"{p['topic']}-{p['partition']}", f"{p['next']:,}", *(_number(p[name]) for name in ("end", "lag")))
        for p in places[:_SHOWN]
    ]
    lines = _table(("partition", "next", "end", "lag"), rows, columns)
    if len(places) > _SHOWN:
        lines.append(f"  {counted(len(places) - _SHOWN, 'more partition')}")
    if found["no_lag"]:
        return lines + wrapped(f"without lag: {found['no_lag']}", columns, 1)
    return [*lines, f"  lag {counted(found['lag'], 'offset')}"]


def _ledger(books: Document, columns: int) -> list[str]:
    if not books["entries"]:
        return ["  empty"]
    span = f"batches {books['first']} to {books['last']}"
    lines = wrapped(
        f"{counted(books['entries'], 'entry', 'entries')}, {span}, the last one {books['time']}", columns, 1
    )
    written = "".join(f", {number:,} to {name}" for name, number in books["written"].items())
    lines += wrapped(
        f"{counted(books['read'], 'record')} read{written}, {counted(books['dead'], 'dead letter')}", columns, 1
    )
    if books["seeks"]:
        lines += wrapped(f"seeks: batch {', '.join(map(str, books['seeks']))}", columns, 1)
    for name, said in (
        ("skipped", "skipped by a seek"),
        ("lost", "expired unread"),
        ("doubtful", "expired while they were read, and may be lost"),
    ):
        if books[name]:
            number = sum(r["end"] - r["start"] for r in books[name])
            lines += [f"  {counted(number, 'offset')} {said}", *_ranges(books[name], columns)]
    return lines


def _sizes(sizes: Document, columns: int) -> list[str]:
    return wrapped(", ".join(f"{name} {_size(number)}" for name, number in sizes.items()) or "nothing", columns, 1)


def _damage(damage: Sequence[Document], columns: int) -> list[str]:
    if not damage:
        return ["no damage found"]
    lines = ["damage"]
    for each in damage:
        lines += wrapped(f"{each['file']} {each['what']}", columns, 1)
    return [*lines, "next:  penstock checkpoint repair FILE"]


def _ranges(ranges: Sequence[Document], columns: int) -> list[str]:
    said = [f"{r['topic']}-{r['partition']} [{r['start']}, {r['end']})" for r in ranges[:_FEW]]
    more = [f"{len(ranges) - _FEW} more"] if len(ranges) > _FEW else []
    return [line for text in [*said, *more] for line in wrapped(text, columns, 2)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """The first column to the left and as wide as is left, numbers to the right."""
    sizes = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    numbers = sum(size + 2 for size in sizes[1:])
    name = min(sizes[0], max(12, columns - 2 - numbers))
    return [
        f"  {_cut(clean(row[0]), name):<{name}}"
        + "".join(f"  {text:>{size}}" for text, size in zip(row[1:], sizes[1:], strict=True))
        for row in [head, *rows]
    ]


def _cut(text: str, most: int) -> str:
    """The end stays: it is the partition."""
    return text if len(text) <= most else "…" + text[-(most - 1) :]


def _running(process: int | None) -> str:
    return "not running" if process is None else f"running: process {process}"


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _size(number: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number = number / 1000  # type: ignore[assignment]
    raise AssertionError(number)
