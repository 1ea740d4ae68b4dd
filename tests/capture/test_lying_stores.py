"""Stores that PD names and that are none: dead, hanging, speaking something else. Capture names them and goes on when they are back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.captures import caught_up, compare, config, running, until
from tidemill.capture.tikv import h2feed
from tidemill.capture.tikv.feed import Transport
from tidemill.playground.server import Playground

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes everything and says nothing, as a process that was stopped."""
    while await reader.read(1 << 16):
        pass
    writer.close()


def says(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(24)
        writer.write(answer)
        await hang(reader, writer)

    return serve


LIARS: dict[str, tuple[Serve, str]] = {
    "hangs": (hang, "the stream to store 2 broke"),
    "http": (says(b"HTTP/1.1 404 Not Found\r\n\r\n"), "the stream to store 2 broke"),
    "noise": (says(os.urandom(100_000)), "the stream to store 2 broke"),
}


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("liar", [*LIARS, "dead"])
def test_a_store_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, liar: str, transport: Transport
) -> None:
    monkeypatch.setattr(h2feed, "KEEPALIVE", 0.2)
    monkeypatch.setattr(h2feed, "KEEPALIVE_TIMEOUT", 0.1)

    async def main() -> None:
        async with Playground(41, stores=2, resolved_interval=0.1) as playground:
            cluster = playground.cluster
            playground.execute("create table t (id int primary key); insert into t values (1)")
            right = cluster.stores[2]
            server = None
            if liar == "dead":
                address, why = (
                    "127.0.0.1:1",
                    ("the stream to store 2 broke" if transport is Transport.GRPC else "store 2 cannot be reached"),
                )
            else:
                serve, why = LIARS[liar]
                server = await asyncio.start_server(serve, "127.0.0.1", 0)
                address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with running(config(playground, tmp_path / "log", transport=transport, stuck_after=1.0)) as capture:
                await caught_up(capture, cluster.oracle.next())
                cluster.stores[2] = replace(right, address=address)
                for region in list(cluster.regions):
                    cluster.transfer_leader(region.id, 2)
                playground.execute("insert into t values (2)")
                if transport is Transport.H2 or liar != "hangs":  # grpc's own patience with a silent server is its own
                    await until(lambda: any(s.get("why") == why for s in capture.status.stuck))
                    assert capture.status.holding["seconds"] >= 1.0
                if (liar, transport) == ("dead", Transport.H2):
                    assert caplog.text.count("store 2 (127.0.0.1:1) cannot be reached: ") == 1, "it is tried much more often"
                assert capture.status.state == "running"
                cluster.stores[2] = right
                if server is not None:
                    server.close()
                    capture.pulling.puller.renew_stream(0)
                await caught_up(capture, cluster.oracle.next())
            compare(cluster, tmp_path / "log")

    asyncio.run(asyncio.wait_for(main(), 120))
