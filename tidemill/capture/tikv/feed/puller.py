"""Carries out the actions of the region state machine: regions from PD, streams to stores, registers. Runs on the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from tidemill.capture.lifecycle import tick
from tidemill.capture.tikv.client.pd import PdClient, refused
from tidemill.capture.tikv.feed.base import REFUSED, UNIMPLEMENTED, Feed, FeedEnd, Method, Transport, window_of
from tidemill.capture.tikv.feed.connect import open_feed
from tidemill.capture.tikv.feed.inbox import EndOfStream
from tidemill.capture.tikv.feed.store_errors import parse_store_error
from tidemill.capture.tikv.receive.ingest import (
    Event,
    ProtocolBroken,
    Receiver,
    RowLost,
    RowSkipped,
    ScanDone,
    StreamLost,
    SubRangeFailed,
    SubRangeFrozen,
)
from tidemill.capture.tikv.regions import actions as A
from tidemill.capture.tikv.regions.machine import RegionMachine
from tidemill.errors import ClusterMismatch, MalformedBytes, UpstreamError
from tidemill.tidb import keys
from tidemill.tidb.keys import from_encoded
from tidemill.tso import physical_ms
from tidemill.wire import cdcpb_pb2, kvrpcpb_pb2, metapb_pb2

CLIENT_VERSION = "8.5.0"
"""The client version sent to TiKV, which decides by it which features a stream has. Strict semver, without a `v`."""

REGIONS_AT_ONCE = 1024
TICK = 1.0
TELL_EVERY = 60.0
CLOSE_MS = 30 * 60 * 1000
"""A checkpoint that is not older is close to now: TiCDC's default."""
EVENTS_AT_ONCE = 2048
"""Sub-ranges handled before the event loop gets to its sockets again: a store that goes down ends 100,000 at a time."""

_log = logging.getLogger(__name__)


class Puller:
    """Drives a RegionMachine. `on_fatal` is called at most once."""

    def __init__(
        self,
        pd: PdClient,
        receiver: Receiver,
        machine: RegionMachine,
        transport: Transport,
        on_fatal: Callable[[BaseException], None],
        *,
        filter_loop: bool = False,
    ) -> None:
        """`filter_loop`: rows of tables that another change data capture wrote are not asked for."""
        self._filter_loop = filter_loop
        self.pd, self.receiver, self.machine, self.transport = pd, receiver, machine, transport
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[int, Feed] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._events: deque[Event] = deque()
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0
        self._stopped = False
        self._store_of: dict[int, str] = {}  # slot -> the store that its stream was opened to, for messages
        self._kept: list[A.Action] = []  # actions from before the start
        self._told: dict[int, float] = {}  # store -> when it was last logged as unreachable
        self.addresses: dict[int, str] = {}  # of the stores that were looked up
        self.header = cdcpb_pb2.Header(cluster_id=pd.cluster_id, ticdc_version=CLIENT_VERSION)

    # ------------------------------------------------------------------ from outside

    def post(self, events: list[Event]) -> None:
        """Queue events of the receiver. Called on its thread."""
        self._loop.call_soon_threadsafe(self._visibly, self._handle, events)

    def start(self) -> None:
        """Begin to act. Spans may have been added before."""
        self._spawn(self._tick())
        for action in self._kept:
            self._do(action)
        self._kept.clear()
        self.act()

    async def stop(self) -> None:
        """End all streams and pending calls."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for feed in list(self._feeds.values()):
            feed.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add_span(self, span: A.Span) -> None:
        """Capture a range: it holds its partition's head from this call on."""
        self.machine.add_span(span, self._loop.time())

    def remove_span(self, span_id: int) -> None:
        """End the capture of a range."""
        self.machine.remove_span(span_id, self._loop.time())

    def rename_span(self, span_id: int, label: str) -> None:
        """Give a span a new label: its table was renamed."""
        self.machine.rename_span(span_id, label)

    def renew_stream(self, slot: int) -> None:
        """Break a stream: its regions are subscribed again on a new one."""
        if slot in self._feeds:
            self._feeds[slot].cancel()

    # ------------------------------------------------------------------ events

    def _handle(self, events: list[Event]) -> None:
        """Queue events of the receiver. A few are handled at a time, so that a burst does not keep the event loop from reading."""
        idle = not self._events
        self._events.extend(events)
        if idle:
            self._drain()

    def _drain(self) -> None:
        now, room = self._loop.time(), EVENTS_AT_ONCE
        while self._events and room > 0:
            room -= self._take(self._events.popleft(), now, room)
        self.act()
        if self._events and not self._stopped:
            self._loop.call_soon(self._visibly, self._drain)

    def _take(self, event: Event, now: float, room: int) -> int:
        """Handle one event, or as much of it as fits into `room`. Return the number of sub-ranges."""
        match event:
            case ScanDone(sub_range):
                self.machine.scan_done(sub_range, now)
            case SubRangeFailed(sub_range, resolved, error):
                self.machine.failed(sub_range, resolved, parse_store_error(error), now)
            case ProtocolBroken():
                self._tell_broken(event)
                self.machine.broken(event.sub_range, event.resolved, now, event.cause)
            case RowLost(sub_range, region_id, cause, row, head):
                self.machine.lost(sub_range, region_id, cause, row, head)
            case RowSkipped(sub_range):
                self._tell_skipped(sub_range)
            case SubRangeFrozen(sub_range, resolved):
                self.machine.frozen(sub_range, resolved, now)
            case StreamLost(stream, sub_ranges, reason, bad):
                if len(sub_ranges) > room:
                    self._events.appendleft(StreamLost(stream, sub_ranges[room:], reason, bad))
                elif sub_ranges:
                    _log.info("the stream to %s ended: %s; %d subscriptions begin again", self.store_of(stream), reason, len(sub_ranges))
                if bad and stream in self._feeds:
                    self._feeds[stream].cancel()
                self.machine.stream_lost(stream, sub_ranges[:room], now, last=len(sub_ranges) <= room)
                return max(1, min(len(sub_ranges), room))
        return 1

    def _tell_broken(self, event: ProtocolBroken) -> None:
        sub_range, row = self.machine.sub_range(event.sub_range), event.row
        if sub_range is not None:
            _log.warning(
                "%s broke the protocol: %s (key %s, start_ts %d, commit_ts %d); it is scanned again from %d",
                self.machine.describe(sub_range), event.cause, row.key.hex(), row.start_ts, row.commit_ts, event.resolved,
            )  # fmt: skip

    def _tell_skipped(self, id_: int) -> None:
        sub_range = self.machine.sub_range(id_)
        if sub_range is not None:
            _log.warning(
                "%s sent a row without a key, of a kind that this version does not know: such rows are left out and counted "
                "(tidemill_capture_skipped_rows_total)",
                self.machine.describe(sub_range),
            )

    async def _tick(self) -> None:
        while True:
            await tick(TICK)
            now = self._loop.time()
            self.machine.close_idle(now)
            self.machine.hold_back(self.receiver.crowded, now)
            self.act()

    def _wake(self) -> None:
        self._timer = None
        self.machine.wake(self._loop.time())
        self.act()

    # ------------------------------------------------------------------ actions

    def act(self) -> None:
        """Carry out the machine's actions."""
        while actions := self.machine.actions():
            for action in actions:
                self._do(action)
        self._set_timer()

    def place_all(self) -> None:
        """Only place the records of the added spans, so that no head can pass them. Called on any thread before the receiver starts;
        `start` does the rest."""
        for action in self.machine.actions():
            if isinstance(action, A.HoldFrontier):
                self.receiver.place(action.sub_range, action.resolved_ts, action.partition)
            else:
                self._kept.append(action)

    def _set_timer(self) -> None:
        due = self.machine.next_time()
        if self._timer is not None:
            if due is not None and self._timer_due <= due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None and not self._stopped:
            self._timer, self._timer_due = self._loop.call_at(due, self._visibly, self._wake), due

    def _do(self, action: A.Action) -> None:
        receiver = self.receiver
        match action:
            case A.HoldFrontier(sub_range, resolved_ts, partition):
                receiver.call(partial(receiver.place, sub_range, resolved_ts, partition))
            case A.ReleaseFrontier(sub_ranges):
                receiver.call(partial(receiver.drop, sub_ranges))
            case A.LoadRegions(load, ranges):
                self._spawn(self._load(load, ranges))
            case A.OpenStream(slot, store_id, multiplexed):
                self._spawn(self._open(slot, store_id, Method.V2 if multiplexed else Method.V1))
            case A.CloseStream(slot):
                if slot in self._feeds:
                    self._feeds[slot].cancel()
            case A.Subscribe():
                self._subscribe(action)
            case A.Deregister(slot, region_id, request_id):
                request = cdcpb_pb2.ChangeDataRequest(header=self.header, region_id=region_id, request_id=request_id)
                request.deregister.SetInParent()
                if slot in self._feeds:
                    self._feeds[slot].send(request.SerializeToString())
            case A.Fail(error):
                self._on_fatal(error)

    def _subscribe(self, action: A.Subscribe) -> None:
        lo, hi = _raw(action.start), _raw(action.end)
        request_id = action.request_id
        self.receiver.call(
            partial(
                self.receiver.subscribe,
                action.sub_range,
                action.slot,
                action.region.id,
                request_id,
                action.checkpoint,
                lo,
                hi,
                action.partition,
                action.since,
            )
        )
        feed = self._feeds.get(action.slot)
        if feed is not None:  # else the stream's end, and the sub-range's with it, is about to be handled
            filter_loop = self._filter_loop and keys.is_of_user_table(lo)
            priority = scan_priority(action.checkpoint, time.time() * 1000)
            feed.send(register(self.header, action, filter_loop=filter_loop, priority=priority).SerializeToString())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as e:  # nothing awaits this task: whatever the error, it must end the capture
            self._on_fatal(e)

    def _visibly(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run a callback of the event loop. Its exception would only be logged, so it ends the capture."""
        try:
            function(*arguments)
        except BaseException as e:
            self._on_fatal(e)
            raise

    async def _load(self, load: int, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        try:
            found = await self.pd.scan_ranges(ranges, REGIONS_AT_ONCE)
        except ClusterMismatch:
            raise
        except UpstreamError as e:
            _log.warning("%s", e.message)
            self.machine.load_failed(load, self._loop.time())
        else:
            self.machine.loaded(load, found, len(found) < REGIONS_AT_ONCE, self._loop.time())
        self.act()

    # ------------------------------------------------------------------ streams

    async def _open(self, slot: int, store_id: int, method: Method) -> None:
        try:
            store = await self.pd.store(store_id)
            if store is None or store.tombstone:
                raise UpstreamError(f"store {store_id} is gone")
            self.addresses[store_id] = store.address
            self.receiver.call(partial(self.receiver.open_stream, slot, method.multiplexed))
            window = window_of(self.receiver.options.memory, len(self._feeds) + 1)
            feed = await open_feed(self.transport, store.address, slot, self.receiver.inbox, method, self.pd.channels, window)
        except ClusterMismatch:
            raise
        except (UpstreamError, OSError) as e:
            self._tell_unreachable(store_id, str(e) or type(e).__name__)
            self.machine.stream_ended(slot, self._loop.time())
            self.act()
            return
        self._store_of[slot] = f"store {store_id} ({store.address})"
        _log.info("the stream to %s is open: %s", self._store_of[slot], method.name)
        self._feeds[slot] = feed
        self._told.pop(store_id, None)
        feed.ended.add_done_callback(partial(self._visibly, self._ended, slot, method, store.address))
        self.machine.stream_opened(slot, self._loop.time())
        self.act()

    def store_of(self, slot: int) -> str:
        """Return the store that a stream was opened to, for messages."""
        return self._store_of.get(slot, "a store")

    def _tell_unreachable(self, store_id: int, reason: str) -> None:
        """Log now and then that a store cannot be reached. It is tried again every few seconds, but not logged as often."""
        now = self._loop.time()
        if now - self._told.get(store_id, -TELL_EVERY) >= TELL_EVERY:
            self._told[store_id] = now
            _log.warning("store %d (%s) cannot be reached: %s", store_id, self.addresses.get(store_id, "unknown to PD"), reason)

    def _ended(self, slot: int, method: Method, address: str, ended: asyncio.Future[FeedEnd]) -> None:
        self._feeds.pop(slot, None)
        if self._stopped or ended.cancelled():
            return
        end = ended.result()
        if end.status in REFUSED:
            self._on_fatal(refused(f"TiKV {address}", str(end)))
            return
        old = end.status == UNIMPLEMENTED and method.multiplexed
        if old:
            _log.warning("a store does not know EventFeedV2 (%s): EventFeed is used", end.text)
        self.machine.stream_ended(slot, self._loop.time(), unimplemented=old)
        self.receiver.inbox.put(slot, EndOfStream(str(end)))
        self.act()


def scan_priority(checkpoint: int, now_ms: float) -> cdcpb_pb2.ScanPriority:
    """Return the priority of a subscription's scan, as TiCDC chooses it: what was up to date a moment ago, and is subscribed again after
    its region was split or moved, goes before what has much to catch up with. A TiKV that does not know the field passes over it."""
    is_close = now_ms - physical_ms(checkpoint) <= CLOSE_MS
    return cdcpb_pb2.SCAN_PRIORITY_HIGH if is_close else cdcpb_pb2.SCAN_PRIORITY_LOW


def register(
    header: cdcpb_pb2.Header,
    action: A.Subscribe,
    *,
    filter_loop: bool = False,
    priority: cdcpb_pb2.ScanPriority = cdcpb_pb2.SCAN_PRIORITY_UNKNOWN,
) -> cdcpb_pb2.ChangeDataRequest:
    """Return the request of a subscription, in the form that TiCDC sends: the oneof stays absent."""
    region = action.region
    return cdcpb_pb2.ChangeDataRequest(
        header=header,
        region_id=region.id,
        region_epoch=metapb_pb2.RegionEpoch(conf_ver=region.conf_ver, version=region.version),
        checkpoint_ts=action.checkpoint,
        start_key=action.start,
        end_key=action.end,
        request_id=action.request_id,
        extra_op=kvrpcpb_pb2.ReadOldValue,
        filter_loop=filter_loop,
        scan_priority=priority,
    )


def _raw(encoded: bytes) -> bytes:
    """Return the raw key of a sub-range's border; open if a region ends at an invalid key (the server sends no more than its region)."""
    try:
        return from_encoded(encoded) if encoded else b""
    except MalformedBytes:
        return b""
