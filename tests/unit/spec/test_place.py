"""The line in the spec of what an error speaks of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StepFailed
from penstock.spec.place import locate

SPEC = """\
source:
  topics: {t: {view: v}}
contract:
  v:
    - {name: positive, rule: n > 0}
transform:
  - view: a
    sql: select * from v
references:
  rates: {file: rates.csv}
sinks:
  plain:
    from: a
  some:
    from: v
    where: n > 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"view": "v", "rule": "positive"}, 5),
        ({"view": "a"}, 7),
        ({"view": "a", "sink": "plain"}, 7),
        ({"view": "v", "sink": "plain"}, 12),
        ({"sink": "some"}, 16),
        ({"reference": "rates"}, 10),
    ],
    ids=str,
)
def test_place_is_in_the_facts_and_in_what_to_do_next(file: Path, facts: dict[str, Any], line: int) -> None:
    for said, expected in (
        ("correct it in the spec; then plan", f"correct it at {file}:{line}; then plan"),
        ("return a DataFrame", f"return a DataFrame; see {file}:{line}"),
    ):
        error = StepFailed("it failed", cause="", next_command=said, facts=dict(facts))
        locate(error, file)
        assert error.next_command == expected
        assert error.facts == {**facts, "file": str(file), "line": line}


@pytest.mark.parametrize("facts", [{"view": "v"}, {"view": "gone"}, {"sink": "gone"}, {"view": "v", "rule": "gone"}])
def test_nothing_is_said_where_it_is_not_sure(file: Path, facts: dict[str, Any]) -> None:
    error = StepFailed("it failed", cause="", next_command="correct it in the spec", facts=dict(facts))
    locate(error, file)
    assert (error.next_command, error.facts) == ("correct it in the spec", facts)
