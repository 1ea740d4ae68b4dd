"""The server side of the change feed, without sockets: streams, subscriptions, scans, live rows, resolved ts, region errors.

Requests come in as messages, events leave as bytes in each stream's outbox. The rules and their order are those observed on a
real TiKV (golden recordings): checks at register, incremental scan with INITIALIZED, unordered live rows, resolved ts in groups.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

from tidemill.errors import MalformedBytes
from tidemill.playground.store import wirebytes as wb
from tidemill.playground.store.mvcc import Lock, LockKind, Mvcc
from tidemill.playground.store.regions import Region, RegionMap
from tidemill.tidb.codec import decode_bytes
from tidemill.wire import cdcpb_pb2 as cdcpb
from tidemill.wire import metapb_pb2 as metapb

SCAN_BATCH_ROWS = 1024
EVENT_BYTES = 32 * 1024
MESSAGE_EVENTS = 64
MESSAGE_BYTES = 6 * 1024 * 1024
SHORT_VALUE = 255
LOCAL_SOURCE_MASK = 0xFF  # bits 0-7 of txn_source: written by a change data capture
LOSSY_DDL_MASK = 0xFF00  # bits 8-15: the reorganisation of a lossy column change
_SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
BATCH_RESOLVED_SINCE = (4, 0, 8)
CLUSTER_CHECK_SINCE = (5, 3, 0)


def feature_version(text: str) -> tuple[int, int, int]:
    """The version that a header claims; everything that is not a plain semver counts as 0.0.0."""
    match = _SEMVER.fullmatch(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)


def region_message(region: Region) -> metapb.Region:
    """A region as PD and TiKV describe it."""
    return metapb.Region(
        id=region.id,
        start_key=region.start_encoded,
        end_key=region.end_encoded,
        region_epoch=metapb.RegionEpoch(conf_ver=region.conf_ver, version=region.version),
        peers=[metapb.Peer(id=p.id, store_id=p.store_id) for p in region.peers],
    )


@dataclass(slots=True, eq=False)
class Subscription:
    """One region on one stream under one request id."""

    stream: FeedStream
    region_id: int
    request_id: int
    checkpoint_ts: int
    start: bytes  # raw keys
    end: bytes
    filter_loop: bool
    head: bytes
    initialized: bool = False
    alive: bool = True

    def covers(self, first: bytes, last: bytes) -> bool:
        """Whether all keys between two are in its range."""
        return self.start <= first and (not self.end or last < self.end)

    def wants(self, source: int) -> bool:
        """Whether rows with this txn_source are sent."""
        return not (self.filter_loop and source & LOCAL_SOURCE_MASK)


@dataclass(slots=True, eq=False)
class FeedStream:
    """One EventFeed call: what its client can do, its subscriptions and its outgoing bytes."""

    store_id: int
    multiplexing: bool
    wake: Callable[[], None]
    version: tuple[int, int, int] | None = None
    subscriptions: dict[tuple[int, int], Subscription] = field(default_factory=dict)  # (request_id, region_id)
    outbox: deque[tuple[bool, bytes]] = field(default_factory=deque)  # (is an Event, bytes)
    queued: int = 0
    closed: bool = False

    def key(self, request_id: int, region_id: int) -> tuple[int, int]:
        """Return what identifies a subscription."""
        return request_id, region_id

    def send_event(self, event: bytes) -> None:
        """Queue one Event."""
        self.outbox.append((True, event))
        self.queued += len(event)
        self.wake()

    def send_message(self, message: bytes) -> None:
        """Queue a whole message that must stay alone (a batched resolved ts)."""
        self.outbox.append((False, message))
        self.queued += len(message)
        self.wake()

    def take_message(self, max_events: int = MESSAGE_EVENTS) -> bytes | None:
        """The next message to write, with up to `max_events` queued events in it; None when nothing is queued."""
        if not self.outbox:
            return None
        is_event, first = self.outbox.popleft()
        self.queued -= len(first)
        if not is_event:
            return first
        events, size = [first], len(first)
        while self.outbox and len(events) < max_events and self.outbox[0][0] and size + len(self.outbox[0][1]) <= MESSAGE_BYTES:
            event = self.outbox.popleft()[1]
            self.queued -= len(event)
            size += len(event)
            events.append(event)
        return wb.events_message(events)


@dataclass(slots=True)
class FeedLimits:
    """The limits of a store. Small values provoke its errors."""

    pending_scans: int = 10_000
    sink_memory: int = 512 * 1024 * 1024


class FeedHub:
    """All streams of all stores of one cluster."""

    def __init__(self, cluster_id: int, mvcc: Mvcc, regions: RegionMap, now: Callable[[], int]) -> None:
        self.cluster_id = cluster_id
        self.limits = FeedLimits()
        self._mvcc, self._regions, self._now = mvcc, regions, now
        self._by_region: dict[int, list[Subscription]] = {}
        self._pending_scans = 0
        self.streams: set[FeedStream] = set()

    # streams and requests

    def open(self, stream: FeedStream) -> None:
        """Take part in the events."""
        self.streams.add(stream)

    def close(self, stream: FeedStream) -> None:
        """Forget a stream and its subscriptions."""
        stream.closed = True
        self.streams.discard(stream)
        for subscription in list(stream.subscriptions.values()):
            self._end(subscription)

    def request(self, stream: FeedStream, request: cdcpb.ChangeDataRequest) -> Scan | None:
        """Handle a request. For a register that is accepted, return a scan that the caller has to run. Errors are queued on the stream."""
        if stream.version is None:
            stream.version = feature_version(request.header.ticdc_version)
        if request.WhichOneof("request") == "deregister":
            self._deregister(stream, request)
            return None
        error = self._check(stream, request)
        if error is not None:
            stream.send_event(wb.error_event(wb.event_head(request.region_id, request.request_id), error))
            return None
        return self._subscribe(stream, request)

    def _check(self, stream: FeedStream, request: cdcpb.ChangeDataRequest) -> cdcpb.Error | None:
        """The first reason to refuse a register, in TiKV's order."""
        assert stream.version is not None
        if stream.version >= CLUSTER_CHECK_SINCE and request.header.cluster_id != self.cluster_id:
            mismatch = cdcpb.ClusterIDMismatch(current=self.cluster_id, request=request.header.cluster_id)
            return cdcpb.Error(cluster_id_mismatch=mismatch)
        if request.kv_api != cdcpb.ChangeDataRequest.TiDB:
            return cdcpb.Error(compatibility=cdcpb.Compatibility(required_version="6.2.0"))
        if self._pending_scans >= self.limits.pending_scans:
            error = cdcpb.Error()
            error.server_is_busy.reason = "too many pending incremental scans"
            return error
        region = self._regions.get(request.region_id)
        if region is None or region.peer_at(stream.store_id) is None:
            return region_not_found(request.region_id)
        if stream.key(request.request_id, request.region_id) in stream.subscriptions:
            return cdcpb.Error(duplicate_request=cdcpb.DuplicateRequest(region_id=request.region_id))
        if request.region_epoch.version != region.version:
            return self._epoch_error(region, request.region_epoch.version)
        if region.leader.store_id != stream.store_id:
            return not_leader(region)
        return None

    def _epoch_error(self, region: Region, asked: int) -> cdcpb.Error:
        """epoch_not_match with the region now, and the piece that was split off last if the client is one split behind."""
        current = [region]
        left = self._regions.before(region)
        if asked == region.version - 1 and left is not None and left.version == region.version:
            current.append(left)
        return epoch_not_match(current)

    def _subscribe(self, stream: FeedStream, request: cdcpb.ChangeDataRequest) -> Scan:
        region = self._regions.get(request.region_id)
        assert region is not None
        start, end = observed_range(region, request.start_key, request.end_key)
        subscription = Subscription(
            stream, region.id, request.request_id, request.checkpoint_ts, start, end, request.filter_loop,
            wb.event_head(region.id, request.request_id),
        )  # fmt: skip
        stream.subscriptions[stream.key(request.request_id, region.id)] = subscription
        self._by_region.setdefault(region.id, []).append(subscription)
        self._pending_scans += 1
        empty = bool(end) and start >= end
        locks = [] if empty else [lock for lock in self._mvcc.locks_between(start, end) if lock.holds_back]
        return Scan(self, subscription, self._mvcc, locks, self._now(), empty)

    def _deregister(self, stream: FeedStream, request: cdcpb.ChangeDataRequest) -> None:
        for (request_id, region_id), subscription in list(stream.subscriptions.items()):
            if request_id == request.request_id and request.region_id in (0, region_id):
                self._fail(subscription, region_not_found(region_id))

    def scan_closed(self) -> None:
        """A scan is over, however it ended."""
        self._pending_scans -= 1

    # what happens to subscriptions

    def _end(self, subscription: Subscription) -> None:
        subscription.alive = False
        subscription.stream.subscriptions.pop(subscription.stream.key(subscription.request_id, subscription.region_id), None)
        watchers = self._by_region.get(subscription.region_id)
        if watchers is not None:
            watchers.remove(subscription)
            if not watchers:
                del self._by_region[subscription.region_id]

    def _fail(self, subscription: Subscription, error: cdcpb.Error) -> None:
        self._end(subscription)
        subscription.stream.send_event(wb.error_event(subscription.head, error))

    def fail_region(self, region_id: int, error: cdcpb.Error) -> None:
        """End all subscriptions of a region with an error."""
        for subscription in list(self._by_region.get(region_id, ())):
            self._fail(subscription, error)

    def mute(self, region_id: int) -> None:
        """Drop the subscriptions of a region without telling the clients. They stay silent, whoever subscribes to the region later: rows
        that were written meanwhile come only with a new scan."""
        for subscription in list(self._by_region.get(region_id, ())):
            self._end(subscription)

    # live rows

    def watched(self, region_id: int) -> bool:
        """Whether anybody listens to a region."""
        return region_id in self._by_region

    def rows(self, region: Region, rows: list[tuple[bytes, bytes]], source: int = 0) -> None:
        """Send encoded entries (key, bytes) of one write to all subscriptions of a region. One write is one Event, unordered."""
        watchers = self._by_region.get(region.id)
        if not watchers or source & LOSSY_DDL_MASK:
            return
        first, last = (rows[0][0], rows[0][0]) if len(rows) == 1 else (min(rows)[0], max(rows)[0])
        shuffled = rows if len(rows) < 3 else rows[1::2] + rows[::2]  # in a store the order is that of a hash map
        whole: bytes | None = None
        for subscription in list(watchers):
            if not subscription.wants(source):
                continue
            if subscription.covers(first, last):
                if whole is None:
                    whole = b"".join([encoded for _, encoded in shuffled])
                entries = whole
            else:
                entries = b"".join([encoded for key, encoded in shuffled if subscription.covers(key, key)])
                if not entries:
                    continue
            self._send(subscription, entries)

    def lock_only(self, region: Region, keys: int) -> None:
        """Send what TiKV sends for `keys` keys of a region that a transaction locked and did not write: an empty row each, to the
        subscriptions of the whole region."""
        for subscription in list(self._by_region.get(region.id, ())):
            if (subscription.start, subscription.end) == (region.start, region.end):
                self._send(subscription, wb.EMPTY_ENTRY * keys)

    def _send(self, subscription: Subscription, entries: bytes) -> None:
        stream = subscription.stream
        if stream.queued > self.limits.sink_memory:
            self._fail(subscription, cdcpb.Error(congested=cdcpb.Congested(region_id=subscription.region_id)))
        else:
            stream.send_event(wb.entries_event(subscription.head, entries))

    # resolved ts

    def resolve(self, now: int) -> None:
        """Send every stream the resolved ts of its initialized subscriptions: min(now, smallest lock of the region)."""
        floors = self._lock_floors()
        for stream in self.streams:
            if stream.version is None:
                continue
            ready = [s for s in stream.subscriptions.values() if s.initialized]
            if stream.version < BATCH_RESOLVED_SINCE:
                for s in {s.region_id: s for s in ready}.values():  # one for each region: that of the latest register
                    stream.send_event(wb.resolved_event(s.head, min(now, floors.get(s.region_id, now))))
                continue
            groups: dict[int, set[int]] = {}
            for s in ready:
                groups.setdefault(s.request_id if stream.multiplexing else 0, set()).add(s.region_id)
            for request_id, region_ids in groups.items():
                _send_resolved(stream, request_id, sorted((min(now, floors.get(r, now)), r) for r in region_ids))

    def _lock_floors(self) -> dict[int, int]:
        floors: dict[int, int] = {}
        for lock in self._mvcc.locks.values():
            if lock.holds_back:
                region = self._regions.at(lock.key)
                floors[region.id] = min(floors.get(region.id, lock.start_ts), lock.start_ts)
        return floors


def _send_resolved(stream: FeedStream, request_id: int, regions: list[tuple[int, int]]) -> None:
    """Groups of 8, 32, 128, … regions, slowest first; each group carries its minimum."""
    at, size = 0, 8
    while at < len(regions):
        group = regions[at : at + size]
        stream.send_message(wb.resolved_message([r for _, r in group], group[0][0], request_id))
        at, size = at + size, size * 4


class Scan:
    """The incremental scan of one subscription: committed versions above its checkpoint and the locks of that moment.

    It reads the store piece by piece, but only what had been committed when it was made; what comes later is live.
    """

    def __init__(self, hub: FeedHub, subscription: Subscription, mvcc: Mvcc, locks: list[Lock], upto: int, empty: bool) -> None:
        self.subscription = subscription
        self._hub, self._mvcc, self._upto, self._empty = hub, mvcc, upto, empty
        self._closed = False
        self._locks = {lock.key: (lock, _newest_value(mvcc, lock.key)) for lock in locks}

    def batches(self) -> Generator[list[bytes], None, None]:
        """Events of up to 1024 rows at a time; the last one ends with INITIALIZED. Stops early when the subscription has ended."""
        subscription = self.subscription
        try:
            events = _EventCutter(subscription.head)
            for encoded, size in self._entries():
                events.add(encoded, size)
                if events.rows == SCAN_BATCH_ROWS:
                    yield events.take()
                    if not subscription.alive:
                        return
            if subscription.alive:
                events.add(wb.INITIALIZED_ENTRY, 0)
                subscription.initialized = True
                yield events.take()
        finally:
            self.close()

    def close(self) -> None:
        """End the scan, also one that never ran."""
        if not self._closed:
            self._closed = True
            self._hub.scan_closed()

    def _entries(self) -> Iterator[tuple[bytes, int]]:
        """Encoded rows with the bytes that count towards an event's size, in key order, newest version first."""
        if self._empty:
            return
        subscription, locks, upto = self.subscription, self._locks, self._upto
        after, sources = subscription.checkpoint_ts, self._mvcc.sources
        heads: dict[int, tuple[bytes, int]] = {}
        waiting = sorted(locks)
        for key, history in self._mvcc.items(subscription.start, subscription.end):
            while waiting and waiting[0] <= key:
                yield from self._lock_entry(waiting.pop(0))
            for position in range(len(history) - 1, -1, -1):
                commit_ts, start_ts, value = history[position]
                if commit_ts <= after:
                    break
                if commit_ts > upto:
                    continue
                known = heads.get(start_ts)
                if known is None:
                    known = heads[start_ts] = (wb.row_head(start_ts, commit_ts, wb.RowType.COMMITTED), sources.get(start_ts, 0))
                head, source = known
                if source and (source & LOSSY_DDL_MASK or not subscription.wants(source)):
                    continue
                old = history[position - 1][2] if position else None
                op = wb.OP_DELETE if value is None else wb.OP_PUT
                yield wb.entry(head, op, key, value, old, source), len(key) + len(value or b"") + len(old or b"")
        for key in waiting:
            yield from self._lock_entry(key)

    def _lock_entry(self, key: bytes) -> Iterator[tuple[bytes, int]]:
        lock, old = self._locks[key]
        if self.subscription.wants(lock.source) and not lock.source & LOSSY_DDL_MASK:
            head = wb.row_head(lock.start_ts, 0, wb.RowType.PREWRITE)
            op = wb.OP_DELETE if lock.kind is LockKind.DELETE else wb.OP_PUT
            yield wb.entry(head, op, key, lock.value, old, lock.source), len(key) + len(lock.value or b"") + len(old or b"")


class _EventCutter:
    """Collects rows into events of less than 32 KiB of keys and values (a larger row is alone)."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._events: list[bytes] = []
        self._entries: list[bytes] = []
        self._size = 0
        self.rows = 0

    def add(self, encoded: bytes, size: int) -> None:
        if self._entries and self._size + size >= EVENT_BYTES:
            self._cut()
        self._entries.append(encoded)
        self._size += size
        self.rows += 1

    def _cut(self) -> None:
        self._events.append(wb.entries_event(self._head, b"".join(self._entries)))
        self._entries, self._size = [], 0

    def take(self) -> list[bytes]:
        if self._entries:
            self._cut()
        events, self._events, self.rows = self._events, [], 0
        return events


def _newest_value(mvcc: Mvcc, key: bytes) -> bytes | None:
    newest = mvcc.tablet(key).newest(key)
    return newest[2] if newest else None


def observed_range(region: Region, start_key: bytes, end_key: bytes) -> tuple[bytes, bytes]:
    """The raw range that a register observes: what it asks for, cut to the region; the whole region if the keys are not encoded ones."""
    try:
        start = decode_bytes(start_key, 0)[0] if start_key else b""
        end = decode_bytes(end_key, 0)[0] if end_key else b""
    except MalformedBytes:
        return region.start, region.end
    start = max(start, region.start)
    if not end or (region.end and region.end < end):
        end = region.end
    return start, end


def region_not_found(region_id: int) -> cdcpb.Error:
    """The region is not at this store, or its subscription was ended on request."""
    error = cdcpb.Error()
    error.region_not_found.region_id = region_id
    return error


def not_leader(region: Region) -> cdcpb.Error:
    """Return the error for a region that is led by another store."""
    error = cdcpb.Error()
    error.not_leader.region_id = region.id
    error.not_leader.leader.id = region.leader.id
    error.not_leader.leader.store_id = region.leader.store_id
    return error


def epoch_not_match(current: list[Region]) -> cdcpb.Error:
    """The region was split (the pieces are listed) or merged (nothing is listed)."""
    error = cdcpb.Error()
    error.epoch_not_match.SetInParent()
    error.epoch_not_match.current_regions.extend(region_message(r) for r in current)
    return error
