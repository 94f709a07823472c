from __future__ import annotations

import pytest

from penstock.errors import BadArgument, ReferenceMissing
from penstock.kafka import connection
from penstock.spec.model import Pipeline


def pipeline(bootstrap: str) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "payments",
            "kafka": {"bootstrap": bootstrap},
            "source": {"topics": {"payments": {"value": {"format": "json", "schema": {"fields": {"a": "int"}}}}}},
            "sinks": {"lake": {"from": "payments", "delta": {"path": "lake"}}},
        }
    )


def test_a_reference_is_resolved_for_the_client_and_for_spark_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE_KAFKA_IS", "broker:9092")
    spec = pipeline("${env:WHERE_KAFKA_IS}")
    assert connection.client_config(spec)["bootstrap.servers"] == "broker:9092"
    assert connection.spark_options(spec) == {"kafka.bootstrap.servers": "broker:9092"}


def test_the_client_carries_the_name_of_the_pipeline() -> None:
    assert connection.client_config(pipeline("broker:9092"))["client.id"] == "penstock.payments"


def test_an_unset_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHERE_KAFKA_IS", raising=False)
    with pytest.raises(ReferenceMissing):
        connection.client_config(pipeline("${env:WHERE_KAFKA_IS}"))


def test_a_setting_the_client_does_not_know_is_a_user_error() -> None:
    with pytest.raises(BadArgument):
        connection.producer(connection.connect_to("broker:9092"), no_such_setting="1")


@pytest.mark.parametrize(
    ("servers", "here"),
    [
        ("127.0.0.1:9092", True),
        ("localhost:9092, 127.0.0.1:9093", True),
        ("[::1]:9092", True),
        ("broker:9092", False),
        ("127.0.0.1:9092,broker:9092", False),
    ],
)
def test_only_addresses_that_are_all_on_this_machine_are_loopback(servers: str, here: bool) -> None:
    assert connection.is_loopback(servers) is here
