"""A file of tests into Cases, or into every mistake that is in it: in the file itself, and against its spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from penstock.errors import BadArgument, SpecUnreadable
from penstock.spec import lines, references
from penstock.spec.case import TOMBSTONES, Case, Cases, Expect, Given, Letter
from penstock.spec.lines import Document
from penstock.spec.load import invalid, load, text_of, validated
from penstock.spec.mistake import Mistake, dotted, instead
from penstock.spec.mistake import Path as At
from penstock.spec.model import Pipeline
from penstock.spec.stateful_check import inside_the_stream, late_view_names, time_rules

SUFFIXES = (".test.yaml", ".test.yml")


@dataclass(frozen=True)
class TestFile:
    """Tests without a mistake, and the pipeline they are of."""

    __test__ = False  # its name begins as pytest's classes do

    path: Path
    cases: Cases
    pipeline: Pipeline
    document: Document

    def line(self, case: Case) -> int:
        return self.document.value_spot(("cases", self.number(case))).line

    def number(self, case: Case) -> int:
        return next(i for i, each in enumerate(self.cases.cases) if each is case)

    def mistake(self, at: At, code: str, message: str, hint: str | None = None) -> Mistake:
        return _mistake(self.document, at, code, message, hint)

    def key_mistake(self, at: At, message: str, hint: str | None = None) -> Mistake:
        """About a name that is a key of the file."""
        spot = self.document.key_spot(at)
        return Mistake(self.document.file, spot.line, spot.column, dotted(at), "names", message, hint)

    def refuse(self, mistakes: Iterable[Mistake]) -> None:
        """Raises SpecInvalid when there are any."""
        if found := list(mistakes):
            raise invalid(self.path, found, None)


def is_test_file(path: Path) -> bool:
    return path.name.endswith(SUFFIXES)


def spec_of(path: Path, written: str | None) -> Path:
    """The spec that a file of tests is for."""
    if written is not None:
        return references.located(written, path.parent)
    stem = next(path.name.removesuffix(suffix) for suffix in SUFFIXES if path.name.endswith(suffix))
    beside = [path.with_name(stem + end) for end in (".yaml", ".yml")]
    return next((file for file in beside if file.is_file()), beside[0])


def read_tests(path: Path) -> TestFile:
    """Raises SpecUnreadable, SpecInvalid with every mistake as facts, and what `load` raises for the spec."""
    document = lines.parse(text_of(path), str(path))
    document.data = _exact(document.data, document, ())
    cases, found = validated(Cases, document)
    if cases is None:
        raise invalid(path, found, None)
    spec = spec_of(path, cases.spec)
    if not spec.is_file():
        at: At = ("spec",) if cases.spec is not None else ()
        why = _mistake(document, at, "spec-unreadable", f"there is no spec {spec}", "name it: `spec: path`")
        raise invalid(path, [why], None)
    tests = TestFile(path, cases, load(spec), document)
    tests.refuse(sorted(_mistakes(tests), key=lambda mistake: (mistake.line, mistake.column)))
    return tests


def find_tests(given: Path) -> list[Path]:
    """The files of tests that are meant by a path: itself, those of a spec, or all below a directory.

    Those of a spec lie beside it or in `tests` beside it.
    """
    if given.is_dir():
        found = sorted(each for each in given.rglob("*.test.y*ml") if is_test_file(each))
        return _some(found, f"there are no tests below {given}", given / "<spec>.test.yaml")
    if not given.is_file():
        raise SpecUnreadable(
            f"{given} cannot be read", cause="no such file or directory", next_command=f"ls -l {given}"
        )
    if is_test_file(given):
        return [given]
    there = [*given.parent.glob("*.test.y*ml"), *(given.parent / "tests").glob("*.test.y*ml")]
    found = sorted(each for each in there if is_test_file(each) and _names(each, given))
    return _some(found, f"there are no tests of {given}", given.with_suffix(f".test{given.suffix}"))


def _some(found: list[Path], what: str, wanted: Path) -> list[Path]:
    if not found:
        raise BadArgument(
            what,
            cause="tests are in `<spec>.test.yaml` beside the spec, or in `tests/*.test.yaml` with `spec: ../<spec>`",
            next_command=f"write {wanted}, as `penstock schema --tests` says",
        )
    return found


def _names(tests: Path, spec: Path) -> bool:
    data = lines.parse(text_of(tests), str(tests)).data
    written = data.get("spec") if isinstance(data, dict) else None
    of = spec_of(tests, written if isinstance(written, str) else None)
    return of.is_file() and of.samefile(spec)


def _exact(data: Any, document: Document, at: At) -> Any:
    """Numbers with all the digits that are written: `12.10`, or more of them than a double holds."""
    if isinstance(data, dict):
        return {key: _exact(value, document, (*at, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [_exact(value, document, (*at, i)) for i, value in enumerate(data)]
    if isinstance(data, float):
        try:
            found = Decimal(document.value_spot(at).written)
        except InvalidOperation:
            return data  # .inf and .nan
        return found if found.is_finite() else data
    return data


def _mistakes(tests: TestFile) -> Iterator[Mistake]:
    pipeline = tests.pipeline
    yield from _unknown_topics(tests, tests.cases.defaults, ("defaults",))
    yield from _unknown_tables(tests, tests.cases.tables, ("tables",))
    names: set[str] = set()
    for i, case in enumerate(tests.cases.cases):
        at: At = ("cases", i)
        if case.name in names:
            yield tests.mistake((*at, "name"), "names", f"there are two cases '{case.name}'")
        names.add(case.name)
        for j, batch in enumerate(case.batches):
            below: At = (*at, "given", j) if isinstance(case.given, list) else (*at, "given")
            yield from _unknown_topics(tests, batch, below)
            yield from _given_mistakes(tests, batch, below)
        yield from _unknown_tables(tests, case.tables, (*at, "tables"))
        yield from _tables_elsewhere(tests, case, at)
        yield from _expect_mistakes(tests, pipeline, case.expect, (*at, "expect"))


def _unknown_topics(tests: TestFile, topics: Iterable[str], at: At) -> Iterator[Mistake]:
    source = tests.pipeline.source
    for topic in topics:
        if not source.reads_topic(topic):
            there = list(source.topics) or [str(source.pattern and source.pattern.match)]
            yield tests.key_mistake((*at, topic), f"the spec reads no topic '{topic}'", _there(topic, there))


def _unknown_tables(tests: TestFile, tables: Iterable[str], at: At) -> Iterator[Mistake]:
    there = list(tests.pipeline.references)
    for name in tables:
        if name not in there:
            yield tests.key_mistake((*at, name), f"the spec has no reference '{name}'", _there(name, there))


def _tables_elsewhere(tests: TestFile, case: Case, at: At) -> Iterator[Mistake]:
    """Tables that a server would have to be asked for."""
    for name, table in tests.pipeline.references.items():
        if (table.jdbc or table.kafka) and name not in {*tests.cases.tables, *case.tables}:
            where = "a database" if table.jdbc else "a topic"
            message = f"reference '{name}' is in {where}, which tests do not ask"
            yield tests.mistake(at, "missing-key", message, f"give its rows: `tables: {{{name}: [...]}}`")


def _given_mistakes(tests: TestFile, batch: Given, at: At) -> Iterator[Mistake]:
    for topic, records in batch.items():
        default = tests.cases.defaults.get(topic)
        for i, record in enumerate(records):
            here = (*at, topic, i)
            if record.given is None and (default is None or default.given is None):
                yield tests.mistake(here, "missing-key", "a record needs one of: value, text, base64, hex")
            read = tests.pipeline.source.topics.get(topic)
            if read is not None and read.partitions is not None and record.partition not in (None, *read.partitions):
                there = ", ".join(map(str, read.partitions))
                message = f"the spec does not read partition {record.partition}"
                yield tests.mistake((*here, "partition"), "names", message, f"it reads: {there}")


def _expect_mistakes(tests: TestFile, pipeline: Pipeline, expect: Expect, at: At) -> Iterator[Mistake]:
    steps = pipeline.transform
    inside = inside_the_stream(steps)
    views = [*pipeline.source.reads(), *(step.view for step in steps), *late_view_names(steps)]
    views = [view for view in views if view not in inside]
    rules = {rule.name: rule.otherwise for rules in pipeline.contract.values() for rule in rules}
    dropping = [*(name for name, otherwise in rules.items() if otherwise == "drop"), TOMBSTONES]
    for kind, named, there in (
        ("sink", expect.sinks, list(pipeline.sinks)),
        ("view", expect.views, views),
        ("rule that drops records", expect.dropped, dropping),
    ):
        part = "dropped" if kind.startswith("rule") else f"{kind}s"
        for name in named:
            if kind == "view" and name in inside:
                message = f"view '{name}' stays inside the stream: it lies between steps that keep state"
                yield tests.key_mistake((*at, part, name), message, _there(name, there))
            elif name not in there:
                yield tests.key_mistake((*at, part, name), f"the spec has no {kind} '{name}'", _there(name, there))
    letters: list[Letter] = expect.dead_letters if isinstance(expect.dead_letters, list) else []
    deadly = [name for name, otherwise in rules.items() if otherwise == "dead-letter"] + time_rules(pipeline)
    for i, letter in enumerate(letters):
        here = (*at, "dead_letters", i)
        if letter.rule is not None and letter.rule not in deadly:
            message = f"the spec has no rule '{letter.rule}' that makes dead letters"
            yield tests.mistake((*here, "rule"), "names", message, _there(letter.rule, deadly))
        if letter.topic is not None and not pipeline.source.reads_topic(letter.topic):
            message = f"the spec reads no topic '{letter.topic}'"
            yield tests.mistake((*here, "topic"), "names", message, _there(letter.topic, pipeline.source.topics))


def _there(word: str, names: Iterable[str]) -> str:
    """What there is, and which of it was probably meant."""
    return instead(word, names) or "there is none"


def _mistake(document: Document, at: At, code: str, message: str, hint: str | None = None) -> Mistake:
    spot = document.value_spot(at)
    return Mistake(document.file, spot.line, spot.column, dotted(at), code, message, hint)
