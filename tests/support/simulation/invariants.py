"""What must hold for a capture at every moment, checked from outside. A witness follows the subscriptions and the stores' messages, and
computes itself how far each key range may be complete. The simulator and every scenario check after each step.

INV2 and INV5 of the capture's invariants (tests/capture/scenarios/README.md says where the others are checked). A sub-range's resolved ts
never goes back, and is never beyond what stores have sent for all its keys; nor is a partition's frontier. Sub-ranges cover their spans
without overlap. Nothing is read from a stream that has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tidemill.capture.tikv.receive.ingest import (
    Event,
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
from tidemill.kernels.receive.layout import ACTIVE, FREE, INITIALIZED, X_NSUBS
from tidemill.wire import cdcpb_pb2 as cdcpb


class Ledger:
    """Up to which ts each key of a span is complete."""

    def __init__(self, start: bytes, end: bytes, ts: int) -> None:
        self.start, self.end, self.first = start, end, ts
        self._parts: list[tuple[bytes, bytes, int]] = [(start, end, ts)]

    def least(self, start: bytes, end: bytes) -> int:
        """The smallest ts in [start, end)."""
        return min(ts for a, b, ts in self._parts if a < end and start < b)

    def advance(self, start: bytes, end: bytes, ts: int) -> None:
        """A store said so of [start, end)."""
        cut: list[tuple[bytes, bytes, int]] = []
        for a, b, known in self._parts:
            low, high = max(a, start), min(b, end)
            if low >= high or ts <= known:
                cut.append((a, b, known))
                continue
            cut += [part for part in ((a, low, known), (low, high, ts), (high, b, known)) if part[0] < part[1]]
        joined: list[tuple[bytes, bytes, int]] = []
        for part in cut:
            if joined and joined[-1][2] == part[2]:
                joined[-1] = joined[-1][0], part[1], part[2]
            else:
                joined.append(part)
        self._parts = joined


@dataclass(slots=True)
class Watched:
    """A subscription as its store sees it."""

    action: A.Subscribe
    span: int
    initialized: bool = False


Key = tuple[int, int, int]
"""slot, region id, request id (0 without multiplexing)."""


@dataclass(slots=True)
class Witness:
    """See the module. The driver of a machine reports spans, actions, messages and events to it, then calls `check`."""

    ledgers: dict[int, Ledger] = field(default_factory=dict)  # by span
    watched: dict[Key, Watched] = field(default_factory=dict)
    by_sub_range: dict[int, Key] = field(default_factory=dict)
    single: set[int] = field(default_factory=set)  # slots of streams without multiplexing
    frontiers: dict[int, int] = field(default_factory=dict)  # by partition
    sub_ranges: dict[int, int] = field(default_factory=dict)  # the resolved ts that each had
    placed: dict[int, int] = field(default_factory=dict)  # span: its partition, once the receiver knows of it

    # ------------------------------------------------------------------ what happens

    def span(self, span: A.Span) -> None:
        """A span is wanted from its checkpoint on."""
        self.ledgers[span.id] = Ledger(span.start, span.end, span.checkpoint)
        if self.frontiers.get(span.partition, FOREVER) > span.checkpoint:
            self.frontiers[span.partition] = span.checkpoint

    def stream(self, slot: int, multiplexed: bool) -> None:
        """A stream is open, in a slot that may have been another's."""
        (self.single.discard if multiplexed else self.single.add)(slot)

    def act(self, action: A.Action, machine: RegionMachine) -> None:
        """Take an action of the machine."""
        if isinstance(action, A.Subscribe):
            self._forget(action.sub_range)
            sub_range = machine.sub_range(action.sub_range)
            if sub_range is None:
                return
            request = 0 if action.slot in self.single else action.request_id
            key = action.slot, action.region.id, request
            allowed = self.ledgers[sub_range.span.id].least(action.start, action.end)
            assert action.checkpoint <= allowed, f"subscribed from {action.checkpoint}, but complete up to {allowed} only"
            assert key not in self.watched, f"{key} is subscribed twice"
            self.watched[key] = Watched(action, sub_range.span.id)
            self.by_sub_range[action.sub_range] = key
        elif isinstance(action, A.HoldFrontier):
            sub_range = machine.sub_range(action.sub_range)
            if sub_range is not None and sub_range.start == sub_range.span.start:
                self.placed[sub_range.span.id] = action.partition
        elif isinstance(action, A.ReleaseFrontier):
            for id_ in action.sub_ranges:
                self._forget(id_)

    def message(self, slot: int, data: bytes) -> None:
        """A store's message arrives (before the receiver takes it)."""
        told = cdcpb.ChangeDataEvent.FromString(data)
        for event in told.events:
            key = self._key(slot, event.region_id, event.request_id)
            watched = self.watched.get(key)
            if watched is None:
                continue
            if event.HasField("error"):
                self._forget(watched.action.sub_range)
            elif event.WhichOneof("event") == "resolved_ts":
                self._complete(watched, event.resolved_ts)
            else:
                watched.initialized |= any(row.type == INITIALIZED for row in event.entries.entries)
        for region in told.resolved_ts.regions:
            watched = self.watched.get(self._key(slot, region, told.resolved_ts.request_id))
            if watched is not None:
                self._complete(watched, told.resolved_ts.ts)

    def events(self, events: Iterable[Event]) -> None:
        """Take the receiver's events: subscriptions that it has ended do not count from then on."""
        for event in events:
            match event:
                case ProtocolBroken(sub_range, resolved):
                    self._take_back(sub_range, resolved)
                case SubRangeFailed(sub_range) | RowLost(sub_range) | SubRangeFrozen(sub_range):
                    self._forget(sub_range)
                case StreamLost(_, sub_ranges):
                    for sub_range, _ in sub_ranges:
                        self._forget(sub_range)
                case ScanDone():
                    pass

    def _take_back(self, sub_range: int, resolved: int) -> None:
        """Note that a store's promises were wrong: only then may a resolved ts go back. (Heads never go back; that is checked
        elsewhere.)"""
        key = self.by_sub_range.get(sub_range)
        if key is not None:
            partition = self.watched[key].action.partition
            self.sub_ranges[sub_range] = min(self.sub_ranges.get(sub_range, 0), resolved)
            self.frontiers[partition] = min(self.frontiers.get(partition, resolved), resolved)
        self._forget(sub_range)

    def _key(self, slot: int, region: int, request: int) -> Key:
        return slot, region, 0 if slot in self.single else request

    def _forget(self, sub_range: int) -> None:
        key = self.by_sub_range.pop(sub_range, None)
        if key is not None:
            del self.watched[key]

    def _complete(self, watched: Watched, ts: int) -> None:
        ledger = self.ledgers.get(watched.span)
        if watched.initialized and ledger is not None:
            ledger.advance(watched.action.start, watched.action.end, ts)

    # ------------------------------------------------------------------ what must hold

    def gone(self, span_id: int) -> None:
        """Stop capturing a span."""
        self.placed.pop(span_id, None)

    def check_frontiers(self, receiver: Receiver) -> None:
        """Check at any moment, also between two calls: no partition's frontier is above its spans'."""
        frontiers = receiver.matcher.frontiers().tolist()
        for id_, partition in self.placed.items():
            ledger = self.ledgers[id_]
            assert frontiers[partition] <= ledger.least(ledger.start, ledger.end), (
                f"partition {partition} is called complete beyond span {id_}"
            )

    def check(self, machine: RegionMachine, receiver: Receiver, spans: Mapping[int, object]) -> None:
        """Check now, when all calls to the receiver are done. `spans`: those that are captured."""
        resolved, sub_of = receiver.matcher.subs["resolved"], receiver._sub_of
        seen = 0
        for id_ in spans:
            lock, ledger = machine._spans[id_], self.ledgers[id_]
            lock.check()
            assert (lock.start, lock.end) == (ledger.start, ledger.end), "the sub-ranges do not reach their span's borders"
            for sub_range in lock:
                seen += 1
                allowed = ledger.least(sub_range.start, sub_range.end)
                at = f"sub-range {sub_range.id} of span {id_} [{sub_range.start!r}, {sub_range.end!r}) {sub_range.phase.value}"
                assert ledger.first <= sub_range.resolved_ts <= allowed, (
                    f"{at}: goes on from {sub_range.resolved_ts}, complete up to {allowed}"
                )
                now = int(resolved[sub_of[sub_range.id]])
                assert now >= self.sub_ranges.get(sub_range.id, 0), f"{at}: went back to {now} from {self.sub_ranges[sub_range.id]}"
                self.sub_ranges[sub_range.id] = now
                assert now <= allowed, f"{at}: resolved {now}, complete up to {allowed}"
        assert seen == len(sub_of), "every record of the receiver is a sub-range's"
        subs = receiver.matcher.subs[: receiver.matcher.count(X_NSUBS)]
        bound = np.flatnonzero(subs["state"] != FREE).tolist()
        assert dict(zip(bound, subs["sub_range"][bound].tolist(), strict=True)) == {sub: sub_range for sub_range, sub in sub_of.items()}
        assert receiver._ended.isdisjoint(subs["stream"][subs["state"] == ACTIVE].tolist()), "a stream that is over is listened to"
        held = receiver.matcher.subs["state"][: receiver.matcher.count(X_NSUBS)] != FREE
        assert seen == int(held.sum()), "a record that is nobody's holds the frontier"
        for partition, ts in enumerate(receiver.matcher.frontiers().tolist()):
            if ts == FOREVER:
                continue
            assert ts >= self.frontiers.get(partition, 0), f"the frontier of partition {partition} went back to {ts}"
            self.frontiers[partition] = ts


def check_waiting(receiver: Receiver, heads: Iterable[int]) -> None:
    """INV2: no waiting row belongs to a closed interval."""
    for partition, head in enumerate(heads):
        rows = receiver.matcher.pending_rows(partition)
        assert not len(rows) or int(rows["commit_ts"].min()) > head, f"a row of partition {partition} comes after resolved {head}"
