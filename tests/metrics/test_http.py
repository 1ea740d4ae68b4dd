"""The read-only pages and the metrics text."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from tidemill.errors import ConfigError
from tidemill.metrics import http
from tidemill.metrics.http import PageServer
from tidemill.metrics.pages import Page, asked_page, json_page
from tidemill.metrics.samples import Sample, counter, gauge, metrics_page


async def ask(address: str, text: str) -> str:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text.encode())
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer.decode()


def samples() -> Iterable[Sample]:
    yield gauge("t_lag", "Lag", 1.5)
    yield counter("t_rows", "Rows", 7, partition="0")
    yield counter("t_rows", "Rows", 9, partition='"x"')


def test_pages() -> None:
    async def main() -> None:
        server = PageServer({"/status": json_page(lambda: {"a": 1}), "/metrics": metrics_page(samples)})
        await server.start("127.0.0.1:0")
        status = await ask(server.address, "GET /status?x=1 HTTP/1.1\r\n\r\n")
        assert status.startswith("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        assert status.endswith('{\n  "a": 1\n}\n')
        head = await ask(server.address, "HEAD /status HTTP/1.1\r\n\r\n")
        assert head.endswith("Connection: close\r\n\r\n")
        metrics = await ask(server.address, "GET /metrics HTTP/1.0\r\n\r\n")
        assert "# TYPE t_rows_total counter" in metrics
        assert 't_rows_total{partition="0"} 7.0' in metrics
        assert 't_rows_total{partition="\\"x\\""} 9.0' in metrics
        assert "t_lag 1.5" in metrics
        assert (await ask(server.address, "POST /status HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 405")
        assert "pages: /metrics /status" in await ask(server.address, "GET / HTTP/1.1\r\n\r\n")
        assert await ask(server.address, "junk") == ""
        await server.stop()

    asyncio.run(main())


def test_a_name_that_was_made_to_lead_here_reads_nothing() -> None:
    async def main() -> None:
        server = PageServer({"/status": json_page(lambda: {"a": 1})})
        await server.start("127.0.0.1:0")
        for host, status in (
            *(("127.0.0.1:8301", 200), ("localhost", 200), (f"{socket.gethostname()}:1", 200), ("[::1]:8301", 200)),
            *(("evil.example", 403), ("127.0.0.1.evil.example:8301", 403), ("localhost\r\nHost: evil.example", 403)),
        ):
            answer = await ask(server.address, f"GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n")
            assert int(answer.split()[1]) == status, host
            assert ('"a"' in answer) is (status == 200)
        await server.stop()

    asyncio.run(main())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_clients_that_ask_for_nothing_do_not_use_up_files(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of them is closed for the newest, and requests are answered."""
    monkeypatch.setattr(http, "CONNECTIONS", 5)
    monkeypatch.setattr(http, "TIMEOUT", 600.0)

    async def main() -> None:
        server = PageServer({"/status": json_page(lambda: {"a": 1})})
        await server.start("127.0.0.1:0")
        host, port = server.address.split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(30)]
        assert (await ask(server.address, "GET /status HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 200 OK")
        async with asyncio.timeout(60):
            for reader, _ in silent[:25]:
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
        await server.stop()
        for _, writer in silent:
            writer.close()

    run(main())


def test_a_page_may_have_headers_and_depend_on_the_query() -> None:
    async def main() -> None:
        asked = asked_page(lambda query: {"asked": dict(query)})
        server = PageServer({"/": Page("text/html", lambda: b"x", {"Content-Security-Policy": "default-src 'none'"}), "/asked": asked})
        await server.start("127.0.0.1:0")
        assert "\r\nContent-Security-Policy: default-src 'none'\r\n" in await ask(server.address, "GET / HTTP/1.1\r\n\r\n")
        assert (await ask(server.address, "GET /asked?a=1&b=%C3%A4 HTTP/1.1\r\n\r\n")).endswith('{"asked": {"a": "1", "b": "\\u00e4"}}')
        many = "&".join(f"x{i}=1" for i in range(99))
        assert (await ask(server.address, f"GET /asked?{many} HTTP/1.1\r\n\r\n")).endswith('{"asked": {}}')
        await server.stop()

    asyncio.run(main())


LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


async def connected(address: str, request: bytes) -> socket.socket:
    """A client that sends this and reads nothing."""
    host, port = address.split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
    await asyncio.get_running_loop().sock_sendall(client, request)
    return client


@LOOPS
@pytest.mark.parametrize("size", [100, 60_000, 30_000_000])
def test_a_client_that_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch, loop: Any, size: int) -> None:
    """Whatever of its answer the system's buffers take: nothing of it is kept here forever."""

    async def main() -> None:
        server = PageServer({"/status": json_page(lambda: {"a": "x" * size})})
        await server.start("127.0.0.1:0")
        clients = [await connected(server.address, request) for request in (b"GET /status HTTP/1.1\r\n\r\n", b"GET /sta")]
        async with asyncio.timeout(60):
            while not server._open:
                await asyncio.sleep(0.01)
            while server._open:
                await asyncio.sleep(0.01)
            await server.stop()
        for client in clients:
            client.close()

    monkeypatch.setattr(http, "TIMEOUT", 0.5)
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@LOOPS
def test_the_end_waits_for_no_client(monkeypatch: pytest.MonkeyPatch, loop: Any) -> None:
    async def main() -> None:
        server = PageServer({"/status": json_page(lambda: {"a": "x" * 30_000_000})})
        await server.start("127.0.0.1:0")
        clients = [await connected(server.address, request) for request in (b"GET /status HTTP/1.1\r\n\r\n", b"GET /sta")]
        async with asyncio.timeout(600):
            while len(server._open) < 2:
                await asyncio.sleep(0.01)
            await server.stop()
        assert (await asyncio.get_running_loop().run_in_executor(None, _read, clients[1])) == b""

    monkeypatch.setattr(http, "TIMEOUT", 3600.0)  # the server's own limit for a request ends none of them
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def _read(client: socket.socket) -> bytes:
    client.settimeout(60)
    try:
        return client.recv(10)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("address", ["nowhere", "256.1.1.1:5", "127.0.0.1:99999"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="--status-addr"):
        asyncio.run(PageServer({}).start(address))


def test_a_taken_port_is_told() -> None:
    async def main() -> None:
        first = PageServer({})
        await first.start("127.0.0.1:0")
        with pytest.raises(ConfigError) as refused:
            await PageServer({}).start(first.address)
        assert refused.value.message == f"--status-addr {first.address}: the port is taken: another process listens there"
        assert "End that process" in refused.value.hint
        await first.stop()

    asyncio.run(main())
