"""PD as a client sees it when things go wrong: followers, a leader that changes, late answers, old versions, keyspaces, GC."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from tidemill.capture.meta import read_meta
from tidemill.capture.tikv.client.channels import Backoff
from tidemill.capture.tikv.client.pd import PdClient, parse_version
from tidemill.capture.tikv.gc import GcGuard, service_id
from tidemill.capture.tikv.read.snapshot import Snapshot
from tidemill.errors import ClusterMismatch, ConfigError, StartTsBeforeGc, UpstreamError, UpstreamUnavailable, VersionTooOld
from tidemill.playground.server import Playground
from tidemill.tidb.keys import to_encoded
from tidemill.wire import errorpb_pb2 as errorpb
from tidemill.wire import keyspacepb_pb2 as keyspacepb
from tidemill.wire import keyspacepb_pb2_grpc, pdpb_pb2_grpc, tikvpb_pb2_grpc
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb
from tidemill.wire import metapb_pb2 as metapb
from tidemill.wire import pdpb_pb2 as pdpb


class Member(pdpb_pb2_grpc.PDServicer):
    """One PD member of a fake cluster."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.address = ""
        self.starting = False
        self.inside: list[str] = []  # addresses that only others reach
        self.calls: list[str] = []

    def _header(self) -> pdpb.ResponseHeader:
        return pdpb.ResponseHeader(cluster_id=self.cluster.cluster_id)

    async def _enter(self, call: str, request: Any, context: Any) -> None:
        self.calls.append(call)
        if request.header.cluster_id != self.cluster.cluster_id:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"mismatch cluster id, need {self.cluster.cluster_id} but got other")
        if self.cluster.leader is not self:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not leader")

    async def GetMembers(self, request: Any, context: Any) -> Any:
        self.calls.append("GetMembers")
        if self.starting:
            return pdpb.GetMembersResponse(header=pdpb.ResponseHeader())
        members = [
            pdpb.Member(
                name=m.name, member_id=i + 1, client_urls=[*self.inside, f"http://{m.address}"], binary_version=self.cluster.pd_version
            )
            for i, m in enumerate(self.cluster.members)
        ]
        leader = members[self.cluster.members.index(self.cluster.leader)] if self.cluster.leader else None
        return pdpb.GetMembersResponse(header=self._header(), members=members, leader=leader)

    async def Tso(self, requests: Any, context: Any) -> Any:
        async for request in requests:
            await self._enter("Tso", request, context)
            if self.cluster.tso_trouble:
                await context.abort(grpc.StatusCode.UNKNOWN, self.cluster.tso_trouble.pop())
            self.cluster.ts += 1
            yield pdpb.TsoResponse(header=self._header(), count=1, timestamp=pdpb.Timestamp(physical=5, logical=self.cluster.ts))

    async def GetAllStores(self, request: Any, context: Any) -> Any:
        await self._enter("GetAllStores", request, context)
        return pdpb.GetAllStoresResponse(header=self.cluster.header_error or self._header(), stores=self.cluster.stores)

    async def GetStore(self, request: Any, context: Any) -> Any:
        await self._enter("GetStore", request, context)
        return pdpb.GetStoreResponse(header=self._header(), store=next(s for s in self.cluster.stores if s.id == request.store_id))

    async def BatchScanRegions(self, request: Any, context: Any) -> Any:
        await self._enter("BatchScanRegions", request, context)
        return pdpb.BatchScanRegionsResponse(header=self._header(), regions=self.cluster.told())

    async def UpdateServiceGCSafePoint(self, request: Any, context: Any) -> Any:
        await self._enter("UpdateServiceGCSafePoint", request, context)
        least = max(request.safe_point, self.cluster.least_wish)
        name = request.service_id if least == request.safe_point else b"gc_worker"
        return pdpb.UpdateServiceGCSafePointResponse(header=self._header(), service_id=name, TTL=1, min_safe_point=least)

    async def GetGCSafePoint(self, request: Any, context: Any) -> Any:
        await self._enter("GetGCSafePoint", request, context)
        return pdpb.GetGCSafePointResponse(header=self._header(), safe_point=self.cluster.collected)


class Keyspaces(keyspacepb_pb2_grpc.KeyspaceServicer):
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    async def GetAllKeyspaces(self, request: Any, context: Any) -> Any:
        found = [keyspacepb.KeyspaceMeta(id=i, name=name, state=keyspacepb.ENABLED) for i, name in enumerate(self.cluster.keyspaces)]
        return keyspacepb.GetAllKeyspacesResponse(header=pdpb.ResponseHeader(cluster_id=self.cluster.cluster_id), keyspaces=found)


class Tikv(tikvpb_pb2_grpc.TikvServicer):
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    async def KvScan(self, request: Any, context: Any) -> Any:
        return self.cluster.scan(request)


class FakeCluster:
    """Some PD members and one TiKV; what is wrong with them is set by the tests."""

    def __init__(self, members: int = 1) -> None:
        self.cluster_id, self.ts, self.pd_version = 77, 0, "v8.5.1"
        self.members = [Member(self, f"pd{i}") for i in range(members)]
        self.leader: Member | None = self.members[0]
        self.tso_trouble: list[str] = []
        self.header_error: pdpb.ResponseHeader | None = None
        self.stores: list[metapb.Store] = []
        self.least_wish = self.collected = 0
        self.keyspaces = ["DEFAULT"]
        self.data: dict[bytes, bytes] = {}
        self.borders = [b""]  # region starts, raw
        self.version = 1
        self.problems: list[kvrpcpb.ScanResponse] = []  # answers before the right one
        self.scans: list[kvrpcpb.ScanRequest] = []

    def told(self) -> list[pdpb.Region]:
        ends = [*self.borders[1:], b""]
        return [
            pdpb.Region(
                region=metapb.Region(
                    id=i + 1,
                    start_key=to_encoded(start) if start else b"",
                    end_key=to_encoded(end) if end else b"",
                    region_epoch={"conf_ver": 1, "version": self.version},
                ),
                leader=metapb.Peer(id=100 + i, store_id=1),
            )
            for i, (start, end) in enumerate(zip(self.borders, ends, strict=True))
        ]

    def scan(self, request: kvrpcpb.ScanRequest) -> kvrpcpb.ScanResponse:
        self.scans.append(request)
        if self.problems:
            return self.problems.pop(0)
        region = request.context.region_id - 1
        end = self.borders[region + 1] if region + 1 < len(self.borders) else b"\xff"
        assert not request.end_key or request.end_key <= end, "a scan beyond its region's end is an error in TiKV"
        assert request.start_key >= self.borders[region]
        keys = sorted(k for k in self.data if request.start_key <= k and (not request.end_key or k < request.end_key) and k < end)
        return kvrpcpb.ScanResponse(pairs=[kvrpcpb.KvPair(key=k, value=self.data[k]) for k in keys[: request.limit]])

    async def start(self) -> None:
        self.servers = []
        for member in self.members:
            server = grpc.aio.server()
            pdpb_pb2_grpc.add_PDServicer_to_server(member, server)
            keyspacepb_pb2_grpc.add_KeyspaceServicer_to_server(Keyspaces(self), server)
            tikvpb_pb2_grpc.add_TikvServicer_to_server(Tikv(self), server)
            member.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            self.servers.append(server)
        self.stores = [metapb.Store(id=1, address=self.members[0].address, version="8.5.1")]


def with_cluster(cluster: FakeCluster, use: Callable[[PdClient], Awaitable[None]], retry_s: float = 10.0) -> None:
    async def main() -> None:
        await cluster.start()
        pd = await PdClient.connect([m.address for m in cluster.members], retry_s=retry_s)
        try:
            async with asyncio.timeout(600):
                await use(pd)
        finally:
            await pd.close()
            for server in cluster.servers:
                await server.stop(0)

    asyncio.run(main())


def test_calls_go_to_the_leader_and_follow_it() -> None:
    cluster = FakeCluster(3)

    async def use(pd: PdClient) -> None:
        first = await pd.tso()
        assert pd.leader == cluster.members[0].address
        cluster.leader = cluster.members[2]
        assert (await pd.stores())[0].id == 1
        assert pd.leader == cluster.members[2].address
        assert await pd.tso() > first
        await cluster.servers[2].stop(0)
        cluster.leader = cluster.members[1]
        assert await pd.tso() > first
        assert pd.leader == cluster.members[1].address
        assert "GetAllStores" not in cluster.members[1].calls

    with_cluster(cluster, use)


def test_a_leader_that_is_not_yet_elected_is_waited_for() -> None:
    cluster = FakeCluster(2)

    async def use(pd: PdClient) -> None:
        leader, cluster.leader = cluster.leader, None
        asyncio.get_running_loop().call_later(0.5, setattr, cluster, "leader", leader)
        assert (await pd.stores())[0].id == 1

    with_cluster(cluster, use)


def test_a_member_that_is_starting_knows_no_cluster_yet(caplog: pytest.LogCaptureFixture) -> None:
    """A starting PD answers with cluster 0, which is not another cluster. An error is logged once, however many calls meet it."""
    cluster = FakeCluster(2)

    async def use(pd: PdClient) -> None:
        cluster.members[0].starting = True
        leader, cluster.leader = cluster.leader, None
        asyncio.get_running_loop().call_later(0.5, setattr, cluster, "leader", leader)
        assert all(stores[0].id == 1 for stores in await asyncio.gather(*(pd.stores() for _ in range(20))))
        assert caplog.text.count("trying again") == 1

    with_cluster(cluster, use)


def test_members_that_are_exchanged_one_by_one_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader stays while all other members are replaced; when it ends too, the new members are known."""
    monkeypatch.setattr("tidemill.capture.tikv.client.pd.LOOK_EVERY", 0.0)
    cluster = FakeCluster(3)

    async def use(pd: PdClient) -> None:
        everybody = cluster.members
        cluster.members = everybody[:2]
        assert await pd.tso() > 0
        async with asyncio.timeout(600):
            while len(pd.addresses) != 2:
                await asyncio.sleep(0.01)
        cluster.members = everybody
        async with asyncio.timeout(600):
            while len(pd.addresses) != 3:
                await pd.stores()
        pd._seeds = (everybody[0].address,)
        await cluster.servers[0].stop(0)
        cluster.leader = everybody[2]
        assert await pd.tso() > 0

    with_cluster(cluster, use)


def test_a_handshake_that_takes_a_while_is_no_failure() -> None:
    """A PD far away, or a busy one: its first byte takes half a second."""
    cluster = FakeCluster()

    async def use(pd: PdClient) -> None:
        host, _, port = pd.leader.rpartition(":")

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.5)
            theirs, ours = await asyncio.open_connection(host, int(port))
            await asyncio.gather(carry(reader, ours), carry(theirs, writer))

        server = await asyncio.start_server(slow, "127.0.0.1", 0)
        far = PdClient([f"127.0.0.1:{server.sockets[0].getsockname()[1]}"])
        await far.refresh()
        assert far.leader == pd.leader
        await far.close()
        server.close()

    with_cluster(cluster, use)


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


def test_of_several_addresses_the_one_that_was_given_is_used() -> None:
    """PD advertises one address for its own network and one for others."""
    cluster = FakeCluster(2)
    for member in cluster.members:
        member.inside = [f"http://{member.name}.inside:2379"]

    async def use(pd: PdClient) -> None:
        assert pd.addresses == tuple(m.address for m in cluster.members)
        cluster.leader = cluster.members[1]
        assert await pd.tso() > 0
        assert pd.leader == cluster.members[1].address

    with_cluster(cluster, use)


def test_many_calls_at_once_share_one_search_for_the_leader() -> None:
    cluster = FakeCluster(2)

    async def use(pd: PdClient) -> None:
        cluster.leader = cluster.members[1]
        before = sum(m.calls.count("GetMembers") for m in cluster.members)
        stamps = await asyncio.gather(*(pd.tso() for _ in range(20)))
        assert len(set(stamps)) == 20
        await asyncio.gather(*(pd.stores() for _ in range(20)))
        assert sum(m.calls.count("GetMembers") for m in cluster.members) - before < 10

    with_cluster(cluster, use)


TSO_TROUBLE = [
    "[PD:tso:ErrGenerateTimestamp]generate timestamp failed, timestamp in memory isn't initialized",
    "[PD:tso:ErrGenerateTimestamp]generate timestamp failed, requested pd is not leader of cluster",
    "[PD:tso:ErrGenerateTimestamp]generate timestamp failed, generate global tso maximum number of retries exceeded",
    "[PD:etcd:ErrEtcdTxnConflict]etcd transaction failed, conflicted and rolled back",
    "server not started",
]


def test_what_a_pd_says_during_an_election_is_waited_out() -> None:
    """Error texts of a real PD that has just become leader, or just ceased to be it; they have no error type."""
    cluster = FakeCluster()
    cluster.tso_trouble = list(TSO_TROUBLE)

    async def use(pd: PdClient) -> None:
        assert await pd.tso() > 0
        assert not cluster.tso_trouble

    with_cluster(cluster, use)


def test_a_member_that_hangs_does_not_keep_the_others_from_answering() -> None:
    cluster = FakeCluster(2)

    async def use(pd: PdClient) -> None:
        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        frozen = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asked: list[str] = []

        class Watched(PdClient):
            async def _ask_members(self, address: str) -> Any:
                asked.append(address)
                return await super()._ask_members(address)

        other = await Watched.connect([frozen, frozen.replace("127.0.0.1", "localhost"), pd.leader])
        assert await other.tso() > 0
        assert asked == [frozen, frozen.replace("127.0.0.1", "localhost"), pd.leader]
        asked.clear()
        await other.refresh(pd.leader)
        assert asked[0] != pd.leader, "who has just failed is asked last"
        await other.close()
        server.close()

    with_cluster(cluster, use)


def test_nobody_answers() -> None:
    async def main() -> None:
        with pytest.raises(UpstreamUnavailable, match=r"PD does not answer GetMembers.*127\.0\.0\.1:1"):
            await PdClient.connect("127.0.0.1:1,http://127.0.0.1:2/", retry_s=0.5)
        with pytest.raises(ConfigError, match="no PD address"):
            await PdClient.connect(" , ")

    asyncio.run(main())


@pytest.mark.parametrize(
    "address",
    ["localhost", "localhost:", "localhost:pd", ":2379", "http://", "localhost:99999", "localhost:0", "::1:2379", "10.0.0.1:2379/pd?x=1",
     "http://root:hush@10.0.0.1:2379", "10.0.0.1 :2379"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^--pd .* is not a HOST:PORT\n  Name PD's client addresses") as caught:
        PdClient([address])
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "plain"),
    [(" http://pd-0:2379/ ", "pd-0:2379"), ("HTTPS://pd-0.ns.svc:2379", "pd-0.ns.svc:2379"), ("[fd00::5]:2379", "[fd00::5]:2379")],
)
def test_addresses_are_written_in_several_ways(address: str, plain: str) -> None:
    assert PdClient([address]).addresses == (plain,)


def test_errors_in_the_header() -> None:
    cluster = FakeCluster()

    async def use(pd: PdClient) -> None:
        kind = pdpb.Error(type=pdpb.INCOMPATIBLE_VERSION, message="too new")
        cluster.header_error = pdpb.ResponseHeader(cluster_id=77, error=kind)
        with pytest.raises(UpstreamError, match="INCOMPATIBLE_VERSION: too new"):
            await pd.stores()
        cluster.header_error = pdpb.ResponseHeader(cluster_id=77, error=pdpb.Error(type=pdpb.NOT_BOOTSTRAPPED))
        retry_s, pd.retry_s = pd.retry_s, 0.1
        with pytest.raises(UpstreamUnavailable, match=r"GetAllStores with NOT_BOOTSTRAPPED.*\n.*No TiKV has joined this PD yet"):
            await pd.stores()
        pd.retry_s = retry_s
        asyncio.get_running_loop().call_later(0.3, setattr, cluster, "header_error", None)
        assert (await pd.stores())[0].id == 1

    with_cluster(cluster, use)


def test_another_cluster_than_the_wanted_one() -> None:
    cluster = FakeCluster()

    async def use(pd: PdClient) -> None:
        with pytest.raises(ClusterMismatch, match="serves cluster 77, not cluster 78"):
            await PdClient.connect(pd.addresses, cluster_id=78)

    with_cluster(cluster, use)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("8.5.1", (8, 5, 1)),
        ("v7.5.0-alpha-12-gabc-dirty", (7, 5, 0)),
        ("v10.0.0", (10, 0, 0)),
        ("9.0.0-beta.2", (9, 0, 0)),
        ("", None),
        ("nightly", None),
    ],
)
def test_versions(text: str, parsed: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == parsed


@pytest.mark.parametrize(
    ("pd_version", "store", "text"),
    [
        ("v7.1.5", {}, r"PD pd0 has version v7\.1\.5; capture needs 7\.5\.0"),
        ("v7.5.0", {"version": "v6.5.9"}, r"TiKV 10\.0\.0\.9:20160 has version v6\.5\.9"),
        ("v7.5.0", {"version": "6.5.0", "state": metapb.Tombstone}, None),
        ("v7.5.0", {"version": "6.5.0", "labels": [{"key": "engine", "value": "tiflash"}]}, None),
        ("", {"version": "10.1.0"}, None),
    ],
)
def test_old_versions_are_named(pd_version: str, store: dict[str, Any], text: str | None) -> None:
    cluster = FakeCluster()
    cluster.pd_version = pd_version

    async def use(pd: PdClient) -> None:
        cluster.stores.append(metapb.Store(id=2, address="10.0.0.9:20160", **({"version": "8.5.1"} | store)))
        if text is None:
            await pd.check_versions()
        else:
            with pytest.raises(VersionTooOld, match=text):
                await pd.check_versions()

    with_cluster(cluster, use)


def test_a_keyspace_cluster_is_refused_by_name() -> None:
    cluster = FakeCluster()
    cluster.keyspaces = ["DEFAULT", "tenant_a", "tenant_b"]

    async def use(pd: PdClient) -> None:
        with pytest.raises(ClusterMismatch, match="cluster 77 has no schemas outside of keyspaces: it serves keyspace tenant_a, tenant_b"):
            await read_meta(pd, 5)

    with_cluster(cluster, use)


# ---- GC safe point ---------------------------------------------------------------------------------------------------


def test_service_safe_point() -> None:
    cluster = FakeCluster()
    ts = 470_000_000_000_000_000

    async def use(pd: PdClient) -> None:
        safe_point = GcGuard(pd, "tidemill-x", 60)
        await safe_point.protect(ts)
        assert safe_point.safe_point == ts - 1
        cluster.least_wish = ts
        await safe_point.protect(ts)
        assert safe_point.safe_point == ts, "a safe point keeps what can be read at it"
        cluster.least_wish = ts + 1
        with pytest.raises(StartTsBeforeGc, match=rf"history from {ts} \(.*UTC\) on .* below {ts + 1} .*gc_worker"):
            await safe_point.protect(ts)
        cluster.least_wish, cluster.collected = 0, ts + 1
        with pytest.raises(StartTsBeforeGc, match=r"PD's GC safe point"):
            await safe_point.protect(ts)

    with_cluster(cluster, use)


@pytest.mark.parametrize("barriers", [False, True])
def test_a_guard_holds_garbage_collection_back_until_it_is_removed(barriers: bool) -> None:
    async def main() -> None:
        async with Playground(1, gc_barriers=barriers) as playground:
            points = playground.cluster.safe_points
            pd = await PdClient.connect(playground.pd_address)
            try:
                assert (await pd.gc_state() is not None) == barriers
                ts = playground.cluster.oracle.next()
                guard = GcGuard(pd, service_id(pd.cluster_id, "x"), 60)
                await guard.protect(ts)
                assert 58 < guard.seconds_left <= 60
                assert points.advance_gc(ts + 10) == ts - 1
                await guard.protect(ts + 5)
                assert points.advance_gc(ts + 10) == ts + 4
                await guard.remove()
                assert guard.seconds_left == 0
                assert points.advance_gc(ts + 10) == ts + 10
                with pytest.raises(StartTsBeforeGc, match=rf"history from {ts + 9} \(.*UTC\) on .* below {ts + 10} "):
                    await guard.protect(ts + 9)
                await guard.protect(ts + 10)
                assert (guard.safe_point, points.advance_gc(ts + 20)) == (ts + 10, ts + 10), "just where the log begins"
                await guard.protect(ts + 15)
                assert (guard.safe_point, points.advance_gc(ts + 20)) == (ts + 14, ts + 14)
            finally:
                await pd.close()

    asyncio.run(main())


def test_service_ids_are_of_the_cluster_and_the_log() -> None:
    assert service_id(7, "abc") == "tidemill-7-abc"


# ---- reading at a ts -------------------------------------------------------------------------------------------------


def region_error(**kind: Any) -> kvrpcpb.ScanResponse:
    return kvrpcpb.ScanResponse(region_error=errorpb.Error(**kind))


LOCK = {"primary_lock": b"p", "lock_version": 470_000_000_000_000_000, "key": b"k3", "lock_ttl": 3000}

PASSING = {
    "not leader": region_error(not_leader={"region_id": 1}),
    "epoch": region_error(epoch_not_match={"current_regions": [{"id": 1}]}),
    "not found": region_error(region_not_found={"region_id": 1}),
    "busy": region_error(server_is_busy={"reason": "x"}),
    "stale": region_error(stale_command={}),
    "store": region_error(store_not_match={}),
    "outside": region_error(key_not_in_region={"key": b"k"}),
    "max ts": region_error(max_timestamp_not_synced={}),
    "text": region_error(message="something else"),
    "lock": kvrpcpb.ScanResponse(error=kvrpcpb.KeyError(locked=LOCK)),
    "lock in a pair": kvrpcpb.ScanResponse(pairs=[{"key": b"k1", "value": b"v"}, {"error": {"locked": LOCK}, "key": b"k3"}]),
    "retry": kvrpcpb.ScanResponse(error=kvrpcpb.KeyError(retryable="again")),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_scan_goes_on_after_what_passes(name: str) -> None:
    cluster = FakeCluster()
    cluster.data = {b"k%d" % i: b"v%d" % i for i in range(10)}
    cluster.problems = [PASSING[name]] * 2

    async def use(pd: PdClient) -> None:
        found = [pair async for pair in Snapshot(pd, 9).scan(b"k1", b"k8", page=3)]
        assert found == [(b"k%d" % i, b"v%d" % i) for i in range(1, 8)]
        assert {r.version for r in cluster.scans} == {9}

    with_cluster(cluster, use)


def test_a_scan_crosses_regions_and_pages_and_open_ends() -> None:
    cluster = FakeCluster()
    cluster.data = {bytes([65 + i // 10, i % 10]): b"%d" % i for i in range(100)}
    cluster.borders = [b"", b"B", b"C\x05", b"F"]

    async def use(pd: PdClient) -> None:
        snapshot = Snapshot(pd, 9)
        assert [pair async for pair in snapshot.scan(b"", b"", page=7)] == sorted(cluster.data.items())
        assert await snapshot.get(b"C\x05") == b"25"
        assert await snapshot.get(b"C\x05\x00") is None
        cluster.borders, cluster.version = [b"", b"E"], 2
        cluster.problems = [region_error(epoch_not_match={"current_regions": [{"id": 1}, {"id": 2}]})]
        assert len([pair async for pair in snapshot.scan(b"A", b"G", page=1000)]) == 60

    with_cluster(cluster, use)


def test_what_does_not_pass_ends_a_scan_with_its_reason() -> None:
    cluster = FakeCluster()

    async def use(pd: PdClient) -> None:
        async def scan() -> None:
            assert [pair async for pair in Snapshot(pd, 9, retry_s=0.3).scan(b"a", b"b")] == []

        cluster.problems = [kvrpcpb.ScanResponse(error=kvrpcpb.KeyError(locked=LOCK))] * 50
        with pytest.raises(UpstreamUnavailable, match=r"key 6b33 is locked by the transaction with start_ts 4700.*primary key 70"):
            await scan()
        cluster.problems = [kvrpcpb.ScanResponse(error=kvrpcpb.KeyError(abort="GC life time is shorter than transaction duration"))]
        with pytest.raises(StartTsBeforeGc):
            await scan()
        cluster.problems = [kvrpcpb.ScanResponse(pairs=[{"error": {"abort": "InvalidReqRange"}}])]
        with pytest.raises(UpstreamError, match="InvalidReqRange"):
            await scan()

    with_cluster(cluster, use)


def test_backoff_grows_to_its_cap() -> None:
    backoff = Backoff(0.1, 1.0)
    waits = [backoff.next() for _ in range(8)]
    assert 0.05 <= waits[0] <= 0.1
    assert all(0.5 <= w <= 1.0 for w in waits[4:])
    backoff.reset()
    assert backoff.next() <= 0.1
