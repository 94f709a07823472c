"""Where cases are run: one Spark session for all of them, and for each file of tests the parts of its pipeline.

A batch of a case goes through `Assembly.process`, as a batch of Kafka does: decode, rules, steps, conditions, the
search for records that a step fails on, dead letters, the balance. Only its two ends are others: the records come from
the case, and the sinks keep what they are handed (`sinks`). Nothing is read from or written to Kafka, a registry, a
table.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.batch.failure import translate
from penstock.batch.output import Outlet
from penstock.batch.run import Assembly
from penstock.batch.stateful import flow as stateful
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.contract.verdict import TOMBSTONE
from penstock.errors import EngineFailed
from penstock.lifecycle.replay.raw import raw
from penstock.plan import build
from penstock.record import CONTRACT
from penstock.spark import session
from penstock.spec.case import TOMBSTONES, Case
from penstock.spec.case_load import TestFile
from penstock.spec.model import Pipeline, Spark
from penstock.spec.references import find, missing
from penstock.testing.case import streamed
from penstock.testing.case.judge import judged, unknown_columns
from penstock.testing.case.planned import NoTopics, Planned, ranges_of
from penstock.testing.case.records import Sent, batches
from penstock.testing.case.registry import FileRegistry
from penstock.testing.case.result import Outcome, Result
from penstock.testing.case.sinks import Gathered, GatheredLetters, gathering
from penstock.testing.case.streamed import CaseFlow, Streamed
from penstock.testing.case.tables import CaseTables
from penstock.transform.reference.sources import TableSources
from penstock.transform.state_limits import gets_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM that lives for seconds spends most of them compiling, and holds little.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Settings of SQL that a session has from its start; all others are set for each file of tests.
_FROM_THE_START = ("spark.sql.extensions", "spark.sql.catalog.", "spark.sql.warehouse.dir")
_VIEW = "view "  # begins the name of what looks at a view; no sink is called so


@dataclass
class _Parts:
    """A pipeline made ready for cases."""

    spark: SparkSession
    assembly: Assembly
    registry: FileRegistry
    sinks: dict[str, Gathered]
    tables: CaseTables


class Bench:
    """Made with all pipelines that will be tested: the session has what any of them needs. It starts with the first
    case, unless this process has one already."""

    def __init__(self, pipelines: Iterable[Pipeline]) -> None:
        self._pipelines = list(pipelines)
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-test-"))
        self._parts: dict[Path, _Parts] = {}
        self._base: SparkSession | None = None
        self._ours = False
        self._keep = False
        self._cases = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._keep |= isinstance(error, EngineFailed)
        self.close()

    def close(self) -> None:
        if self._base is not None and self._ours:
            self._base.stop()
        elif self._base is not None:
            self._base.createDataFrame(
                [], "a int"
            )  # makes it the active session again, as whoever it belongs to left it
        self._base = None
        if not self._keep:  # else an error has named the engine's log
            shutil.rmtree(self._directory, ignore_errors=True)

    def tried(self, tests: TestFile, case: Case) -> Result:
        """Raises what is wrong with the file of tests or with the spec; what is wrong with the case is its result."""
        began = time.monotonic()
        parts = self._parts_of(tests)
        sent = batches(tests, case, parts.registry)
        outcome = self._outcome(parts, case, sent)
        self._keep |= isinstance(outcome.error, EngineFailed)
        columns = {name: sink.columns for name, sink in parts.sinks.items()}
        differences, notes, error = judged(case.expect, outcome, columns)
        seconds = time.monotonic() - began
        return Result(tests.path, tests.line(case), case.name, seconds, tuple(differences), tuple(notes), error)

    def _outcome(self, parts: _Parts, case: Case, sent: list[list[Sent]]) -> Outcome:
        self._cases += 1
        ledger = self._directory / f"ledger-{self._cases}"
        ledger.mkdir()
        letters = GatheredLetters()
        wanted = {f"{_VIEW}{view}" for view in case.expect.views}
        outlets = [o for o in parts.assembly.outlets if o.sink.name in wanted or not o.sink.name.startswith(_VIEW)]
        for sink in parts.sinks.values():
            sink.clear()
        planned = [batch for batch in sent if batch]
        ranges, flow = ranges_of(planned), parts.assembly.flow
        log = Streamed(ledger / "checkpoint", ranges) if flow else Planned(ledger, ranges)
        steps = parts.assembly.transform
        if case.tables:
            steps = replace(steps, references=parts.tables.of_case(case, Home(ledger).references))
        assembly = replace(
            parts.assembly,
            transform=steps,
            over=None,
            outlets=outlets,
            dead_letters=letters,
            ledger=Ledger(ledger),
            log=log,
            flow=CaseFlow(flow.pipeline, steps, log, ledger / "set-aside.json", given=[*chain(*planned)])
            if flow
            else None,
        )
        outcome = Outcome()

        def ended(entry: Entry) -> None:
            for view in entry.views.values():
                outcome.dropped.update({_rule_name(rule): count for rule, count in view.dropped.items()})

        try:
            if steps.references:
                steps.references.views(parts.spark)  # read now, so that no batch begins with other ones than the last
            if flow:
                streamed.run(parts.spark, assembly, planned, ledger, ended)
            else:
                for number, batch in enumerate(planned):
                    ended(assembly.process(raw(parts.spark, batch), number))
        except Exception as error:
            outcome.error = translate(assembly.blamed(error), self._logs / session.LOG_NAME)
        outcome.rows = {o.sink.name: parts.sinks[o.sink.name].rows() for o in outlets}
        outcome.letters = [_letter(row) for row in letters.rows()]
        return outcome

    def _parts_of(self, tests: TestFile) -> _Parts:
        if tests.path not in self._parts:
            self._parts[tests.path] = self._made(tests)
        return self._parts[tests.path]

    def _made(self, tests: TestFile) -> _Parts:
        pipeline = tests.pipeline
        home = self._directory / f"file-{len(self._parts)}"
        registry = FileRegistry.of(tests.path.parent, tests.cases.schemas)
        spark = self._session(pipeline)
        readers = build.readers(pipeline, lambda: registry, home)
        views = sorted({view for case in tests.cases.cases for view in case.expect.views})
        sinks = {
            name: gathering(name, sink, pipeline.base, registry, whole=gets_all(pipeline, sink.from_))
            for name, sink in pipeline.sinks.items()
        }
        sinks |= {f"{_VIEW}{view}": Gathered(f"{_VIEW}{view}", whole=gets_all(pipeline, view)) for view in views}
        outlets = [Outlet(sinks[name], sink.from_, sink.where) for name, sink in pipeline.sinks.items()]
        outlets += [Outlet(sinks[f"{_VIEW}{view}"], view) for view in views]
        tables = CaseTables.of(tests, TableSources(pipeline, lambda: readers))
        steps, log = build.transform(pipeline, tables.shared(Home(home).references)), Planned(home, [])
        assembly = Assembly(
            pipeline=pipeline,
            transform=steps,
            flow=stateful.flow(pipeline, steps, log, home),
            readers=readers,
            inlets=build.inlets(pipeline, readers),
            outlets=outlets,
            dead_letters=GatheredLetters(),
            log=log,
            ledger=Ledger(home),
            topics=NoTopics({}, pipeline.source, {}),
            make_inlets=lambda: build.inlets(pipeline, readers),
            began=pipeline.source.start_text(),
        )
        try:
            assembly.settle(spark)
        except Exception as error:
            raise translate(error, self._logs / session.LOG_NAME) from error
        assembly.way = (
            assembly.way if assembly.flow else "a test"
        )  # what the short way does is the same, and it writes files
        tests.refuse(unknown_columns(tests, {name: sink.columns for name, sink in sinks.items()}))
        return _Parts(spark, assembly, registry, sinks, tables)

    @property
    def _logs(self) -> Path:
        return self._directory / "logs"

    def _session(self, pipeline: Pipeline) -> SparkSession:
        """A session of its own for each file of tests, so that views and settings of one are not those of another."""
        from pyspark import SparkContext
        from pyspark.errors import PySparkException

        if self._base is None:
            self._ours = SparkContext._active_spark_context is None
            groups = {group for each in self._pipelines for group in session.groups_for(each)} - {"core"}
            conf = {name: value for each in self._pipelines for name, value in _conf(each).items() if _static(name)}
            local = Spark(master="local[2]", conf={_JAVA_OPTIONS: _QUICK, **conf})
            plain = pipeline.model_copy(update={"spark": local})
            self._base = session.start(plain, self._logs, groups=sorted(groups))
        made = self._base.newSession()
        for name, value in _conf(pipeline).items():
            if not _static(name):
                with suppress(PySparkException):  # one more that holds from the start only
                    made.conf.set(name, value)
        return made


def _conf(pipeline: Pipeline) -> dict[str, str]:
    """Settings of the spec, but those whose references have no value here: tests need no secrets."""
    given = {name: str(value) for name, value in pipeline.spark.conf.items()}
    return {
        name: value
        for name, value in given.items()
        if not any(missing(reference, pipeline.base) for reference in find(value))
    }


def _static(name: str) -> bool:
    return not name.startswith("spark.sql.") or name.startswith(_FROM_THE_START)


def _rule_name(rule: str) -> str:
    return TOMBSTONES if rule == TOMBSTONE else rule


def _letter(row: dict[str, Any]) -> dict[str, Any]:
    """A dead letter as cases speak of it."""
    sinks = [name for name in (row["sinks"] or "").split(",") if name and not name.startswith(_VIEW)]
    rule = str(row["reason"]).partition(":")[0] if row["stage"] == CONTRACT else None
    return {**row, "rule": rule, "sinks": sinks or None}
