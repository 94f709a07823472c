"""What is said of topics that Kafka does not take as the spec has them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from penstock.errors import SpecInvalid, TopicMissing
from penstock.kafka.admin import _not_created


@pytest.mark.parametrize(
    ("code", "kind", "next_command"),
    [
        (
            KafkaError.INVALID_CONFIG,
            SpecInvalid,
            "correct the topic under `kafka: topics:` in the spec, then: penstock apply FILE",
        ),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, TopicMissing, "penstock apply FILE"),
    ],
)
def test_setting_that_kafka_refuses_is_to_be_corrected_and_not_checked(
    code: int, kind: type[Exception], next_command: str
) -> None:
    error = _not_created({"payments": KafkaError(code, "Unknown topic config name: no.such")}, [])
    assert type(error) is kind
    assert error.next_command == next_command
    assert "Unknown topic config name: no.such" in str(error.cause)
