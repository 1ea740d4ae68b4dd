"""A few read-only pages over HTTP/1.1 on asyncio: just enough for /status and /metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from urllib.parse import parse_qsl

from tidemill.errors import cannot_listen
from tidemill.metrics.hosts import HINT, is_own, own_hosts
from tidemill.metrics.pages import Page

HEAD_LIMIT = 16384
TIMEOUT = 10.0
CONNECTIONS = 100
"""How many may be open. Then the one that has been open longest is closed: whoever only connects must not use up a process's files."""
PARAMETERS = 16
"""Of a query at most."""

_log = logging.getLogger(__name__)


class PageServer:
    """Serves GET and HEAD of fixed paths."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = dict(pages)
        self._hosts = own_hosts()
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}  # in the order in which they came
        self.address = ""

    async def start(self, address: str) -> None:
        """Listen on HOST:PORT (port 0: any free port). Raises ConfigError."""
        host, _, port = address.rpartition(":")
        try:
            self._server = await asyncio.start_server(self._serve, host.strip("[]") or None, int(port), limit=HEAD_LIMIT)
        except (OSError, ValueError, OverflowError) as e:
            raise cannot_listen("--status-addr", address, e) from None
        bound = self._server.sockets[0].getsockname()
        self.address = f"{bound[0]}:{bound[1]}"

    async def stop(self) -> None:
        """Close the port, and what is still connected."""
        if self._server is not None:
            self._server.close()
            for writer in self._open:
                writer.transport.abort()
            with suppress(TimeoutError):
                async with asyncio.timeout(TIMEOUT):
                    await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(*_parts(head.decode("latin-1"))))
                writer.close()  # when all is sent
                await writer.wait_closed()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
            _log.debug("a request ended early: %s", e)
        finally:
            writer.transport.abort()  # a client that does not read would keep the rest of its answer here forever
            self._open.pop(writer, None)

    def _answer(self, request_line: str, host: str) -> bytes:
        method, _, rest = request_line.partition(" ")
        path, _, query = rest.split(" ")[0].partition("?")
        page = self._pages.get(path)
        if not is_own(host, self._hosts):
            return _response("403 Forbidden", "text/plain", f"the Host header has no name of this machine. {HINT}\n".encode())
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"only GET\n")
        if page is None:
            return _response("404 Not Found", "text/plain", ("pages: " + " ".join(sorted(self._pages)) + "\n").encode())
        answer = _response("200 OK", page.content_type, page.content(_parameters(query)), page.headers)
        return answer if method == "GET" else answer[: answer.index(b"\r\n\r\n") + 4]


def _parts(head: str) -> tuple[str, str]:
    """Return the request line and the Host header (empty: there is none)."""
    first, _, rest = head.partition("\r\n")
    hosts = [line.partition(":")[2].strip() for line in rest.split("\r\n") if line[:5].lower() == "host:"]
    return first, hosts[0] if len(hosts) == 1 else ",".join(hosts)


def _parameters(query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, max_num_fields=PARAMETERS))
    except ValueError:
        return {}


def _response(status: str, content_type: str, body: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n"
    return head.encode("latin-1") + body
