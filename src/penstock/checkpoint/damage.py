"""Files of a checkpoint that are missing, truncated or changed, and what each could be made again from.

From the ledger, where the query keeps no state: an entry says which offsets its batch covered, that the sinks have it,
and of which query it is. So it proves `offsets/N`, `commits/N` and `metadata`. Nothing proves the ledger but a backup.
From a backup of the same query (by its id; where metadata and ledger are both gone, by batches that it has in common
with what is left of the log), where the ledger does not say otherwise: a file of Spark's log does not change once it
is written, but for the offsets of a batch that was split (`penstock split`), of which a backup may have longer ones.

What is not damage: old batches that Spark has removed, a newest batch without a commit (it runs again), a line of the
ledger that a crash cut off (its batch is written again).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.checkpoint.audit import HOLES, audit
from penstock.checkpoint.files import put, wrong_with
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger, entries_in, file_of
from penstock.checkpoint.log import BEFORE_SPLIT, Positions, as_json, positions_in, with_positions
from penstock.record import ends_of

_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'  # what Spark writes for a query without event time
_OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n{}'
_NAMED = 5


@dataclass(frozen=True)
class Damage:
    file: str  # below the checkpoint directory
    what: str
    source: str | None  # what it can be made again from; None: nothing that is here
    content: bytes | None = field(default=None, repr=False)  # as it should be


def find(home: Home, backup: Home | None = None) -> list[Damage]:
    """Everything that is wrong with the files. `backup`: a copy that may help, of whatever query it is."""
    return list(_Search(home, backup).found())


def helps(home: Home, backup: Home) -> bool:
    """Whether a backup is of the same query."""
    return _Search(home, backup).backup is not None


def repair(home: Home, damages: Iterable[Damage], aside: Path) -> list[Damage]:
    """Make again what can be; what stood there before is kept in `aside`. Called with the lock held."""
    done = [damage for damage in damages if damage.content is not None]
    for damage in done:
        file = home.path / damage.file
        if file.exists():
            (aside / damage.file).parent.mkdir(parents=True, exist_ok=True)
            (aside / damage.file).write_bytes(file.read_bytes())
        put(file, damage.content or b"")
    return done


class _Search:
    def __init__(self, home: Home, backup: Home | None) -> None:
        self.home = home
        # In this order: a run that goes on writes offsets, ledger, commits.
        self.commits = _batches(home.spark / "commits")
        self.entries = {entry.batch: entry for entry in Ledger(home.ledger).entries()}
        self.offsets = _batches(home.spark / "offsets")
        self.last = self.entries[max(self.entries)] if self.entries else None
        self.provable = not (home.spark / "state").is_dir()
        query = _query(home.spark / "metadata") or (self.last.query if self.last else None)
        self.backup = backup if backup and self._same_query(backup, query) else None

    def _same_query(self, backup: Home, query: str | None) -> bool:
        """Where nothing here says which query this is, offsets do: Spark writes the time of each batch into them."""
        if query is not None:
            return _query(backup.spark / "metadata") == query
        pairs = ((self.home.spark / "offsets" / str(n), backup.spark / "offsets" / str(n)) for n in self.offsets)
        both = [(here, copy) for here, copy in pairs if copy.is_file() and _unreadable(here, positions_in) is None]
        otherwise = [copy for here, copy in both if not (_split_since(copy, here) or _says(copy, _read(here)))]
        return not otherwise and any(here.read_bytes() == copy.read_bytes() for here, copy in both)

    def found(self) -> Iterator[Damage]:
        if not (self.offsets or self.commits):
            return  # there is no log: a pipeline that never ran, or whose checkpoint is gone, which the guard sees
        yield from self._metadata()
        yield from self._start()
        newest = max([*self.offsets, *self.commits, self.last.batch if self.last else 0])
        yield from self._log("offsets", self.offsets, newest, positions_in, self._offsets_of)
        # Of batches below the newest every one is committed; the newest one may run again, unless it is a seek.
        seek = self.last is not None and self.last.is_seek and self.last.batch == newest
        committed = newest if seek or newest in self.commits else newest - 1
        yield from self._log("commits", self.commits, committed, _parse_commit, self._commit_of)
        yield from self._ledger()

    def _metadata(self) -> Iterator[Damage]:
        file = self.home.spark / "metadata"
        wrong = wrong_with(file) or (None if _query(file) else "has no query id in it")
        if wrong:
            made = json.dumps({"id": self.last.query}, separators=(",", ":")) if self.last else None
            yield self._damage(file, wrong, made)

    def _start(self) -> Iterator[Damage]:
        """Where the first batch began: Spark needs it until the first commit, and we for the ranges of batch 0."""
        file = self.home.spark / "sources" / "0" / "0"
        if 0 not in self.offsets:
            return
        wrong = _unreadable(file, positions_in)
        if wrong:
            first = self.entries.get(0)
            began = {(r.topic, r.partition): r.start for r in first.ranges} if first else None
            yield self._damage(file, wrong, f"\0v1\n{as_json(began)}" if began else None, began)

    def _log(
        self,
        kind: str,
        there: list[int],
        newest: int,
        parse: Callable[[str], object],
        made: Callable[[Entry], str],
    ) -> Iterator[Damage]:
        for batch in range(min(there, default=max(newest, 0)), newest + 1):
            file = self.home.spark / kind / str(batch)
            wrong = _unreadable(file, parse)
            if wrong:
                entry = self.entries.get(batch)
                says = ends_of(entry.ranges) if entry and kind == "offsets" else None
                yield self._damage(file, wrong, made(entry) if entry and self.provable else None, says)

    def _offsets_of(self, entry: Entry) -> str:
        return with_positions(self._sound("offsets", self.offsets, positions_in) or _OFFSETS, ends_of(entry.ranges))

    def _commit_of(self, _entry: Entry) -> str:
        return self._sound("commits", self.commits, _parse_commit) or _COMMIT

    def _sound(self, kind: str, there: list[int], parse: Callable[[str], object]) -> str | None:
        """The newest file of a kind that can be read: the settings in it are those of now."""
        files = (self.home.spark / kind / str(batch) for batch in reversed(there))
        return next((file.read_text() for file in files if _unreadable(file, parse) is None), None)

    def _ledger(self) -> Iterator[Damage]:
        files = dict(Ledger(self.home.ledger).files())
        wrong = self._wrong_with(files)
        better = {**files, **{name: self._with_backup(name, files.get(name, b"")) for name in wrong}}
        still = self._wrong_with(better) if better != files else wrong
        for name, said in sorted(wrong.items()):
            what, file = "; ".join(said), str((self.home.ledger / name).relative_to(self.home.path))
            if name in still:
                yield Damage(file, what, None)
            elif better[name] != files.get(name):  # else the cause is in another file, which is named
                yield Damage(file, what, "a backup", better[name])

    def _wrong_with(self, files: Mapping[str, bytes]) -> dict[str, list[str]]:
        """What is wrong with each file of a ledger that has these. What the operator accepted is not."""
        wrong: dict[str, list[str]] = {}
        entries = [entry for name, content in files.items() for entry in entries_in(name, content.split(b"\n"))]
        have = {entry.batch for entry in entries}
        end = max([*self.commits, *have], default=-1)
        before = max((entry.batch for entry in entries if HOLES & set(entry.accepted)), default=0)
        missing: dict[str, list[int]] = {}
        for batch in range(before, end + 1):
            if batch not in have:
                missing.setdefault(file_of(batch), []).append(batch)
        for name, here in missing.items():
            names = ", ".join(map(str, here[:_NAMED])) + (f" and {len(here) - _NAMED} more" * (len(here) > _NAMED))
            wrong.setdefault(name, []).append(f"has no entry of batch{'es' * (len(here) > 1)} {names}")
        for fault in audit(files.items(), _query(self.home.spark / "metadata")).at_start:
            if fault.kind != "ledger-gap":
                wrong.setdefault(fault.file, []).append(str(fault))
        return wrong

    def _with_backup(self, name: str, content: bytes) -> bytes:
        """A file of the ledger: the lines that the backup has, and behind them those that were written since."""
        file = self.backup.ledger / name if self.backup else None
        if file is None or not file.is_file():
            return content
        copies = [line for line in file.read_bytes().split(b"\n") if line]
        newest = max((entry.batch for entry in entries_in(name, copies)), default=-1)
        since = [
            line
            for line in content.split(b"\n")
            if line not in copies and any(entry.batch >= newest for entry in entries_in(name, [line]))
        ]
        return b"".join(line + b"\n" for line in [*copies, *since])

    def _damage(self, file: Path, what: str, from_ledger: str | None, says: Positions | None = None) -> Damage:
        """`says`: the positions in it by the ledger; a copy with others is of before a split."""
        name = str(file.relative_to(self.home.path))
        copy = self.backup.path / name if self.backup else None
        if copy and wrong_with(copy) is None and (says is None or _says(copy, says)) and not _split_since(copy, file):
            return Damage(name, what, "a backup", copy.read_bytes())
        if from_ledger is not None:
            return Damage(name, what, "the ledger", from_ledger.encode())
        return Damage(name, what, None)


def _says(file: Path, positions: Positions) -> bool:
    return _unreadable(file, positions_in) is None and _read(file) == positions


def _read(file: Path) -> Positions:
    return positions_in(file.read_text())


def _split_since(copy: Path, file: Path) -> bool:
    """Whether a split has replaced what the copy holds, and kept it beside the file."""
    kept = file.parent.glob(f"{file.name}.{BEFORE_SPLIT}-*")
    return any(each.read_bytes() == copy.read_bytes() for each in kept)


def _batches(directory: Path) -> list[int]:
    return sorted(int(file.name) for file in directory.iterdir() if file.name.isdigit()) if directory.is_dir() else []


def _query(metadata: Path) -> str | None:
    try:
        return str(json.loads(metadata.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _unreadable(file: Path, parse: Callable[[str], object]) -> str | None:
    wrong = wrong_with(file)
    if wrong:
        return wrong
    try:
        parse(file.read_text())
    except (OSError, ValueError, AttributeError, IndexError, TypeError):
        return "cannot be understood: it was truncated or changed"
    return None


def _parse_commit(text: str) -> object:
    version, said = text.splitlines()[:2] if "\n" in text else (text, "{}")
    if not version.startswith("v"):
        raise ValueError(version)
    return json.loads(said)
