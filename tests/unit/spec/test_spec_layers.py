"""Mistakes of all parts of a spec come in one run, and none that only follows from another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.spec.specs import GOOD, short

from penstock.spec.load import read

Write = Callable[..., Path]


def test_all_mistakes_of_all_parts_come_in_one_run(write: Write) -> None:
    text = GOOD.replace("name: payments", "nam: payments").replace("from: settled", "from: setled")
    _, found = read(write(text.replace("localhost:9092", "1")))
    assert short(found) == [
        (2, "nam", "unknown-key"),
        (4, "kafka.bootstrap", "wrong-type"),
        (16, "sinks.lake.from", "names"),
    ]


RICH = """\
penstock: 1
name: rich
kafka: {bootstrap: "localhost:9092"}
registry: {url: "http://localhost:8081"}
source:
  topics:
    clicks: {partitions: [0, 1], value: {format: json, schema: {fields: {page: string, at: timestamp, n: int}}}}
    users: {partitions: [0], value: {format: avro}}
contract:
  clicks:
    - {name: page, not_null: page}
    - {name: few, range: {field: n, max: 9}}
references:
  pages: {file: {path: pages.csv, format: csv, schema: {fields: {page: string, title: string}}}}
transform:
  - {view: titled, enrich: {from: clicks, reference: pages, on: {page: page}}}
  - {view: some, python: {from: titled, function: "json:loads"}}
  - {view: firsts, deduplicate: {from: some, key: [page], time: at, within: 1m}}
  - {view: counts, window: {from: firsts, time: at, size: 1m, columns: {total: "count(*)"}}}
  - {view: large, sql: select * from counts where total > 1}
sinks:
  lake: {from: large, delta: {path: lake/large}}
  late: {from: firsts_late, delta: {path: lake/late}}
trigger: {every: 10s}
"""


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('url: "http://localhost:8081"', 'url: "http://localhost:8081", zzz: 1', "registry.zzz"),
        ("[0, 1]", "[0, one]", "source.topics.clicks.partitions[1]"),
        ("page: string, at", "page: strink, at", "source.topics.clicks.value.schema.fields.page"),
        ("{name: few, range", "{name: few, rang", "contract.clicks[1].rang"),
        ("format: csv", "format: cvs", "references.pages.file.format"),
        ("reference: pages", "reference: page", "transform[0].enrich.reference"),
        ('python: {from: titled, function: "json:loads"}', "python: {from: titled}", "transform[1].python.function"),
        ("within: 1m", "within: 1mm", "transform[2].deduplicate.within"),
        ("columns: {", "colums: {", "transform[3].window"),
        ("delta: {path: lake/large}", "delta: {path: lake/large, zzz: 1}", "sinks.lake.delta.zzz"),
        ("every: 10s", "every: often", "trigger.every"),
        ("transform:", "transfrom:", "transfrom"),
        ("references:", "referenzes:", "referenzes"),
    ],
)
def test_what_only_follows_from_a_mistake_is_not_told(write: Write, old: str, new: str, path: str) -> None:
    assert RICH.count(old) == 1
    assert read(write(RICH))[1] == []
    paths = {mistake.path for mistake in read(write(RICH.replace(old, new)))[1]}
    assert {found for found in paths if not found.startswith(path)} == set()
    assert paths


def test_mistakes_of_every_layer_come_in_one_run(write: Write) -> None:
    """In shapes, between parts, against schemas, in Python."""
    text = RICH
    for old, new in (
        ("every: 10s", "every: often"),
        ("not_null: page", "not_null: pge"),
        ("json:loads", "nowhere:loads"),
        ("from: large", "from: lage"),
        ("lake/late", "lake/large"),
        ("{field: n, max: 9}", "{field: n, max: many}"),
        ("pages, on: {page: page}", "pages, on: {page: pge}"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    assert [mistake.path for mistake in read(write(text))[1]] == [
        "contract.clicks[0].not_null",
        "contract.clicks[1].range.max",
        "transform[0].enrich.on",
        "transform[1].python.function",
        "sinks.lake.from",
        "sinks.late.delta.path",
        "trigger.every",
    ]


def test_a_mistyped_view_key_is_not_repeated_where_the_view_is_used(write: Write) -> None:
    _, found = read(write(GOOD.replace("view: settled", "veiw: settled")))
    assert short(found) == [(12, "transform[0].veiw", "unknown-key")]
