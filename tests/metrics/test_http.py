"""The read-only pages and the metrics text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from tidemill.errors import ConfigError
from tidemill.metrics.http import PageServer
from tidemill.metrics.pages import json_page
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


@pytest.mark.parametrize("address", ["nowhere", "256.1.1.1:5", "127.0.0.1:99999"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="--status-addr"):
        asyncio.run(PageServer({}).start(address))
