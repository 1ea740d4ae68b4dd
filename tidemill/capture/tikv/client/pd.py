"""The client of the Placement Driver: members and their leader, timestamps, regions, stores, GC safe points.

Every call goes to the leader. After a lost leader, a follower's refusal or a broken connection, all members are asked for the leader and
the call is tried again, for at most `retry_s` seconds. The rules are PD's (see the comments of the fields in wire/pdpb.proto).
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from tidemill.capture.tikv.client.channels import Backoff, Channels, checked_address, is_address, plain_address
from tidemill.capture.tikv.client.range_scan import scan_each
from tidemill.capture.tikv.client.tls import Security, security_of
from tidemill.capture.tikv.model import Peer, Region
from tidemill.errors import ClusterMismatch, ConfigError, UpstreamError, UpstreamUnavailable, VersionTooOld
from tidemill.tso import LOGICAL_BITS, MAX_TS
from tidemill.wire import keyspacepb_pb2, keyspacepb_pb2_grpc, metapb_pb2, pdpb_pb2, pdpb_pb2_grpc

OLDEST = (7, 5, 0)
"""The oldest PD and TiKV that live capture supports (stream multiplexing)."""

CALL_TIMEOUT = 3.0
"""Timeout of a single call in seconds."""

STAGGER = 0.5
"""Seconds to wait for a member's answer before the next one is asked too."""

_FATAL_HEADER_ERRORS = {pdpb_pb2.INCOMPATIBLE_VERSION, pdpb_pb2.STORE_TOMBSTONE, pdpb_pb2.INVALID_VALUE}
LOOK_EVERY = 60.0
"""Seconds between two checks for added or removed members."""

QUIET = 10.0
"""Seconds without an error after which the next error is logged again."""

_FINAL = ("not found", "behind the txn safe point", "of gc_worker", "InvalidKeyspace", "should be positive")
"""Errors without a type that a retry does not fix, recognised by their text. All others may be a passing problem of PD's storage or
election: those have no type either."""

_NO_CLUSTER = "No TiKV has joined this PD yet: it is a new cluster, or --pd names the PD of another one."

REFUSALS = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)

_NO_KEYSPACE = pdpb_pb2.KeyspaceScope(keyspace_id=0xFFFFFFFF)
"""The scope of a cluster without keyspaces."""

_log = logging.getLogger(__name__)

_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Store:
    """A TiKV (or TiFlash) server."""

    id: int
    address: str
    version: str
    tombstone: bool
    tiflash: bool


@dataclass(frozen=True, slots=True)
class GcState:
    """The GC state of PD 9 and newer. Reads at or above `txn_safe_point` are allowed. Versions below `gc_safe_point` may be gone.
    `barriers`: id and ts of those that hold GC back."""

    txn_safe_point: int
    gc_safe_point: int
    barriers: tuple[tuple[str, int], ...] = ()


def region_of(region: metapb_pb2.Region, leader: metapb_pb2.Peer | None = None) -> Region:
    """Return the Region of a message. A leader with id 0 means that no leader is known."""
    known = Peer(leader.id, leader.store_id) if leader is not None and leader.id else None
    peers = tuple(Peer(p.id, p.store_id) for p in region.peers)
    epoch = region.region_epoch
    return Region(region.id, region.start_key, region.end_key, epoch.conf_ver, epoch.version, known, peers)


def store_of(store: metapb_pb2.Store) -> Store:
    """Return the Store of a message."""
    tiflash = any(label.key == "engine" and label.value.startswith("tiflash") for label in store.labels)
    gone = store.state == metapb_pb2.Tombstone or store.node_state == metapb_pb2.Removed
    return Store(store.id, plain_address(store.address), store.version, gone, tiflash)


def parse_version(text: str) -> tuple[int, int, int] | None:
    """Return major, minor, patch of `v8.5.1-alpha-3-gabc-dirty`; None if the text is not a version."""
    found = _VERSION.match(text.strip())
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


_T = TypeVar("_T")


class _Unimplemented(UpstreamError):
    """PD is too old to know this call."""


class PdClient:
    """A connection to PD, made by `connect`. Belongs to one event loop; calls may run concurrently."""

    def __init__(self, addresses: Sequence[str], retry_s: float = 30.0, channels: Channels | None = None) -> None:
        self.retry_s = retry_s
        self.cluster_id = 0
        self._seeds = tuple(checked_address(a, "--pd") for a in addresses if a.strip())
        if not self._seeds:
            raise ConfigError("no PD address given")
        self._members: tuple[str, ...] = self._seeds
        self._versions: dict[str, str] = {}
        self._leader = ""
        self._channels = channels or Channels()
        self._lookup = asyncio.Lock()
        self._tso_lock = asyncio.Lock()
        self._tso_call: Any = None
        self._no_batch_scan = False
        self._quiet_until = 0.0
        self._looked = 0.0  # monotonic time when the members were last asked
        self._looking: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls, addresses: Sequence[str] | str, *, cluster_id: int | None = None, retry_s: float = 30.0, security: Security | None = None
    ) -> PdClient:
        """Find the leader. Raises UpstreamUnavailable after `retry_s` s, ClusterMismatch if the cluster is not `cluster_id`.

        Without `security`, https:// addresses are reached with TLS that trusts the system's CAs."""
        given = addresses.split(",") if isinstance(addresses, str) else addresses
        client = cls(given, retry_s, Channels(security or security_of(given, None, None, None)))
        try:
            await client._retry("GetMembers", client.refresh)
        except BaseException:
            await client.close()
            raise
        if cluster_id is not None and client.cluster_id != cluster_id:
            found = client.cluster_id
            await client.close()
            raise ClusterMismatch(f"PD {', '.join(client._seeds)} serves cluster {found}, not cluster {cluster_id}")
        return client

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of all known members."""
        return self._members

    @property
    def leader(self) -> str:
        """The leader's address."""
        return self._leader

    @property
    def channels(self) -> Channels:
        """The channels, shared with the stores' clients."""
        return self._channels

    async def close(self) -> None:
        """Close all connections (also those of stores opened through `channels`)."""
        if self._looking is not None:
            self._looking.cancel()
        self._drop_tso()
        await self._channels.close()

    # ------------------------------------------------------------------ members

    async def refresh(self, failed: str | None = None) -> None:
        """Ask the members for the leader, one after the other with a short delay, `failed` last. Do nothing if the leader is no longer
        `failed`.

        Raises UpstreamUnavailable, ClusterMismatch."""
        async with self._lookup:
            if failed is not None and self._leader != failed:
                return  # another call has just found the new leader
            failures: list[str] = []
            known = dict.fromkeys((self._leader or self._members[0], *self._members, *self._seeds))
            waiting = deque(sorted(known, key=lambda address: address == failed))
            asked: dict[asyncio.Task[Any], str] = {}
            try:
                while waiting or asked:
                    if waiting:
                        address = waiting.popleft()
                        asked[asyncio.ensure_future(self._ask_members(address))] = address
                    done, _ = await asyncio.wait(asked, timeout=STAGGER if waiting else None, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        address, answer = asked.pop(task), task.result()
                        if isinstance(answer, str):
                            failures.append(f"{address}: {answer}")
                        elif self._adopt(answer, address):
                            return
                        else:
                            failures.append(f"{address}: {answer.header.error.message or 'no leader'}")
            finally:
                for task in asked:
                    task.cancel()
            raise UpstreamUnavailable(f"no PD member answers with a leader ({'; '.join(failures)})", hint=_hint(failures))

    async def _ask_members(self, address: str) -> Any:
        """Return the member's answer, or an error text."""
        try:
            stub = pdpb_pb2_grpc.PDStub(self._channels.get(address))
            return await stub.GetMembers(pdpb_pb2.GetMembersRequest(), timeout=CALL_TIMEOUT)
        except grpc.aio.AioRpcError as e:
            return f"{e.code().name} {e.details()}"
        except UpstreamUnavailable as e:
            return e.message

    def _adopt(self, answer: pdpb_pb2.GetMembersResponse, asked: str) -> bool:
        found = answer.header.cluster_id  # 0: PD is starting and does not know it yet
        if self.cluster_id and found not in (0, self.cluster_id):
            raise ClusterMismatch(f"PD {asked} serves cluster {found}, the others cluster {self.cluster_id}")
        leader = self._way_to(answer.leader)
        if not leader or not found:
            return False
        self.cluster_id, self._looked = found, time.monotonic()
        self._members = tuple(way for m in answer.members if (way := self._way_to(m))) or self._seeds
        self._versions = {m.name or str(m.member_id): m.binary_version for m in answer.members}
        if leader != self._leader:
            self._drop_tso()
            self._leader = leader
        return True

    def _way_to(self, member: pdpb_pb2.Member) -> str:
        """Choose among a member's advertised addresses the one that the user gave: others may be internal. Empty: it has none."""
        told = [address for address in map(plain_address, member.client_urls) if is_address(address)]
        return next((address for address in told if address in self._seeds), told[0] if told else "")

    # ------------------------------------------------------------------ calls

    def _header(self) -> pdpb_pb2.RequestHeader:
        return pdpb_pb2.RequestHeader(cluster_id=self.cluster_id)

    async def _retry(self, what: str, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Run `attempt`. If it fails in a way that may pass, find the leader and try again, for at most `retry_s` seconds."""
        until = time.monotonic() + self.retry_s
        backoff = Backoff(0.1, 3.0)
        while True:
            leader = self._leader
            try:
                answer = await attempt()
                if time.monotonic() - self._looked > LOOK_EVERY:
                    self._looked = time.monotonic()
                    self._looking = asyncio.ensure_future(self._look_again())
                return answer
            except UpstreamUnavailable as e:
                wait = backoff.next()
                if time.monotonic() + wait > until:
                    raise UpstreamUnavailable(f"PD does not answer {what}: {e.message}", hint=e.hint) from None
                self._tell(e, until - time.monotonic())
            await asyncio.sleep(wait)
            if attempt != self.refresh:
                try:
                    await self.refresh(leader)
                except UpstreamUnavailable as e:
                    if time.monotonic() > until:
                        raise UpstreamUnavailable(f"PD does not answer {what}: {e.message}", hint=e.hint) from None

    async def _look_again(self) -> None:
        """Update the member list, because members change: a client that asks only after a failure could one day know no live member."""
        try:
            await self.refresh()
        except UpstreamError as e:  # also for another cluster: the leader has just answered
            _log.debug("%s", e.message)

    def _tell(self, error: UpstreamError, left: float) -> None:
        """Log the error once, however many calls meet it."""
        now = time.monotonic()
        if now >= self._quiet_until:
            _log.warning("%s; trying again for %.0f s", error.message, left)
        self._quiet_until = now + QUIET

    async def _call(self, name: str, request: Any, service: Any = pdpb_pb2_grpc.PDStub) -> Any:
        """Make one unary call to the leader, and try it again while that may help.

        Raises ClusterMismatch, UpstreamUnavailable, _Unimplemented, UpstreamError.
        """

        async def attempt() -> Any:
            leader = self._leader
            request.header.CopyFrom(self._header())
            try:
                answer = await getattr(service(self._channels.get(leader)), name)(request, timeout=CALL_TIMEOUT)
            except grpc.aio.AioRpcError as e:
                raise _error_of(e, name, leader) from None
            error = answer.header.error
            if error.type != pdpb_pb2.OK:
                text = f"PD {leader} answers {name} with {_word(error.type)}: {error.message}"
                fatal = error.type in _FATAL_HEADER_ERRORS or _is_final(error.message)
                hint = _NO_CLUSTER if error.type == pdpb_pb2.NOT_BOOTSTRAPPED else ""
                raise UpstreamError(text) if fatal else UpstreamUnavailable(text, hint=hint)
            return answer

        return await self._retry(name, attempt)

    # ------------------------------------------------------------------ timestamps

    async def tso(self) -> int:
        """Return a new timestamp, above all earlier ones."""
        return await self._retry("Tso", self._one_tso)

    async def _one_tso(self) -> int:
        async with self._tso_lock:
            leader = self._leader
            try:
                if self._tso_call is None:
                    self._tso_call = pdpb_pb2_grpc.PDStub(self._channels.get(leader)).Tso()
                call = self._tso_call
                async with asyncio.timeout(CALL_TIMEOUT):
                    await call.write(pdpb_pb2.TsoRequest(header=self._header(), count=1))
                    answer = await call.read()
            except (TimeoutError, asyncio.InvalidStateError, asyncio.CancelledError) as e:
                self._drop_tso()
                task = asyncio.current_task()
                if isinstance(e, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                raise UpstreamUnavailable(f"PD {leader} did not return a timestamp") from None
            except grpc.aio.AioRpcError as e:
                self._drop_tso()
                raise _error_of(e, "Tso", leader) from None
            if answer is grpc.aio.EOF or answer is None or not answer.timestamp.physical:  # None: bytes that are no message
                self._drop_tso()
                raise UpstreamUnavailable(f"PD {leader} ended the stream of timestamps")
            ts = int(answer.timestamp.physical << LOGICAL_BITS) + int(answer.timestamp.logical)
            if not 0 < ts <= MAX_TS:
                self._drop_tso()
                raise UpstreamUnavailable(f"PD {leader} answers with {ts}, which is no timestamp")
            return ts

    def _drop_tso(self) -> None:
        if self._tso_call is not None:
            self._tso_call.cancel()
            self._tso_call = None

    # ------------------------------------------------------------------ stores and regions

    async def stores(self) -> list[Store]:
        """Return all stores, including tombstones and TiFlash."""
        return [store_of(s) for s in (await self._call("GetAllStores", pdpb_pb2.GetAllStoresRequest())).stores]

    async def store(self, store_id: int) -> Store | None:
        """Return one store; None if PD does not know it."""
        try:
            return store_of((await self._call("GetStore", pdpb_pb2.GetStoreRequest(store_id=store_id))).store)
        except UpstreamError as e:
            if "not found" in e.message:
                return None
            raise

    async def scan_regions(self, start: bytes, end: bytes, limit: int = 1024) -> list[Region]:
        """Return at most `limit` regions of the encoded range [start, end) (an empty end is open) in key order, as PD knows them now: the
        list may have holes, begin late or be stale, and a region may have no leader."""
        return await self.scan_ranges([(start, end)], limit)

    async def scan_ranges(self, ranges: Sequence[tuple[bytes, bytes]], limit: int = 1024) -> list[Region]:
        """Like `scan_regions`, for several ranges in one call. The ranges are in key order and do not overlap. Fewer than `limit` regions
        are all there are. See range_scan.py for PD before 8.2."""
        if not self._no_batch_scan:
            wanted = [pdpb_pb2.KeyRange(start_key=start, end_key=end) for start, end in ranges]
            try:
                answer = await self._call("BatchScanRegions", pdpb_pb2.BatchScanRegionsRequest(ranges=wanted, limit=limit))
                return [region_of(r.region, r.leader) for r in answer.regions]
            except _Unimplemented:
                self._no_batch_scan = True
        return await scan_each(self._scan, ranges, limit)

    async def _scan(self, start: bytes, end: bytes, limit: int) -> list[Region]:
        """Scan one range by the call that every version of PD knows."""
        answer = await self._call("ScanRegions", pdpb_pb2.ScanRegionsRequest(start_key=start, end_key=end, limit=limit))
        if answer.regions:
            return [region_of(r.region, r.leader) for r in answer.regions]
        return [region_of(r, leader) for r, leader in zip(answer.region_metas, answer.leaders, strict=False)]

    async def region(self, key: bytes) -> Region | None:
        """Return the region of an encoded key; None if PD does not know it yet."""
        answer = await self._call("GetRegion", pdpb_pb2.GetRegionRequest(region_key=key))
        return region_of(answer.region, answer.leader) if answer.region.id else None

    # ------------------------------------------------------------------ garbage collection

    async def gc_safe_point(self) -> int:
        """Return the ts below which versions may have been collected. 0: nothing has been collected yet."""
        return int((await self._call("GetGCSafePoint", pdpb_pb2.GetGCSafePointRequest())).safe_point)

    async def update_service_safe_point(self, service_id: str, ttl: int, safe_point: int) -> tuple[str, int]:
        """Ask PD to keep versions at and above `safe_point` for `ttl` s; ttl 0 removes the service safe point.

        Returns the service with the smallest safe point, and that safe point. If it is above `safe_point`, the request came too late and PD
        did NOT record it.
        """
        request = pdpb_pb2.UpdateServiceGCSafePointRequest(service_id=service_id.encode(), TTL=ttl, safe_point=safe_point)
        answer = await self._call("UpdateServiceGCSafePoint", request)
        return answer.service_id.decode(errors="replace"), int(answer.min_safe_point)

    async def gc_state(self) -> GcState | None:
        """Return the GC state; None if PD has no barriers (8.5 and older)."""
        try:
            answer = await self._call("GetGCState", pdpb_pb2.GetGCStateRequest(keyspace_scope=_NO_KEYSPACE))
        except _Unimplemented:
            return None
        state = answer.gc_state
        return GcState(state.txn_safe_point, state.gc_safe_point, tuple((b.barrier_id, b.barrier_ts) for b in state.gc_barriers))

    async def set_gc_barrier(self, barrier_id: str, barrier_ts: int, ttl: int) -> None:
        """Keep the txn safe point at or below `barrier_ts` for `ttl` s. Raises UpstreamError if it is above already."""
        request = pdpb_pb2.SetGCBarrierRequest(
            keyspace_scope=_NO_KEYSPACE, barrier_id=barrier_id, barrier_ts=barrier_ts, ttl_seconds=ttl
        )  # fmt: skip
        await self._call("SetGCBarrier", request)

    async def delete_gc_barrier(self, barrier_id: str) -> None:
        """Delete a barrier. It is not an error if there is none."""
        await self._call("DeleteGCBarrier", pdpb_pb2.DeleteGCBarrierRequest(keyspace_scope=_NO_KEYSPACE, barrier_id=barrier_id))

    # ------------------------------------------------------------------ what cluster this is

    async def check_versions(self) -> None:
        """Raise VersionTooOld for the first PD or TiKV older than 7.5."""
        await self._retry("GetMembers", self.refresh)
        found = [(f"PD {name}", version) for name, version in sorted(self._versions.items()) if version]
        found += [(f"TiKV {s.address}", s.version) for s in await self.stores() if not s.tombstone and not s.tiflash]
        for what, version in found:
            parsed = parse_version(version)
            if parsed is not None and parsed < OLDEST:
                raise VersionTooOld(
                    f"{what} has version {version}; capture needs 7.5.0 or newer",
                    hint="Upgrade the cluster, or capture its TiDB Binlog stream instead.",
                )

    async def keyspaces(self) -> list[str]:
        """Return the names of the enabled keyspaces besides DEFAULT; empty if PD has none."""
        request = keyspacepb_pb2.GetAllKeyspacesRequest()
        try:
            answer = await self._call("GetAllKeyspaces", request, keyspacepb_pb2_grpc.KeyspaceStub)
        except (_Unimplemented, UpstreamError):
            return []
        return [k.name for k in answer.keyspaces if k.state == keyspacepb_pb2.ENABLED and k.id != 0]


def _error_of(error: Any, name: str, leader: str) -> UpstreamError:
    """Return the error for a failed call."""
    code, details = error.code(), error.details() or ""
    text = f"PD {leader} failed {name}: {code.name} {details}"
    if "mismatch cluster id" in details:
        return ClusterMismatch(text)
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return _Unimplemented(text)
    if code in REFUSALS:
        return refused(f"PD {leader}", f"{code.name} {details}")
    if code == grpc.StatusCode.INVALID_ARGUMENT:
        return UpstreamError(text)
    if code == grpc.StatusCode.UNKNOWN and _is_final(details):
        return UpstreamError(text)
    return UpstreamUnavailable(text, hint=_hint([text]))


def refused(who: str, what: str) -> UpstreamError:
    """Return the error for a server that rejects this client; a retry would not help."""
    hint = "If the cluster verifies clients (cert-allowed-cn), --cert must have a common name that PD and TiKV allow."
    return UpstreamError(f"{who} refuses this client: {what}", hint=hint)


def _word(type_: int) -> str:
    """Return the name of a type of PD's errors, or the number of one that only a newer PD knows."""
    return str(pdpb_pb2.ErrorType.Name(type_)) if type_ in pdpb_pb2.ErrorType.values() else f"error {type_}"


def _is_final(text: str) -> bool:
    return any(words in text for words in _FINAL)


def _hint(failures: Sequence[str]) -> str:
    """Return a hint on the cause, by the words of the failures."""
    text = " ".join(failures)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "The certificates do not fit: --ca must be the CA of PD's and TiKV's certificates, and these must name the addresses."
    if "WRONG_VERSION_NUMBER" in text:
        return "PD does not speak TLS there: leave out --ca, --cert and --key, and write http://."
    if "DNS resolution failed" in text or "Domain name" in text or "Name or service not known" in text:
        return "A name has no address on this machine: PD's advertised client URLs must be reachable from here."
    if "refused" in text:
        return "Nothing listens there: is PD running, and is the port its client port (2379)?"
    return "Is that PD's client port, is it reachable from this machine, and does it want TLS (--ca, --cert, --key)?"
