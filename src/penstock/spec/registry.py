"""The `registry:` block: where schemas are kept, and who we are there."""

from __future__ import annotations

from datetime import timedelta

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.duration import Duration
from penstock.spec.words import Part, Text


class Registry(Part):
    """A schema registry with the Confluent-compatible API (Confluent, Apicurio, Karapace, Redpanda), asked without
    a login, with `user` and `password`, or with a `token`.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "dependentRequired": {"user": ["password"], "password": ["user"]},
            "not": {"required": ["token", "user"]},
        }
    )

    url: Text = Field(
        description="Address of the API, with the path it lies under: Apicurio's is `/apis/ccompat/v7`.",
        examples=["${env:SCHEMA_REGISTRY_URL}"],
    )
    user: Text | None = Field(None, description="Name for basic authentication; an API key at Confluent Cloud.")
    password: Text | None = Field(
        None, description="Password of `user`, as a reference.", examples=["${env:SCHEMA_REGISTRY_PASSWORD}"]
    )
    token: Text | None = Field(
        None, description="Bearer token, as a reference.", examples=["${file:/run/secrets/registry-token}"]
    )
    timeout: Duration = Field(
        timedelta(seconds=10),
        description="How long a question to the registry may take, all retries included, before the registry counts "
        "as unreachable. Schemas that were seen before are not asked for again.",
    )

    wait: Duration = Field(
        timedelta(minutes=5),
        description="How long a batch with records of unknown schemas is tried again while the registry does not "
        "answer. After that `unreadable` of their topic decides: dead letters, or stop.",
    )

    @model_validator(mode="after")
    def _one_login(self) -> Registry:
        if self.token is not None and (self.user is not None or self.password is not None):
            raise PydanticCustomError("one_kind", "registry takes a token, or user and password, not both")
        if (self.user is None) != (self.password is None):
            lacking = "user" if self.user is None else "password"
            raise PydanticCustomError(
                "one_kind", "registry lacks {lacking}: user and password go together", {"lacking": lacking}
            )
        return self
