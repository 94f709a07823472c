"""A sink that says which record a row was made of, over a view that does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from penstock.encode.stage import Encoding
from penstock.errors import SpecInvalid
from penstock.spec.sinks import KafkaTopic


def test_origin_without_the_column_it_is_in_says_what_to_select(tmp_path: Path) -> None:
    encoding = Encoding("out", KafkaTopic(topic="t", origin=True), tmp_path, lambda: pytest.fail("asks a registry"))
    with pytest.raises(SpecInvalid, match="sink 'out' has `origin: true`") as raised:
        encoding.prepare("a", StructType([StructField("id", LongType())]))
    assert str(raised.value.next_command).startswith("add `_kafka` to the select of view 'a'")
    assert raised.value.facts == {"sink": "out"}  # of which the command says the line
