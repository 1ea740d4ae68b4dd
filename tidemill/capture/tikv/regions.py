"""Which subscription carries which piece of each span: a state machine without IO.

A span is the key range of one physical table (or of meta keys). It is always covered by pieces that do not overlap; a piece is
either a gap (no region is known for it) or carried by one subscription of one region. Whoever drives the machine tells it what
happened and when, and carries out the actions that it asks for, in their order:

    gap ──(its time comes)──▶ loading ──(PD knows regions)──▶ queued ──(the store has room)──▶ scanning ──(INITIALIZED)──▶ live
     ▲                                                          ▲                                  │                       │
     └────── split, merge, lost region, broken stream ──────────┴── busy, congested, new leader ───┴───────────────────────┘

Every piece has at all times a record with the receiver that holds the frontier at the piece's resolved ts; successors are placed
before what they replace is dropped. So no error can let the resolved ts pass a row.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidemill.capture.tikv.actions import (
    Action,
    CloseStream,
    Deregister,
    Drop,
    Fail,
    LoadRegions,
    OpenStream,
    Place,
    Span,
    Subscribe,
)
from tidemill.capture.tikv.pd import Peer, Region
from tidemill.capture.tikv.pieces import Phase, Piece, Store, Stream
from tidemill.capture.tikv.ranges import cut
from tidemill.errors import ClusterMismatch, TidemillError, UpstreamError, VersionTooOld
from tidemill.wire import cdcpb_pb2

BACKOFF_FIRST, BACKOFF_CAP = 0.05, 2.0
BACKOFF_FORGET = 300.0  # seconds without an error after which a piece's back-off begins anew
BUSY_CAP = 600.0  # seconds that a store may ask to wait
TOGETHER = 0.05  # gaps that are due within so many seconds are loaded together
MAX_LOADS = 16
MAX_SCANS = 256  # subscriptions of a store whose scan is not over
MAX_DUPLICATES = 3
IDLE = 60.0  # seconds after which a stream without subscriptions is closed
SLOTS = 65536


class RegionMachine:
    """All spans of one capture process. `partitions`: how many, the schema's included (request ids are told apart by them)."""

    def __init__(self, partitions: int, *, max_scans: int = MAX_SCANS) -> None:
        self.partitions, self.max_scans = partitions, max_scans
        self._actions: list[Action] = []
        self._spans: dict[int, set[int]] = {}
        self._pieces: dict[int, Piece] = {}
        self._by_start: dict[tuple[int, bytes], int] = {}
        self._by_end: dict[tuple[int, bytes], int] = {}
        self._streams: dict[int, Stream] = {}
        self._stores: dict[int, Store] = {}
        self._timers: list[tuple[float, int, Phase]] = []
        self._to_load: deque[int] = deque()
        self._loads: dict[int, list[int]] = {}
        self._next_piece = 1
        self._next_load = 1
        self._next_slot = 0
        self.errors: dict[str, int] = {}

    # ------------------------------------------------------------------ driver

    def actions(self) -> list[Action]:
        """What is to be done now, in this order; asked for once."""
        taken, self._actions = self._actions, []
        return taken

    def next_time(self) -> float | None:
        """When `wake` has something to do."""
        return self._timers[0][0] if self._timers else None

    def wake(self, now: float) -> None:
        """Time has passed."""
        while self._timers and self._timers[0][0] <= now:
            _, id_, phase = heapq.heappop(self._timers)
            piece = self._pieces.get(id_)
            if piece is None or piece.phase is not phase or piece.due > now:
                continue
            if phase is Phase.GAP:
                self._to_load.append(id_)
            else:
                self._enqueue(piece, now)
        self._load_more(now)

    def close_idle(self, now: float) -> None:
        """Close streams that have had no subscription for a minute."""
        for stream in self._streams.values():
            if stream.up and not stream.ended and not stream.pieces and now - stream.idle_since >= IDLE:
                stream.ended = True
                self._actions.append(CloseStream(stream.slot))

    def counts(self) -> dict[str, int]:
        """Pieces by phase."""
        found = {phase.value: 0 for phase in Phase}
        for piece in self._pieces.values():
            found[piece.phase.value] += 1
        return found

    def covered(self, span_id: int) -> list[tuple[bytes, bytes, Phase]]:
        """The pieces of a span in key order."""
        pieces = sorted((self._pieces[i] for i in self._spans[span_id]), key=lambda p: p.start)
        return [(p.start, p.end, p.phase) for p in pieces]

    # ------------------------------------------------------------------ spans

    def add_span(self, span: Span, now: float) -> None:
        """Capture a range. Its record is placed at once."""
        self._spans[span.id] = set()
        piece = self._new_piece(span, span.start, span.end, span.checkpoint)
        self._gap(piece, now, 0.0)

    def remove_span(self, span_id: int, now: float) -> None:
        """Nobody wants this range any more."""
        gone = self._spans.pop(span_id, set())
        for id_ in gone:
            piece = self._pieces[id_]
            if piece.phase in (Phase.SCANNING, Phase.LIVE):
                self._deregister(piece)
                self._leave_stream(piece, now)
            self._forget(piece)
        if gone:
            self._actions.append(Drop(tuple(sorted(gone))))

    def has_span(self, span_id: int) -> bool:
        """Whether the span is captured."""
        return span_id in self._spans

    def _new_piece(self, span: Span, start: bytes, end: bytes, checkpoint: int) -> Piece:
        piece = Piece(self._next_piece, span, start, end, checkpoint)
        self._next_piece += 1
        self._pieces[piece.id] = piece
        self._spans[span.id].add(piece.id)
        self._by_start[span.id, start] = self._by_end[span.id, end] = piece.id
        self._actions.append(Place(piece.id, checkpoint, span.partition))
        return piece

    def _forget(self, piece: Piece) -> None:
        del self._pieces[piece.id]
        for index, key in ((self._by_start, piece.start), (self._by_end, piece.end)):
            if index.get((piece.span.id, key)) == piece.id:
                del index[piece.span.id, key]

    # ------------------------------------------------------------------ gaps and regions

    def _gap(self, piece: Piece, now: float, delay: float) -> None:
        piece.phase, piece.region, piece.due = Phase.GAP, None, now + delay
        heapq.heappush(self._timers, (piece.due, piece.id, Phase.GAP))

    def _load_more(self, now: float) -> None:
        while self._to_load and len(self._loads) < MAX_LOADS:
            piece = self._pieces.get(self._to_load.popleft())
            if piece is None or piece.phase is not Phase.GAP:
                continue
            together = self._neighbours(piece, now)
            for other in together:
                other.phase = Phase.LOADING
            self._loads[self._next_load] = [p.id for p in together]
            self._actions.append(LoadRegions(self._next_load, together[0].start, together[-1].end))
            self._next_load += 1

    def _neighbours(self, piece: Piece, now: float) -> list[Piece]:
        """The gap and the gaps beside it that are due as well, in key order: after a merge one region covers them."""
        found = deque([piece])
        for index, at_left in ((self._by_end, True), (self._by_start, False)):
            while True:
                key = found[0].start if at_left else found[-1].end
                other = self._pieces.get(index.get((piece.span.id, key), 0))
                if other is None or other.phase is not Phase.GAP or other.due > now + TOGETHER:
                    break
                (found.appendleft if at_left else found.append)(other)
        return list(found)

    def load_failed(self, load: int, now: float) -> None:
        """PD did not answer."""
        for piece in self._loading(load):
            self._gap(piece, now, self._backoff(piece, now))
        self._load_more(now)

    def loaded(self, load: int, regions: Sequence[Region], complete: bool, now: float) -> None:
        """PD's answer to a LoadRegions, in key order. `complete`: it was not cut by the limit of one answer."""
        gaps = self._loading(load)
        for run in _contiguous(gaps):
            self._divide(run, regions, complete, now)
        self._load_more(now)

    def _loading(self, load: int) -> list[Piece]:
        found = (self._pieces.get(i) for i in self._loads.pop(load, []))
        return sorted((p for p in found if p is not None and p.phase is Phase.LOADING), key=lambda p: p.start)

    def _divide(self, gaps: list[Piece], regions: Sequence[Region], complete: bool, now: float) -> None:
        """Replace contiguous gaps by a piece for each region that PD knows, and new gaps for what it does not."""
        cuts, reached = cut(gaps[0].start, gaps[-1].end, regions)
        if not any(region for _, _, region in cuts):
            for piece in gaps:
                self._gap(piece, now, self._backoff(piece, now))
            return
        if len(cuts) == 1 and len(gaps) == 1 and cuts[0][2] is not None:
            self._queue(gaps[0], cuts[0][2], now, 0.0)
            return
        for gap in gaps:
            self._spans[gap.span.id].discard(gap.id)
            self._forget(gap)
        for start, end, region in cuts:
            old = [g for g in gaps if g.start < end and start < g.end]
            piece = self._new_piece(gaps[0].span, start, end, min(g.checkpoint for g in old))
            piece.attempts, piece.failed_at = max(g.attempts for g in old), max(g.failed_at for g in old)
            if region is not None:
                self._queue(piece, region, now, 0.0)
            elif start >= reached and not complete:
                self._gap(piece, now, 0.0)
            else:
                self._gap(piece, now, self._backoff(piece, now))
        self._actions.append(Drop(tuple(g.id for g in gaps)))

    def _backoff(self, piece: Piece, now: float) -> float:
        """How long to wait after an error of the piece."""
        if now - piece.failed_at > BACKOFF_FORGET:
            piece.attempts = 0
        piece.failed_at = now
        wait = min(BACKOFF_FIRST * 2.0**piece.attempts, BACKOFF_CAP)
        piece.attempts = min(piece.attempts + 1, 16)
        return wait * random.uniform(0.5, 1.0)

    # ------------------------------------------------------------------ subscribing

    def _queue(self, piece: Piece, region: Region, now: float, delay: float) -> None:
        piece.phase, piece.region, piece.due = Phase.QUEUED, region, now + delay
        if delay > 0:
            heapq.heappush(self._timers, (piece.due, piece.id, Phase.QUEUED))
        else:
            self._enqueue(piece, now)

    def _enqueue(self, piece: Piece, now: float) -> None:
        assert piece.region is not None
        assert piece.region.leader is not None
        store = self._store(piece.region.leader.store_id)
        (store.queue.appendleft if piece.span.urgent else store.queue.append)(piece.id)
        self._admit(store, now)

    def _store(self, store_id: int) -> Store:
        if store_id not in self._stores:
            self._stores[store_id] = Store(store_id)
        return self._stores[store_id]

    def _admit(self, store: Store, now: float) -> None:
        """Subscribe what waits for this store, as far as it has room for scans and a stream is open."""
        while store.queue and store.scanning < self.max_scans:
            piece = self._pieces.get(store.queue[0])
            waiting = piece is not None and piece.phase is Phase.QUEUED and piece.due <= now
            if piece is None or not waiting or piece.region is None or piece.region.leader is None:
                store.queue.popleft()
                continue
            if piece.region.leader.store_id != store.id:
                store.queue.popleft()
                continue
            stream, request_id = self._stream_for(store, piece)
            if not stream.up:
                return
            store.queue.popleft()
            self._subscribe(piece, stream, request_id)

    def _stream_for(self, store: Store, piece: Piece) -> tuple[Stream, int]:
        """A stream of the store on which the piece's region can be subscribed, and the request id; it may not be open yet.

        One request id a partition lets the store batch resolved ts; a second piece of the same region takes another one. Without
        multiplexing it takes another stream.
        """
        assert piece.region is not None
        first = 1 + piece.span.partition
        for stream in store.streams:
            if stream.ended or stream.multiplexed != store.multiplexed:
                continue
            if not store.multiplexed:
                if (piece.region.id, 0) not in stream.used:
                    return stream, first
                continue
            request_id = first
            while (piece.region.id, request_id) in stream.used:
                request_id += self.partitions
            return stream, request_id
        stream = Stream(self._free_slot(), store.id, store.multiplexed)
        self._streams[stream.slot] = stream
        store.streams.append(stream)
        self._actions.append(OpenStream(stream.slot, store.id, store.multiplexed))
        return stream, first

    def _free_slot(self) -> int:
        while self._next_slot in self._streams:
            self._next_slot = (self._next_slot + 1) % SLOTS
        slot, self._next_slot = self._next_slot, (self._next_slot + 1) % SLOTS
        return slot

    def _subscribe(self, piece: Piece, stream: Stream, request_id: int) -> None:
        assert piece.region is not None
        piece.phase, piece.slot, piece.request_id = Phase.SCANNING, stream.slot, request_id
        stream.used.add((piece.region.id, request_id if stream.multiplexed else 0))
        stream.pieces.add(piece.id)
        self._stores[stream.store_id].scanning += 1
        self._actions.append(
            Subscribe(piece.id, stream.slot, piece.region, request_id, piece.checkpoint, piece.start, piece.end, piece.span.partition)
        )

    def _leave_stream(self, piece: Piece, now: float) -> None:
        """The piece's subscription is over."""
        stream = self._streams.get(piece.slot)
        if stream is not None and piece.id in stream.pieces:
            stream.pieces.discard(piece.id)
            stream.idle_since = now
            if piece.phase is Phase.SCANNING:
                store = self._stores[stream.store_id]
                store.scanning -= 1
                self._admit(store, now)
        piece.slot = -1

    def _deregister(self, piece: Piece) -> None:
        stream = self._streams.get(piece.slot)
        if stream is not None and not stream.ended and piece.region is not None:
            # Its ids stay used: messages of the old subscription may still come.
            self._actions.append(Deregister(piece.slot, piece.region.id, piece.request_id))

    # ------------------------------------------------------------------ streams

    def stream_opened(self, slot: int, now: float) -> None:
        """The stream takes requests."""
        stream = self._streams.get(slot)
        if stream is not None and not stream.ended:
            stream.up, stream.idle_since = True, now
            self._admit(self._stores[stream.store_id], now)

    def stream_ended(self, slot: int, now: float, *, unimplemented: bool = False) -> None:
        """The stream is over, or could not be opened: nothing may be subscribed on it. `stream_lost` follows if it was open."""
        stream = self._streams.get(slot)
        if stream is None:
            return
        stream.ended = True
        store = self._stores[stream.store_id]
        if unimplemented and stream.multiplexed:
            store.multiplexed = False
            if not stream.up:
                self._remove_stream(stream)
                self._admit(store, now)
        elif not stream.up:
            self._remove_stream(stream)
            self._reload_queue(store, now)

    def _remove_stream(self, stream: Stream) -> None:
        del self._streams[stream.slot]
        self._stores[stream.store_id].streams.remove(stream)

    def _reload_queue(self, store: Store, now: float) -> None:
        """The store cannot be reached: whoever waits for it asks PD again."""
        waiting, store.queue = store.queue, deque()
        for id_ in waiting:
            piece = self._pieces.get(id_)
            if piece is not None and piece.phase is Phase.QUEUED:
                self._gap(piece, now, self._backoff(piece, now))

    def stream_lost(self, slot: int, pieces: Iterable[tuple[int, int]], now: float) -> None:
        """The receiver has let go of the stream; these pieces (with their resolved ts) were on it."""
        stream = self._streams.get(slot)
        fell_back = stream is not None and stream.multiplexed and not self._stores[stream.store_id].multiplexed
        if stream is not None:
            stream.ended = True
        for id_, resolved in pieces:
            piece = self._pieces.get(id_)
            if piece is None or piece.phase not in (Phase.SCANNING, Phase.LIVE) or piece.slot != slot:
                continue
            piece.checkpoint = max(piece.checkpoint, resolved)
            self._leave_stream(piece, now)
            region = piece.region
            if fell_back and region is not None:
                self._queue(piece, region, now, 0.0)
            else:
                self._gap(piece, now, self._backoff(piece, now))
        if stream is not None:
            self._remove_stream(stream)
            self._admit(self._stores[stream.store_id], now)

    # ------------------------------------------------------------------ subscriptions

    def scan_done(self, id_: int, now: float) -> None:
        """INITIALIZED."""
        piece = self._pieces.get(id_)
        if piece is None or piece.phase is not Phase.SCANNING:
            return
        piece.phase, piece.duplicates = Phase.LIVE, 0
        store = self._stores[self._streams[piece.slot].store_id]
        store.scanning -= 1
        self._admit(store, now)

    def broken(self, id_: int, resolved: int, now: float) -> None:
        """The store broke the protocol for this piece: subscribe it again from what is sure."""
        piece = self._subscribed(id_, resolved)
        if piece is None:
            return
        self._count("protocol")
        self._deregister(piece)
        self._leave_stream(piece, now)
        assert piece.region is not None
        self._queue(piece, piece.region, now, self._backoff(piece, now))

    def failed(self, id_: int, resolved: int, error: cdcpb_pb2.Error, now: float) -> None:
        """The store ended the subscription with an error."""
        piece = self._subscribed(id_, resolved)
        if piece is None:
            return
        kind = next((f.name for f, _ in error.ListFields()), "unknown")
        self._count(kind)
        stream = self._streams.get(piece.slot)
        region = piece.region
        assert region is not None
        if stream is not None and kind != "duplicate_request":
            stream.used.discard((region.id, piece.request_id if stream.multiplexed else 0))
        self._leave_stream(piece, now)
        fatal = self._fatal(piece, kind, error)
        if fatal is not None:
            self._actions.append(Fail(fatal))
            return
        wait = self._backoff(piece, now)
        if kind == "not_leader" and error.not_leader.leader.id:
            leader = error.not_leader.leader
            self._queue(piece, replace(region, leader=Peer(leader.id, leader.store_id)), now, wait)
        elif kind in ("server_is_busy", "congested", "duplicate_request"):
            asked = min(error.server_is_busy.backoff_ms / 1000, BUSY_CAP)
            self._queue(piece, region, now, max(wait, asked))
        elif kind == "epoch_not_match" and error.epoch_not_match.current_regions:
            self._gap(piece, now, wait if piece.attempts > 1 else 0.0)
        else:
            self._gap(piece, now, wait)

    def _subscribed(self, id_: int, resolved: int) -> Piece | None:
        piece = self._pieces.get(id_)
        if piece is None or piece.phase not in (Phase.SCANNING, Phase.LIVE):
            return None
        piece.checkpoint = max(piece.checkpoint, resolved)
        return piece

    def _count(self, kind: str) -> None:
        self.errors[kind] = self.errors.get(kind, 0) + 1

    def _fatal(self, piece: Piece, kind: str, error: cdcpb_pb2.Error) -> TidemillError | None:
        """The errors that no retry mends."""
        if kind == "cluster_id_mismatch":
            told = error.cluster_id_mismatch
            return ClusterMismatch(f"TiKV belongs to cluster {told.current}, not to cluster {told.request}")
        if kind == "compatibility":
            return VersionTooOld(f"TiKV asks for a client of version {error.compatibility.required_version} or newer")
        if kind == "duplicate_request":
            piece.duplicates += 1
            if piece.duplicates > MAX_DUPLICATES:
                return UpstreamError(f"TiKV keeps saying that region {error.duplicate_request.region_id} is subscribed twice")
        return None


def _contiguous(pieces: list[Piece]) -> list[list[Piece]]:
    """Sorted pieces in runs without holes (some may have gone while PD was asked)."""
    runs: list[list[Piece]] = []
    for piece in pieces:
        if runs and runs[-1][-1].end == piece.start:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs
