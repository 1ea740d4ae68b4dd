"""A capture and a cluster in one thread and in virtual time: no sockets, no sleeping; a seed decides everything.

The cluster is the playground's (store, regions, change feed, SQL). The capture is the real one: region state machine, scanner, matcher,
budgets, spills, sealing, spans from schemas, change log on disk. Between them is `Simulator`: it carries requests and messages, and may
delay, cut, join, break and lose what a network, a PD and a process may. It also schedules the capture's threads (`Stepped`), so a run
depends on its seed alone: `trace` records all of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa

from tests.support.capture.captures import compare, compare_rows, partition_changes, told_changes
from tests.support.capture.region_driver import asked_for
from tests.support.simulation.connections import Connection, Faults
from tests.support.simulation.invariants import Witness, check_waiting
from tests.support.simulation.mangle import cut, without_regions
from tests.support.simulation.stepped import Jobs, Stepped
from tests.support.simulation.trace import Trace
from tests.support.simulation.virtual_gc import VirtualPd, finish
from tidemill.capture.tikv.client.pd import region_of
from tidemill.capture.tikv.feed.inbox import EndOfStream
from tidemill.capture.tikv.feed.puller import register
from tidemill.capture.tikv.feed.store_errors import parse_store_error
from tidemill.capture.tikv.gc import FIRST_TTL, GcGuard
from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.receive.ingest import (
    Event,
    Options,
    ProtocolBroken,
    Receiver,
    RowLost,
    ScanDone,
    StreamLost,
    SubRangeFailed,
    SubRangeFrozen,
)
from tidemill.capture.tikv.receive.matcher import FOREVER
from tidemill.capture.tikv.regions import actions as A
from tidemill.capture.tikv.regions.machine import RegionMachine
from tidemill.capture.tikv.sort.partition import PartitionLog, Sealed
from tidemill.capture.tikv.tables import Moved, TableSpans
from tidemill.capture.worker import SCHEMA_SPANS, keeps
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.writer import LogWriter
from tidemill.events import RAW_CHANGE
from tidemill.playground.sql.session import Database
from tidemill.playground.store.cluster import Cluster
from tidemill.playground.store.feed import FeedStream, region_message
from tidemill.tidb.keys import encode_range
from tidemill.tidb.schema.metakeys import capture_ranges, meta_filter, meta_ranges
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.wire import cdcpb_pb2 as cdcpb
from tidemill.wire import metapb_pb2 as metapb

CLUSTER_ID = 7
SERVICE = "tidemill-7-simulated"
GARBAGE = b"\x0f" * 7  # no protobuf message begins so
NOON = 1_795_255_200_000  # virtual time begins here (Unix ms)


class Simulator:
    """See the module. `Simulator(...).begin()` starts a capture at the present of the cluster."""

    def __init__(self, folder: Path, seed: int = 0, *, stores: int = 2, partitions: int = 2, options: Options | None = None) -> None:
        self.random = Random(seed)
        self.folder, self.partitions = folder, partitions
        self.ms = NOON
        self.skew = 0  # ms that the cluster's clock is ahead of ours
        self.cluster = Cluster(CLUSTER_ID, range(1, stores + 1), lambda: self.ms + self.skew)
        self.database = Database(self.cluster)
        self.session = self.database.session()
        self.options = options or Options()
        self.faults = Faults()
        self.frozen: set[int] = set()  # regions that send no resolved ts
        self.connections: dict[int, Connection] = {}
        self.loads: deque[A.LoadRegions] = deque()
        self.opens: deque[A.OpenStream] = deque()
        self.events: deque[Event] = deque()
        self.sealed: deque[Sealed] = deque()  # of the schema, not yet heard of
        self.failures: list[BaseException] = []
        self.trace = Trace()
        self.requests = self.verified = 0
        self.kills = self.spills = 0
        self.views: deque[list[Region]] = deque(maxlen=5)
        self.heads: list[int] = []
        self.inbox: deque[tuple[int, bytes | None]] = deque()  # arrived, not yet looked at; None: the end of the stream
        self.pd = VirtualPd(self.cluster.safe_points, barriers=self.random.random() < 0.5)
        self.guard = GcGuard(self.pd, SERVICE, 86400, clock=lambda: self.ms / 1000)  # type: ignore[arg-type]

    # ------------------------------------------------------------------ the capture

    def begin(self, ts: int = 0) -> None:
        """A new log from now (or `ts`) on, and a capture of it."""
        ts = ts or self.cluster.oracle.next()
        finish(self.guard.protect(ts, FIRST_TTL))
        pairs = {}
        for start, end in meta_ranges():
            for key, value in self.cluster.mvcc.scan(start, end, ts):
                assert isinstance(value, bytes)
                if meta_filter(key):
                    pairs[key] = value
        identity = LogIdentity(cluster_id=str(CLUSTER_ID), start_ts=ts, partitions=self.partitions, partition_by="crc32(logical table id)")
        LogWriter.create(self.folder / "log", identity, snapshot=pairs).close()
        self.heads = [ts] * self.partitions
        self.start()

    def start(self) -> None:
        """A capture that goes on where the log ends."""
        n = self.partitions
        self.writer = LogWriter.open(self.folder / "log", cluster_id=str(CLUSTER_ID))
        self.keep_history()
        self.history: SchemaHistory = load_history(LogReader(self.folder / "log"))
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        logs = [PartitionLog(self.writer.partition(p), scratch) for p in range(n)]
        logs.append(PartitionLog(self.writer.schema, scratch, key_filter=keeps))
        self.workers = Stepped(lambda: self.now)
        options = replace(self.options, seal_every=1e9)
        self.receiver = Receiver(logs, scratch, self._heard, self._sealed, self.failures.append, options, workers=self.workers)
        self.receiver._next_seal = float("inf")  # seals are the simulator's to order
        self.machine = RegionMachine(n + 1)
        self.spans = TableSpans(n, self._add_span, self._remove_span, self._moved)
        self.witness, self.wanted = Witness(), dict[int, A.Span]()
        self.verify()
        schema_head = self.writer.schema.head
        for i, (_, (start, end)) in enumerate(capture_ranges(self.history.job_table_ids)):
            low, high = encode_range(start, end)
            self._add_span(A.Span(SCHEMA_SPANS + i, low, high, n, schema_head, "schema", urgent=True))
        self.spans.begin(self.history, self._heads())
        self.act()
        self._followed = self.history.resolved_ts
        self.receiver.set_ceiling(self._followed, range(n))

    def kill(self) -> None:
        """The process is killed, and its memory lost; the stores notice."""
        self.kills += 1
        for connection in list(self.connections.values()):
            self._hang_up(connection)
        for waiting in (self.loads, self.opens, self.events, self.inbox, self.sealed):
            waiting.clear()
        while len(self.workers.seal) and self.random.random() < 0.5:  # some segments are there, and nobody was told
            self.workers.seal.do_one()
        self.writer.close()

    def _heads(self) -> list[int]:
        return [self.writer.partition(p).head for p in range(self.partitions)]

    def _add_span(self, span: A.Span) -> None:
        assert span.checkpoint >= [*self.heads, self.writer.schema.head][span.partition], "what is sealed would come again"
        self.wanted[span.id] = span
        self.witness.span(span)
        self.machine.add_span(span, self.now)

    def _remove_span(self, span_id: int) -> None:
        del self.wanted[span_id]
        self.witness.gone(span_id)
        self.machine.remove_span(span_id, self.now)

    def _heard(self, events: list[Event]) -> None:
        self.witness.events(events)
        self.events.extend(events)

    def keep_history(self) -> None:
        """Move the GC barrier at PD with the log."""
        finish(self.guard.protect(self.resolved))

    def _moved(self, moved: Moved) -> None:
        self.receiver.call(partial(self.receiver.logs[moved.old].moved_away, moved.physical_id, moved.ts, FOREVER, moved.handles))
        self.receiver.call(partial(self.receiver.logs[moved.new].came_back, moved.physical_id, moved.ts, moved.handles))

    def _sealed(self, partition: int, done: Sealed) -> None:
        if partition == self.partitions:
            self.sealed.append(done)

    def follow(self) -> None:
        """Handle the sealed schema stream, as its owner does."""
        done = self.sealed.popleft()
        changes = pa.Table.from_batches(done.batches, RAW_CHANGE) if done.batches else ()
        self.history.advance(changes, done.head)
        self.spans.follow(self.history.next_table_changes(self._followed, done.head), self._heads())
        self.spans.retire(self._heads())
        self._followed = done.head
        self.act()
        self.receiver.call(partial(self.receiver.set_ceiling, done.head, range(self.partitions)))

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return (self.ms - NOON) / 1000

    @property
    def resolved(self) -> int:
        """The log's resolved ts."""
        return self.writer.resolved_ts

    # ------------------------------------------------------------------ what the machine asks for

    def act(self) -> None:
        """Carry out the machine's actions, as the puller does."""
        receiver = self.receiver
        for action in self.machine.actions():
            self.trace.note(action)
            self.witness.act(action, self.machine)
            match action:
                case A.HoldFrontier(sub_range, resolved_ts, partition):
                    receiver.call(partial(receiver.place, sub_range, resolved_ts, partition))
                case A.ReleaseFrontier(sub_ranges):
                    receiver.call(partial(receiver.drop, sub_ranges))
                case A.LoadRegions():
                    self.loads.append(action)
                case A.OpenStream():
                    self.opens.append(action)
                case A.CloseStream(slot):
                    if slot in self.connections:
                        self.break_stream(self.connections[slot])
                case A.Subscribe():
                    self._subscribe(action)
                case A.Deregister(slot, region_id, request_id):
                    request = cdcpb.ChangeDataRequest(region_id=region_id, request_id=request_id)
                    request.deregister.SetInParent()
                    if slot in self.connections:
                        self.connections[slot].requests.append(request)
                case A.Fail(error):
                    self.failures.append(error)
            if self.faults.lag and self.random.random() < 0.5:  # the other thread comes in between
                receiver.step([], [])
                self.witness.check_frontiers(receiver)
        if self.random.random() >= self.faults.lag:
            receiver.step([], [])

    def _subscribe(self, action: A.Subscribe) -> None:
        self.requests += 1
        raw = [_decoded(key) for key in (action.start, action.end)]
        call = partial(self.receiver.subscribe, action.sub_range, action.slot, action.region.id, action.request_id, action.checkpoint)
        self.receiver.call(partial(call, *raw, action.partition, action.since))
        if action.slot in self.connections:
            header = cdcpb.Header(cluster_id=CLUSTER_ID, ticdc_version="8.5.0")
            self.connections[action.slot].requests.append(register(header, action))

    # ------------------------------------------------------------------ PD

    def note_regions(self) -> None:
        """Remember how the regions look now: a stale PD tells it later."""
        self.views.append([_told(r) for r in self.cluster.regions])

    def answer(self) -> None:
        """PD's answer to the oldest question, with the faults that are on."""
        load, chance, faults = self.loads.popleft(), self.random.random, self.faults
        self.requests += 1
        if chance() < faults.pd_down:
            self.machine.load_failed(load.load, self.now)
            self.act()
            return
        view = [_told(r) for r in self.cluster.regions]
        if self.views and chance() < faults.stale_pd:
            view = self.random.choice(self.views)
        found = asked_for(load, view)
        if chance() < faults.hole:
            found = [r for r in found if chance() < 0.7]
        if chance() < faults.no_leader:
            found = [replace(r, leader=None) if chance() < 0.5 else r for r in found]
        self.machine.loaded(load.load, found, True, self.now)
        self.act()

    # ------------------------------------------------------------------ streams

    def open(self) -> None:
        """The oldest stream that is asked for comes up, or does not."""
        wanted = self.opens.popleft()
        self.requests += 1
        old = self.faults.old_server and wanted.multiplexed
        if old or wanted.store_id in self.faults.down or self.random.random() < self.faults.no_stream:
            self.machine.stream_ended(wanted.slot, self.now, unimplemented=old)
        else:
            self.witness.stream(wanted.slot, wanted.multiplexed)
            self.receiver.call(partial(self.receiver.open_stream, wanted.slot, wanted.multiplexed))
            server = FeedStream(wanted.store_id, wanted.multiplexed, lambda: None)
            self.cluster.feeds.open(server)
            self.connections[wanted.slot] = Connection(wanted.slot, server)
            self.machine.stream_opened(wanted.slot, self.now)
        self.act()

    def _hang_up(self, connection: Connection) -> None:
        for scan, batches in connection.scans:
            batches.close()
            scan.close()
        self.cluster.feeds.close(connection.server)
        del self.connections[connection.slot]

    def break_stream(self, connection: Connection) -> None:
        """The connection is gone. Some of what was under way has arrived and waits to be looked at, the rest never does."""
        for _ in range(self.random.choice((0, 0, 1, 3))):
            self._arrive(connection)
        self._hang_up(connection)
        self.machine.stream_ended(connection.slot, self.now)
        self.inbox.append((connection.slot, None))
        self.act()

    def garble(self, connection: Connection) -> None:
        """Deliver malformed bytes: the receiver ends the stream by itself, the machine hears of it later. What follows has holes."""
        self.inbox.append((connection.slot, GARBAGE))
        connection.garbled = True

    def serve(self, connection: Connection) -> None:
        """The store reads one request."""
        scan = self.cluster.feeds.request(connection.server, connection.requests.popleft())
        if scan is not None:
            connection.scans.append((scan, scan.batches()))

    def scan(self, connection: Connection) -> None:
        """The store goes on with one of the scans."""
        entry = self.random.choice(connection.scans)
        found = next(entry[1], None)
        if found is None:
            connection.scans.remove(entry)
            entry[0].close()
            return
        for event in found:
            connection.server.send_event(event)

    def deliver(self, connection: Connection) -> None:
        """Deliver one message: whole, cut, or joined with others."""
        behind = bool(self.inbox)
        self._arrive(connection)
        while self.inbox and not behind and not self.receiver.full and self.random.random() >= self.faults.lag:
            self.look()

    def _arrive(self, connection: Connection) -> None:
        message = connection.server.take_message(self.random.choice((1, 3, 64)))
        if message is None:
            return
        sub_ranges = list(cut(message, self.random)) if self.random.random() < self.faults.cut else [message]
        for sub_range in sub_ranges:
            if connection.garbled and self.random.random() < 0.5:
                continue
            kept = without_regions(sub_range, self.frozen) if self.frozen else sub_range
            if kept is not None:
                self.inbox.append((connection.slot, kept))

    def look(self) -> None:
        """The receiver takes the oldest message that has arrived, or the end of its stream."""
        slot, message = self.inbox.popleft()
        self.trace.note("message", slot, message)
        receiver = self.receiver
        if message is None:
            receiver.step([slot], EndOfStream("broken"))
        else:
            receiver.step([], [])
            if message is not GARBAGE:
                self.witness.message(slot, message)
            receiver.step([slot], [message])

    def handle(self) -> None:
        """Give one event to the machine."""
        event = self.events.popleft()
        self.trace.note(event)
        match event:
            case ScanDone(sub_range):
                self.machine.scan_done(sub_range, self.now)
            case SubRangeFailed(sub_range, resolved, error):
                self.machine.failed(sub_range, resolved, parse_store_error(error), self.now)
            case ProtocolBroken(sub_range, resolved):
                self.machine.broken(sub_range, resolved, self.now)
            case RowLost(sub_range, region, cause, row, head):
                self.machine.lost(sub_range, region, cause, row, head)
            case SubRangeFrozen(sub_range, resolved):
                self.machine.frozen(sub_range, resolved, self.now)
            case StreamLost(stream, sub_ranges, _, bad):
                if bad and stream in self.connections:
                    self._hang_up(self.connections[stream])
                    self.inbox.append((stream, None))
                self.machine.stream_lost(stream, sub_ranges, self.now)
        self.act()

    # ------------------------------------------------------------------ time

    def pass_time(self, seconds: float) -> None:
        """Virtual time goes on."""
        self.ms += max(1, int(seconds * 1000))
        self.machine.wake(self.now)
        self.act()

    def begin_seal(self) -> None:
        """Whatever is resolved is on its way into the log."""
        self.receiver.step([], [])
        self.receiver._seal()
        self.receiver._next_seal = float("inf")

    def seal(self) -> None:
        """Whatever is resolved goes into the log."""
        self.begin_seal()
        self.receiver._finish_seals(wait=True)
        while self.sealed:
            self.follow()
        self.receiver.step([], [])
        self.verify()
        self.spans.retire(self.heads)
        self.act()

    def work(self, worker: Jobs) -> None:
        """A worker does its oldest job, and the ingest thread may see that it is done."""
        worker.do_one()
        self.spills += worker is self.workers.spill
        self.verify()  # before garbage collection follows the new heads
        if self.random.random() >= self.faults.lag:
            self.receiver.step([], [])

    def todo(self) -> list[partial[None]]:
        """What could happen next."""
        found: list[partial[None]] = []
        if self.loads:
            found.append(partial(self.answer))
        if self.opens:
            found.append(partial(self.open))
        if self.events:
            found.append(partial(self.handle))
        if self.inbox and not self.receiver.full:
            found.append(partial(self.look))
        if self.sealed:
            found.append(partial(self.follow))
        found += [partial(self.work, worker) for worker in (self.workers.spill, self.workers.seal) if len(worker)]
        for connection in self.connections.values():
            if connection.requests:
                found.append(partial(self.serve, connection))
            if connection.scans:
                found.append(partial(self.scan, connection))
            if connection.server.outbox:
                found.append(partial(self.deliver, connection))
        return found

    def settle(self, rounds: int = 200) -> None:
        """Everything that is under way arrives, in order."""
        for _ in range(rounds):
            while waiting := self.todo():
                waiting[0]()
            due = self.machine.next_time()
            if due is None or due > self.now + 2.0:
                return
            self.pass_time(max(due - self.now, 0.001))
        raise AssertionError(f"the capture does not come to rest: {self.machine.counts()}, {self.machine.errors}")

    def catch_up(self, rounds: int = 60) -> None:
        """Without new faults the log reaches the cluster's present, in bounded time."""
        goal = self.cluster.oracle.next()
        for _ in range(rounds):
            self.settle()
            self.cluster.tick()
            self.settle()
            self.seal()
            if self.resolved >= goal:
                return
            self.pass_time(1.0)
        raise AssertionError(f"the log stands still at {self.resolved} < {goal}: {self.machine.counts()}, {self.machine.errors}")

    # ------------------------------------------------------------------ what must hold

    def check(self) -> None:
        """Check at any moment (INV2, 5, 10, 11): spans are covered, no range has a higher resolved ts than the store sent, no waiting row
        comes too late, memory is within its bounds, history is kept."""
        assert not self.failures, self.failures
        assert self.receiver.failure is None
        if not self.receiver._calls:
            self.witness.check(self.machine, self.receiver, self.wanted)
        check_waiting(self.receiver, self._heads())
        matcher = self.receiver.matcher
        slack = 4 << 20  # a batch may come on top
        assert matcher.prewrite_bytes() <= self.options.prewrite_budget + slack
        assert matcher.row_bytes() <= self.options.row_budget + slack
        points = self.cluster.safe_points
        barrier = next((s.safe_point for s in points.services() if s.service_id == SERVICE.encode()), 0)
        assert 0 < barrier <= self.resolved, "history is kept from before the first subscription on"
        assert points.collected <= barrier

    def verify(self) -> None:
        """INV1, 3, 4, 8: what the log has grown by since the last look is what the store holds, once, in order, with its old values."""
        heads = self._heads()
        grown = list(zip(self.heads, heads, strict=True))
        assert all(old <= new for old, new in grown), "a head went back"
        self.heads = heads
        if any(old < new for old, new in grown):
            self.trace.note("heads", heads)
            reader = LogReader(self.folder / "log")
            logged = {p: partition_changes(reader, p, old, new) if old < new else [] for p, (old, new) in enumerate(grown)}
            stored = told_changes(self.cluster, min(old for old, _ in grown), max(heads))
            self.verified += compare_rows(stored, self.history, logged, grown)

    def check_log(self) -> int:
        """At the end: the log holds what the cluster's store holds, once, in order. Returns the number of changes."""
        return compare(self.cluster, self.folder / "log")[0]


def _told(region: object) -> Region:
    message = region_message(region)  # type: ignore[arg-type]
    leader = region.leader  # type: ignore[attr-defined]
    return region_of(message, metapb.Peer(id=leader.id, store_id=leader.store_id))


def _decoded(key: bytes) -> bytes:
    from tidemill.capture.tikv.feed.puller import _raw

    return _raw(key)
