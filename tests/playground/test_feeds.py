"""The playground's change feed as a client sees it."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from tests.support.capture.grpc_clients import Client, ended, next_error, record, serve, until_row
from tidemill.playground.store.mvcc import LockKind
from tidemill.tidb.codec import encode_bytes
from tidemill.wire import cdcpb_pb2 as cdcpb


def test_a_feed_from_scan_to_resolved() -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key, v int); insert into t values (1,1),(2,2)")
        key = record("t", 1, client)
        feed = client.feed()
        await feed.write(client.register(key, 7))
        rows = await until_row(feed, cdcpb.Event.INITIALIZED)
        assert [r.type for r in rows] == [cdcpb.Event.COMMITTED] * 2 + [cdcpb.Event.INITIALIZED]
        commit_ts = playground.execute("update t set v = 5 where id = 2").commit_ts
        (row,) = await until_row(feed, cdcpb.Event.COMMITTED)
        assert (row.commit_ts, bool(row.old_value)) == (commit_ts, True)
        while (message := await feed.read()).resolved_ts.ts <= commit_ts:
            pass
        assert message.resolved_ts.request_id == 7
        await feed.done_writing()
        assert (await ended(feed))[0] == grpc.StatusCode.OK

    serve(test)


@pytest.mark.parametrize(
    ("features", "details"), [("foo", "foo"), ("", ""), ("stream-multiplexing,foo", "foo"), ("stream-multiplexing", None)]
)
def test_features(features: str, details: str | None) -> None:
    async def test(client: Client) -> None:
        feed = client.feed(metadata=(("features", features),))
        await feed.done_writing()
        expected = (grpc.StatusCode.OK, "") if details is None else (grpc.StatusCode.UNIMPLEMENTED, details)
        assert await ended(feed) == expected

    serve(test)


def test_a_large_scan_comes_in_pieces() -> None:
    """As recorded in `large_txn`: events below 32 KiB of rows, cut at every 1024 rows, at most 64 events and 6 MiB a message."""

    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key, v varchar(200))")
        key = record("t", 1, client)
        value = b"\x80\x00\x01\x00\x00\x00\x02\xa0\x00" + b"x" * 160
        playground.cluster.transact([(record("t", n, client), value) for n in range(3000)])
        feed = client.feed()
        await feed.write(client.register(key))
        sizes: list[int] = []
        while True:
            message = await feed.read()
            assert len(message.events) <= 64
            sizes += [len(e.entries.entries) for e in message.events]
            if message.events[-1].entries.entries[-1].type == cdcpb.Event.INITIALIZED:
                break
        per_event = (32 * 1024 - 1) // (len(key) + len(value))
        assert sum(sizes) == 3001
        assert sizes[:7] == [per_event] * 5 + [1024 - 5 * per_event] + [per_event]

    serve(test)


def test_a_broken_store_ends_its_streams() -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key)")
        feed = client.feed()
        await feed.write(client.register(record("t", 1, client)))
        await until_row(feed, cdcpb.Event.INITIALIZED)
        assert playground.feeds[1].break_streams() == 1
        assert (await ended(feed))[0] == grpc.StatusCode.UNAVAILABLE
        assert not playground.cluster.feeds.streams
        again = client.feed()
        await again.write(client.register(record("t", 1, client)))
        await until_row(again, cdcpb.Event.INITIALIZED)

    serve(test)


def test_one_event_a_message() -> None:
    """As an idle store sends: every write in a message of its own."""

    async def test(client: Client) -> None:
        playground = client.playground
        playground.feeds[1].max_events = 1
        playground.execute("create table t (id int primary key)")
        feed = client.feed()
        await feed.write(client.register(record("t", 1, client)))
        await until_row(feed, cdcpb.Event.INITIALIZED)
        for n in range(5):
            playground.execute(f"insert into t values ({n})")
        counts = []
        while len(counts) < 5:
            message = await feed.read()
            if message.events:
                counts.append(len(message.events))
        assert counts == [1] * 5

    serve(test)


def test_a_stopped_store_is_gone_until_it_is_back() -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key, v int); insert into t values (1, 1)")
        key = record("t", 1, client)
        region = playground.cluster.regions.at(key)
        store = next(p.store_id for p in region.peers if p.store_id != 1)
        playground.cluster.transfer_leader(region.id, store)
        feed = client.feed(store)
        await feed.write(client.register(key))
        await until_row(feed, cdcpb.Event.INITIALIZED)
        await playground.stop_store(store)
        assert (await ended(feed))[0] in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        playground.execute("update t set v = 2")
        await playground.restart_store(store)
        again = client.feed(store)
        await again.write(client.register(key))
        assert len(await until_row(again, cdcpb.Event.INITIALIZED)) == 3

    serve(test, stores=3)


def test_a_client_that_goes_away_leaves_nothing() -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key)")
        playground.load("test.t", 200_000)
        feed = client.feed()
        await feed.write(client.register(record("t", 1, client)))
        await feed.read()
        feed.cancel()
        while playground.cluster.feeds.streams:
            await asyncio.sleep(0.01)
        playground.cluster.feeds.limits.pending_scans = 1
        again = client.feed()
        await again.write(client.register(record("t", 1, client), checkpoint_ts=playground.cluster.oracle.next()))
        await until_row(again, cdcpb.Event.INITIALIZED)

    serve(test)


def test_a_slow_reader_is_congested() -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key, v varchar(200))")
        playground.cluster.feeds.limits.sink_memory = 100_000
        feed = client.feed()
        await feed.write(client.register(record("t", 1, client)))
        await until_row(feed, cdcpb.Event.INITIALIZED)
        for n in range(200):  # without giving the writer its turn
            playground.execute(f"insert into t values ({n}, '{'x' * 190}'), ({-n - 1}, '{'y' * 190}')")
        error = await next_error(feed)
        assert error.congested.region_id == playground.cluster.regions.at(record("t", 1, client)).id

    serve(test)


def test_pending_scans_are_limited() -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key)")
        playground.cluster.feeds.limits.pending_scans = 0
        feed = client.feed()
        await feed.write(client.register(record("t", 1, client)))
        assert (await next_error(feed)).server_is_busy.reason == "too many pending incremental scans"

    serve(test)


def test_pessimistic_locks_are_invisible() -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key)")
        key = record("t", 1, client)
        held = playground.cluster.prewrite([(key, None)], kind=LockKind.PESSIMISTIC)
        feed = client.feed()
        await feed.write(client.register(key))
        assert [r.type for r in await until_row(feed, cdcpb.Event.INITIALIZED)] == [cdcpb.Event.INITIALIZED]
        while (await feed.read()).resolved_ts.ts <= held.start_ts:
            pass
        playground.cluster.rollback(held)
        playground.cluster.tick()
        assert not (await feed.read()).events

    serve(test)


def test_what_was_dropped_silently_stays_silent_when_another_one_subscribes() -> None:
    """Else its client would get a resolved ts above rows that it was never sent."""

    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key)")
        key = record("t", 1, client)
        region = playground.cluster.regions.at(key)
        feed = client.feed()
        await feed.write(client.register(key, 1))
        await until_row(feed, cdcpb.Event.INITIALIZED)
        playground.cluster.feeds.mute(region.id)
        commit_ts = playground.execute("insert into t values (1)").commit_ts
        await feed.write(client.register(key, 2))
        while True:
            message = await feed.read()
            told = {event.request_id for event in message.events}
            if message.HasField("resolved_ts"):
                told.add(message.resolved_ts.request_id)
                if message.resolved_ts.request_id == 2 and message.resolved_ts.ts > commit_ts:
                    break
            assert 1 not in told or message.resolved_ts.ts < commit_ts

    serve(test)


@pytest.mark.parametrize(
    "statements",
    [
        "begin; select * from t where id = 5 for update; commit",
        "begin pessimistic; update t set v = 5 where id = 5; commit",
        "begin; select * from t where id = 5 for update; insert into t values (100, 1); commit",
    ],
    ids=["select for update", "an update that changes nothing", "beside a row of another region"],
)
def test_a_lock_only_commit_is_an_empty_row_to_who_watches_the_whole_region(statements: str) -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key, v int); insert into t values (5, 5), (50, 50)")
        playground.execute("split table t by (3), (7)")
        whole, part = client.feed(), client.feed()
        await whole.write(client.register(record("t", 5, client), 7))
        narrow = client.register(record("t", 5, client), 8)
        narrow.start_key = encode_bytes(record("t", 4, client))
        await part.write(narrow)
        for feed in (whole, part):
            await until_row(feed, cdcpb.Event.INITIALIZED)
        commit_ts = playground.execute(statements).commit_ts
        assert commit_ts
        ts = playground.execute("update t set v = 6 where id = 5").commit_ts
        assert await until_row(whole, cdcpb.Event.COMMITTED) == [cdcpb.Event.Row(), *await until_row(part, cdcpb.Event.COMMITTED)]
        assert ts > commit_ts

    serve(test)


def test_a_select_for_update_without_a_transaction_locks_nothing() -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key, v int); insert into t values (5, 5)")
        assert playground.execute("select v from t where id = 5 for update").rows == ((5,),)
        assert playground.execute("begin; select v from t where id = 5; commit").commit_ts == 0
        assert playground.execute("begin; select v from t where id = 5 for update; rollback; begin; commit").commit_ts == 0

    serve(test)
