"""The playground over gRPC, with plain grpcio clients: PD, reads, locks, the change feed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.eventfeeds import recording
from tidemill.playground.server import Playground
from tidemill.playground.store.mvcc import LockKind
from tidemill.tidb import keys
from tidemill.tidb.codec import encode_bytes
from tidemill.wire import cdcpb_pb2 as cdcpb
from tidemill.wire import cdcpb_pb2_grpc, pdpb_pb2_grpc, tikvpb_pb2_grpc
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb
from tidemill.wire import pdpb_pb2 as pdpb

MULTIPLEXING = (("features", "stream-multiplexing"),)


class Client:
    """Stubs of a playground's services."""

    def __init__(self, playground: Playground) -> None:
        self.playground = playground
        self.channels = {s.id: grpc.aio.insecure_channel(s.address) for s in playground.cluster.stores.values()}
        self.pd = pdpb_pb2_grpc.PDStub(self.channels[1])
        self.kv = tikvpb_pb2_grpc.TikvStub(self.channels[1])

    @property
    def header(self) -> pdpb.RequestHeader:
        return pdpb.RequestHeader(cluster_id=self.playground.cluster.cluster_id)

    def feed(self, store: int = 1, metadata: Any = MULTIPLEXING, version: str = "EventFeedV2") -> Any:
        return getattr(cdcpb_pb2_grpc.ChangeDataStub(self.channels[store]), version)(metadata=metadata)

    def context(self, key: bytes) -> kvrpcpb.Context:
        region = self.playground.cluster.regions.at(key)
        context = kvrpcpb.Context(region_id=region.id)
        context.region_epoch.version, context.region_epoch.conf_ver = region.version, region.conf_ver
        context.peer.id, context.peer.store_id = region.leader.id, region.leader.store_id
        return context

    def register(self, key: bytes, request_id: int = 1, checkpoint_ts: int = 1) -> cdcpb.ChangeDataRequest:
        region = self.playground.cluster.regions.at(key)
        start, end = keys.record_range(keys.physical_table_id(key))
        request = cdcpb.ChangeDataRequest(region_id=region.id, request_id=request_id, checkpoint_ts=checkpoint_ts)
        request.region_epoch.version = region.version
        request.start_key, request.end_key = encode_bytes(start), encode_bytes(end)
        request.header.cluster_id, request.header.ticdc_version = self.playground.cluster.cluster_id, "8.5.0"
        return request

    async def close(self) -> None:
        for channel in self.channels.values():
            await channel.close()


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[Client]:
    async with Playground(resolved_interval=0.02, **options) as playground:
        client = Client(playground)
        try:
            yield client
        finally:
            await client.close()


def serve(test: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with served(**options) as client:
            await test(client)

    asyncio.run(asyncio.wait_for(run(), 600))


def record(table: str, handle: int, client: Client) -> bytes:
    found = [t for t in client.playground.database.catalog.tables.values() if t.name == table]
    return keys.record_key(found[0].id, handle)


async def until_row(feed: Any, kind: int) -> list[cdcpb.Event.Row]:
    """Rows up to and with the first of a kind."""
    rows: list[cdcpb.Event.Row] = []
    while True:
        message = await feed.read()
        for event in message.events:
            assert not event.HasField("error"), event
            rows += event.entries.entries
        if any(r.type == kind for r in rows):
            return rows


async def next_error(feed: Any) -> cdcpb.Error:
    while True:
        for event in (await feed.read()).events:
            if event.HasField("error"):
                return event.error


async def ended(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a stream ends, whatever comes before."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details()
    return await call.code(), await call.details()


# PD


def shape(message: Any) -> set[str]:
    return {field.name for field, _ in message.ListFields()}


def test_pd_answers_the_recorded_calls() -> None:
    """Every call of the recording `pd_calls` that Tidemill knows gets an answer with the same fields, or the same refusal."""

    async def test(client: Client) -> None:
        lines = [line for line in recording("pd_calls") if line["kind"] in ("req", "resp", "status") and "stream" not in line]
        known = [name for name in dir(client.pd) if not name.startswith("_")]
        compared = 0
        for line, after in pairwise(lines):
            name = line["rpc"].rpartition("/")[2]
            if line["kind"] != "req" or name not in known or name == "Tso":
                continue
            request = getattr(pdpb, line["type"].partition(".")[2]).FromString(line["bytes"])
            if request.header.cluster_id == 7710568214723362125:
                request.header.cluster_id = client.playground.cluster.cluster_id
            if name in ("GetGCSafePointV2", "GetAllGCSafePointV2"):
                continue
            if after["kind"] == "status":
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await getattr(client.pd, name)(request)
                told = refused.value.code().name, _unnumbered(refused.value.details() or "")
                assert told == (after["code"], _unnumbered(after["details"]))
            else:
                answer = await getattr(client.pd, name)(request)
                recorded = getattr(pdpb, after["type"].partition(".")[2]).FromString(after["bytes"])
                if name in ("GetRegionByID", "GetPrevRegion", "GetGCSafePoint"):
                    assert shape(answer) <= {"header", "region", "leader", "safe_point"}
                else:
                    assert shape(recorded) <= shape(answer) | {"min_safe_point"}
                assert answer.header.error.message == recorded.header.error.message
            compared += 1
        assert compared > 25

    serve(test)


def _unnumbered(text: str) -> str:
    return " ".join("N" if word.isdecimal() else word for word in text.split())


def test_timestamps_come_in_order_and_in_blocks() -> None:
    async def test(client: Client) -> None:
        call = client.pd.Tso()
        last = 0
        for count in (1, 10, 1, 5):
            await call.write(pdpb.TsoRequest(header=client.header, count=count))
            answer = await call.read()
            ts = answer.timestamp.physical << 18 | answer.timestamp.logical
            assert ts - count + 1 > last
            last = ts
        await call.done_writing()
        refused = client.pd.Tso()
        await refused.write(pdpb.TsoRequest(header=pdpb.RequestHeader(cluster_id=7), count=1))
        assert (await ended(refused))[0] == grpc.StatusCode.FAILED_PRECONDITION

    serve(test)


def test_regions_are_listed_without_holes() -> None:
    async def test(client: Client) -> None:
        client.playground.execute("create table a (id int primary key); create table b (id int primary key); split table b by (1), (2)")
        answer = await client.pd.ScanRegions(pdpb.ScanRegionsRequest(header=client.header))
        regions = [r.region for r in answer.regions]
        assert list(answer.region_metas) == regions
        assert regions[0].start_key == regions[-1].end_key == b""
        assert all(a.end_key == b.start_key for a, b in pairwise(regions))
        start, end = (encode_bytes(k) for k in keys.record_range(keys.physical_table_id(record("b", 1, client))))
        batch = await client.pd.BatchScanRegions(
            pdpb.BatchScanRegionsRequest(header=client.header, ranges=[pdpb.KeyRange(start_key=start, end_key=end)], limit=2)
        )
        assert len(batch.regions) == 2
        found = await client.pd.GetRegion(pdpb.GetRegionRequest(header=client.header, region_key=start))
        assert found.region.id == batch.regions[0].region.id

    serve(test)


# reads and locks


def test_meta_reads_give_descriptions() -> None:
    """As in the recording `meta_read`: the schema version, databases, tables, at a ts."""

    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create database d; use d; create table t (id int primary key)")
        before = playground.cluster.oracle.next()
        playground.execute("alter table t add column v int")
        context = client.context(b"m")
        got = await client.kv.KvGet(kvrpcpb.GetRequest(context=context, key=keys.meta_string(b"SchemaVersionKey"), version=before))
        later = await client.kv.KvGet(
            kvrpcpb.GetRequest(context=context, key=keys.meta_string(b"SchemaVersionKey"), version=playground.cluster.oracle.next())
        )
        assert int(later.value) == int(got.value) + 4
        start, end = keys.meta_hash_range(b"DBs")
        scanned = await client.kv.KvScan(kvrpcpb.ScanRequest(context=context, start_key=start, end_key=end, version=before, limit=256))
        assert len(scanned.pairs) == 4
        batch = await client.kv.KvBatchGet(kvrpcpb.BatchGetRequest(context=context, keys=[scanned.pairs[0].key, b"mnone"], version=before))
        assert [(p.key, p.value) for p in batch.pairs] == [(scanned.pairs[0].key, scanned.pairs[0].value)]
        missing = await client.kv.KvGet(kvrpcpb.GetRequest(context=context, key=b"mnone", version=before))
        assert missing.not_found

    serve(test)


def test_region_errors_of_reads() -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key); insert into t values (1),(2)")
        key = record("t", 1, client)
        context = client.context(key)
        version = playground.cluster.oracle.next()

        async def error(context: kvrpcpb.Context, key: bytes = key) -> set[str]:
            answer = await client.kv.KvGet(kvrpcpb.GetRequest(context=context, key=key, version=version))
            return shape(answer.region_error) - {"message"}

        assert await error(context) == set()
        assert await error(context, b"m") == {"key_not_in_region"}
        playground.cluster.split([record("t", 2, client)])
        assert await error(context) == {"epoch_not_match"}
        context.region_id = 999
        assert await error(context) == {"region_not_found"}
        fresh = client.context(key)
        fresh.peer.store_id = 2
        assert await error(fresh) == {"store_not_match"}
        other = next(s for s in (2, 3) if playground.cluster.regions.at(key).peer_at(s))
        fresh = client.context(key)
        playground.cluster.transfer_leader(fresh.region_id, other)
        assert await error(fresh) == {"not_leader"}
        _, end = keys.record_range(keys.physical_table_id(key))
        playground.cluster.transfer_leader(fresh.region_id, 1)
        wide = await client.kv.KvScan(kvrpcpb.ScanRequest(context=client.context(key), start_key=b"a", end_key=end, version=version))
        assert "InvalidReqRange" in wide.pairs[0].error.abort
        assert wide.pairs[0].key == b""

    serve(test, stores=3)


def test_locks_are_found_checked_and_resolved() -> None:
    async def test(client: Client) -> None:
        playground = client.playground
        playground.execute("create table t (id int primary key, v int); insert into t values (1,1),(2,2)")
        first, second = record("t", 1, client), record("t", 2, client)
        cluster = playground.cluster
        committed = cluster.prewrite([(first, b"\x80\x00\x01"), (second, b"\x80\x00\x02")])
        dead = cluster.oracle.next()
        context = client.context(first)
        start, end = keys.record_range(keys.physical_table_id(first))
        found = await client.kv.KvScanLock(
            kvrpcpb.ScanLockRequest(context=context, start_key=start, end_key=end, max_version=dead, limit=10)
        )
        assert [(lock.key, lock.lock_version) for lock in found.locks] == [(first, committed.start_ts), (second, committed.start_ts)]
        read = await client.kv.KvScan(kvrpcpb.ScanRequest(context=context, start_key=start, end_key=end, version=dead))
        assert [p.error.locked.lock_version for p in read.pairs] == [committed.start_ts] * 2

        commit_ts = cluster.commit(committed, keys=[first])
        asked = kvrpcpb.CheckTxnStatusRequest(context=context, primary_key=first, lock_ts=committed.start_ts, current_ts=dead)
        assert (await client.kv.KvCheckTxnStatus(asked)).commit_version == commit_ts
        await client.kv.KvResolveLock(
            kvrpcpb.ResolveLockRequest(context=context, start_version=committed.start_ts, commit_version=commit_ts)
        )
        assert cluster.mvcc.committed_at(second, committed.start_ts) == commit_ts

        alive = cluster.prewrite([(first, b"\x80\x00\x03")], ttl_ms=60_000)
        asked = kvrpcpb.CheckTxnStatusRequest(context=context, primary_key=first, lock_ts=alive.start_ts, current_ts=cluster.oracle.next())
        assert (await client.kv.KvCheckTxnStatus(asked)).lock_ttl == 60_000
        asked.current_ts = alive.start_ts + (61_000 << 18)
        assert (await client.kv.KvCheckTxnStatus(asked)).action == kvrpcpb.TTLExpireRollback
        assert not cluster.mvcc.locks
        asked.lock_ts = cluster.oracle.next()
        assert (await client.kv.KvCheckTxnStatus(asked)).error.txn_not_found.start_ts == asked.lock_ts
        asked.rollback_if_not_exist = True
        assert (await client.kv.KvCheckTxnStatus(asked)).action == kvrpcpb.LockNotExistRollback

    serve(test)


# the change feed


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


def test_the_requests_of_the_real_ticdc_are_answered() -> None:
    """The recording `ticdc_wire`: its probe, registers without oneof and deregisters find the answers that they found there."""

    async def test(client: Client) -> None:
        playground = client.playground
        key = keys.record_key(keys.DDL_JOB_TABLE_ID, 1)
        probe = client.feed()
        await probe.done_writing()
        assert (await ended(probe))[0] == grpc.StatusCode.OK
        requests = [
            cdcpb.ChangeDataRequest.FromString(line["bytes"])
            for line in recording("ticdc_wire")
            if line["kind"] == "req" and line["type"] == "cdcpb.ChangeDataRequest"
        ]
        region = playground.cluster.regions.at(key)
        feed = client.feed()
        wanted: set[int] = set()
        for request in requests:
            request.header.cluster_id = playground.cluster.cluster_id
            if request.WhichOneof("request") == "deregister":
                known = request.request_id in wanted
                await feed.write(request)
                if known:
                    assert (await next_error(feed)).HasField("region_not_found")
                    wanted.discard(request.request_id)
                continue
            assert request.WhichOneof("request") is None, "TiCDC leaves the oneof of a register absent"
            if request.request_id in wanted:
                continue
            request.region_id, request.region_epoch.version, request.region_epoch.conf_ver = region.id, region.version, region.conf_ver
            request.start_key, request.end_key = (encode_bytes(k) for k in keys.record_range(keys.DDL_JOB_TABLE_ID))
            await feed.write(request)
            await until_row(feed, cdcpb.Event.INITIALIZED)
            wanted.add(request.request_id)
        assert wanted

    serve(test)
