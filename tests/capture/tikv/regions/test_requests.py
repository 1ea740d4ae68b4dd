"""Our requests, message by message, compared with those that TiCDC and a recorded client sent to the same servers; and the answers as we
read them."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from tests.support.capture.eventfeeds import recording
from tidemill.capture.tikv.client.channels import Channels
from tidemill.capture.tikv.client.pd import GcState, PdClient
from tidemill.capture.tikv.feed.puller import register, scan_priority
from tidemill.capture.tikv.feed.store_errors import parse_store_error
from tidemill.capture.tikv.gc import GcGuard
from tidemill.capture.tikv.model import Peer, Region, StoreError
from tidemill.capture.tikv.read.snapshot import Snapshot
from tidemill.capture.tikv.regions.actions import Fail, HoldFrontier, ReleaseFrontier, Span, Subscribe
from tidemill.capture.tikv.regions.machine import RegionMachine
from tidemill.capture.tikv.regions.state import Phase
from tidemill.errors import ClusterMismatch, StartTsBeforeGc, UpstreamError, UpstreamUnavailable
from tidemill.tidb.keys import DBS, DDL_JOB_TABLE_ID, is_of_user_table, meta_hash_range, record_range, to_encoded
from tidemill.wire import cdcpb_pb2 as cdcpb
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb
from tidemill.wire import pdpb_pb2 as pdpb

CLUSTER_ID = 7710568214723362125


class Replay:
    """Answers a request with what the recorded server answered to exactly the same bytes; any other request fails."""

    def __init__(self, name: str) -> None:
        self.answers: dict[tuple[str, bytes], list[Any]] = defaultdict(list)
        self.asked: list[tuple[str, bytes]] = []
        pending: list[dict[str, Any]] = []
        for line in recording(name):
            if line["kind"] == "req":
                pending.append(line)
            elif line["kind"] in ("resp", "status") and pending:
                request = pending.pop(0)
                self.answers[request["rpc"], request["bytes"]].append(line)

    async def _unary(self, rpc: str, request: bytes, context: Any) -> bytes:
        self.asked.append((rpc, request))
        answers = self.answers.get((rpc, request))
        if not answers:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"nobody recorded {rpc} {request.hex()}")
        assert answers is not None
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer["kind"] == "status":
            await context.abort(grpc.StatusCode[answer["code"]], answer["details"])
        found: bytes = answer["bytes"]
        return self.patch(rpc, found)

    def patch(self, rpc: str, answer: bytes) -> bytes:
        """Addresses are those of this server."""
        if rpc.endswith("GetMembers"):
            members = pdpb.GetMembersResponse.FromString(answer)
            for member in [*members.members, members.leader]:
                member.client_urls[:] = [f"http://{self.address}"]
            return members.SerializeToString()
        if rpc.endswith("GetStore"):
            store = pdpb.GetStoreResponse.FromString(answer)
            if store.store.id:
                store.store.address = self.address
            return store.SerializeToString()
        return answer

    async def start(self) -> None:
        self.server = grpc.aio.server()
        services = defaultdict(dict)
        rpcs = {rpc for rpc, _ in self.answers} | {"pdpb.PD/GetMembers", "pdpb.PD/GetStore"}
        for rpc in rpcs:
            service, method = rpc.split("/")

            async def unary(request: bytes, context: Any, rpc: str = rpc) -> bytes:
                return await self._unary(rpc, request, context)

            services[service][method] = grpc.unary_unary_rpc_method_handler(unary)
        if any(rpc == "pdpb.PD/Tso" for rpc, _ in self.answers):
            services["pdpb.PD"]["Tso"] = grpc.stream_stream_rpc_method_handler(self._tso)
        for service, methods in services.items():
            self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, methods)])
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        await self.server.start()

    async def _tso(self, requests: Any, context: Any) -> Any:
        async for request in requests:
            yield await self._unary("pdpb.PD/Tso", request, context)


def with_pd(replay: Replay, use: Callable[[PdClient], Awaitable[None]], cluster_id: int | None = None) -> None:
    async def main() -> None:
        await replay.start()
        pd = PdClient([replay.address], retry_s=1.0)
        try:
            await pd.refresh()
            if cluster_id is not None:
                pd.cluster_id = cluster_id
            await use(pd)
        finally:
            await pd.close()
            await replay.server.stop(0)

    asyncio.run(main())


def test_pd_calls_are_those_of_the_recorded_client() -> None:
    async def use(pd: PdClient) -> None:
        assert pd.cluster_id == CLUSTER_ID
        first = await pd.tso()
        assert await pd.tso() > first
        (store,) = await pd.stores()
        assert (store.id, store.version, store.tombstone, store.tiflash) == (1, "9.0.0-beta.2", False, False)
        assert (await pd.store(1)) is not None
        assert await pd.store(4242) is None
        region = await pd.region(to_encoded(b"t"))
        assert region is not None
        assert (region.id, region.conf_ver, region.version, region.leader) == (28, 1, 13, Peer(29, 1))
        regions = await pd.scan_regions(to_encoded(b"t"), to_encoded(b"u"), 0)
        assert regions[0] == region
        assert all(a.end == b.start for a, b in itertools.pairwise(regions))
        assert await pd.gc_safe_point() == 0
        safe_points = [line for line in recording("pd_calls") if line.get("type") == "pdpb.UpdateServiceGCSafePointRequest"]
        asked = pdpb.UpdateServiceGCSafePointRequest.FromString(safe_points[0]["bytes"])
        service, least = await pd.update_service_safe_point(asked.service_id.decode(), asked.TTL, asked.safe_point)
        assert service == "gc_worker"
        assert least < asked.safe_point
        with pytest.raises(UpstreamError, match="cannot remove service safe point of gc_worker"):
            await pd.update_service_safe_point("gc_worker", 0, 0)
        await pd.check_versions()

    replay = Replay("pd_calls")
    for rpc, request in list(replay.answers):
        if rpc.endswith("BatchScanRegions"):  # as PD before 8.2
            del replay.answers[rpc, request]
    with_pd(replay, use)


def barrier_requests() -> list[pdpb.SetGCBarrierRequest]:
    """The calls for the null keyspace, in order."""
    lines = (line for line in recording("pd9_gc_barriers") if line.get("type") == "pdpb.SetGCBarrierRequest")
    found = [pdpb.SetGCBarrierRequest.FromString(line["bytes"]) for line in lines]
    return [request for request in found if request.keyspace_scope.keyspace_id == 0xFFFFFFFF]


def test_gc_barriers_are_those_of_the_recorded_pd_9() -> None:
    first, later, back, forever, short, late = barrier_requests()

    async def use(pd: PdClient) -> None:
        with pytest.raises(UpstreamUnavailable, match="NOT_BOOTSTRAPPED: cluster is not bootstrapped"):
            await pd.region(b"")
        assert await pd.gc_state() == GcState(0, 0)
        for asked in (first, later, back, forever, short):
            await pd.set_gc_barrier(asked.barrier_id, asked.barrier_ts, asked.ttl_seconds)
        state = await pd.gc_state()
        assert state == GcState(0, 0, (("forever", later.barrier_ts + 1), ("short", later.barrier_ts + 1), ("tidemill", back.barrier_ts)))
        begin = asyncio.get_running_loop().time()
        with pytest.raises(UpstreamError, match="GC barrier on ts 5 which is already behind the txn safe point") as caught:
            await pd.set_gc_barrier("late", late.barrier_ts, late.ttl_seconds)
        assert not caught.value.retryable
        assert asyncio.get_running_loop().time() - begin < pd.retry_s, "another try would not help"
        state = await pd.gc_state()
        assert state is not None
        assert (state.txn_safe_point, state.gc_safe_point) == (back.barrier_ts, back.barrier_ts)
        assert await pd.update_service_safe_point("oldstyle", 3600, later.barrier_ts + 1) == ("gc_worker", back.barrier_ts)
        await pd.delete_gc_barrier("tidemill")
        await pd.delete_gc_barrier("tidemill")  # it does not exist any more

    with_pd(Replay("pd9_gc_barriers"), use)


def test_a_guard_at_the_recorded_pd_9() -> None:
    """The log's GC barrier as PD 9 took it. A start exactly at the limit works; below it the start is refused without asking for a
    barrier."""
    first, _, back, *_ = barrier_requests()

    async def use(pd: PdClient) -> None:
        guard = GcGuard(pd, "tidemill", first.ttl_seconds)
        await guard.protect(first.barrier_ts + 1)
        assert guard.safe_point == first.barrier_ts
        for _ in range(2):  # the state has moved on: the transaction safe point is at `back`
            state = await pd.gc_state()
        assert state is not None
        await guard.protect(back.barrier_ts)
        assert guard.safe_point == back.barrier_ts
        asked = len(replay.asked)
        with pytest.raises(
            StartTsBeforeGc, match=rf"history from {back.barrier_ts - 1} \(2026.*UTC\) .* below {back.barrier_ts} \(2026.*UTC\)"
        ):
            await guard.protect(back.barrier_ts - 1)
        assert [rpc for rpc, _ in replay.asked[asked:]] == ["pdpb.PD/GetGCState"]
        await guard.remove()
        assert replay.asked[-1][0] == "pdpb.PD/DeleteGCBarrier"

    replay = Replay("pd9_gc_barriers")
    with_pd(replay, use)


def test_another_cluster_is_refused_as_recorded() -> None:
    async def use(pd: PdClient) -> None:
        with pytest.raises(ClusterMismatch, match="need 7710568214723362125 but got 7"):
            await pd.stores()

    with_pd(Replay("pd_calls"), use, cluster_id=7)


def test_batch_scan_regions_reads_as_scan_regions() -> None:
    answers = {line["rpc"]: line["bytes"] for line in recording("pd_calls") if line["kind"] == "resp" and "ScanRegions" in line["rpc"]}
    batch = pdpb.BatchScanRegionsResponse.FromString(answers["pdpb.PD/BatchScanRegions"])
    plain = pdpb.ScanRegionsResponse.FromString(answers["pdpb.PD/ScanRegions"])
    told = {r.region.id: r for r in batch.regions}
    both = [r for r in plain.regions if r.region.id in told]
    assert len(both) > 5
    assert all((told[r.region.id].region, told[r.region.id].leader) == (r.region, r.leader) for r in both)


def test_meta_is_read_as_recorded() -> None:
    """The same KvScan as a recorded reader of the hash of databases, byte for byte, and its pairs."""
    recorded = [line for line in recording("meta_read") if line.get("type") == "kvrpcpb.ScanRequest"]
    asked = kvrpcpb.ScanRequest.FromString(recorded[0]["bytes"])
    context = asked.context

    class OneRegion(PdClient):
        async def scan_regions(self, start: bytes, end: bytes, limit: int = 1024) -> list[Region]:
            peer = Peer(context.peer.id, context.peer.store_id)
            epoch = context.region_epoch
            return [Region(context.region_id, to_encoded(b"m"), to_encoded(b"n"), epoch.conf_ver, epoch.version, peer)]

    async def main() -> None:
        replay = Replay("meta_read")
        await replay.start()
        pd = OneRegion([replay.address], retry_s=1.0)
        snapshot = Snapshot(pd, asked.version, retry_s=1.0)
        snapshot._addresses[context.peer.store_id] = replay.address
        try:
            pairs = [pair async for pair in snapshot.scan(*meta_hash_range(DBS))]
        finally:
            await pd.close()
            await replay.server.stop(0)
        answer = kvrpcpb.ScanResponse.FromString(
            next(line["bytes"] for line in recording("meta_read") if line.get("type") == "kvrpcpb.ScanResponse")
        )
        assert pairs == [(p.key, p.value) for p in answer.pairs]
        assert len(pairs) == 10
        assert replay.asked == [("tikvpb.Tikv/KvScan", recorded[0]["bytes"])]

    asyncio.run(main())


def ticdc_requests() -> list[cdcpb.ChangeDataRequest]:
    lines = (line for line in recording("ticdc_wire") if line["kind"] == "req" and line.get("type") == "cdcpb.ChangeDataRequest")
    return [cdcpb.ChangeDataRequest.FromString(line["bytes"]) for line in lines]


def test_a_register_is_ticdcs_byte_for_byte() -> None:
    registers = [r for r in ticdc_requests() if r.WhichOneof("request") is None]
    assert len(registers) > 8
    for theirs in registers:
        epoch = theirs.region_epoch
        region = Region(theirs.region_id, theirs.start_key, theirs.end_key, epoch.conf_ver, epoch.version, Peer(1, 1))
        subscribe = Subscribe(1, 0, region, theirs.request_id, theirs.checkpoint_ts, theirs.start_key, theirs.end_key, 0, 0)
        ours = register(theirs.header, subscribe)
        assert ours.SerializeToString() == theirs.SerializeToString()
        assert not theirs.header.ticdc_version.startswith("v")


def test_of_users_tables_rows_of_other_captures_are_left_out_if_wanted() -> None:
    """Not of the meta data, which has the other clusters' DDLs too."""
    header, asked = cdcpb.Header(cluster_id=1), []
    region = Region(1, b"", b"", 1, 1, Peer(1, 1))
    subscribe = Subscribe(1, 0, region, 1, 1, b"", b"", 0, 0)
    for wanted in (True, False):
        asked.append(register(header, subscribe, filter_loop=wanted).filter_loop)
    assert asked == [True, False]
    low = [record_range(table_id)[0] for table_id in (1, 115, DDL_JOB_TABLE_ID)]
    assert [is_of_user_table(key) for key in (*low, b"m", b"")] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("behind_s", "priority"),
    [(0, cdcpb.SCAN_PRIORITY_HIGH), (1800, cdcpb.SCAN_PRIORITY_HIGH), (1801, cdcpb.SCAN_PRIORITY_LOW), (86400, cdcpb.SCAN_PRIORITY_LOW)],
)
def test_a_scan_of_much_history_makes_way(behind_s: int, priority: int) -> None:
    now_ms = 1_795_255_200_000
    checkpoint = (now_ms - behind_s * 1000) << 18
    assert scan_priority(checkpoint, now_ms) == priority
    subscribe = Subscribe(1, 0, Region(1, b"", b"", 1, 1, Peer(1, 1)), 1, checkpoint, b"", b"", 0, 0)
    sent = register(cdcpb.Header(cluster_id=1), subscribe, priority=scan_priority(checkpoint, now_ms))
    assert cdcpb.ChangeDataRequest.FromString(sent.SerializeToString()).scan_priority == priority


def test_ranges_are_encoded_as_ticdcs() -> None:
    job_table = next(r for r in ticdc_requests() if r.region_id == 276)
    start, end = record_range(0xFFFFFFFFFFFE)
    assert (job_table.start_key, job_table.end_key) == (to_encoded(start), to_encoded(end))


def test_a_deregister_has_ticdcs_shape() -> None:
    """TiCDC ends a whole request id. We end one region of it, because a request id covers all tables of a partition."""
    theirs = next(r for r in ticdc_requests() if r.WhichOneof("request") == "deregister")
    ours = cdcpb.ChangeDataRequest(header=theirs.header, request_id=theirs.request_id)
    ours.deregister.SetInParent()
    assert ours.SerializeToString() == theirs.SerializeToString()


REACTIONS = {
    "epoch_not_match": Phase.GAP,
    "region_not_found": Phase.GAP,
    "duplicate_request": Phase.QUEUED,
    "cluster_id_mismatch": "TM:ErrClusterMismatch",
    "compatibility": "TM:ErrVersionTooOld",
}


def test_every_error_of_a_bad_request_has_its_reaction() -> None:
    """The errors that a real TiKV gave to 25 bad requests: none of them loses the range, and the fatal ones say what is wrong."""
    seen = set()
    for line in recording("bad_requests"):
        if line["kind"] != "resp":
            continue
        for event in cdcpb.ChangeDataEvent.FromString(line["bytes"]).events:
            if event.HasField("error"):
                kind = event.error.ListFields()[0][0].name
                seen.add(kind)
                assert reaction(parse_store_error(event.error.SerializeToString())) == REACTIONS[kind]
    assert seen == set(REACTIONS)


def reaction(error: StoreError) -> Phase | str:
    machine = RegionMachine(1)
    machine.add_span(Span(1, b"a", b"z", 0, 10), 0.0)
    machine.wake(0.0)
    (load,) = [a.load for a in machine.actions() if hasattr(a, "load")]
    machine.loaded(load, [Region(26, b"", b"", 1, 77, Peer(1, 1))], True, 0.0)
    (slot,) = [a.slot for a in machine.actions() if hasattr(a, "multiplexed")]
    machine.stream_opened(slot, 0.0)
    (subscribe,) = [a for a in machine.actions() if isinstance(a, Subscribe)]
    machine.failed(subscribe.sub_range, 10, error, 0.0)
    actions = machine.actions()
    assert not any(isinstance(a, ReleaseFrontier | HoldFrontier) for a in actions), "the record stays"
    failures = [a.error.code for a in actions if isinstance(a, Fail)]
    if failures:
        return failures[0]
    ((start, end, phase),) = machine.covered(1)
    assert (start, end) == (b"a", b"z")
    return phase


def test_channels_are_shared_and_closed() -> None:
    async def main() -> None:
        channels = Channels()
        assert channels.get("127.0.0.1:1") is channels.get("127.0.0.1:1")
        await channels.close()

    asyncio.run(main())
