"""A client of Confluent's schema registry interface, over httpx. IO.

Every request is bounded: in time for the whole answer, in size, and in the number of attempts, with growing pauses. After that the caller
may try again (RegistryUnavailable is retryable). User and password go only into a header, so no address with them reaches httpx or its log.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote

from tidemill import credentials
from tidemill.budget import Budget, Limits, OverBudget
from tidemill.config.registry_address import RegistryAddress
from tidemill.errors import ConfigError, RegistryError, RegistryUnavailable
from tidemill.extras import extra
from tidemill.registry import answers
from tidemill.registry.answers import Answer, NotThere

with extra("kafka"):
    import httpx

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
PAUSES_S = (0.2, 1.0)
"""The pauses before the second and third try of a request."""


class RegistryClient:
    """A client of one registry. Not safe for threads. `stop` ends pauses between attempts. `took` is told how many seconds each attempt
    took, failed ones included."""

    def __init__(
        self,
        address: RegistryAddress,
        stop: threading.Event | None = None,
        pauses: tuple[float, ...] = PAUSES_S,
        took: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Raises ConfigError for files that cannot be used."""
        self._took = took
        self.address = address
        self._pauses = pauses
        self.calls = 0  # requests sent, repeated ones included
        self._stop = stop or threading.Event()
        self._http = httpx.Client(
            base_url=address.url,
            auth=_login(address) if address.user or address.password else None,
            headers={"Accept": f"{MEDIA_TYPE}, application/json", "Accept-Encoding": "identity"},
            verify=_tls(address),
            timeout=address.timeout_ms / 1000,
            trust_env=not address.is_local,
            # Calls are rare: the registry might close a kept connection just when it is used again.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> RegistryClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def register(self, subject: str, text: str) -> int:
        """Register a schema under a subject, if it is not yet a version of it, and return its id.

        Raises SchemaIncompatible, RegistryError, RegistryUnavailable.
        """
        path = f"/subjects/{_segment(subject)}/versions"
        return answers.schema_id(self._ask("POST", path, f"to register the schema of subject {subject}", {"schema": text}))

    def check(self, subject: str, text: str) -> tuple[bool, str] | None:
        """Return whether a schema may be registered, and the reasons; None for a new subject. Tries once. Raises as `register`."""
        path = f"/compatibility/subjects/{_segment(subject)}/versions/latest?verbose=true"
        try:
            return answers.verdict(self._ask("POST", path, f"to check the schema of subject {subject}", {"schema": text}, once=True))
        except NotThere:
            return None

    def schema(self, schema_id: int) -> str:
        """Return the text of a schema. Raises NotThere, RegistryError, RegistryUnavailable."""
        return answers.text_member(self._ask("GET", f"/schemas/ids/{schema_id}", f"for schema {schema_id}"), "schema")

    def latest(self, subject: str) -> str:
        """Return the text of a subject's latest version. Raises as `schema`."""
        path = f"/subjects/{_segment(subject)}/versions/latest"
        return answers.text_member(self._ask("GET", path, f"for the latest schema of {subject}"), "schema")

    def compatibility(self, subject: str | None = None) -> str:
        """Return the compatibility level of a subject, or the default level: NONE, BACKWARD, FULL, …. Tries once. Raises as `subjects`."""
        path = f"/config/{_segment(subject)}?defaultToGlobal=true" if subject is not None else "/config"
        answer = self._ask("GET", path, f"for the compatibility of {subject or 'all subjects'}", once=True)
        return answers.text_member(answer, "compatibilityLevel", "compatibility")

    def subjects(self) -> frozenset[str]:
        """Return all subjects. Tries once. Raises RegistryError, RegistryUnavailable."""
        return answers.texts(self._ask("GET", "/subjects", "for its subjects", once=True))

    def _ask(self, method: str, path: str, what: str, body: Mapping[str, Any] | None = None, *, once: bool = False) -> Answer:
        """Send a request and return the answer. Connection failures and 5xx answers are tried again."""
        asked = f"{self.address} was asked {what}"
        for pause in () if once else self._pauses:
            try:
                answer = self._try(method, path, asked, body)
            except RegistryUnavailable:
                if self._stop.wait(pause):
                    raise
            else:
                if not answer.may_pass or self._stop.wait(pause):
                    return answer
        return self._try(method, path, asked, body)

    def _try(self, method: str, path: str, asked: str, body: Mapping[str, Any] | None) -> Answer:
        self.calls += 1
        begun = time.monotonic()
        deadline = begun + self.address.timeout_ms / 1000
        headers = {"Content-Type": MEDIA_TYPE} if body is not None else {}
        try:
            with self._http.stream(method, path, json=body, headers=headers) as response:
                return Answer(asked, response.status_code, self._read(response, deadline, asked))
        except httpx.TimeoutException:
            raise self._slow(asked) from None
        except httpx.HTTPError as error:
            raise _failed(asked, error) from None
        finally:
            self._took(time.monotonic() - begun)

    def _read(self, response: httpx.Response, deadline: float, asked: str) -> bytes:
        """Return the whole answer within its limits of time and size. A slow trickle of bytes does not extend the time."""
        budget = Budget(Limits(bytes_in=answers.LONGEST_ANSWER))
        try:
            return budget.body(response.headers.get("Content-Encoding"), self._in_time(response.iter_raw(), deadline, asked))
        except OverBudget as error:
            what = error.message if budget.left("bytes_in") else f"it is longer than {answers.LONGEST_ANSWER} bytes"
            raise Answer(asked, response.status_code, b"").nonsense(what) from None

    def _in_time(self, pieces: Iterable[bytes], deadline: float, asked: str) -> Iterator[bytes]:
        for piece in pieces:
            if time.monotonic() > deadline:
                raise self._slow(asked)
            yield piece

    def _slow(self, asked: str) -> RegistryUnavailable:
        return RegistryUnavailable(f"{asked}: it did not answer within {self.address.timeout_ms / 1000:g} s")


def _segment(name: str) -> str:
    """Return a name encoded as one part of a path."""
    return quote(name, safe="")


def _login(address: RegistryAddress) -> httpx.BasicAuth:
    return httpx.BasicAuth(address.user, credentials.read(address.password))


def _tls(address: RegistryAddress) -> ssl.SSLContext | bool:
    if not address.url.startswith("https://"):
        return True
    try:
        context = ssl.create_default_context(cafile=address.ca or None)
        if address.cert:
            context.load_cert_chain(address.cert, address.key, credentials.key_password(address.key_password))
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(file for file in (address.ca, address.cert, address.key) if file)
        raise ConfigError(f"schema registry: {files} cannot be used: {error.strerror or error}") from None
    if address.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _failed(asked: str, error: httpx.HTTPError) -> RegistryError | RegistryUnavailable:
    """Return the error about a failed connection. A bad certificate is not tried again."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return RegistryError(
                f"{asked}: its certificate is not accepted: {cause.verify_message}",
                hint="Name the file of the authority that signed it: add ?ca=FILE to the registry's address.",
            )
        cause = cause.__cause__ or cause.__context__
    return RegistryUnavailable(f"{asked}: {error or type(error).__name__}")
