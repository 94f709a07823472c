"""The benchmark's own arithmetic, and that it refuses figures of runs that lost records. Nothing is measured here."""

from __future__ import annotations

import io
from fractions import Fraction

import fastavro
import msgspec
import pytest
from bench import alternate, cases, ours, plain, records, report
from bench.alternate import Measured
from bench.arrived import Arrived
from bench.cases import CASES, DECODE, PENSTOCK, PLAIN, Case, Job
from bench.order import Answer, Order
from bench.shapes import Produced, Shape
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from penstock.registry.protobuf import message as protobuf_schema
from penstock.spec.model import Pipeline


def order(job: Job) -> Order:
    return Order(
        **vars(job),
        topic="bench-in",
        out="bench-out",
        directory="round",
        bootstrap="127.0.0.1:9092",
        registry="",
        postgres="postgresql://penstock@127.0.0.1/penstock",
        max_offsets=10,
    )


def test_a_ratio_is_that_of_the_medians_and_each_baseline_has_a_row() -> None:
    base, good, mine = Job("from_json", DECODE, "json"), Job(PENSTOCK, DECODE, "json"), Job(PENSTOCK, DECODE, "x")
    found = {base: Measured(100, [4, 1, 2], 10), good: Measured(100, [1, 1, 1], 5), mine: Measured(100, [4, 4, 9], 5)}
    rows = report.rows(Case("c", "g", mine, (base, good)), found)
    assert [(r["system"], r["records_per_s"], r["ratio"], r["against"]) for r in rows] == [
        ("from_json", 50, 1.0, "from_json"),
        ("penstock", 25, 0.5, "from_json"),
        ("penstock json-decode", 100, 1.0, "penstock json-decode"),
        ("penstock", 25, 0.25, "penstock json-decode"),
    ]


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.ours.work != DECODE and case.available])
def test_every_sink_case_has_a_spec_that_is_valid_and_a_script_to_compare_with(case: Case) -> None:
    Pipeline.model_validate(ours.spec(order(case.ours)))
    assert all(job.work in plain.SINKS for job in case.against if job.system == PLAIN)


def test_what_looks_on_is_measured_against_the_same_without() -> None:
    case = CASES["observe-overhead"]
    [without] = case.against
    looked_on, alone = (Pipeline.model_validate(ours.spec(order(job))) for job in (case.ours, without))
    assert (looked_on.observe.mirror, looked_on.observe.events) == (True, True)
    assert (alone.observe.mirror, alone.observe.events) == (False, False)
    assert looked_on.sinks == alone.sinks


def test_a_case_whose_sink_the_spec_does_not_have_waits() -> None:
    job = Job(PENSTOCK, "delta", "payments")
    assert Case("c", "g", job, (), needs="delta").available
    assert not Case("c", "g", job, (), needs="papyrus").available
    assert not Case("c", "g", job, (), needs="delta.papyrus").available


def test_what_a_group_shares_is_measured_once() -> None:
    kafka = [case for case in CASES.values() if case.name.startswith("kafka-")]
    assert [job.work for job in cases.jobs(kafka) if job.system == PLAIN] == ["kafka"]


@pytest.mark.parametrize("kind", ["json", "avro", "protobuf"])
def test_exactly_the_bad_share_of_the_records_cannot_be_read(kind: str) -> None:
    made = list(records.values(kind, 2_000, Fraction(1, 10), [b""]))
    assert sum(bad for _, bad in made) == 200
    assert all(readable(kind, value) != bad for value, bad in made)


def readable(kind: str, value: bytes) -> bool:
    try:
        if kind == "json":
            msgspec.json.decode(value)
        elif kind == "avro":
            fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(records.AVRO), None)
        else:
            GetMessageClass(protobuf_schema.from_text(records.PROTO).descriptor()).FromString(value)
    except (msgspec.DecodeError, EOFError, IndexError, DecodeError):
        return False
    return True


def test_the_name_of_a_shape_says_what_is_in_it() -> None:
    assert (Shape("avro-20-ids-bad-01").kind, Shape("avro-20-ids-bad-01").bad) == ("avro-20-ids", Fraction(1, 1000))
    assert (Shape("payments").kind, Shape("payments").bad) == ("payments", 0)


@pytest.mark.parametrize("said", [Answer(1.0, 99, 10), Answer(1.0, 100, 9), Answer(1.0, 101, 10)])
def test_decode_that_lost_or_misjudged_a_record_is_void(said: Answer) -> None:
    job = order(Job(PENSTOCK, DECODE, "json-bad-10"))
    alternate._check_decoded(job, Produced("t", 100, 10, 90), Answer(1.0, 100, 10))
    with pytest.raises(SystemExit, match="void"):
        alternate._check_decoded(job, Produced("t", 100, 10, 90), said)


@pytest.mark.parametrize(
    ("system", "read", "held"),
    [
        (PENSTOCK, 99, Arrived(80, 5)),
        (PENSTOCK, 100, Arrived(79, 5)),
        (PENSTOCK, 100, Arrived(81, 5)),
        (PENSTOCK, 100, Arrived(80, 4)),
        (PLAIN, 100, Arrived(91, 5)),
    ],
)
def test_a_stream_that_lost_repeated_or_changed_a_row_is_void(system: str, read: int, held: Arrived) -> None:
    job, produced = order(Job(system, "delta-upsert", "changes")), Produced("t", 100, 10, 80, 5)
    alternate._check_written(job, produced, 100, Arrived(80, 5))
    with pytest.raises(SystemExit, match="void"):
        alternate._check_written(job, produced, read, held)


def test_no_case_is_named_twice_and_all_are_in_one_group() -> None:
    assert sum(map(len, cases.grouped(CASES.values()).values())) == len(CASES) == len(cases._ALL)


def test_the_picture_of_latencies_has_a_line_per_system_that_ends_at_all_records() -> None:
    from xml.etree import ElementTree

    from bench import plot

    picture = ElementTree.fromstring(plot.latencies("t", {"batches": [200, 300, 900], "real-time": [1, 1, 2, 40]}))
    lines = [each.get("d") or "" for each in picture if each.get("stroke-width")]
    assert len(lines) == 2
    assert all(line.endswith(" 40.0") for line in lines)  # the top
