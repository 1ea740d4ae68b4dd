"""The state machine of subscriptions: the C scenarios one by one, and random churn against a model of a cluster."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidemill.capture.tikv import regions as R
from tidemill.capture.tikv.pd import Peer, Region
from tidemill.capture.tikv.pieces import BACKOFF_CAP, FIRST_WINDOW, LEAST_WINDOW, Phase
from tidemill.capture.tikv.regions import RegionMachine, Span
from tidemill.capture.tikv.streams import IDLE
from tidemill.wire import cdcpb_pb2 as cdcpb

A, F, M, Z = b"a", b"f", b"m", b"z"


def region(id_: int, start: bytes = b"", end: bytes = b"", version: int = 1, store: int | None = 1) -> Region:
    leader = None if store is None else Peer(1000 + id_ * 10 + store, store)
    return Region(id_, start, end, 1, version, leader)


def error(**kind: Any) -> cdcpb.Error:
    return cdcpb.Error(**kind)


@dataclass
class Driver:
    """Carries out a machine's actions as the real one does, and keeps a ledger of what holds the frontier."""

    machine: RegionMachine = field(default_factory=lambda: RegionMachine(2))
    now: float = 0.0
    held: dict[int, int] = field(default_factory=dict)  # piece -> checkpoint
    loads: list[R.LoadRegions] = field(default_factory=list)
    opens: list[R.OpenStream] = field(default_factory=list)
    subscribed: list[R.Subscribe] = field(default_factory=list)
    live: dict[int, R.Subscribe] = field(default_factory=dict)  # by piece
    deregistered: list[R.Deregister] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def act(self) -> None:
        for action in self.machine.actions():
            match action:
                case R.Place(piece, checkpoint, _):
                    assert piece not in self.held
                    self.held[piece] = checkpoint
                case R.Drop(pieces):
                    for piece in pieces:
                        del self.held[piece]
                        self.live.pop(piece, None)
                case R.LoadRegions():
                    self.loads.append(action)
                case R.OpenStream():
                    self.opens.append(action)
                case R.Subscribe():
                    assert self.held[action.piece] <= action.checkpoint
                    self.held[action.piece] = action.checkpoint
                    self.subscribed.append(action)
                    self.live[action.piece] = action
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

    def initialize(self, *pieces: int) -> None:
        for piece in pieces:
            self.machine.scan_done(piece, self.now)
        self.act()

    def resolve(self, piece: int, ts: int) -> None:
        self.held[piece] = max(self.held[piece], ts)

    def fail(self, piece: int, problem: cdcpb.Error) -> None:
        self.live.pop(piece, None)
        self.machine.failed(piece, self.held[piece], problem, self.now)
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
        driver.initialize(*(s.piece for s in begun))
    return driver


def pieces_of(driver: Driver) -> list[int]:
    return sorted(driver.live, key=lambda p: driver.live[p].start)


def test_c1_split() -> None:
    driver = started(region(1))
    (piece,) = pieces_of(driver)
    driver.resolve(piece, 20)
    driver.fail(piece, error(epoch_not_match={"current_regions": [{"id": 1}, {"id": 2}]}))
    assert driver.frontier() == 20
    driver.pass_time(0.1)
    driver.answer(region(1, b"", M, 2), region(2, M, b"", 2))
    assert driver.take() == [(1, A, M, 20), (2, M, Z, 20)]
    assert driver.frontier() == 20
    assert len(driver.held) == 2


def test_c2_pd_is_stale_after_a_split() -> None:
    driver = started(region(1))
    waits = []
    for _ in range(6):
        (piece,) = pieces_of(driver)
        driver.fail(piece, error(epoch_not_match={"current_regions": [{"id": 1}, {"id": 2}]}))
        due = driver.machine.next_time()
        assert due is not None
        waits.append(due - driver.now)
        driver.pass_time(waits[-1])
        driver.answer(region(1))
    assert waits[0] == 0
    assert all(w > 0 for w in waits[1:])
    assert waits[5] > 0.4, "it backs off"
    (piece,) = pieces_of(driver)
    driver.take()
    driver.fail(piece, error(epoch_not_match={}))
    driver.pass_time()
    driver.answer(region(1, b"", M, 2), region(2, M, b"", 2))
    assert [t[:3] for t in driver.take()] == [(1, A, M), (2, M, Z)]


def test_c3_merge_takes_the_smaller_resolved_ts() -> None:
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = pieces_of(driver)
    driver.resolve(left, 30)
    driver.resolve(right, 25)
    driver.fail(left, error(epoch_not_match={}))
    driver.now += 0.014
    driver.fail(right, error(epoch_not_match={}))
    assert driver.frontier() == 25
    driver.pass_time(0.2)
    assert len(driver.loads) == 1
    driver.answer(region(1, b"", b"", 3))
    assert driver.take() == [(1, A, Z, 25)]
    assert driver.held == {pieces_of(driver)[0]: 25}


def test_c3_merge_whose_errors_come_apart_waits_for_the_other_half() -> None:
    """PD tells of the merged region while its right half still has its subscription: one subscription takes over both."""
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = pieces_of(driver)
    driver.resolve(left, 30)
    driver.fail(left, error(epoch_not_match={}))
    driver.pass_time(1)
    driver.answer(region(1, b"", b"", 3))
    assert driver.take() == []
    driver.resolve(right, 25)
    driver.fail(right, error(epoch_not_match={}))
    driver.pass_time(1)
    driver.answer(region(1, b"", b"", 3))
    assert driver.take() == [(1, A, Z, 25)]


def test_a_half_that_never_fails_does_not_stop_the_other() -> None:
    """The range lock is no reason to wait for ever: then there are two subscriptions of one region, with their own request ids."""
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = pieces_of(driver)
    other = driver.live[right]
    driver.fail(left, error(epoch_not_match={}))
    for _ in range(R.MAX_REFUSED + 1):
        assert driver.take() == []
        driver.pass_time(1)
        driver.answer(region(2, b"", b"", 3))
    first = driver.subscribed[0]
    assert driver.take() == [(2, A, M, 10)]
    assert first.slot == other.slot
    assert first.request_id != other.request_id


def test_c6_a_split_that_pd_knows_first_waits_for_the_old_region() -> None:
    driver = started(region(1, b"", F), region(2, F, b""))
    left, right = pieces_of(driver)
    driver.fail(left, error(not_leader={"region_id": 1}))
    driver.pass_time(1)
    driver.answer(region(1, b"", M, 2), region(3, M, b"", 2))  # merged with a part of 2, which has not said so yet
    assert driver.take() == []
    driver.resolve(right, 20)
    driver.fail(right, error(epoch_not_match={}))
    driver.pass_time(1)
    driver.answer(region(1, b"", M, 2), region(3, M, b"", 2))
    assert driver.take() == [(1, A, M, 10), (3, M, Z, 20)]


def test_c7_an_old_region_gets_nothing_of_what_newer_ones_have() -> None:
    driver = started(region(1, b"", M, 2), region(2, M, b"", 2))
    _, right = pieces_of(driver)
    driver.fail(right, error(region_not_found={"region_id": 2}))
    driver.pass_time(1)
    driver.answer(region(1, b"", b"", 1))
    assert driver.take() == []
    driver.pass_time(1)
    driver.answer(region(2, M, b"", 2))
    assert driver.take() == [(2, M, Z, 10)]


def test_c4_a_hole_holds_the_frontier_and_is_asked_for_again() -> None:
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))
    driver.answer(region(1, b"", F), region(3, M, b""))
    driver.open()
    assert driver.take() == [(1, A, F, 10), (3, M, Z, 10)]
    for piece in list(driver.live):
        driver.initialize(piece)
        driver.resolve(piece, 50)
    assert driver.frontier() == 10
    assert driver.machine.covered(1) == [(A, F, Phase.LIVE), (F, M, Phase.GAP), (M, Z, Phase.LIVE)]
    driver.pass_time()
    assert (driver.loads[0].start, driver.loads[0].end) == (F, M)
    driver.answer(region(1, b"", F), region(2, F, M), region(3, M, b""))
    assert driver.take() == [(2, F, M, 10)]


def test_an_answer_cut_by_its_limit_is_continued_at_once() -> None:
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))
    driver.answer(region(1, b"", F), complete=False)
    driver.pass_time(0)
    assert (driver.loads[0].start, driver.loads[0].end) == (F, Z)


def test_regions_without_a_leader_and_empty_answers_are_asked_for_again() -> None:
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))
    driver.answer(region(1, store=None))
    assert driver.take() == []
    driver.pass_time()
    driver.answer()
    driver.pass_time()
    driver.machine.load_failed(driver.loads.pop(0).load, driver.now)
    driver.pass_time()
    driver.answer(region(1))
    driver.open()
    assert driver.take() == [(1, A, Z, 10)]
    assert len(driver.held) == 1


def test_c8_a_hint_of_the_leader_saves_asking_pd() -> None:
    driver = started(region(1))
    (piece,) = pieces_of(driver)
    driver.resolve(piece, 33)
    driver.fail(piece, error(not_leader={"region_id": 1, "leader": {"id": 7, "store_id": 2}}))
    driver.pass_time()
    assert driver.loads == []
    assert driver.opens[0].store_id == 2
    driver.open()
    assert driver.subscribed[0].region.leader == Peer(7, 2)
    assert driver.take() == [(1, A, Z, 33)]


def test_c9_no_leader_backs_off() -> None:
    driver = started(region(1))
    at = []
    for _ in range(10):
        (piece,) = pieces_of(driver)
        driver.fail(piece, error(not_leader={"region_id": 1}))
        due = driver.machine.next_time()
        assert due is not None
        at.append(due - driver.now)
        driver.pass_time(at[-1])
        driver.answer(region(1))
    assert sum(at) > 5
    assert max(at) <= BACKOFF_CAP


def test_c10_a_broken_stream_ends_all_its_subscriptions_and_no_other() -> None:
    n = 100
    borders = [A + bytes([i]) for i in range(n)]
    driver = started(*(region(i + 1, borders[i], borders[i + 1] if i + 1 < n else b"", store=1 + i % 2) for i in range(n)))
    pieces = pieces_of(driver)
    slots = {driver.live[p].slot for p in pieces}
    assert len(slots) == 2
    broken = driver.live[pieces[1]].slot
    lost = []
    for i, piece in enumerate(pieces):
        driver.resolve(piece, 20 + i)
        if driver.live[piece].slot == broken:
            lost.append((piece, 20 + i))
    driver.machine.stream_ended(broken, driver.now)
    for piece, _ in lost:
        del driver.live[piece]
    driver.machine.stream_lost(broken, lost, driver.now)
    driver.act()
    driver.pass_time()
    while driver.loads:
        driver.answer(*(region(i + 1, borders[i], borders[i + 1] if i + 1 < n else b"", store=1) for i in range(n)))
    got = []
    while begun := list(driver.subscribed):
        got += driver.take()
        driver.initialize(*(s.piece for s in begun))
    assert {(r, ts) for r, _, _, ts in got} == {(i + 1, 20 + i) for i in range(1, n, 2)}
    assert not driver.opens, "the open stream of store 1 serves them"


def test_a_storm_of_errors_is_smoothed_and_work_grows_with_progress() -> None:
    """5,000 regions of two stores, one of which breaks again and again, the other is busy: never more scans at a time than the
    window, few questions to PD, and each region goes on from its own resolved ts."""
    n = 5000
    borders = [A, *(A + i.to_bytes(2, "big") for i in range(1, n))]
    known = [region(i + 1, borders[i], borders[i + 1] if i + 1 < n else b"", store=1 + i % 2) for i in range(n)]
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))

    def look() -> int:
        questions = 0
        while driver.loads:
            questions += 1
            load = driver.loads[0]
            first = bisect_right(borders, load.start) - 1
            found = [r for r in known[first : first + 1024] if r.start < load.end]
            driver.answer(*found, complete=len(found) < 1024)
            driver.pass_time(0)
        return questions

    assert look() <= n // 1024 + 1
    slots = {}
    for wanted in driver.opens:
        driver.machine.stream_opened(wanted.slot, driver.now)
        slots[wanted.store_id] = wanted.slot
    driver.act()
    assert len(driver.subscribed) == 2 * FIRST_WINDOW
    most = 0
    while begun := list(driver.subscribed):
        driver.subscribed.clear()
        most = max(most, len(begun))
        driver.initialize(*(s.piece for s in begun))
    assert FIRST_WINDOW * 2 < most <= 2 * R.MAX_SCANS
    lost = [(p, 1000 + p) for p, s in driver.live.items() if s.slot == slots[1]]
    assert len(lost) == n // 2
    driver.machine.stream_ended(slots[1], driver.now)
    for piece, _ in lost:
        del driver.live[piece]
    for at in range(0, len(lost), 512):
        driver.machine.stream_lost(slots[1], lost[at : at + 512], driver.now, last=False)
    driver.machine.stream_lost(slots[1], (), driver.now)
    driver.opens.clear()
    driver.act()
    driver.pass_time(0.06)
    look()
    driver.open()
    assert len(driver.subscribed) == FIRST_WINDOW, "the store has just come back"
    busy = list(driver.subscribed)
    driver.subscribed.clear()
    for s in busy:
        driver.fail(s.piece, error(server_is_busy={"reason": "too many", "backoff_ms": 500}))
    assert len(driver.subscribed) <= len(busy) + LEAST_WINDOW
    while len(driver.live) < n:
        driver.pass_time(1)
        look()
        begun, driver.subscribed = list(driver.subscribed), []
        driver.initialize(*(s.piece for s in begun))
    assert all(driver.held[p] >= ts for p, ts in lost), "each goes on from its own resolved ts"
    assert driver.machine.counts()["live"] == n - len(driver.subscribed)


def test_c12_a_split_during_the_scan_goes_on_from_the_checkpoint() -> None:
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))
    driver.answer(region(1))
    driver.open()
    (piece,) = driver.live
    driver.take()
    driver.fail(piece, error(epoch_not_match={"current_regions": [{"id": 1}, {"id": 2}]}))
    driver.pass_time()
    driver.answer(region(1, b"", M, 2), region(2, M, b"", 2))
    assert driver.take() == [(1, A, M, 10), (2, M, Z, 10)]


def test_c14_a_removed_span_is_deregistered_and_its_ids_are_not_used_again() -> None:
    driver = started(region(1))
    old = next(iter(driver.live.values()))
    driver.machine.remove_span(1, driver.now)
    driver.act()
    assert driver.held == {}
    assert driver.deregistered == [R.Deregister(old.slot, 1, old.request_id)]
    driver.machine.scan_done(old.piece, driver.now)
    driver.machine.failed(old.piece, 50, error(region_not_found={"region_id": 1}), driver.now)
    driver.add(Span(2, A, Z, 0, 40))
    driver.answer(region(1))
    new = driver.subscribed[0]
    assert (new.slot, new.region.id) == (old.slot, 1)
    assert new.request_id != old.request_id


def test_c17_and_c16_ranges_are_cut_and_epochs_are_sent_as_told() -> None:
    driver = Driver()
    driver.add(Span(1, b"c", b"x", 0, 10))
    driver.answer(replace(region(1, A, M, 5), conf_ver=9), region(2, M, b"", 3))
    driver.open()
    first, second = driver.subscribed
    assert (first.start, first.end, first.region.conf_ver, first.region.version) == (b"c", M, 9, 5)
    assert (second.start, second.end) == (M, b"x")


@pytest.mark.parametrize(
    ("problem", "least"),
    [
        (error(server_is_busy={"reason": "too many pending incremental scans", "backoff_ms": 5000}), 5.0),
        (error(server_is_busy={"reason": "busy"}), 0.02),
        (error(congested={"region_id": 1}), 0.02),
    ],
)
def test_c20_waits_and_retries_the_same_region(problem: cdcpb.Error, least: float) -> None:
    driver = started(region(1))
    (piece,) = pieces_of(driver)
    driver.resolve(piece, 44)
    driver.fail(piece, problem)
    due = driver.machine.next_time()
    assert due is not None
    assert due - driver.now >= least
    driver.pass_time(due - driver.now)
    assert driver.loads == []
    assert driver.take() == [(1, A, Z, 44)]


@pytest.mark.parametrize(
    ("problem", "code", "text"),
    [
        (error(cluster_id_mismatch={"current": 5, "request": 6}), "TM:ErrClusterMismatch", "cluster 5, not to cluster 6"),
        (error(compatibility={"required_version": "6.2.0"}), "TM:ErrVersionTooOld", "6.2.0"),
    ],
)
def test_c21_fatal(problem: cdcpb.Error, code: str, text: str) -> None:
    driver = started(region(1))
    driver.fail(pieces_of(driver)[0], problem)
    (failure,) = driver.failures
    assert getattr(failure, "code", "") == code
    assert text in str(failure)


def test_c22_a_duplicate_opens_the_stream_anew_and_is_fatal_the_second_time() -> None:
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = pieces_of(driver)
    slot = driver.live[left].slot
    driver.fail(left, error(duplicate_request={"region_id": 1}))
    assert driver.closed == [slot]
    driver.machine.stream_ended(slot, driver.now)
    del driver.live[right]
    driver.machine.stream_lost(slot, [(right, 33)], driver.now)
    driver.act()
    driver.pass_time()
    driver.answer(region(2, M, b""))
    driver.open()
    assert sorted(driver.take()) == [(1, A, M, 10), (2, M, Z, 33)]
    assert not driver.failures
    driver.fail(left, error(duplicate_request={"region_id": 1}))
    assert [getattr(f, "code", "") for f in driver.failures] == ["TM:ErrUpstream"]


@pytest.mark.parametrize("known_late", [False, True])
def test_c23_falls_back_to_event_feed(known_late: bool) -> None:
    """Without multiplexing a region can be subscribed once a stream: a second piece of it takes another stream."""
    driver = Driver()
    driver.add(Span(1, A, M, 0, 10))
    driver.add(Span(2, M, Z, 1, 10))
    driver.answer(region(1))
    driver.answer(region(1))
    slot = driver.opens[0].slot
    lost: list[tuple[int, int]] = []
    if known_late:
        driver.open()
        assert len(driver.take()) == 2
        lost = [(p, 10) for p in driver.live]
        driver.live.clear()
    else:
        driver.opens.pop(0)
    driver.machine.stream_ended(slot, driver.now, unimplemented=True)
    driver.machine.stream_lost(slot, lost, driver.now)
    driver.act()
    assert not driver.opens[0].multiplexed
    driver.open()
    driver.open()
    first, second = driver.subscribed
    assert {first.start, second.start} == {A, M}
    assert first.slot != second.slot


def test_c24_a_stream_that_cannot_be_opened_reloads_its_regions() -> None:
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))
    driver.answer(region(1, store=1))
    driver.machine.stream_ended(driver.opens.pop(0).slot, driver.now)
    driver.act()
    driver.pass_time()
    driver.answer(region(1, store=2))
    driver.open()
    assert driver.subscribed[0].region.leader == Peer(1012, 2)


def test_protocol_violation_deregisters_and_goes_on_from_the_resolved_ts() -> None:
    driver = started(region(1))
    (piece,) = pieces_of(driver)
    old = driver.live.pop(piece)
    driver.machine.broken(piece, 21, driver.now)
    driver.act()
    assert driver.deregistered == [R.Deregister(old.slot, 1, old.request_id)]
    driver.pass_time()
    assert driver.subscribed[0].request_id != old.request_id
    assert driver.take() == [(1, A, Z, 21)]
    assert driver.machine.errors == {"protocol": 1}


def test_scans_of_a_store_are_limited_and_the_schema_goes_first() -> None:
    driver = Driver(RegionMachine(2, max_scans=3))
    for i in range(8):
        driver.add(Span(i, bytes([65 + i]), bytes([66 + i]), 0, 10))
        driver.answer(region(i + 1, bytes([65 + i]), bytes([66 + i])))
    driver.add(Span(99, Z, b"zz", 1, 10, urgent=True))
    driver.answer(region(99, Z, b"zz"))
    driver.open()
    assert [s.region.id for s in driver.subscribed] == [99, 1, 2]
    driver.initialize(driver.subscribed[0].piece)
    assert [s.region.id for s in driver.subscribed] == [99, 1, 2, 3]


def test_an_idle_stream_is_closed() -> None:
    driver = started(region(1))
    slot = next(iter(driver.live.values())).slot
    driver.machine.remove_span(1, driver.now)
    driver.machine.close_idle(driver.now + IDLE - 1)
    driver.act()
    assert driver.closed == []
    driver.machine.close_idle(driver.now + IDLE)
    driver.act()
    assert driver.closed == [slot]


# ---- random churn ----------------------------------------------------------------------------------------------------


class Cluster:
    """Regions that split, merge and move; PD's view of them may be old, have holes, or lack leaders."""

    def __init__(self, random_: random.Random, stores: int) -> None:
        self.random, self.stores = random_, stores
        self.regions = [region(1, b"", b"", 1, 1)]
        self.views = [list(self.regions)]
        self.next_id = 2

    def change(self) -> list[Region]:
        """One change; returns the regions that it ended."""
        kind = self.random.choice(("split", "merge", "leader"))
        i = self.random.randrange(len(self.regions))
        old = self.regions[i]
        if kind == "split":
            key = bytes([self.random.randrange(97, 123), self.random.randrange(256)])
            if not (old.start < key and (not old.end or key < old.end)):
                return []
            version = old.version + 1
            new = Region(self.next_id, key, old.end, 1, version, old.leader)
            self.next_id += 1
            self.regions[i : i + 1] = [replace(old, end=key, version=version), new]
            ended = [old]
        elif kind == "merge" and i + 1 < len(self.regions):
            right = self.regions[i + 1]
            merged = replace(right, start=old.start, version=max(old.version, right.version) + 2)
            self.regions[i : i + 2] = [merged]
            ended = [old, right]
        elif kind == "leader":
            store = self.random.randint(1, self.stores)
            self.regions[i] = replace(old, leader=Peer(old.id * 10 + store, store))
            ended = [old]
        else:
            return []
        self.views = [*self.views[-4:], list(self.regions)]
        return ended

    def seen(self, start: bytes, end: bytes, healthy: bool) -> list[Region]:
        view = self.regions if healthy else self.random.choice(self.views)
        found = [r for r in view if (not r.end or r.end > start) and r.start < end]
        if not healthy and self.random.random() < 0.3:
            found = [r for r in found if self.random.random() < 0.7]
        if not healthy and self.random.random() < 0.3:
            found = [replace(r, leader=None) if self.random.random() < 0.3 else r for r in found]
        return found

    def judge(self, asked: R.Subscribe) -> cdcpb.Error | None:
        """What the store says of a register."""
        now = next((r for r in self.regions if r.id == asked.region.id), None)
        assert asked.region.leader is not None
        if now is None:
            return error(region_not_found={"region_id": asked.region.id})
        if now.version != asked.region.version:
            return error(epoch_not_match={"current_regions": [{"id": now.id}]})
        if now.leader != asked.region.leader:
            hint = {"id": now.leader.id, "store_id": now.leader.store_id} if now.leader and self.random.random() < 0.5 else {}
            return error(not_leader={"region_id": now.id, "leader": hint})
        return None


def check_cover(driver: Driver, spans: Iterable[Span]) -> None:
    """The pieces of each span cover it, do not overlap, and each holds the frontier."""
    total = 0
    for span in spans:
        cover = driver.machine.covered(span.id)
        total += len(cover)
        driver.machine._spans[span.id].check()
        assert cover[0][0] == span.start
        assert cover[-1][1] == span.end
        assert all(a[1] == b[0] for a, b in itertools.pairwise(cover))
        assert all(start < end for start, end, _ in cover)
    assert total == len(driver.held)


@pytest.mark.parametrize("seed", range(25))
def test_random_churn_never_uncovers_and_heals(seed: int) -> None:
    random_ = random.Random(seed)
    cluster, driver = Cluster(random_, stores=3), Driver(RegionMachine(3, max_scans=random_.choice((2, 50))))
    spans = [Span(i, bytes([97 + 4 * i]), bytes([101 + 4 * i]), i % 3, 10) for i in range(6)]
    for span in spans:
        driver.machine.add_span(span, 0.0)
    driver.act()
    clock, requests = 10, Counter[int]()
    for step in range(400):
        healthy = step >= 300
        driver.now += random_.random() * (3 if healthy else 0.3)
        driver.machine.wake(driver.now)
        driver.act()
        if not healthy and random_.random() < 0.3:
            gone = {r.id for r in cluster.change()}
            for piece in [p for p, s in driver.live.items() if s.region.id in gone and random_.random() < 0.95]:
                driver.fail(piece, cluster.judge(driver.live[piece]) or error(region_not_found={"region_id": 1}))
        while driver.loads and random_.random() < 0.9:
            load = driver.loads.pop(0)
            if not healthy and random_.random() < 0.1:
                driver.machine.load_failed(load.load, driver.now)
            else:
                driver.machine.loaded(load.load, cluster.seen(load.start, load.end, healthy), True, driver.now)
            driver.act()
        while driver.opens:
            slot = driver.opens.pop(0).slot
            if not healthy and random_.random() < 0.2:
                driver.machine.stream_ended(slot, driver.now)
            else:
                driver.machine.stream_opened(slot, driver.now)
            driver.act()
        _answer_registers(driver, cluster, healthy)
        if not healthy and driver.live and random_.random() < 0.05:
            _break_stream(driver, random_.choice(list(driver.live.values())).slot)
        clock += 1
        for piece, subscription in driver.live.items():
            if cluster.judge(subscription) is None:
                driver.resolve(piece, clock)
        requests[step // 100] += len(driver.subscribed)
        driver.subscribed.clear()
        check_cover(driver, spans)
        assert driver.frontier() >= 10
        assert not driver.failures
    assert driver.machine.counts()["live"] == len(driver.held)
    assert driver.frontier() == clock
    assert sum(requests.values()) < 6000


def _answer_registers(driver: Driver, cluster: Cluster, healthy: bool) -> None:
    keys = Counter((s.slot, s.region.id, s.request_id) for s in driver.live.values())
    assert max(keys.values(), default=1) == 1, "two subscriptions with one key on one stream"
    for piece, subscription in list(driver.live.items()):
        problem = cluster.judge(subscription)
        if problem is not None:
            driver.fail(piece, problem)
        elif driver.machine._pieces[piece].phase is Phase.SCANNING and (healthy or cluster.random.random() < 0.7):
            driver.initialize(piece)


def _break_stream(driver: Driver, slot: int) -> None:
    lost = [(p, driver.held[p]) for p, s in driver.live.items() if s.slot == slot]
    for piece, _ in lost:
        del driver.live[piece]
    driver.machine.stream_ended(slot, driver.now)
    driver.act()
    driver.machine.stream_lost(slot, lost, driver.now)
    driver.act()


# ---- any order of anything ---------------------------------------------------------------------------------------------


class Anything(RuleBasedStateMachine):
    """Errors of every kind, answers of PD that fit nothing, streams that come and go, time, spans that come and go: the spans stay covered,
    no piece's resolved ts goes back, and nothing is subscribed twice on one stream under the same ids."""

    KINDS = ("not_leader", "epoch_not_match", "region_not_found", "server_is_busy", "congested", "unknown")

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(RegionMachine(3, max_scans=3))
        self.spans: dict[int, Span] = {}
        self.next_span = 0

    @rule(low=st.integers(0, 20), width=st.integers(1, 5))
    def add(self, low: int, width: int) -> None:
        start, end = bytes([97 + low]), bytes([97 + low + width])
        self.spans[self.next_span] = Span(self.next_span, start, end, self.next_span % 3, 10, urgent=self.next_span % 5 == 0)
        self.driver.machine.add_span(self.spans[self.next_span], self.driver.now)
        self.driver.act()
        self.next_span += 1

    @precondition(lambda self: self.spans)
    @rule(i=st.integers(0, 99))
    def remove(self, i: int) -> None:
        id_ = sorted(self.spans)[i % len(self.spans)]
        del self.spans[id_]
        self.driver.machine.remove_span(id_, self.driver.now)
        self.driver.act()

    @rule(seconds=st.floats(0.01, 10))
    def wait(self, seconds: float) -> None:
        self.driver.pass_time(seconds)

    @precondition(lambda self: self.driver.loads)
    @rule(
        cuts=st.lists(st.integers(0, 255), max_size=5, unique=True),
        version=st.integers(1, 9),
        store=st.sampled_from([None, 1, 2]),
        missing=st.integers(-1, 5),
        complete=st.booleans(),
    )
    def answer(self, cuts: list[int], version: int, store: int | None, missing: int, complete: bool) -> None:
        borders = [b"", *sorted(bytes([97 + c % 26, c]) for c in cuts), b""]
        known = [region(1 + i + version % 3, a, b, version, store) for i, (a, b) in enumerate(itertools.pairwise(borders))]
        load = self.driver.loads[0]
        found = [r for i, r in enumerate(known) if i != missing and (not r.end or r.end > load.start) and r.start < load.end]
        self.driver.answer(*found, complete=complete)

    @precondition(lambda self: self.driver.loads)
    @rule()
    def no_answer(self) -> None:
        self.driver.machine.load_failed(self.driver.loads.pop(0).load, self.driver.now)
        self.driver.act()

    @precondition(lambda self: self.driver.opens)
    @rule(up=st.booleans(), old=st.booleans())
    def stream(self, up: bool, old: bool) -> None:
        wanted = self.driver.opens.pop(0)
        if up:
            self.driver.machine.stream_opened(wanted.slot, self.driver.now)
        else:
            self.driver.machine.stream_ended(wanted.slot, self.driver.now, unimplemented=old and wanted.multiplexed)
        self.driver.act()

    @precondition(lambda self: self.driver.live)
    @rule(i=st.integers(0, 99), by=st.integers(0, 9))
    def progress(self, i: int, by: int) -> None:
        piece = sorted(self.driver.live)[i % len(self.driver.live)]
        self.driver.initialize(piece)
        self.driver.resolve(piece, self.driver.held[piece] + by)

    @precondition(lambda self: self.driver.live)
    @rule(i=st.integers(0, 99), kind=st.sampled_from(KINDS), leader=st.integers(0, 2))
    def fail(self, i: int, kind: str, leader: int) -> None:
        piece = sorted(self.driver.live)[i % len(self.driver.live)]
        hint = {"leader": {"id": 7, "store_id": leader}} if leader and kind == "not_leader" else {}
        told = {"current_regions": [{"id": 1}]} if leader and kind == "epoch_not_match" else {}
        self.driver.fail(piece, cdcpb.Error() if kind == "unknown" else error(**{kind: hint | told}))

    @precondition(lambda self: self.driver.live)
    @rule(i=st.integers(0, 99), frozen=st.booleans())
    def renew(self, i: int, frozen: bool) -> None:
        piece = sorted(self.driver.live)[i % len(self.driver.live)]
        del self.driver.live[piece]
        machine = self.driver.machine
        (machine.frozen if frozen else machine.broken)(piece, self.driver.held[piece], self.driver.now)
        self.driver.act()

    @precondition(lambda self: self.driver.live)
    @rule(i=st.integers(0, 99))
    def break_one(self, i: int) -> None:
        _break_stream(self.driver, sorted(s.slot for s in self.driver.live.values())[i % len(self.driver.live)])

    @rule(held=st.booleans())
    def hold_back(self, held: bool) -> None:
        self.driver.machine.hold_back(held, self.driver.now)
        self.driver.act()

    @invariant()
    def holds(self) -> None:
        check_cover(self.driver, self.spans.values())
        assert not self.driver.failures
        keys = Counter((s.slot, s.region.id, s.request_id) for s in self.driver.live.values())
        assert max(keys.values(), default=1) == 1
        for span in self.spans.values():
            for piece in self.driver.machine._spans[span.id]:
                assert self.driver.held[piece.id] >= piece.checkpoint >= span.checkpoint

    def teardown(self) -> None:
        """Without new trouble everything is live in bounded time."""
        driver = self.driver
        self.hold_back(False)
        whole = region(50, version=99)
        for _ in range(60):
            driver.pass_time(3.0)
            while driver.loads:
                driver.answer(whole)
            while driver.opens:
                driver.open()
            driver.initialize(*driver.live)
        assert driver.machine.counts()["live"] == len(driver.held)


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
