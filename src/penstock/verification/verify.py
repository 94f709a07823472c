"""`verify`: recount everything from Kafka, the ledger, the sinks and the dead letters, with readers that are not Spark.

    1. the ledger is whole: every line is as it was written, batches follow each other, each begins where the last one
       ended (`ledger`)
    2. Kafka holds exactly the records the ledger says were read (`kafka`)
    3. every one of them is in the sink once, or is a dead letter once, or was dropped by a named rule or step
    4. nothing is in the sink or among the dead letters that is not in Kafka (3 and 4: `sinks`)

A sink whose rows carry `_kafka` is proven offset by offset (`judge`); another one by the row count of each batch. Both
against every ledger of the pipeline: backfills and replays write to the same sinks as the stream (`writers`). What came
of a topic that was deleted and created again is known by the id of the topic (`renewed`).
"""

from __future__ import annotations

from collections import Counter

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.deadletters.store import dead_letters
from penstock.errors import LedgerMissing
from penstock.lifecycle.realtime import same_mode
from penstock.observe.measure_lag import if_answered
from penstock.plan import build
from penstock.record import KAFKA, REPLAY, OffsetRange
from penstock.spec.model import Pipeline
from penstock.verification import kafka as kafka_proof
from penstock.verification import ledger as ledger_proof
from penstock.verification import replays as replay_proof
from penstock.verification import state as state_proof
from penstock.verification import writers
from penstock.verification.offsets import joined
from penstock.verification.report import Report
from penstock.verification.sinks import Evidence, in_sink


def verify(pipeline: Pipeline, backfill: str | None = None) -> Report:
    """Needs Kafka and the tables; the engine only to name what a wrong batch lost.

    Raises LedgerMissing when there is nothing to verify.
    """
    if backfill is None:
        same_mode.require_ledger(pipeline, "verify")
    judged, homes = writers.name_of(backfill), writers.homes(pipeline)
    said = {name: list(Ledger(home.ledger).entries()) for name, home in homes.items()}
    entries = said.get(judged)
    if not entries:
        raise _nothing(pipeline, Home.of(pipeline), backfill)
    report = Report(
        pipeline.name,
        batches=sum(not e.is_seek for e in entries),
        offsets=sum(len(r) for e in entries for r in e.ranges),
    )
    query, sinks = entries[-1].query, {o.sink.name: o.sink for o in build.outlets(pipeline)}
    for name, home in homes.items():
        ledger_proof.as_written(home, pipeline.name, report, None if name == judged else name)
    ledger_proof.follow_on(entries, SparkLog(homes[judged].spark), report)
    # The stream's proof reads what backfills read too; that of a backfill does not read all that the stream has read.
    read = {name for name in said if backfill is None or name == judged}
    others = [entry for name in read - {judged} for entry in said[name] if not entry.query.startswith(REPLAY)]
    records, former = kafka_proof.in_kafka(pipeline, entries, others, report)
    kafka_proof.without_record(entries, records, former, report)
    gone = joined(former.all(entries))
    report.former = [OffsetRange(*where, *span) for where, spans in gone.items() for span in spans]
    deaths = kafka_proof.Deaths.read(dead_letters(pipeline).read())
    buried = kafka_proof.in_dead_letters(deaths, query, report, gone)
    held = {name: sink.positions(KAFKA) for name, sink in sinks.items()}
    everyone = writers.found(pipeline, said)  # after the sinks were read: the pipeline may be running
    report.in_flight = next(list(each.unfinished) for each in everyone if each.name == judged)
    kafka_proof.same_as_read(entries, records, buried, report, former)
    found = Evidence(pipeline, judged, everyone, records, read, deaths, former)
    for name, sink in sinks.items():
        in_sink(found, sink, held[name], report)
    state_proof.account(pipeline, entries, report)
    no_more = {name for entry in entries for name in entry.sinks} - sinks.keys()
    report.unproven += [f"sink '{name}' is in the ledger and no longer in the spec" for name in sorted(no_more)]
    report.records = sum(e.read for e in entries)
    replayed = replay_proof.took(everyone, deaths, query)
    report.dead, report.replayed = buried.number, replay_proof.home_again(replayed, query)
    report.dropped_in_replays = dict(sum((each.dropped for each in replayed), Counter[str]()))
    report.left_out_in_replays = dict(sum((each.left_out for each in replayed), Counter[str]()))
    report.findings += replay_proof.dead_again(replayed)
    report.unproven += replay_proof.unfinished(replayed)
    report.lost = [r for e in entries for r in e.lost]
    report.doubtful = sum(e.in_doubt for e in entries)
    report.unproven += [f"batch {e.batch}: {e.doubt}" for e in entries if e.doubt]
    report.skipped = ledger_proof.never_read(entries)
    for entry in entries:
        for count in entry.views.values():
            for rule, dropped in count.dropped.items():
                report.dropped[rule] = report.dropped.get(rule, 0) + dropped
    if report.findings:
        if_answered(lambda: kafka_proof.hidden(pipeline, report))  # it only explains what was found
    return report


def _nothing(pipeline: Pipeline, home: Home, backfill: str | None) -> LedgerMissing:
    """Why there is nothing to verify, and what could be meant instead."""
    there = [name for name in Home.of(pipeline).backfills() if name != backfill]
    done = [name for name in there if any(Ledger(Home.of(pipeline).backfill(name).ledger).entries())]
    what = f"pipeline '{pipeline.name}' has no ledger in {home.ledger}"
    if backfill is not None:
        return LedgerMissing(
            f"pipeline '{pipeline.name}' has no finished batch of a backfill '{backfill}'",
            cause=f"there {'is' if len(done) == 1 else 'are'} {', '.join(done)}" if done else "no backfill has run yet",
            next_command=f"penstock verify FILE --backfill {done[-1]}"
            if done
            else "penstock run FILE --from POSITION --to POSITION",
        )
    if done:
        return LedgerMissing(
            what,
            cause=f"the stream has not run yet, only {_backfills(done)}",
            next_command="; or ".join(f"penstock verify FILE --backfill {name}" for name in done[-3:]),
        )
    return LedgerMissing(
        what,
        cause="it has not finished a batch yet, or the directory was removed",
        next_command="penstock run FILE --until-caught-up; or restore the directory from a backup",
    )


def _backfills(names: list[str]) -> str:
    return f"backfill {names[0]}" if len(names) == 1 else f"{len(names)} backfills"
