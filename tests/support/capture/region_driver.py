"""Drives a region state machine without a process: actions are carried out as the real driver does, with a ledger of what holds the
frontier."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.support.simulation.invariants import Ledger
from tidemill.capture.tikv.feed.store_errors import parse_store_error
from tidemill.capture.tikv.model import Peer, Region, StoreError
from tidemill.capture.tikv.regions import actions as R
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.regions.machine import RegionMachine
from tidemill.wire import cdcpb_pb2 as cdcpb

A, F, M, Z = b"a", b"f", b"m", b"z"


def region(id_: int, start: bytes = b"", end: bytes = b"", version: int = 1, store: int | None = 1) -> Region:
    leader = None if store is None else Peer(1000 + id_ * 10 + store, store)
    return Region(id_, start, end, 1, version, leader)


def error(**kind: Any) -> StoreError:
    """The error that a store sends, by the fields of `cdcpb.Error`."""
    return parse_store_error(cdcpb.Error(**kind).SerializeToString())


def asked_for(load: R.LoadRegions, known: Iterable[Region]) -> list[Region]:
    """Those of the regions (in key order) that a question is for, once each."""
    found: dict[Region, None] = {}
    ranges, at = load.ranges, 0
    for one in known:
        while at < len(ranges) and ranges[at][1] <= one.start:
            at += 1
        if at < len(ranges) and (not one.end or one.end > ranges[at][0]):
            found[one] = None
    return list(found)


@dataclass
class Driver:
    """Carries out a machine's actions as the real one does, and keeps a ledger of what holds the frontier."""

    machine: RegionMachine = field(default_factory=lambda: RegionMachine(2))
    now: float = 0.0
    held: dict[int, int] = field(default_factory=dict)  # sub-range -> resolved ts
    loads: list[R.LoadRegions] = field(default_factory=list)
    opens: list[R.OpenStream] = field(default_factory=list)
    subscribed: list[R.Subscribe] = field(default_factory=list)
    live: dict[int, R.Subscribe] = field(default_factory=dict)  # by sub-range
    deregistered: list[R.Deregister] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    ledgers: dict[int, Ledger] = field(default_factory=dict)  # by span

    def act(self) -> None:
        for action in self.machine.actions():
            match action:
                case R.HoldFrontier(sub_range, resolved_ts, _):
                    assert sub_range not in self.held
                    self.held[sub_range] = resolved_ts
                case R.ReleaseFrontier(sub_ranges):
                    for sub_range in sub_ranges:
                        del self.held[sub_range]
                        self.live.pop(sub_range, None)
                case R.LoadRegions():
                    self.loads.append(action)
                case R.OpenStream():
                    self.opens.append(action)
                case R.Subscribe():
                    assert self.held[action.sub_range] <= action.checkpoint
                    self.held[action.sub_range] = action.checkpoint
                    self.subscribed.append(action)
                    self.live[action.sub_range] = action
                case R.Deregister():
                    self.deregistered.append(action)
                case R.CloseStream(slot):
                    self.closed.append(slot)
                case R.Fail(failure):
                    self.failures.append(failure)

    def frontier(self) -> int:
        return min(self.held.values())

    def pass_time(self, seconds: float = 5.0) -> None:
        self.now += seconds
        self.machine.wake(self.now)
        self.act()

    def add(self, span: Span) -> None:
        self.machine.add_span(span, self.now)
        self.act()
        self.pass_time(0)

    def answer(self, *found: Region, complete: bool = True) -> None:
        """PD's answer to the oldest question."""
        load = self.loads.pop(0)
        self.machine.loaded(load.load, found, complete, self.now)
        self.act()

    def open(self) -> int:
        slot = self.opens.pop(0).slot
        self.machine.stream_opened(slot, self.now)
        self.act()
        return slot

    def initialize(self, *sub_ranges: int) -> None:
        for sub_range in sub_ranges:
            self.machine.scan_done(sub_range, self.now)
        self.act()

    def resolve(self, sub_range: int, ts: int) -> None:
        """The store's resolved ts for all keys of the sub-range's subscription."""
        self.held[sub_range] = max(self.held[sub_range], ts)
        found = self.machine.sub_range(sub_range)
        if found is not None:
            self.ledger(found.span).advance(found.start, found.end, ts)

    def ledger(self, span: Span) -> Ledger:
        """How far the keys of a span are complete, by the stores' messages."""
        return self.ledgers.setdefault(span.id, Ledger(span.start, span.end, span.checkpoint))

    def hang_up(self, slot: int) -> None:
        """End a stream: the machine learns it from the socket, then from the receiver."""
        lost = [(p, self.held[p]) for p, s in self.live.items() if s.slot == slot]
        for sub_range, _ in lost:
            del self.live[sub_range]
        self.machine.stream_ended(slot, self.now)
        self.act()
        self.machine.stream_lost(slot, lost, self.now)
        self.act()

    def garble(self, slot: int, under_way: list[int]) -> None:
        """The receiver ends a stream by itself; it does not know yet of the registers on their way to it."""
        on = [p for p, s in self.live.items() if s.slot == slot]
        for sub_range in on:
            del self.live[sub_range]
        self.machine.stream_lost(slot, [(p, self.held[p]) for p in on if p not in under_way], self.now)
        self.act()
        self.machine.stream_lost(slot, [(p, self.held[p]) for p in under_way if p in self.held], self.now)
        self.machine.stream_ended(slot, self.now)
        self.act()

    def fail(self, sub_range: int, problem: StoreError) -> None:
        self.live.pop(sub_range, None)
        self.machine.failed(sub_range, self.held[sub_range], problem, self.now)
        self.act()

    def take(self) -> list[tuple[int, bytes, bytes, int]]:
        """Region, range and checkpoint of the subscriptions since the last call."""
        out = [(s.region.id, s.start, s.end, s.checkpoint) for s in self.subscribed]
        self.subscribed.clear()
        return out


def started(*found: Region) -> Driver:
    """A span [a, z) from ts 10, subscribed and initialized."""
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))
    driver.answer(*found)
    while driver.opens:
        driver.open()
    while begun := list(driver.subscribed):
        driver.subscribed.clear()
        driver.initialize(*(s.sub_range for s in begun))
    return driver


def sub_ranges_of(driver: Driver) -> list[int]:
    return sorted(driver.live, key=lambda p: driver.live[p].start)
