"""How a registry is asked: logins, retries, time-outs, and secrets that stay where they are.

The server here is no registry: it records what it is sent and answers what a test tells it to.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.errors import BadArgument, PenstockError, RegistryRefused, RegistryUnreachable
from penstock.registry.client.registry import RegisteredSchema, RegistrySettings, SchemaRegistry

SECRET = 's3cr3t-päss-"word"'
TOKEN = "tok-123456789"


@dataclass
class Recorder:
    """What was asked; and what is answered, in order, the last one for ever: status, body, headers."""

    url: str = ""
    answers: list[tuple[int, str, dict[str, str]]] = field(default_factory=lambda: [(200, "[]", {})])
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    trickle: float = 0

    def then(self, status: int, body: object = "", **headers: str) -> Recorder:
        text = body if isinstance(body, str) else json.dumps(body)
        self.answers.append((status, text, headers))
        return self


@pytest.fixture
def server() -> Iterator[Recorder]:
    recorder = Recorder(answers=[])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            recorder.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            left = recorder.answers
            status, text, headers = left.pop(0) if len(left) > 1 else left[0]
            content = text.encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            for byte in content:
                time.sleep(recorder.trickle)
                try:
                    self.wfile.write(bytes([byte]))
                except OSError:
                    return

        do_GET = do_POST = do_PUT = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    recorder.url = f"http://127.0.0.1:{http.server_port}/base"
    yield recorder
    http.shutdown()
    http.server_close()
    thread.join(5)


def test_basic_and_bearer_logins_are_sent_and_none_without(server: Recorder) -> None:
    server.then(200, "[]")
    for settings in (
        RegistrySettings(server.url, user="penstock", password=SECRET),
        RegistrySettings(server.url, token=TOKEN),
        RegistrySettings(server.url + "/"),
    ):
        SchemaRegistry(settings).subjects()
    sent = [headers.get("authorization") for _, _, headers in server.asked]
    basic = base64.b64encode(f"penstock:{SECRET}".encode()).decode()
    assert sent == [f"Basic {basic}", f"Bearer {TOKEN}", None]
    assert {path for _, path, _ in server.asked} == {"/base/subjects"}


def everything_said(error: PenstockError) -> str:
    return f"{error!r} {error} {error.as_dict()} {error.__cause__!r} {error.__context__!r}"


@pytest.mark.parametrize("status", [401, 403, 400, 500, 200])
@pytest.mark.parametrize("key", ["message", "detail"])
def test_secret_that_the_server_repeats_is_in_no_error_and_in_no_repr(server: Recorder, status: int, key: str) -> None:
    for settings in (
        RegistrySettings(server.url, user="penstock", password=SECRET, timeout=10),
        RegistrySettings(server.url, token=TOKEN, timeout=10),
    ):
        login = (settings.authorization() or "").partition(" ")[2]
        server.answers[:] = []
        server.then(status, {"error_code": status, key: f"you sent {SECRET} {TOKEN} {login}"})
        client = SchemaRegistry(settings)
        with pytest.raises((RegistryRefused, RegistryUnreachable)) as raised:
            client.subjects()
        said = everything_said(raised.value)
        assert "you sent" in said
        own = [SECRET, login] if settings.password else [TOKEN, login]
        assert [secret for secret in own if secret in said] == []
        assert [secret for secret in own if secret in f"{settings} {settings!r} {client!r} {vars(client)}"] == []


def test_schema_that_holds_the_password_by_chance_is_left_as_it_is(server: Recorder) -> None:
    server.then(200, {"schema": '"string"', "schemaType": "AVRO"})
    client = SchemaRegistry(RegistrySettings(server.url, user="u", password="string"))
    assert client.by_id(7) == RegisteredSchema(7, "AVRO", '"string"')


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_answer_that_may_change_is_asked_for_again(server: Recorder, status: int) -> None:
    server.then(status).then(status, "<html>").then(200, ["a"])
    assert SchemaRegistry(RegistrySettings(server.url)).subjects() == ["a"]
    assert len(server.asked) == 3


def test_retries_end_and_the_last_answer_is_the_cause(server: Recorder) -> None:
    server.then(503, {"error_code": 50003, "message": "forwarding failed"})
    with pytest.raises(RegistryUnreachable) as raised:
        SchemaRegistry(RegistrySettings(server.url)).subjects()
    assert len(server.asked) == 5
    assert raised.value.what == "the schema registry only answers that it cannot"
    assert "it answered 503: forwarding failed" in (raised.value.cause or "")
    assert raised.value.next_command == f"curl -i {server.url}/subjects"


def test_server_that_asks_to_wait_longer_than_allowed_is_not_waited_for(server: Recorder) -> None:
    server.then(429, "", Retry_After="60")
    started = time.monotonic()
    with pytest.raises(RegistryUnreachable):
        SchemaRegistry(RegistrySettings(server.url, timeout=2)).subjects()
    assert time.monotonic() - started < 2
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 302])
def test_answer_that_will_not_change_is_not_asked_for_again(server: Recorder, status: int) -> None:
    server.then(status, {"error_code": status, "message": "no"}, Location=f"{server.url}/elsewhere")
    with pytest.raises(RegistryRefused):
        SchemaRegistry(RegistrySettings(server.url, token=TOKEN)).by_id(1)
    assert len(server.asked) == 1, "asked twice, or the redirect was followed with our token"


def test_only_the_registrys_own_no_such_schema_makes_an_id_unknown(server: Recorder) -> None:
    server.then(404, {"error_code": 40403, "message": "Schema not found"}).then(404, "<html>not here</html>")
    client = SchemaRegistry(RegistrySettings(server.url))
    assert client.by_id(1) is None
    with pytest.raises(RegistryRefused):
        client.by_id(1)


@pytest.mark.parametrize(
    "body", ["<html>log in</html>", "[]", '"x"', '{"schema": 1}', '{"schema": "a", "schemaType": "XML"}', "{}"]
)
def test_page_that_is_no_registry_answer_is_refused(server: Recorder, body: str) -> None:
    server.then(200, body)
    with pytest.raises(RegistryRefused):
        SchemaRegistry(RegistrySettings(server.url)).by_id(1)


def test_references_in_a_circle_end_in_an_error(server: Recorder) -> None:
    refers = {"references": [{"name": "a", "subject": "a", "version": 1}]}
    server.then(200, {"id": 1, "version": 1, "schema": "x", "schemaType": "PROTOBUF", **refers})
    with pytest.raises(RegistryRefused) as raised:
        SchemaRegistry(RegistrySettings(server.url)).by_id(1)
    assert "circle" in (raised.value.cause or "")


def within(seconds: float, ask: Callable[[], object]) -> RegistryUnreachable:
    started = time.monotonic()
    with pytest.raises(RegistryUnreachable) as raised:
        ask()
    assert time.monotonic() - started < seconds
    return raised.value


def test_nobody_listening_is_unreachable_in_bounded_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = within(6, SchemaRegistry(RegistrySettings(f"http://127.0.0.1:{port}")).subjects)
    assert error.next_command == "penstock up --registry"
    assert f"127.0.0.1:{port}" in (error.cause or "")


def test_answer_that_trickles_in_is_cut_off_at_the_time_out(server: Recorder) -> None:
    """Each byte comes within any read time-out; all of them would take a minute."""
    server.then(200, "[" + " " * 600 + "]")
    server.trickle = 0.1
    error = within(3, SchemaRegistry(RegistrySettings(server.url, timeout=1)).subjects)
    assert "no answer within 1 s" in (error.cause or "")


def test_proxy_of_the_environment_is_not_asked_about_this_machine(
    server: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.then(200, ["a"])
    assert SchemaRegistry(RegistrySettings(server.url)).subjects() == ["a"]


def test_client_that_has_connections_can_be_pickled_and_forked(server: Recorder) -> None:
    server.then(200, {"schema": "a", "schemaType": "JSON"})
    client = SchemaRegistry(RegistrySettings(server.url, token=TOKEN))
    assert client.by_id(1) is not None
    ask = pickle.loads(pickle.dumps(client.by_id))
    assert ask(2) == RegisteredSchema(2, "JSON", "a")
    child = os.fork()
    if child == 0:
        os._exit(0 if client.by_id(3) == RegisteredSchema(3, "JSON", "a") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert client.by_id(4) == RegisteredSchema(4, "JSON", "a")
    assert {headers["authorization"] for _, _, headers in server.asked} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    "url", ["", "localhost:8081", "ftp://host", "http://", "http://host:0", "http://host:x", "http://[", "http://h?a=1"]
)
def test_url_that_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BadArgument):
        RegistrySettings(url)


def test_login_inside_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadArgument) as raised:
        RegistrySettings(f"https://penstock:{SECRET}@host/path")
    assert SECRET not in everything_said(raised.value)


@pytest.mark.parametrize("token", ["", f"{TOKEN}\n", f"{TOKEN}\r\nX-Evil: 1", f"{TOKEN}é"])
def test_token_that_no_header_can_hold_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(BadArgument) as raised:
        RegistrySettings("http://host", token=token)
    assert TOKEN not in everything_said(raised.value)
