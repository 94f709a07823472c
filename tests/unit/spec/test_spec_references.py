"""References are found, refused when broken, and resolved without ever showing a value in an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ReferenceMissing, SpecInvalid
from penstock.spec import references, secrets
from penstock.spec.references import Reference


def test_variables_and_files_are_replaced_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_USER", "ann")
    (tmp_path / "password").write_text("s3cret\n")
    text = "${env:PENSTOCK_USER}:${file:password}@host"
    assert references.find(text) == [Reference("env", "PENSTOCK_USER"), Reference("file", "password")]
    assert references.resolve(text, tmp_path) == "ann:s3cret@host"


def test_a_resolved_value_is_not_resolved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_A", "${env:PENSTOCK_B}")
    assert references.resolve("${env:PENSTOCK_A}", tmp_path) == "${env:PENSTOCK_B}"


def test_unset_variable_names_itself_and_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_NOT_SET", raising=False)
    with pytest.raises(ReferenceMissing) as raised:
        references.resolve("${env:PENSTOCK_NOT_SET}", tmp_path)
    assert raised.value.next_command == "export PENSTOCK_NOT_SET=..."
    assert raised.value.facts == {"reference": "${env:PENSTOCK_NOT_SET}"}


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_file_that_is_no_text_does_not_show_what_is_in_it(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ReferenceMissing) as raised:
        references.resolve("${file:secret}", tmp_path)
    assert str(tmp_path / "secret") in str(raised.value.cause)
    assert "xff" not in str(raised.value.as_dict())


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("${env:}", "a reference is ${env:NAME} or ${file:path}"),
        ("${file: }", "a reference is ${env:NAME} or ${file:path}"),
        ("${foo:x}", "a reference is ${env:NAME} or ${file:path}"),
        ("${NAME}", "write ${env:NAME}"),
        ("${ENV:NAME}", "write ${env:NAME}"),
        ("x/${env:NAME", "write ${env:NAME}"),
        ("$ENV{NAME}", "write ${env:NAME}"),
        ("$NAME", "write ${env:NAME}"),
    ],
)
def test_what_only_looks_like_a_reference_is_refused(tmp_path: Path, text: str, hint: str) -> None:
    assert [found for _, found in references.broken(text)] == [hint]
    with pytest.raises(SpecInvalid):
        references.resolve(text, tmp_path)


@pytest.mark.parametrize("text", ["", "plain", "a$b", "^a$", "100$", "local[*]", "{topic}.DLT"])
def test_other_text_passes_as_it_is(tmp_path: Path, text: str) -> None:
    assert references.broken(text) == []
    assert references.resolve(text, tmp_path) == text


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("ssl.key.password", True),
        ("spark.ssl.keyPassword", True),
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("fs.azure.account.key.store", True),
        ("spark.authenticate.secret", True),
        ("kafka.sasl.jaas.config", True),
        ("retention.ms", False),
        ("spark.sql.shuffle.partitions", False),
        ("message.key.type", False),
        ("spark.kafka.clusters.a.sasl.token.mechanism", False),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", False),
        ("spark.kubernetes.authenticate.oauthTokenFile", False),
    ],
)
def test_keys_that_hold_secrets_are_known_by_their_words(key: str, expected: bool) -> None:
    assert secrets.is_secret(("spark", "conf", key)) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("jdbc:x://user:pw@host/db", True),
        ("jdbc:x://user:${env:PW}@host/db", False),
        ("-Djavax.net.ssl.keyStorePassword=abc", True),
        ("-Djavax.net.ssl.keyStorePassword=${env:PW}", False),
        ("-----BEGIN RSA PRIVATE KEY-----", True),
        ("host:9092,other:9092", False),
        ("s3a://bucket/path", False),
    ],
)
def test_values_that_show_a_secret_are_known_by_their_form(value: str, expected: bool) -> None:
    assert secrets.shows_secret(value) is expected
