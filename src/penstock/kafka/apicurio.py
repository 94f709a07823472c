"""What Apicurio's Confluent-compatible API leaves out, asked of its own API: why a schema is refused, and NONE.

Called by `SchemaRegistry` only after the compatible API has shown that it falls short; other registries never see it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from penstock.kafka.registry_http import Answer, RegistryHttp
from penstock.kafka.schema import Mode

_COMPATIBLE = "/apis/ccompat/v"


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

    def set_mode(self, subject: str, mode: Mode) -> None:
        """The compatible API takes NONE of a subject for "no mode of its own", which is the global one."""
        rule = {"ruleType": "COMPATIBILITY", "config": mode}
        if self._ask("PUT", subject, "rules/COMPATIBILITY", rule).status == 404:
            self._ask("POST", subject, "rules", rule)

    def _ask(self, method: str, subject: str, path: str, body: Any) -> Answer:
        return self._http.ask(method, f"{self._root}/{quote(subject, safe='')}/{path}", body)
