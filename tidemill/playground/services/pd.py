"""The playground's PD over gRPC: members, timestamps, regions, stores, GC safe points, as PD 8.5 answers; GC barriers as newer ones do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio

from tidemill import tso
from tidemill.playground.services.members import Member, Members
from tidemill.playground.store.cluster import Cluster, Store
from tidemill.playground.store.feed import region_message
from tidemill.playground.store.regions import Region
from tidemill.playground.store.safepoints import GC_WORKER, ServiceSafePoint
from tidemill.wire import metapb_pb2 as metapb
from tidemill.wire import pdpb_pb2 as pdpb

BARRIERS = ("GetGCState", "SetGCBarrier", "DeleteGCBarrier")
"""Calls that PD 8.5 does not know; clients fall back to service safe points."""
UNIMPLEMENTED = ("SetGlobalGCBarrier", "DeleteGlobalGCBarrier")
NO_KEYSPACE = pdpb.KeyspaceScope(keyspace_id=0xFFFFFFFF)

Context: TypeAlias = grpc.aio.ServicerContext
Handler = Callable[[Any, Context], Awaitable[Any]]


class PdService:
    """Answers of one PD member. `scheme`: that of the addresses in answers. `gc_barriers`: whether it serves them. A member that does
    not lead answers GetMembers and GetClusterInfo only."""

    def __init__(self, cluster: Cluster, members: Members, member_id: int, *, scheme: str = "http", gc_barriers: bool = False) -> None:
        self._cluster, self._members, self._id = cluster, members, member_id
        self._scheme, self._gc_barriers = scheme, gc_barriers

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler of `pdpb.PD`."""
        unary: dict[str, tuple[Any, Handler]] = {
            "GetMembers": (pdpb.GetMembersRequest, self._get_members),
            "GetClusterInfo": (pdpb.GetClusterInfoRequest, self._get_cluster_info),
            "GetClusterConfig": (pdpb.GetClusterConfigRequest, self._checked(self._get_cluster_config)),
            "GetAllStores": (pdpb.GetAllStoresRequest, self._checked(self._get_all_stores)),
            "GetStore": (pdpb.GetStoreRequest, self._checked(self._get_store)),
            "GetRegion": (pdpb.GetRegionRequest, self._checked(self._get_region)),
            "GetPrevRegion": (pdpb.GetRegionRequest, self._checked(self._get_previous_region)),
            "GetRegionByID": (pdpb.GetRegionByIDRequest, self._checked(self._get_region_by_id)),
            "ScanRegions": (pdpb.ScanRegionsRequest, self._checked(self._scan_regions)),
            "BatchScanRegions": (pdpb.BatchScanRegionsRequest, self._checked(self._batch_scan_regions)),
            "GetGCSafePoint": (pdpb.GetGCSafePointRequest, self._checked(self._get_gc_safe_point)),
            "UpdateServiceGCSafePoint": (pdpb.UpdateServiceGCSafePointRequest, self._checked(self._update_service_safe_point)),
        }
        unknown: tuple[str, ...] = UNIMPLEMENTED
        if self._gc_barriers:
            unary["GetGCState"] = pdpb.GetGCStateRequest, self._checked(self._get_gc_state)
            unary["SetGCBarrier"] = pdpb.SetGCBarrierRequest, self._checked(self._set_gc_barrier)
            unary["DeleteGCBarrier"] = pdpb.DeleteGCBarrierRequest, self._checked(self._delete_gc_barrier)
        else:
            unknown += BARRIERS
        methods = {
            name: grpc.unary_unary_rpc_method_handler(call, message.FromString, lambda answer: answer.SerializeToString())
            for name, (message, call) in unary.items()
        }
        methods.update({name: grpc.unary_unary_rpc_method_handler(_unknown(name)) for name in unknown})
        methods["Tso"] = grpc.stream_stream_rpc_method_handler(
            self._tso, pdpb.TsoRequest.FromString, lambda answer: answer.SerializeToString()
        )
        return grpc.method_handlers_generic_handler("pdpb.PD", methods)

    def _header(self) -> pdpb.ResponseHeader:
        return pdpb.ResponseHeader(cluster_id=self._cluster.cluster_id)

    def _checked(self, call: Handler) -> Handler:
        """Wrap a call in PD's check of the cluster id."""

        async def check(request: Any, context: Context) -> Any:
            await self._check_cluster(request.header.cluster_id, context)
            if self._members.leader != self._id:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "not leader")
            return await call(request, context)

        return check

    async def _check_cluster(self, asked: int, context: Context) -> None:
        known = self._cluster.cluster_id
        if asked != known:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"mismatch cluster id, need {known} but got {asked}")

    # members and time

    async def _get_members(self, request: pdpb.GetMembersRequest, context: Context) -> pdpb.GetMembersResponse:
        leading = self._members.leading
        leader = self._member(leading) if leading is not None else None
        members = [self._member(m) for m in self._members.all.values()]
        return pdpb.GetMembersResponse(header=self._header(), members=members, leader=leader, etcd_leader=leader)

    def _member(self, member: Member) -> pdpb.Member:
        url = f"{self._scheme}://{member.address}"
        return pdpb.Member(name=member.name, member_id=member.id, peer_urls=[url], client_urls=[url])

    async def _get_cluster_info(self, request: pdpb.GetClusterInfoRequest, context: Context) -> pdpb.GetClusterInfoResponse:
        return pdpb.GetClusterInfoResponse(header=self._header(), serviceModes=[pdpb.PD_SVC_MODE])

    async def _get_cluster_config(self, request: pdpb.GetClusterConfigRequest, context: Context) -> pdpb.GetClusterConfigResponse:
        return pdpb.GetClusterConfigResponse(
            header=self._header(), cluster=metapb.Cluster(id=self._cluster.cluster_id, max_peer_count=min(3, len(self._cluster.stores)))
        )

    async def _tso(self, requests: AsyncIterator[pdpb.TsoRequest], context: Context) -> AsyncIterator[pdpb.TsoResponse]:
        async for request in requests:
            await self._check_cluster(request.header.cluster_id, context)
            if request.count < 1:
                await context.abort(grpc.StatusCode.UNKNOWN, "tso count should be positive")
            if self._members.leader != self._id:
                await context.abort(grpc.StatusCode.UNKNOWN, "generate timestamp failed, requested pd is not leader of cluster")
            ts = self._cluster.oracle.next(request.count)
            stamp = pdpb.Timestamp(physical=tso.physical_ms(ts), logical=tso.logical(ts))
            yield pdpb.TsoResponse(header=self._header(), count=request.count, timestamp=stamp)

    # stores

    def _store(self, store: Store) -> metapb.Store:
        return metapb.Store(
            id=store.id, address=store.address, peer_address=store.address, version=store.version, node_state=metapb.Serving,
            last_heartbeat=tso.physical_ms(self._cluster.oracle.last) * 1_000_000,
        )  # fmt: skip

    async def _get_all_stores(self, request: pdpb.GetAllStoresRequest, context: Context) -> pdpb.GetAllStoresResponse:
        stores = [self._store(s) for s in self._cluster.stores.values()]
        return pdpb.GetAllStoresResponse(header=self._header(), stores=stores)

    async def _get_store(self, request: pdpb.GetStoreRequest, context: Context) -> pdpb.GetStoreResponse:
        store = self._cluster.stores.get(request.store_id)
        if store is None:
            header = self._header()
            header.error.type = pdpb.UNKNOWN
            header.error.message = f"invalid store ID {request.store_id}, not found"
            return pdpb.GetStoreResponse(header=header)
        return pdpb.GetStoreResponse(header=self._header(), store=self._store(store), stats=pdpb.StoreStats(store_id=store.id))

    # regions

    async def _get_region(self, request: pdpb.GetRegionRequest, context: Context) -> pdpb.GetRegionResponse:
        return self._region_answer(self._cluster.regions.at_encoded(request.region_key))

    async def _get_previous_region(self, request: pdpb.GetRegionRequest, context: Context) -> pdpb.GetRegionResponse:
        regions = self._cluster.regions
        return self._region_answer(regions.before(regions.at_encoded(request.region_key)))

    async def _get_region_by_id(self, request: pdpb.GetRegionByIDRequest, context: Context) -> pdpb.GetRegionResponse:
        return self._region_answer(self._cluster.regions.get(request.region_id))

    def _region_answer(self, region: Region | None) -> pdpb.GetRegionResponse:
        if region is None or self._members.is_cold(region.id):
            return pdpb.GetRegionResponse(header=self._header())
        return pdpb.GetRegionResponse(header=self._header(), region=region_message(region), leader=_leader(region))

    async def _scan_regions(self, request: pdpb.ScanRegionsRequest, context: Context) -> pdpb.ScanRegionsResponse:
        found = self._known(request.start_key, request.end_key, request.limit)
        return pdpb.ScanRegionsResponse(
            header=self._header(),
            region_metas=[region_message(r) for r in found],
            leaders=[_leader(r) for r in found],
            regions=[_described(r) for r in found],
        )

    async def _batch_scan_regions(self, request: pdpb.BatchScanRegionsRequest, context: Context) -> pdpb.BatchScanRegionsResponse:
        found: dict[int, Region] = {}
        for wanted in request.ranges:
            for region in self._known(wanted.start_key, wanted.end_key, request.limit):
                if request.limit <= 0 or len(found) < request.limit:
                    found.setdefault(region.id, region)
        return pdpb.BatchScanRegionsResponse(header=self._header(), regions=[_described(r) for r in found.values()])

    def _known(self, start: bytes, end: bytes, limit: int) -> list[Region]:
        """Return the regions that this leader knows already."""
        found = self._cluster.regions.between_encoded(start, end, limit)
        return [region for region in found if not self._members.is_cold(region.id)]

    # garbage collection

    async def _get_gc_safe_point(self, request: pdpb.GetGCSafePointRequest, context: Context) -> pdpb.GetGCSafePointResponse:
        return pdpb.GetGCSafePointResponse(header=self._header(), safe_point=self._cluster.safe_points.collected)

    async def _update_service_safe_point(
        self, request: pdpb.UpdateServiceGCSafePointRequest, context: Context
    ) -> pdpb.UpdateServiceGCSafePointResponse:
        points = self._cluster.safe_points
        try:
            minimum = points.update(request.service_id, request.TTL, request.safe_point)
        except ValueError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return pdpb.UpdateServiceGCSafePointResponse(
            header=self._header(),
            service_id=minimum.service_id,
            TTL=minimum.ttl(tso.physical_ms(self._cluster.oracle.last) // 1000),
            min_safe_point=minimum.safe_point,
        )

    async def _get_gc_state(self, request: pdpb.GetGCStateRequest, context: Context) -> pdpb.GetGCStateResponse:
        points = self._cluster.safe_points
        barriers = [self._barrier_info(s) for s in points.services() if s.service_id != GC_WORKER]
        state = pdpb.GCState(
            keyspace_scope=NO_KEYSPACE, txn_safe_point=points.collected, gc_safe_point=points.collected, gc_barriers=barriers
        )  # fmt: skip
        return pdpb.GetGCStateResponse(header=self._header(), gc_state=state)

    async def _set_gc_barrier(self, request: pdpb.SetGCBarrierRequest, context: Context) -> pdpb.SetGCBarrierResponse:
        try:
            barrier = self._cluster.safe_points.set_barrier(request.barrier_id.encode(), request.barrier_ts, request.ttl_seconds)
        except ValueError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return pdpb.SetGCBarrierResponse(header=self._header(), new_barrier_info=self._barrier_info(barrier))

    async def _delete_gc_barrier(self, request: pdpb.DeleteGCBarrierRequest, context: Context) -> pdpb.DeleteGCBarrierResponse:
        removed = self._cluster.safe_points.delete_barrier(request.barrier_id.encode())
        info = self._barrier_info(removed) if removed is not None else None
        return pdpb.DeleteGCBarrierResponse(header=self._header(), deleted_barrier_info=info)

    def _barrier_info(self, point: ServiceSafePoint) -> pdpb.GCBarrierInfo:
        ttl = point.ttl(tso.physical_ms(self._cluster.oracle.last) // 1000)
        return pdpb.GCBarrierInfo(barrier_id=point.service_id.decode(errors="replace"), barrier_ts=point.safe_point, ttl_seconds=ttl)


def _unknown(name: str) -> Handler:
    async def refuse(request: bytes, context: Context) -> bytes:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {name} for service pdpb.PD")
        return b""

    return refuse


def _leader(region: Region) -> metapb.Peer:
    return metapb.Peer(id=region.leader.id, store_id=region.leader.store_id)


def _described(region: Region) -> pdpb.Region:
    return pdpb.Region(region=region_message(region), leader=_leader(region))
