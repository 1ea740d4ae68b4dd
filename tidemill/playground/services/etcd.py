"""etcd's API on PD's port: KV, Watch and Lease, as far as registries need them. Messages and service names are etcd's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from operator import attrgetter
from typing import Any, TypeAlias

import grpc
import grpc.aio

from tidemill.extras import extra
from tidemill.playground.store.etcd import EtcdStore, Event, LeaseUnknown, Pair

with extra("playground"):
    from etcd3aio import _protobuf

kv_pb2: Any = _protobuf.kv_pb2  # type: ignore[attr-defined]
rpc_pb2: Any = _protobuf.rpc_pb2  # type: ignore[attr-defined]

Context: TypeAlias = grpc.aio.ServicerContext
MEMBER = 1
NO_LEASE = "etcdserver: requested lease not found"

_SORT: dict[int, Callable[[Pair], Any]] = {
    rpc_pb2.RangeRequest.KEY: attrgetter("key"),
    rpc_pb2.RangeRequest.VERSION: attrgetter("version"),
    rpc_pb2.RangeRequest.CREATE: attrgetter("create_revision"),
    rpc_pb2.RangeRequest.MOD: attrgetter("mod_revision"),
    rpc_pb2.RangeRequest.VALUE: attrgetter("value"),
}


class EtcdService:
    """The handlers of one PD member."""

    def __init__(self, store: EtcdStore, cluster_id: int) -> None:
        self._store, self._cluster_id = store, cluster_id

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """The gRPC handlers of `etcdserverpb.KV`, `.Watch` and `.Lease`."""
        kv = {
            "Range": (rpc_pb2.RangeRequest, self._range),
            "Put": (rpc_pb2.PutRequest, self._put),
            "DeleteRange": (rpc_pb2.DeleteRangeRequest, self._delete),
            "Txn": (rpc_pb2.TxnRequest, self._txn),
        }
        lease = {
            "LeaseGrant": (rpc_pb2.LeaseGrantRequest, self._grant),
            "LeaseRevoke": (rpc_pb2.LeaseRevokeRequest, self._revoke),
            "LeaseTimeToLive": (rpc_pb2.LeaseTimeToLiveRequest, self._time_to_live),
        }
        streams = {
            "etcdserverpb.Watch": ("Watch", rpc_pb2.WatchRequest, self._watch),
            "etcdserverpb.Lease": ("LeaseKeepAlive", rpc_pb2.LeaseKeepAliveRequest, self._keep_alive),
        }
        methods: dict[str, dict[str, Any]] = {"etcdserverpb.KV": _unary(kv), "etcdserverpb.Lease": _unary(lease), "etcdserverpb.Watch": {}}
        for service, (name, request, call) in streams.items():
            methods[service][name] = grpc.stream_stream_rpc_method_handler(call, request.FromString, lambda a: a.SerializeToString())
        return [grpc.method_handlers_generic_handler(service, found) for service, found in methods.items()]

    def _header(self) -> Any:
        return rpc_pb2.ResponseHeader(cluster_id=self._cluster_id, member_id=MEMBER, revision=self._store.revision, raft_term=2)

    # KV

    async def _range(self, request: Any, context: Context) -> Any:
        self._store.expire()
        if request.revision and request.revision != self._store.revision:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "the playground's etcd reads the newest revision only")
        return self._found(request)

    def _found(self, request: Any) -> Any:
        found = self._store.between(request.key, request.range_end)
        if request.sort_order != rpc_pb2.RangeRequest.NONE:
            found.sort(key=_SORT[request.sort_target], reverse=request.sort_order == rpc_pb2.RangeRequest.DESCEND)
        shown = found[: request.limit] if request.limit else found
        pairs = [] if request.count_only else [_pair(pair, keys_only=request.keys_only) for pair in shown]
        return rpc_pb2.RangeResponse(header=self._header(), kvs=pairs, more=len(shown) < len(found), count=len(found))

    async def _put(self, request: Any, context: Context) -> Any:
        try:
            (event,) = self._store.change([(request.key, request.value, request.lease)])
        except LeaseUnknown:
            await context.abort(grpc.StatusCode.NOT_FOUND, NO_LEASE)
        return self._was_put(request, event)

    def _was_put(self, request: Any, event: Event) -> Any:
        before = _pair(event.before) if request.prev_kv and event.before is not None else None
        return rpc_pb2.PutResponse(header=self._header(), prev_kv=before)

    async def _delete(self, request: Any, context: Context) -> Any:
        return self._was_deleted(request, self._store.change(deletes=[(request.key, request.range_end)]))

    def _was_deleted(self, request: Any, events: list[Event]) -> Any:
        before = [_pair(event.before) for event in events if request.prev_kv and event.before is not None]
        return rpc_pb2.DeleteRangeResponse(header=self._header(), deleted=len(events), prev_kvs=before)

    async def _txn(self, request: Any, context: Context) -> Any:
        self._store.expire()
        succeeded = all(self._holds(compare) for compare in request.compare)
        operations = request.success if succeeded else request.failure
        puts = [(o.request_put.key, o.request_put.value, o.request_put.lease) for o in operations if o.HasField("request_put")]
        deleted = [o.request_delete_range for o in operations if o.HasField("request_delete_range")]
        try:
            events = self._store.change(puts, [(one.key, one.range_end) for one in deleted])
        except LeaseUnknown:
            await context.abort(grpc.StatusCode.NOT_FOUND, NO_LEASE)
        put = {event.pair.key: event for event in events if not event.deleted}
        answer = rpc_pb2.TxnResponse(header=self._header(), succeeded=succeeded)
        for one in operations:
            if one.HasField("request_put"):
                answer.responses.add().response_put.CopyFrom(self._was_put(one.request_put, put[one.request_put.key]))
            elif one.HasField("request_delete_range"):
                answer.responses.add().response_delete_range.CopyFrom(self._was_deleted(one.request_delete_range, events))
            elif one.HasField("request_range"):
                answer.responses.add().response_range.CopyFrom(self._found(one.request_range))
            else:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "the playground's etcd has no transactions in transactions")
        return answer

    def _holds(self, compare: Any) -> bool:
        pair = self._store.pairs.get(compare.key, Pair(compare.key, b"", 0, 0, 0))
        fields = {
            rpc_pb2.Compare.VERSION: (pair.version, compare.version),
            rpc_pb2.Compare.CREATE: (pair.create_revision, compare.create_revision),
            rpc_pb2.Compare.MOD: (pair.mod_revision, compare.mod_revision),
            rpc_pb2.Compare.VALUE: (pair.value, compare.value),
            rpc_pb2.Compare.LEASE: (pair.lease, compare.lease),
        }
        there, wanted = fields[compare.target]
        results = {
            rpc_pb2.Compare.EQUAL: there == wanted,
            rpc_pb2.Compare.NOT_EQUAL: there != wanted,
            rpc_pb2.Compare.GREATER: there > wanted,
            rpc_pb2.Compare.LESS: there < wanted,
        }
        return bool(results[compare.result])

    # leases

    async def _grant(self, request: Any, context: Context) -> Any:
        try:
            lease = self._store.grant(request.TTL, request.ID)
        except ValueError:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: lease already exists")
        return rpc_pb2.LeaseGrantResponse(header=self._header(), ID=lease.id, TTL=lease.ttl)

    async def _revoke(self, request: Any, context: Context) -> Any:
        try:
            self._store.revoke(request.ID)
        except LeaseUnknown:
            await context.abort(grpc.StatusCode.NOT_FOUND, NO_LEASE)
        return rpc_pb2.LeaseRevokeResponse(header=self._header())

    async def _time_to_live(self, request: Any, context: Context) -> Any:
        lease = self._store.leases.get(request.ID)
        granted = lease.ttl if lease is not None else 0
        keys = [pair.key for pair in self._store.pairs.values() if request.keys and pair.lease == request.ID]
        left = self._store.left(request.ID)
        return rpc_pb2.LeaseTimeToLiveResponse(header=self._header(), ID=request.ID, TTL=left, grantedTTL=granted, keys=keys)

    async def _keep_alive(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async for request in requests:
            lease = self._store.keep_alive(request.ID)
            yield rpc_pb2.LeaseKeepAliveResponse(header=self._header(), ID=request.ID, TTL=lease.ttl if lease is not None else 0)

    # watches

    async def _watch(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        watches: dict[int, tuple[Any, int]] = {}  # by id: what is watched, and the revision of the next event
        answers: list[Any] = []
        woken = asyncio.Event()

        async def listen() -> None:
            async for request in requests:
                if request.HasField("create_request"):
                    wanted = request.create_request
                    watch_id = wanted.watch_id or len(watches)
                    watches[watch_id] = wanted, wanted.start_revision or self._store.revision + 1
                    answers.append(rpc_pb2.WatchResponse(header=self._header(), watch_id=watch_id, created=True))
                elif request.HasField("cancel_request"):
                    watch_id = request.cancel_request.watch_id
                    watches.pop(watch_id, None)
                    answers.append(rpc_pb2.WatchResponse(header=self._header(), watch_id=watch_id, canceled=True))
                elif request.HasField("progress_request"):
                    answers.append(rpc_pb2.WatchResponse(header=self._header(), watch_id=-1))
                woken.set()

        listening = asyncio.ensure_future(listen())
        self._store.wake.add(woken.set)
        try:
            while True:
                woken.clear()
                while answers:
                    yield answers.pop(0)
                for watch_id, (wanted, revision) in list(watches.items()):
                    events = self._store.since(revision, wanted.key, wanted.range_end)
                    watches[watch_id] = wanted, self._store.revision + 1
                    kept = [_event(event, prev_kv=wanted.prev_kv) for event in events if int(event.deleted) not in wanted.filters]
                    if kept:
                        yield rpc_pb2.WatchResponse(header=self._header(), watch_id=watch_id, events=kept)
                await woken.wait()
        finally:
            self._store.wake.discard(woken.set)
            listening.cancel()


def _unary(calls: dict[str, Any]) -> dict[str, Any]:
    return {
        name: grpc.unary_unary_rpc_method_handler(call, request.FromString, lambda answer: answer.SerializeToString())
        for name, (request, call) in calls.items()
    }


def _pair(pair: Pair, *, keys_only: bool = False) -> Any:
    return kv_pb2.KeyValue(
        key=pair.key, value=b"" if keys_only else pair.value, create_revision=pair.create_revision, mod_revision=pair.mod_revision,
        version=pair.version, lease=pair.lease,
    )  # fmt: skip


def _event(event: Event, *, prev_kv: bool) -> Any:
    kind = kv_pb2.Event.DELETE if event.deleted else kv_pb2.Event.PUT
    return kv_pb2.Event(type=kind, kv=_pair(event.pair), prev_kv=_pair(event.before) if prev_kv and event.before is not None else None)
