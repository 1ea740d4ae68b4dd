"""The playground over gRPC, with plain grpcio clients: PD, reads, locks, the change feed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.capture.eventfeeds import recording
from tests.support.capture.grpc_clients import Client, ended, next_error, record, serve, until_row
from tidemill.tidb import keys
from tidemill.tidb.codec import encode_bytes
from tidemill.wire import cdcpb_pb2 as cdcpb
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb
from tidemill.wire import pdpb_pb2 as pdpb


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
