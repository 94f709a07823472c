"""Asking a registry over HTTP: logging in, waiting no longer than allowed, trying again, and keeping secrets quiet."""

from __future__ import annotations

import base64
import json
import os
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.errors import BadArgument, RegistryUnreachable
from penstock.kafka.connection import is_loopback

if TYPE_CHECKING:
    import httpx

# Five attempts within three seconds bridge a restarted load balancer; a registry that is away for longer is the
# business of whoever called, who may have other things to do first.
_ATTEMPTS = 5
_FIRST_PAUSE = 0.2
_LARGEST_ANSWER = 32 * 1024 * 1024
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


@dataclass(frozen=True)
class RegistrySettings:
    """All that is needed to ask a registry; picklable, so that Spark's workers can. References are resolved in it,
    so it is made at the last moment (`settings_of`) and written nowhere.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    timeout: float = 10.0  # seconds for one question, all attempts together

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _checked_url(self.url))
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token):
            # The HTTP library would quote it in its complaint.
            raise BadArgument("the registry's token holds characters that no token has", cause="a line break, perhaps")
        if self.user is not None and ":" in self.user:
            raise BadArgument("the registry's user holds a colon, which basic authentication cannot send")

    def authorization(self) -> str | None:
        """The header's value. Called for every new HTTP client, and kept by nobody else."""
        if self.token is not None:
            return f"Bearer {self.token}"
        if self.user is not None:
            return "Basic " + base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
        return None

    def without_secrets(self, text: str) -> str:
        """A text that came from outside, with our secrets struck out: some servers repeat what they were sent."""
        for secret in (self.token, self.password, (self.authorization() or "").partition(" ")[2]):
            if secret:
                text = text.replace(secret, "***").replace(json.dumps(secret, ensure_ascii=False)[1:-1], "***")
        return text


@dataclass(frozen=True)
class Answer:
    """What the registry said: `data` is its JSON, or None when it was none; `message` is for people to read."""

    status: int
    data: Any
    message: str  # never holds our secrets
    retry_after: float = 0.0

    @property
    def code(self) -> int:
        """The registry's own error code: 40401 no subject, 40402 no version, 40403 no schema; 0 when it gives none."""
        code = self.data.get("error_code") if isinstance(self.data, dict) else None
        return code if isinstance(code, int) else 0


class RegistryHttp:
    """One connection pool, made when the first question is asked, and anew in a forked process."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._client: httpx.Client | None = None
        self._pid = 0

    def ask(self, method: str, url: str, body: Any = None) -> Answer:
        """The answer, whatever it is; RegistryUnreachable when there is none, or only 5xx and 429, in the time allowed.

        Every question of ours can be asked twice: registering the same schema again gives the same id.
        """
        import httpx

        deadline = time.monotonic() + self._settings.timeout
        why, answered = "", False
        for attempt in range(_ATTEMPTS):
            pause = _FIRST_PAUSE * 2**attempt * random.uniform(0.8, 1.2)
            try:
                answer = self._once(method, url, body, deadline)
            except httpx.TransportError as error:
                said = str(error) or type(error).__name__
                why = f"no answer within {self._settings.timeout:g} s" if _is_timeout(error) else said
                answered = False
            else:
                if answer.status < 500 and answer.status != 429:
                    return answer
                why, answered = f"it answered {answer.status}: {answer.message}", True
                pause = max(pause, answer.retry_after)
            if attempt + 1 == _ATTEMPTS or time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        raise self._unreachable(why, answered)

    def close(self) -> None:
        if self._client is not None and self._pid == os.getpid():
            self._client.close()
        self._client = None

    def _once(self, method: str, url: str, body: Any, deadline: float) -> Answer:
        """One attempt. The library's time-out is per read; the deadline also ends an answer that trickles in."""
        import httpx

        left = max(0.001, deadline - time.monotonic())
        content = None if body is None else json.dumps(body)
        with self._open().stream(method, url, content=content, timeout=left) as response:
            arrived = bytearray()
            for chunk in response.iter_bytes():
                arrived += chunk
                if len(arrived) > _LARGEST_ANSWER:
                    raise httpx.ReadError(f"the answer is larger than {_LARGEST_ANSWER >> 20} MB")
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("")
        text = arrived.decode("utf-8", "replace")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        return Answer(
            response.status_code, data, self._message(data, text), _seconds(response.headers.get("retry-after"))
        )

    def _message(self, data: Any, text: str) -> str:
        """Cut short only after the secrets are out: half of one is one too."""
        said = data.get("message") if isinstance(data, dict) else None
        if not isinstance(said, str):
            said = text if data is None else json.dumps(data, ensure_ascii=False)
        return self._settings.without_secrets(said).strip()[:500] or "nothing"

    def _open(self) -> httpx.Client:
        import httpx

        if self._client is None or self._pid != os.getpid():
            headers = {"Accept": _ACCEPT, "Content-Type": "application/json"}
            if login := self._settings.authorization():
                headers["Authorization"] = login
            # A proxy from the environment is for hosts elsewhere. Redirects are not followed: the login stays here.
            local = is_loopback(urlsplit(self._settings.url).hostname or "")
            self._client = httpx.Client(headers=headers, trust_env=not local, follow_redirects=False)
            self._pid = os.getpid()
        return self._client

    def _unreachable(self, why: str, answered: bool) -> RegistryUnreachable:
        url = self._settings.url
        local = is_loopback(urlsplit(url).hostname or "")
        return RegistryUnreachable(
            "the schema registry only answers that it cannot" if answered else "the schema registry cannot be reached",
            cause=f"{url}: {self._settings.without_secrets(why)}",
            next_command="penstock up --registry" if local and not answered else f"curl -i {url}/subjects",
            facts={"registry": url},
        )


def _checked_url(url: str) -> str:
    """The address without a slash at its end. A login inside it is refused, and not repeated in the refusal."""
    try:
        parts = urlsplit(url.strip())
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good, parts = False, urlsplit("")
    if good and (parts.username is not None or parts.password is not None):
        raise BadArgument(
            "the registry's url holds a login", cause="user and password are keys of their own beside `url`"
        )
    if not good or parts.query or parts.fragment:
        raise BadArgument(
            "the registry's url is not an address", cause="it is written http://host:port/path or https://host/path"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _is_timeout(error: httpx.TransportError) -> bool:
    import httpx

    return isinstance(error, httpx.TimeoutException)


def _seconds(retry_after: str | None) -> float:
    """`Retry-After` in seconds; its other form, a date, is not worth a wait of unknown length."""
    return float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
