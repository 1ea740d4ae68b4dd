"""A client of the server's HTTP API."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote

from tidemill.budget import ANSWER, Budget, OverBudget
from tidemill.errors import TidemillError, made, redact
from tidemill.extras import extra

with extra("server"):
    import httpx

TIMEOUT_S = 60.0
"""A changefeed is created when its sink has answered."""
_SHOWN = 300
_INFO = ("id", "checkpoint_ts", "resolved_ts", "checkpoint_time", "create_time")


class ServerUnavailable(TidemillError):
    """The server does not answer, or is not a server of Tidemill or TiCDC."""

    code = "TM:ErrServerUnavailable"
    retryable = True


class Client:
    """Requests to one server. Each raises ServerUnavailable, or the server's error with its code."""

    def __init__(
        self,
        address: str,
        context: ssl.SSLContext | None = None,
        authorization: tuple[str, str] | str | None = None,
        transport: httpx.BaseTransport | None = None,
        *,
        flag: str = "--server",
    ) -> None:
        """`authorization`: a token, or user and password. `transport`: for tests. `flag`: what names the server in the command."""
        self._flag = flag
        self.address = redact(address)
        headers = {"X-client-version": "tidemill", "Accept-Encoding": "identity"}
        auth = None
        if isinstance(authorization, str):
            headers["Authorization"] = f"Bearer {authorization}"
        elif authorization is not None:
            auth = httpx.BasicAuth(*authorization)
        self._http = httpx.Client(
            base_url=address,
            verify=context or address.startswith("https://"),
            headers=headers,
            auth=auth,
            timeout=TIMEOUT_S,
            transport=transport,
            trust_env=False,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """Send a request and return the answer's JSON."""
        return _read(self._answer(method, path, body, query), self.address)

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Get the items of a list."""
        answer = self._with(self.send("GET", path, **query), "items")
        if not isinstance(answer["items"], list):
            raise _foreign(self.address, json.dumps(answer))
        return list(answer["items"])

    def _with(self, found: Any, *names: str) -> dict[str, Any]:
        """Return an answer that has these fields. Raises ServerUnavailable for one of another program."""
        if not isinstance(found, dict) or not set(names) <= found.keys():
            raise _foreign(self.address, json.dumps(found))
        return found

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, Any]) -> httpx.Response:
        given = {name: value for name, value in query.items() if value is not None}
        headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body is not None else {})
        content = json.dumps(body).encode() if body is not None else None
        try:
            with self._http.stream(method, path, params=given, content=content, headers=headers) as response:
                found = Budget(ANSWER).body(response.headers.get("Content-Encoding"), response.iter_bytes())
        except httpx.TimeoutException:
            raise ServerUnavailable(f"the server at {self.address} does not answer within {TIMEOUT_S:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServerUnavailable(
                f"the server at {self.address} cannot be reached: {redact(str(error)) or type(error).__name__}",
                hint=f"Is `tidemill server` running there? Name its address with {self._flag}.",
            ) from None
        except OverBudget as error:
            raise _foreign(self.address, error.message) from None
        answer = httpx.Response(response.status_code, headers=response.headers, content=found, request=response.request)
        if answer.is_success:
            return answer
        raise _error(answer, self.address)

    # ---- changefeeds

    def changefeeds(self, state: str = "all", keyspace: str = "default") -> list[dict[str, Any]]:
        return self.items("/api/v2/changefeeds", keyspace=keyspace, state=state)

    def changefeed(self, name: str, keyspace: str = "default") -> dict[str, Any]:
        return self._with(self.send("GET", feed_path(name), keyspace=keyspace), *_INFO)

    def create(self, wanted: Mapping[str, Any], keyspace: str = "default") -> dict[str, Any]:
        return self._with(self.send("POST", "/api/v2/changefeeds", wanted, keyspace=keyspace), *_INFO)

    def update(self, name: str, change: Mapping[str, Any], keyspace: str = "default") -> dict[str, Any]:
        return self._with(self.send("PUT", feed_path(name), change, keyspace=keyspace), *_INFO)

    def pause(self, name: str, keyspace: str = "default") -> None:
        self.send("POST", feed_path(name, "/pause"), keyspace=keyspace)

    def resume(self, name: str, wanted: Mapping[str, Any], keyspace: str = "default") -> None:
        self.send("POST", feed_path(name, "/resume"), wanted, keyspace=keyspace)

    def remove(self, name: str, keyspace: str = "default") -> None:
        self.send("DELETE", feed_path(name), keyspace=keyspace)

    def verify_tables(self, wanted: Mapping[str, Any], keyspace: str = "default") -> dict[str, list[dict[str, Any]]]:
        """Return ineligible_tables, eligible_tables and all_tables."""
        found = self._with(self.send("POST", "/api/v2/verify_table", wanted, keyspace=keyspace))
        return {name: found.get(name) or [] for name in ("ineligible_tables", "eligible_tables", "all_tables")}

    def tso(self, upstream: Mapping[str, Any] | None = None) -> tuple[int, int]:
        """Return the cluster's time: milliseconds, and the logical part."""
        found = self._with(self.send("POST", "/api/v2/tso", upstream or {}), "timestamp", "logic_time")
        return int(found["timestamp"]), int(found["logic_time"])


def feed_path(name: str, below: str = "") -> str:
    """Return the path of a changefeed. Whatever the name is, it is one segment of the path."""
    segment = quote(name, safe="")
    return f"/api/v2/changefeeds/{segment.replace('.', '%2E') if set(name) <= {'.'} else segment}{below}"


def _read(answer: httpx.Response, address: str) -> Any:
    try:
        return Budget(ANSWER).json(answer.content)
    except (ValueError, RecursionError):
        raise _foreign(address, answer.text) from None


def _foreign(address: str, text: str) -> ServerUnavailable:
    return ServerUnavailable(
        f"{address} is not a server of Tidemill: it answers {redact(text[:_SHOWN])!r}", hint="Name the server's address with --server."
    )


def _error(answer: httpx.Response, address: str) -> TidemillError:
    """Return the server's error."""
    try:
        found = Budget(ANSWER).json(answer.content)
        code, message = str(found["error_code"]), str(found["error_msg"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ServerUnavailable(
            f"the server at {address} answers {answer.status_code}: {redact(answer.text[:_SHOWN]) or answer.reason_phrase}",
            hint="Name the address of a `tidemill server` with --server.",
        )
    return made(code or "CDC:ErrInternalServerError", redact(message.removeprefix(f"[{code}]")), retryable=answer.status_code >= 500)
