"""Every path of a spec means what it says: a place on this machine, or a mistake with its line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.spec.specs import GOOD, short

from penstock.checkpoint.home import Home
from penstock.errors import SpecInvalid
from penstock.plan import build
from penstock.spec import reference
from penstock.spec.load import load, read
from penstock.spec.local_path import is_path, written_in
from penstock.spec.model import Pipeline
from penstock.spec.references import located
from penstock.spec.sinks import DeltaTable, Sink, target_of

Write = Callable[..., Path]

REMOTE = [
    "s3://my-bucket/x",
    "s3a://my-bucket/x",
    "S3://my-bucket/x",
    "gs://my-bucket/x",
    "abfss://container@account.dfs.core.windows.net/x",
    "hdfs://namenode:8020/x",
    "hdfs:///x",
    "dbfs:/x",
    "http://host/x",
    "s3://${env:BUCKET}/x",
]
DELTA = "    delta: {path: lake/payments}\n"


def spec_with(path: str, place: str) -> tuple[str, str]:
    """A spec that has this path somewhere, and where that is."""
    match place:
        case "delta":
            return GOOD.replace("lake/payments", f'"{path}"'), "sinks.lake.delta.path"
        case "parquet":
            return GOOD.replace(DELTA, f'    parquet: {{path: "{path}"}}\n'), "sinks.lake.parquet.path"
        case "iceberg":
            table = f'    iceberg: {{table: a.b, catalog: {{type: hadoop, warehouse: "{path}"}}}}\n'
            return GOOD.replace(DELTA, table), "sinks.lake.iceberg.catalog.warehouse"
        case "checkpoint":
            return GOOD + f'checkpoint: "{path}"\n', "checkpoint"
        case "dead letters":
            return GOOD + f'dead_letters: {{delta: {{path: "{path}"}}}}\n', "dead_letters.delta.path"
        case "reference file":
            table = f'references:\n  rates: {{file: {{path: "{path}", format: parquet}}}}\n'
            return GOOD + table, "references.rates.file.path"
        case "reference table":
            return GOOD + f'references:\n  rates: {{delta: {{path: "{path}"}}}}\n', "references.rates.delta.path"
        case "schema":
            value = GOOD.replace("{fields: {amount: double}}", f'"{path}"')
            return value, "source.topics.payments.value.schema"
        case "avro schema":
            value = GOOD.replace("format: json", "format: avro").replace("{fields: {amount: double}}", f'"{path}"')
            return value, "source.topics.payments.value.schema"
        case "written schema":
            topic = f'    kafka: {{topic: out, value: {{format: avro, wire: raw, schema: "{path}"}}}}\n'
            return GOOD.replace(DELTA, topic), "sinks.lake.kafka.value.schema"
    raise AssertionError(place)


TABLES = ["delta", "parquet", "iceberg", "checkpoint", "dead letters", "reference file", "reference table"]
PLACES = [*TABLES, "schema", "avro schema", "written schema"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("path", REMOTE)
def test_a_remote_path_is_a_mistake_with_its_line(
    path: str, place: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKET", "my-bucket")
    text, where = spec_with(path, place)
    pipeline, mistakes = read(write(text))
    assert pipeline is None
    line = next(number for number, each in enumerate(text.splitlines(), 1) if path in each)
    assert short(mistakes) == [(line, where, "bad-path")]
    assert "object stores and other remote file systems" in mistakes[0].message
    assert "not supported yet" in mistakes[0].message
    assert "~/x" in (mistakes[0].hint or "")


@pytest.mark.parametrize("path", ["file://host/x", "file:x", "~no-such-user/x", "$HOME/x"])
def test_a_path_that_means_nothing_here_is_a_mistake(path: str, write: Write) -> None:
    pipeline, mistakes = read(write(spec_with(path, "delta")[0]))
    assert pipeline is None
    assert short(mistakes) == [(17, "sinks.lake.delta.path", "bad-path")]
    assert mistakes[0].hint


@pytest.mark.parametrize("place", TABLES)
def test_a_path_is_judged_once_its_references_are_replaced(
    place: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE", "s3://user:secret@my-bucket")
    text, where = spec_with("${env:LAKE}/x", place)
    pipeline, mistakes = read(write(text))
    assert pipeline is None
    assert [(m.path, m.code) for m in mistakes] == [(where, "bad-path")]
    assert "secret" not in str(mistakes[0])


def test_a_path_of_an_unset_variable_is_refused_when_it_is_known(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = load(write(spec_with("${env:LAKE}/x", "delta")[0]))
    monkeypatch.setenv("LAKE", "gs://my-bucket")
    with pytest.raises(SpecInvalid) as refused:
        build.outlets(pipeline)
    assert refused.value.what == "'${env:LAKE}/x' is not a path on this machine"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("x", "BASE/x"),
        ("./x", "BASE/x"),
        ("/data/x", "/data/x"),
        ("file:///data/x", "/data/x"),
        ("file:/data/x", "/data/x"),
        ("file://localhost/data/x", "/data/x"),
        ("FILE:///data/x%20y", "/data/x y"),
        ("file://${env:ROOT}/x", "/data/x"),
        ("${env:ROOT}/x", "/data/x"),
        ("~/x", "HOME/x"),
        ("~", "HOME"),
        ("./~/x", "BASE/~/x"),
        ("./s3:/x", "BASE/s3:/x"),
        ("a:b/c", "BASE/a:b/c"),
        ("x/s3://y", "BASE/x/s3:/y"),
    ],
)
def test_a_path_is_the_place_it_says(
    written: str, meant: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ROOT", "/data")
    place = Path(meant.replace("BASE", str(tmp_path)).replace("HOME", str(home)))
    assert located(written, tmp_path) == place
    pipeline = load(write(spec_with(written, "checkpoint")[0]))
    assert Home.of(pipeline).path == place


@pytest.mark.parametrize(("written", "before"), [("file:///data/x", "file:/data/x"), ("~/x", "~/x")])
def test_what_an_earlier_version_wrote_under_such_a_name_is_not_left_behind(
    written: str, before: str, write: Write, tmp_path: Path
) -> None:
    (tmp_path / before).mkdir(parents=True)
    pipeline, mistakes = read(write(spec_with(written, "checkpoint")[0]))
    assert pipeline is None
    assert short(mistakes) == [(18, "checkpoint", "bad-path")]
    assert str(tmp_path / before) in mistakes[0].message
    assert f"write './{written}'" in (mistakes[0].hint or "")
    stays = load(write(spec_with(f"./{written}", "checkpoint")[0]))
    assert Home.of(stays).path == tmp_path / before


def test_one_directory_in_two_spellings_is_one_table(write: Write) -> None:
    two = "  other:\n    from: settled\n    parquet: {path: file:///lake/payments}\n"
    _, mistakes = read(write(GOOD.replace("lake/payments", "/lake/payments") + two))
    assert short(mistakes) == [(20, "sinks.other.parquet.path", "names")]
    assert target_of(Sink(from_="x", delta=DeltaTable(path="file:///lake"))).to == "/lake"


def test_a_pipeline_in_python_takes_no_remote_path_either() -> None:
    with pytest.raises(ValidationError, match="object stores"):
        DeltaTable(path="s3://my-bucket/x")


def test_every_key_that_is_described_as_a_path_is_read_as_one() -> None:
    described: list[tuple[str, Any]] = [
        (f"{part.__name__}.{name}", field)
        for part in reference.parts()
        for name, field in part.model_fields.items()
        if "relative to the spec" in (field.description or "") or name in ("path", "warehouse", "checkpoint", "schema_")
    ]
    assert len(described) > 12
    inline = {"FileTable.schema_"}  # `{fields: ...}` and no file
    for name, field in described:
        assert is_path((field.annotation, *field.metadata)) or name in inline, name


def test_every_path_of_a_pipeline_is_found_with_its_place(write: Write) -> None:
    for place in TABLES:
        text, where = spec_with("data/x", place)
        pipeline = load(write(text))
        assert isinstance(pipeline, Pipeline)
        assert where in [".".join(map(str, at)) for at, _ in written_in(pipeline)]


def test_check_says_it_without_loading_an_engine(write: Write) -> None:
    file = write(spec_with("s3://my-bucket/x", "delta")[0])
    code = (
        "import atexit, sys; from penstock.cli.main import main;"
        "atexit.register(lambda: print('pyspark' in sys.modules)); main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "check", file], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{file}:17:" in done.stdout
    assert done.stdout.endswith("False\n")
