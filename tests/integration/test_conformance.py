"""K1: every sink is held to one suite, and a sink that is broken on purpose fails it.

Sinks that write to Kafka: test_conformance_kafka.py; processes that are killed: test_conformance_killed.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
from tests.broken_sinks import BROKEN, Files, FileSink
from tests.short_way import BrokenDelta, ShortWay
from tests.sink_kinds import KILLED, TABLES, TABLES_IN_ONE_PASS, Make, held_to

from penstock.testing.conformance import CHECKS, Broken, Check, Traits, check_called


@pytest.mark.parametrize(("kind", "check"), held_to(TABLES))
def test_sink_keeps_the_contract(kind: str, check: Check, make: Make, spark: Any) -> None:
    check(make(kind), spark)


@pytest.mark.parametrize(("kind", "check"), held_to(TABLES_IN_ONE_PASS))
def test_batch_in_one_pass_keeps_the_contract(kind: str, check: Check, make: Make, spark: Any) -> None:
    check(make(kind), spark)


def test_batch_in_one_pass_that_is_not_looked_for_is_caught(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Broken, match="replay: the contract demands"):
        check_called("replay")(ShortWay(BrokenDelta(tmp_path)), spark)


@pytest.mark.parametrize("check", [check for check in CHECKS if check is not KILLED], ids=str)
def test_sink_of_the_manual_keeps_the_contract(check: Check, spark: Any, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/sinks.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {"__name__": "test_files"}
    exec(compile(code, "docs/sinks.md", "exec", dont_inherit=True), names)
    check(names["Files"](tmp_path), spark)


def test_rows_that_a_sink_refuses_are_rejected(spark: Any, tmp_path: Path) -> None:
    check_called("rejected-row")(Files(tmp_path), spark)


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_sink_is_caught(kind: type[FileSink], spark: Any, tmp_path: Path) -> None:
    name, demand = BROKEN[kind]
    with pytest.raises(Broken) as broken:
        check_called(name)(Files(tmp_path, kind), spark)
    assert str(broken.value).startswith(f"{name}: the contract demands: ")
    assert demand in broken.value.demand


def test_excuse_is_shown_and_a_replay_cannot_be_excused(spark: Any, tmp_path: Path) -> None:
    why = "it takes them all"
    with pytest.raises(SkipTest, match=why):
        check_called("rejected-row")(Files(tmp_path, traits=Traits(excused={"rejected-row": why})), spark)
    with pytest.raises(ValueError, match="no check can be excused that is called replay"):
        check_called("replay")(Files(tmp_path, traits=Traits(excused={"replay": "it is slow"})), spark)
    with pytest.raises(Broken, match="declares what it refuses"):
        check_called("rejected-row")(Files(tmp_path, traits=Traits()), spark)
