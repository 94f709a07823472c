"""What Apicurio's Confluent-compatible API leaves out, asked of its own API: why a schema is refused, and NONE.

Called by `SchemaRegistry` only after the compatible API has shown that it falls short; other registries never see it.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from penstock.errors import BadArgument
from penstock.registry.client.http import Answer, RegistryHttp
from penstock.registry.client.schema import Mode, RegisteredSchema

_COMPATIBLE = "/apis/ccompat/v"
_DESCRIPTOR = re.compile(r"[A-Za-z0-9+/=\s]+")  # in base64, and not the text of a .proto file


class Apicurio:
    def __init__(self, http: RegistryHttp, url: str) -> None:
        self._http = http
        root, found, _ = url.partition(_COMPATIBLE)
        self._root = f"{root}/apis/registry/v3/groups/default/artifacts" if found else None

    @property
    def is_one(self) -> bool:
        """Told by the address, which for Apicurio has this path."""
        return self._root is not None

    def reasons(self, subject: str, body: dict[str, Any]) -> tuple[str, ...]:
        """Why `body` cannot be the next version: the answer to a registration that is only rehearsed."""
        content = {
            "content": body["schema"],
            "contentType": "application/x-protobuf" if body["schemaType"] == "PROTOBUF" else "application/json",
            "references": [
                {
                    "groupId": "default",
                    "artifactId": each["subject"],
                    "version": str(each["version"]),
                    "name": each["name"],
                }
                for each in body["references"]
            ],
        }
        answer = self._ask("POST", subject, "versions?dryRun=true", {"content": content})
        causes = answer.data.get("causes") if answer.status == 409 and isinstance(answer.data, dict) else None
        return tuple(f"{each.get('description')} at {each.get('context')}" for each in causes or ())

    def set_mode(self, subject: str, mode: Mode, newest: RegisteredSchema) -> None:
        """The compatible API takes NONE of a subject for "no mode of its own", which is the global one. Apicurio's own
        keeps it, and still reads the newest version before it looks at the mode: what it cannot read stays the last."""
        if newest.kind == "PROTOBUF" and _DESCRIPTOR.fullmatch(newest.text):
            raise BadArgument(
                f"subject '{subject}' cannot have the mode {mode} by itself",
                cause="this registry reads the newest version whatever the mode of the subject, and cannot read "
                "Protobuf that is registered as confluent-kafka does it",
                next_command="penstock registry mode FILE NONE, for all subjects that have no mode of their own",
            )
        rule = {"ruleType": "COMPATIBILITY", "config": mode}
        if self._ask("PUT", subject, "rules/COMPATIBILITY", rule).status == 404:
            self._ask("POST", subject, "rules", rule)

    def _ask(self, method: str, subject: str, path: str, body: Any) -> Answer:
        return self._http.ask(method, f"{self._root}/{quote(subject, safe='')}/{path}", body)
