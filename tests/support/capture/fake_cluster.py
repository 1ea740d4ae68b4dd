"""A PD and a TiKV with little behind them, whose troubles a test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from tidemill.capture.tikv.client.pd import PdClient
from tidemill.tidb.keys import to_encoded
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
