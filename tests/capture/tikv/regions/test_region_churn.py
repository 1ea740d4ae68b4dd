"""The region state machine under random churn: against a model of a cluster, and with any events in any order."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.capture.region_driver import Driver, asked_for, error, region
from tidemill.capture.tikv.model import Peer, Region, StoreError
from tidemill.capture.tikv.regions import actions as R
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.regions.machine import RegionMachine
from tidemill.capture.tikv.regions.state import Phase


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

    def seen(self, load: R.LoadRegions, healthy: bool) -> list[Region]:
        view = self.regions if healthy else self.random.choice(self.views)
        found = asked_for(load, view)
        if not healthy and self.random.random() < 0.3:
            found = [r for r in found if self.random.random() < 0.7]
        if not healthy and self.random.random() < 0.3:
            found = [replace(r, leader=None) if self.random.random() < 0.3 else r for r in found]
        return found

    def judge(self, asked: R.Subscribe) -> StoreError | None:
        """The store's answer to a register."""
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
    """The sub-ranges of each span cover it without overlap, each holds the frontier, and none has a higher resolved ts than stores have
    sent for all its keys."""
    total = 0
    for span in spans:
        cover = driver.machine.covered(span.id)
        total += len(cover)
        driver.machine._spans[span.id].check()
        assert cover[0][0] == span.start
        assert cover[-1][1] == span.end
        assert all(a[1] == b[0] for a, b in itertools.pairwise(cover))
        assert all(start < end for start, end, _ in cover)
        for sub_range in driver.machine._spans[span.id]:
            allowed = driver.ledger(span).least(sub_range.start, sub_range.end)
            assert span.checkpoint <= sub_range.resolved_ts <= driver.held[sub_range.id] <= allowed
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
            for sub_range in [p for p, s in driver.live.items() if s.region.id in gone and random_.random() < 0.95]:
                driver.fail(sub_range, cluster.judge(driver.live[sub_range]) or error(region_not_found={"region_id": 1}))
        while driver.loads and random_.random() < 0.9:
            load = driver.loads.pop(0)
            if not healthy and random_.random() < 0.1:
                driver.machine.load_failed(load.load, driver.now)
            else:
                driver.machine.loaded(load.load, cluster.seen(load, healthy), True, driver.now)
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
            driver.hang_up(random_.choice(list(driver.live.values())).slot)
        clock += 1
        for sub_range, subscription in driver.live.items():
            if cluster.judge(subscription) is None:
                driver.resolve(sub_range, clock)
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
    for sub_range, subscription in list(driver.live.items()):
        problem = cluster.judge(subscription)
        if problem is not None:
            driver.fail(sub_range, problem)
        elif driver.machine._sub_ranges[sub_range].phase is Phase.SCANNING and (healthy or cluster.random.random() < 0.7):
            driver.initialize(sub_range)


# ---- any order of anything ---------------------------------------------------------------------------------------------


class Anything(RuleBasedStateMachine):
    """Errors of every kind, answers of PD that do not fit, streams and spans that come and go, passing time: the spans stay covered, no
    sub-range's resolved ts goes back, and nothing is subscribed twice on one stream with the same ids."""

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
        found = asked_for(load, [r for i, r in enumerate(known) if i != missing])
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
        sub_range = sorted(self.driver.live)[i % len(self.driver.live)]
        self.driver.initialize(sub_range)
        self.driver.resolve(sub_range, self.driver.held[sub_range] + by)

    @precondition(lambda self: self.driver.live)
    @rule(i=st.integers(0, 99), kind=st.sampled_from(KINDS), leader=st.integers(0, 2))
    def fail(self, i: int, kind: str, leader: int) -> None:
        sub_range = sorted(self.driver.live)[i % len(self.driver.live)]
        hint = {"leader": {"id": 7, "store_id": leader}} if leader and kind == "not_leader" else {}
        told = {"current_regions": [{"id": 1}]} if leader and kind == "epoch_not_match" else {}
        self.driver.fail(sub_range, error() if kind == "unknown" else error(**{kind: hint | told}))

    @precondition(lambda self: self.driver.live)
    @rule(i=st.integers(0, 99), frozen=st.booleans())
    def renew(self, i: int, frozen: bool) -> None:
        sub_range = sorted(self.driver.live)[i % len(self.driver.live)]
        del self.driver.live[sub_range]
        machine = self.driver.machine
        (machine.frozen if frozen else machine.broken)(sub_range, self.driver.held[sub_range], self.driver.now)
        self.driver.act()

    @precondition(lambda self: self.driver.live)
    @rule(i=st.integers(0, 99))
    def break_one(self, i: int) -> None:
        self.driver.hang_up(self.slot(i))

    def slot(self, i: int) -> int:
        return sorted(s.slot for s in self.driver.live.values())[i % len(self.driver.live)]

    @precondition(lambda self: self.driver.live)
    @rule(i=st.integers(0, 99), behind=st.integers(0, 3))
    def garble(self, i: int, behind: int) -> None:
        slot, machine = self.slot(i), self.driver.machine
        scanning = [p for p, s in self.driver.live.items() if s.slot == slot and machine._sub_ranges[p].phase is Phase.SCANNING]
        self.driver.garble(slot, scanning[:behind])

    @precondition(lambda self: self.driver.live)
    @rule(i=st.integers(0, 99))
    def duplicate(self, i: int) -> None:
        sub_range = sorted(self.driver.live)[i % len(self.driver.live)]
        if self.driver.machine._sub_ranges[sub_range].duplicates == 0:
            self.driver.fail(sub_range, error(duplicate_request={"region_id": 1}))
            self.close()

    @rule(seconds=st.floats(0, 200))
    def close_idle(self, seconds: float) -> None:
        self.driver.now += seconds
        self.driver.machine.close_idle(self.driver.now)
        self.driver.act()
        self.close()

    def close(self) -> None:
        """End the streams that the machine closes."""
        while self.driver.closed:
            self.driver.hang_up(self.driver.closed.pop())

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

    def teardown(self) -> None:
        """Without new faults everything is live in bounded time."""
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
