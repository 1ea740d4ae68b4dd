"""The playground's TiKV over gRPC: reads at a version, locks and how they are resolved. One service object a store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio

from tidemill import tso
from tidemill.playground.store.cluster import Cluster, Pending
from tidemill.playground.store.feed import region_message
from tidemill.playground.store.mvcc import KeyLocked, Lock, LockKind, TxnLockNotFound
from tidemill.playground.store.regions import Region
from tidemill.wire import errorpb_pb2 as errorpb
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb

SCAN_LIMIT = 10_240
_LOCK_TYPES = {
    LockKind.PUT: kvrpcpb.Put,
    LockKind.DELETE: kvrpcpb.Del,
    LockKind.LOCK: kvrpcpb.Lock,
    LockKind.PESSIMISTIC: kvrpcpb.PessimisticLock,
}
Context: TypeAlias = grpc.aio.ServicerContext


class KvService:
    """Answers of one store."""

    def __init__(self, cluster: Cluster, store_id: int) -> None:
        self._cluster, self._store_id = cluster, store_id
        self.slow: dict[str, float] = {}
        """Seconds by call, as KvCheckTxnStatus, that this store works on it before anything happens. A client that gives a call up does not
        stop the work, as in TiKV."""
        self.running: Counter[str] = Counter()
        self.most_running: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._working: set[asyncio.Task[Any]] = set()

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler of `tikvpb.Tikv`."""
        calls: dict[str, tuple[Any, Any, Callable[[Any, Any, Region], None]]] = {
            "KvGet": (kvrpcpb.GetRequest, kvrpcpb.GetResponse, self._get),
            "KvBatchGet": (kvrpcpb.BatchGetRequest, kvrpcpb.BatchGetResponse, self._batch_get),
            "KvScan": (kvrpcpb.ScanRequest, kvrpcpb.ScanResponse, self._scan),
            "KvScanLock": (kvrpcpb.ScanLockRequest, kvrpcpb.ScanLockResponse, self._scan_lock),
            "KvCheckTxnStatus": (kvrpcpb.CheckTxnStatusRequest, kvrpcpb.CheckTxnStatusResponse, self._check_txn_status),
            "KvCheckSecondaryLocks": (
                kvrpcpb.CheckSecondaryLocksRequest, kvrpcpb.CheckSecondaryLocksResponse, self._check_secondary_locks,
            ),
            "KvResolveLock": (kvrpcpb.ResolveLockRequest, kvrpcpb.ResolveLockResponse, self._resolve_lock),
            "MvccGetByKey": (kvrpcpb.MvccGetByKeyRequest, kvrpcpb.MvccGetByKeyResponse, self._mvcc_get_by_key),
        }  # fmt: skip
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                self._counted(name, self._in_region(answer, call)), request.FromString, lambda message: message.SerializeToString()
            )
            for name, (request, answer, call) in calls.items()
        }
        return grpc.method_handlers_generic_handler("tikvpb.Tikv", methods)

    def _counted(self, name: str, call: Callable[[Any, Context], Awaitable[Any]]) -> Callable[[Any, Context], Awaitable[Any]]:
        """Count the calls that come and those that are at work, and work as slowly as `slow` says."""

        async def work(request: Any, context: Context) -> Any:
            self.running[name] += 1
            self.most_running[name] = max(self.most_running[name], self.running[name])
            try:
                if seconds := self.slow.get(name):
                    await asyncio.sleep(seconds)
                return await call(request, context)
            finally:
                self.running[name] -= 1

        async def answer(request: Any, context: Context) -> Any:
            self.calls[name] += 1
            if name not in self.slow:
                return await work(request, context)
            task = asyncio.ensure_future(work(request, context))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
            return await asyncio.shield(task)

        return answer

    def _in_region(self, answer: Any, call: Callable[[Any, Any, Region], None]) -> Callable[[Any, Context], Awaitable[Any]]:
        """Wrap a call in the checks that every request to a region has to pass."""

        async def check(request: Any, context: Context) -> Any:
            response = answer()
            region, error = self._locate(request.context)
            if error is not None or region is None:
                response.region_error.CopyFrom(error)
            else:
                call(request, response, region)
            return response

        return check

    def _locate(self, context: kvrpcpb.Context) -> tuple[Region | None, errorpb.Error | None]:
        region = self._cluster.regions.get(context.region_id)
        if context.peer.store_id not in (0, self._store_id):
            error = errorpb.Error(message="store not match")
            error.store_not_match.request_store_id = context.peer.store_id
            error.store_not_match.actual_store_id = self._store_id
            return None, error
        if region is None or region.peer_at(self._store_id) is None:
            error = errorpb.Error(message=f"region {context.region_id} not found")
            error.region_not_found.region_id = context.region_id
            return None, error
        if region.leader.store_id != self._store_id:
            error = errorpb.Error(message=f"peer is not leader for region {region.id}")
            error.not_leader.region_id = region.id
            error.not_leader.leader.id = region.leader.id
            error.not_leader.leader.store_id = region.leader.store_id
            return None, error
        epoch = context.region_epoch
        if (epoch.version, epoch.conf_ver) != (region.version, region.conf_ver):
            error = errorpb.Error(message=f"epoch not match: region {region.id} is at version {region.version}, not {epoch.version}")
            error.epoch_not_match.current_regions.append(region_message(region))
            return None, error
        return region, None

    # reads

    def _get(self, request: kvrpcpb.GetRequest, response: Any, region: Region) -> None:
        if _outside(region, request.key, response.region_error):
            return
        try:
            value = self._cluster.mvcc.get(request.key, request.version)
        except KeyLocked as error:
            response.error.locked.CopyFrom(lock_info(error.lock))
            return
        if value is None:
            response.not_found = True
        else:
            response.value = value

    def _batch_get(self, request: kvrpcpb.BatchGetRequest, response: Any, region: Region) -> None:
        for key in request.keys:
            if _outside(region, key, response.region_error):
                return
        for key in request.keys:
            try:
                value = self._cluster.mvcc.get(key, request.version)
            except KeyLocked as error:
                response.pairs.add(key=key).error.locked.CopyFrom(lock_info(error.lock))
                continue
            if value is not None:
                response.pairs.add(key=key, value=value)

    def _scan(self, request: kvrpcpb.ScanRequest, response: Any, region: Region) -> None:
        if request.start_key < region.start or (region.end and (not request.end_key or request.end_key > region.end)):
            response.pairs.add().error.abort = (
                f"Error(Txn(Error(InvalidReqRange {{ start: {request.start_key.hex()}, end: {request.end_key.hex()}, "
                f"lower_bound: {region.start.hex()}, upper_bound: {region.end.hex()} }})))"
            )
            return
        limit = min(request.limit or SCAN_LIMIT, SCAN_LIMIT)
        for key, found in self._cluster.mvcc.scan(request.start_key, request.end_key, request.version, limit):
            if isinstance(found, KeyLocked):
                response.pairs.add(key=key).error.locked.CopyFrom(lock_info(found.lock))
            elif request.key_only:
                response.pairs.add(key=key)
            else:
                response.pairs.add(key=key, value=found)

    def _mvcc_get_by_key(self, request: kvrpcpb.MvccGetByKeyRequest, response: Any, region: Region) -> None:
        """The lock of a key, its versions and its rollbacks, newest first."""
        mvcc = self._cluster.mvcc
        if _outside(region, request.key, response.region_error):
            return
        response.info.SetInParent()
        lock = mvcc.locks.get(request.key)
        if lock is not None:
            told = kvrpcpb.MvccLock(
                type=_LOCK_TYPES[lock.kind], start_ts=lock.start_ts, primary=lock.primary, short_value=lock.value or b""
            )
            response.info.lock.CopyFrom(told)
        writes = [
            kvrpcpb.MvccWrite(type=kvrpcpb.Del if value is None else kvrpcpb.Put, start_ts=start_ts, commit_ts=commit_ts)
            for commit_ts, start_ts, value in mvcc.tablet(request.key).history(request.key)
        ]
        rolled_back = [start_ts for key, start_ts in mvcc.rolled_back if key == request.key]
        writes += [kvrpcpb.MvccWrite(type=kvrpcpb.Rollback, start_ts=ts, commit_ts=ts) for ts in rolled_back]
        response.info.writes.extend(sorted(writes, key=lambda write: -write.commit_ts))

    # locks

    def _scan_lock(self, request: kvrpcpb.ScanLockRequest, response: Any, region: Region) -> None:
        start = max(request.start_key, region.start)
        end = min(filter(None, (request.end_key, region.end)), default=b"")
        locks = self._cluster.mvcc.locks_between(start, end, request.max_version)
        response.locks.extend(lock_info(lock) for lock in locks[: request.limit or None])

    def _check_txn_status(self, request: kvrpcpb.CheckTxnStatusRequest, response: Any, region: Region) -> None:
        cluster, key, start_ts = self._cluster, request.primary_key, request.lock_ts
        lock = cluster.mvcc.locks.get(key)
        if lock is not None and lock.start_ts == start_ts:
            expires = tso.physical_ms(start_ts) + lock.ttl_ms
            undecided = lock.async_commit and not request.force_sync_commit  # its secondaries decide whether it is committed
            if undecided or tso.physical_ms(request.current_ts) < expires:
                response.lock_ttl = lock.ttl_ms
                response.action = kvrpcpb.NoAction
                response.lock_info.CopyFrom(lock_info(lock))
                return
            cluster.rollback(Pending(start_ts, (key,)))
            response.action = kvrpcpb.TTLExpireRollback
            return
        commit_ts = cluster.mvcc.committed_at(key, start_ts)
        if commit_ts:
            response.commit_version = commit_ts
        elif (key, start_ts) not in cluster.mvcc.rolled_back:
            if request.rollback_if_not_exist:
                cluster.rollback(Pending(start_ts, (key,)))
                response.action = kvrpcpb.LockNotExistRollback
            else:
                response.error.txn_not_found.start_ts = start_ts
                response.error.txn_not_found.primary_key = key

    def _check_secondary_locks(self, request: kvrpcpb.CheckSecondaryLocksRequest, response: Any, region: Region) -> None:
        """Return the locks if all are there. Otherwise return the commit_ts, or 0 after the missing ones were rolled back."""
        cluster, start_ts = self._cluster, request.start_version
        for key in request.keys:
            if _outside(region, key, response.region_error):
                return
        found = [cluster.mvcc.locks.get(key) for key in request.keys]
        locks = [lock for lock in found if lock is not None and lock.start_ts == start_ts and lock.kind is not LockKind.PESSIMISTIC]
        if len(locks) == len(request.keys):
            response.locks.extend(lock_info(lock) for lock in locks)
            return
        missing = [key for key in request.keys if key not in {lock.key for lock in locks}]
        committed = [ts for ts in (cluster.mvcc.committed_at(key, start_ts) for key in missing) if ts]
        if committed:
            response.commit_ts = committed[0]
        else:
            cluster.rollback(Pending(start_ts, tuple(missing)))

    def _resolve_lock(self, request: kvrpcpb.ResolveLockRequest, response: Any, region: Region) -> None:
        fates = {info.txn: info.status for info in request.txn_infos} or {request.start_version: request.commit_version}
        wanted = set(request.keys)
        for lock in self._cluster.mvcc.locks_between(region.start, region.end):
            if lock.start_ts not in fates or (wanted and lock.key not in wanted):
                continue
            pending = Pending(lock.start_ts, (lock.key,))
            try:
                if fates[lock.start_ts]:
                    self._cluster.commit(pending, fates[lock.start_ts])
                else:
                    self._cluster.rollback(pending)
            except TxnLockNotFound as error:
                response.error.txn_lock_not_found.key = error.key
                return


def lock_info(lock: Lock) -> kvrpcpb.LockInfo:
    """Return a lock as TiKV reports it."""
    return kvrpcpb.LockInfo(
        primary_lock=lock.primary, lock_version=lock.start_ts, key=lock.key, lock_ttl=lock.ttl_ms, txn_size=1,
        lock_type=_LOCK_TYPES[lock.kind], use_async_commit=lock.async_commit, min_commit_ts=lock.min_commit_ts,
        secondaries=lock.secondaries,
    )  # fmt: skip


def _outside(region: Region, key: bytes, error: errorpb.Error) -> bool:
    """Fill in key_not_in_region if the key lies elsewhere."""
    if region.holds(key):
        return False
    error.message = f"key {key.hex()} is not in region {region.id}"
    error.key_not_in_region.key = key
    error.key_not_in_region.region_id = region.id
    error.key_not_in_region.start_key = region.start_encoded
    error.key_not_in_region.end_key = region.end_encoded
    return True
