"""Addresses from PD that are not TiKV: dead, hanging, or speaking another protocol. The capture reports them, and continues when the stores
are back."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.capture.captures import caught_up, compare, config, running, until
from tests.support.capture.eventfeeds import Row, message
from tidemill import tso
from tidemill.capture.capture import Capture
from tidemill.capture.tikv.feed import http2
from tidemill.capture.tikv.feed.base import Transport
from tidemill.capture.tikv.regions.state import Phase, SubRange
from tidemill.errors import ResolvedTsBroken
from tidemill.kernels.receive.layout import COMMIT, COMMITTED, PUT
from tidemill.playground.server import Playground
from tidemill.tidb.keys import record_key

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is renewed often."""
    monkeypatch.setattr("tidemill.capture.capture.STATUS_EVERY", 0.1)


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that accepts everything and answers nothing, like a suspended process."""
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


@pytest.mark.parametrize(
    ("liar", "transport"),
    [
        ("hangs", Transport.H2),
        ("dead", Transport.H2),
        pytest.param("noise", Transport.GRPC, marks=pytest.mark.slow),
        *(
            pytest.param(*other, marks=pytest.mark.thorough("each kind of store, and each transport, is in `make test`"))
            for other in itertools.product(("noise", "http", "hangs", "dead"), Transport)
            if other not in (("hangs", Transport.H2), ("dead", Transport.H2), ("noise", Transport.GRPC))
        ),
    ],
)
def test_a_store_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, liar: str, transport: Transport
) -> None:
    monkeypatch.setattr(http2, "KEEPALIVE", 0.2)
    monkeypatch.setattr(http2, "KEEPALIVE_TIMEOUT", 0.1)

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
                    await until(lambda: any(s.get("last_error") == why for s in capture.status.stuck))
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

    asyncio.run(asyncio.wait_for(main(), 600))


def live_sub_range(capture: Capture, table: str) -> SubRange:
    """The subscription of a table's rows."""
    sub_ranges = (capture.puller.machine.sub_range(id_) for id_ in capture.receiver._sub_of)
    return next(
        sub_range for sub_range in sub_ranges if sub_range is not None and sub_range.phase is Phase.LIVE and table in sub_range.span.label
    )


def slip_in(capture: Capture, sub_range: SubRange, row: Row) -> None:
    """A store sends this row."""
    assert sub_range.region is not None
    capture.receiver.inbox.put(sub_range.slot, message(sub_range.region.id, sub_range.request_id, [row]))


def test_a_row_below_the_log_ends_the_capture_and_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(31, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key); insert into t values (1)")
            (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
            key = record_key(table.model.id, 7)
            capture = Capture(config(playground, tmp_path / "log"))
            task = asyncio.ensure_future(capture.run())
            await until(lambda: capture.status.state == "running" and capture.resolved_ts > 0)
            await caught_up(capture, late := playground.cluster.oracle.next())
            sub_range = live_sub_range(capture, "test.t ")
            slip_in(capture, sub_range, Row(type=COMMITTED, op_type=PUT, start_ts=late - 1, commit_ts=late, key=key, value=b"v"))
            with pytest.raises(ResolvedTsBroken, match="commit_ts at or below the resolved ts") as caught:
                await task
            told = caught.value.message
            assert sub_range.region is not None
            assert f"region {sub_range.region.id} of test.t ({table.model.id}) at store" in told
            assert key.hex() in told
            assert str(late) in told
            assert not caught.value.retryable, "a supervisor must not start it again past the row, without a word"
            assert capture.status.violations == {"commit_ts at or below the resolved ts": 1}
            assert json.loads((capture.config.folder / "status.json").read_text())["error"]["code"] == "TM:ErrResolvedTsBroken"

    asyncio.run(main())


def test_a_commit_without_its_prewrite_costs_a_scan_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Playground(32, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key); insert into t values (1)")
            (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
            async with running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                key, ts = record_key(table.model.id, 7), playground.cluster.oracle.next() + (600_000 << tso.LOGICAL_BITS)
                slip_in(capture, live_sub_range(capture, "test.t "), Row(type=COMMIT, op_type=PUT, start_ts=ts, commit_ts=ts + 1, key=key))
                await until(lambda: capture.status.protocol_violations == 1)
                playground.execute("insert into t values (2)")
                await caught_up(capture, playground.cluster.oracle.next())
                assert capture.status.region_errors == {"protocol": 1}
                await until(lambda: capture.status.matched_rows >= 1)
            compare(playground.cluster, tmp_path / "log")
            (told,) = [r.message for r in caplog.records if "broke the protocol" in r.message]
            assert "test.t (" in told
            assert key.hex() in told
            assert "COMMIT without its PREWRITE" in told

    asyncio.run(main())


def test_a_region_that_breaks_the_protocol_again_and_again_is_told_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A row with a key, of a kind that no version knows, each time that the region is live."""

    async def main() -> None:
        async with Playground(33, resolved_interval=0.05) as playground:
            playground.execute("create table t (id int primary key); create table u (id int primary key)")
            (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
            row = Row(type=77, start_ts=1, commit_ts=1 << 62, key=record_key(table.model.id, 7))  # type: ignore[arg-type]
            async with running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                others = [s for stream in playground.cluster.feeds.streams for s in stream.subscriptions.values()]
                for n in range(1, 5):
                    await until(lambda: any("test.t " in s.span.label and s.phase is Phase.LIVE for s in subscribed(capture)))
                    slip_in(capture, live_sub_range(capture, "test.t "), row)
                    await until(lambda n=n: capture.status.protocol_violations == n)  # type: ignore[misc]
                await until(lambda: any(one.get("times", 0) >= 4 for one in capture.status.stuck))
                (told,) = [one for one in capture.status.stuck if "times" in one]
                assert (told["cause"], told["last_error"]) == ("ends again and again", "row of a type that this version does not know")
                assert told["table"].startswith("test.t ")
                assert "region" in told
                assert capture.status.region_errors == {"protocol": 4}
                assert sum(one.alive for one in others) == len(others) - 1, "the others went on undisturbed"
                playground.execute("insert into t values (1); insert into u values (1)")
                await caught_up(capture, playground.cluster.oracle.next())
            compare(playground.cluster, tmp_path / "log")
        warned = [r.message for r in caplog.records if "times in a row" in r.message]
        assert len(warned) == 1
        assert "test.t (" in warned[0]

    asyncio.run(main())


def subscribed(capture: Capture) -> list[SubRange]:
    """All sub-ranges that have a record."""
    found = (capture.puller.machine.sub_range(id_) for id_ in list(capture.receiver._sub_of))
    return [one for one in found if one is not None]
