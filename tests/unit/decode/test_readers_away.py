"""Following subjects of a registry that does not answer: batches go on, and do not wait for it once per subject.

The server here is no registry: it counts what it is asked, and answers that it cannot, or with a schema.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.decode.readers import Readers
from penstock.registry.client.registry import RegistrySettings, SchemaRegistry

SUBJECTS = ["a", "b", "c"]


def schema(*fields: str) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": f, "type": "string"} for f in fields]})


@dataclass
class Server:
    url: str = ""
    away: bool = False
    id: int = 1
    fields: tuple[str, ...] = ("x",)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            subject = self.path.split("/")[2]
            found.asked.append(subject)
            body = {"subject": subject, "id": found.id, "version": found.id, "schema": schema(*found.fields)}
            content = b"" if found.away else json.dumps(body).encode()
            self.send_response(503 if found.away else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{http.server_port}"
    yield found
    http.shutdown()
    http.server_close()
    thread.join(5)


def test_silent_registry_is_asked_about_one_subject_a_batch_and_heard_at_once_when_it_answers(
    server: Server, tmp_path: Path
) -> None:
    registry = SchemaRegistry(RegistrySettings(server.url, timeout=2))
    readers = Readers(lambda: registry, tmp_path, add=True)
    for subject in SUBJECTS:
        readers.schema(subject, "latest", None)
    assert not readers.refresh()
    assert set(server.asked) == {"a", "b", "c"}

    server.away = True
    for _ in range(2):
        server.asked.clear()
        assert not readers.refresh()
        assert set(server.asked) == {"a"}

    server.away, server.id, server.fields = False, 2, ("x", "y")
    assert readers.refresh()  # the very next batch has the new column
    assert all("y" in readers.schema(subject, "latest", None).text for subject in SUBJECTS)
    registry.close()


def test_silent_registry_that_is_known_to_be_silent_is_not_waited_for_as_long_as_the_time_out(
    server: Server, tmp_path: Path
) -> None:
    """Five attempts take three seconds; little patience has room for fewer."""
    registry = SchemaRegistry(RegistrySettings(server.url, timeout=30))
    readers = Readers(lambda: registry, tmp_path, add=True)
    readers.schema("a", "latest", None)
    server.away = True
    server.asked.clear()
    readers.refresh()
    patient = len(server.asked)
    server.asked.clear()
    readers.refresh()
    assert 1 <= len(server.asked) < patient
    registry.close()
