"""Files of tests: what is wrong with one has a line, and names what there is."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from penstock.errors import BadArgument, SpecInvalid, SpecUnreadable
from penstock.spec.case_load import find_tests, read_tests
from penstock.spec.reference import schema_of_tests

EXAMPLES = Path(__file__).parents[3] / "examples"
TESTS = sorted(EXAMPLES.glob("*/*.test.yaml"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "payments", tmp_path / "payments")
    (tmp_path / "payments" / "payments.test.yaml").unlink()
    return tmp_path / "payments"


def mistakes(directory: Path, text: str) -> list[tuple[int, str, str, str | None]]:
    file = directory / "payments.test.yaml"
    file.write_text(text)
    with pytest.raises(SpecInvalid) as raised:
        read_tests(file)
    found: Any = raised.value.facts["mistakes"]
    assert all(each["file"] == str(file) for each in found)
    return [(each["line"], each["code"], each["message"], each["hint"]) for each in found]


def test_every_mistake_in_the_names_of_a_file_has_its_line_and_says_what_there_is(directory: Path) -> None:
    found = mistakes(
        directory,
        """\
defaults:
  payment: {value: {a: 1}}
cases:
  - name: one
    given: {payments: [{key: a}], other: [{text: x}]}
    expect:
      sinks: {lakes: []}
      views: {settle: []}
      dead_letters:
        - {rule: positiv}
        - {topic: nowhere}
      dropped: {positive: 1}
  - name: one
    given: {payments: []}
    expect: {}
""",
    )
    assert found == [
        (2, "names", "the spec reads no topic 'payment'", "did you mean 'payments'?"),
        (5, "missing-key", "a record needs one of: value, text, base64, hex", None),
        (5, "names", "the spec reads no topic 'other'", "allowed: payments"),
        (7, "names", "the spec has no sink 'lakes'", "did you mean 'lake'?"),
        (8, "names", "the spec has no view 'settle'", "did you mean 'settled'?"),
        (10, "names", "the spec has no rule 'positiv' that makes dead letters", "did you mean 'positive'?"),
        (11, "names", "the spec reads no topic 'nowhere'", "allowed: payments"),
        (12, "names", "the spec has no rule that drops records 'positive'", "allowed: tombstones"),
        (13, "names", "there are two cases 'one'", None),
    ]


def test_mistakes_in_the_form_of_a_file_have_their_lines(directory: Path) -> None:
    found = mistakes(
        directory,
        """\
cases:
  - name: one
    given:
      - payments:
          - {valeu: {a: 1}}
          - {value: 1, text: x}
          - {value: 1, time: yesterday}
          - {value: 1, raw_key: {}}
          - {value: 1, partition: -1}
    expects: {}
""",
    )
    assert [(line, code) for line, code, *_ in found] == [
        (5, "unknown-key"),
        (6, "one-kind"),
        (7, "bad-time"),
        (8, "one-kind"),
        (9, "out-of-range"),
        (10, "unknown-key"),
    ]
    assert found[0][3] == "did you mean 'value'?"
    assert found[-1][3] == "did you mean 'expect'?"


def test_numbers_keep_the_digits_that_are_written(directory: Path) -> None:
    file = directory / "payments.test.yaml"
    file.write_text("cases: [{name: a, given: {payments: [{value: {amount: 12345678901234567.10}}]}, expect: {}}]")
    ((record,),) = (read_tests(file).cases.cases[0].batches[0].values(),)
    assert record[0].value == {"amount": Decimal("12345678901234567.10")}


def test_tests_are_found_by_spec_by_file_and_by_directory(directory: Path) -> None:
    text = "cases: [{name: a, given: {payments: []}, expect: {}}]"
    beside, named = directory / "payments.test.yaml", directory / "tests" / "more.test.yaml"
    named.parent.mkdir()
    with pytest.raises(BadArgument, match="there are no tests of"):
        find_tests(directory / "payments.yaml")
    beside.write_text(text)
    named.write_text("spec: ../payments.yaml\n" + text)
    (directory / "tests" / "other.test.yaml").write_text(text)  # of a spec other.yaml
    assert find_tests(directory / "payments.yaml") == [beside, named]
    assert find_tests(named) == [named]
    assert set(find_tests(directory)) == {beside, named, directory / "tests" / "other.test.yaml"}
    assert read_tests(named).pipeline.name == "payments"
    with pytest.raises(SpecInvalid, match=r"other\.test\.yaml has a mistake") as raised:
        read_tests(directory / "tests" / "other.test.yaml")
    assert "there is no spec" in str(raised.value.cause)
    with pytest.raises(SpecUnreadable):
        find_tests(directory / "none.yaml")


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.parent.name)
def test_json_schema_takes_the_examples_and_refuses_an_unknown_key(file: Path) -> None:
    validator = Draft202012Validator(schema_of_tests())
    data = json.loads(json.dumps(YAML(typ="safe").load(file), default=str))
    assert list(validator.iter_errors(data)) == []
    data["cases"][0]["expects"] = {}
    assert list(validator.iter_errors(data))


def test_view_between_stateful_steps_cannot_be_looked_at(directory: Path) -> None:
    spec = YAML().load(directory / "payments.yaml")
    once = {"from": "payments", "key": ["payment_id"], "time": "event_time", "within": "1m"}
    window = {"from": "paid", "time": "event_time", "size": "1m", "columns": {"n": "count(*)"}}
    spec["transform"] = [
        {"view": "once", "deduplicate": once},
        {"view": "paid", "sql": "select * from once where amount > 0"},
        {"view": "counts", "window": window},
    ]
    spec["sinks"] = {"lake": {"from": "counts", "delta": {"path": "lake"}}}
    YAML().dump(spec, directory / "payments.yaml")
    text = """\
cases:
  - name: between
    given: {payments: [{text: x}]}
    expect: {views: {paid: [], counts: []}}
"""
    [(line, _, message, hint)] = mistakes(directory, text)
    assert (line, message) == (4, "view 'paid' stays inside the stream: it lies between steps that keep state")
    assert hint == "allowed: payments, counts, once_late"


def test_case_names_late_rows_and_the_rule_that_a_stateful_step_brings_along(directory: Path) -> None:
    spec = YAML().load(directory / "payments.yaml")
    once = {"from": "payments", "key": ["payment_id"], "time": "event_time", "within": "1m"}
    spec["transform"] = [{"view": "settled", "deduplicate": once}]
    spec["sinks"] = {"lake": {"from": "settled", "delta": {"path": "lake"}}}
    YAML().dump(spec, directory / "payments.yaml")
    text = """\
cases:
  - name: late
    given: {payments: [{text: x}]}
    expect: {views: {settled_late: []}, dead_letters: [{rule: time of RULE}]}
"""
    file = directory / "payments.test.yaml"
    file.write_text(text.replace("RULE", "settled"))
    assert len(read_tests(file).cases.cases) == 1
    [(_, _, message, hint)] = mistakes(directory, text.replace("RULE", "settle"))
    assert message == "the spec has no rule 'time of settle' that makes dead letters"
    assert hint == "did you mean 'time of settled'?"
