"""How subscriptions end and continue: late messages, ended streams, busy stores, scans that wait their turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.capture.region_driver import A, Driver, M, Z, asked_for, error, region, started, sub_ranges_of
from tidemill.capture.tikv.feed.store_errors import parse_store_error
from tidemill.capture.tikv.model import Peer, StoreError
from tidemill.capture.tikv.regions import actions as R
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.regions.machine import MAX_SCANS, RegionMachine
from tidemill.capture.tikv.regions.reactions import AGAIN_CAP, BUSY_CAP, REFUSED_CAP
from tidemill.capture.tikv.regions.state import BACKOFF_FIRST, BACKOFF_FORGET, FIRST_WINDOW, RECOVERED, Phase
from tidemill.capture.tikv.regions.streams import IDLE
from tidemill.wire import cdcpb_pb2 as cdcpb


def test_protocol_violation_deregisters_and_goes_on_from_the_resolved_ts() -> None:
    driver = started(region(1))
    (sub_range,) = sub_ranges_of(driver)
    old = driver.live.pop(sub_range)
    driver.machine.broken(sub_range, 21, driver.now)
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
    driver.initialize(driver.subscribed[0].sub_range)
    assert [s.region.id for s in driver.subscribed] == [99, 1, 2, 3]


def test_what_was_live_goes_before_what_catches_up() -> None:
    """When a region of a live table splits, it does not wait behind thousands of regions of a new table."""
    driver = Driver(RegionMachine(2, max_scans=1))
    driver.add(Span(1, A, M, 0, 10))
    driver.answer(region(1, A, M))
    driver.open()
    live = driver.subscribed[0].sub_range
    driver.initialize(live)
    driver.resolve(live, 500)
    for i in range(5):
        driver.add(Span(10 + i, bytes([110 + i]), bytes([111 + i]), 1, 10))
        driver.answer(region(10 + i, bytes([110 + i]), bytes([111 + i])))
    assert [s.region.id for s in driver.subscribed] == [1, 10]
    driver.fail(live, error(epoch_not_match={}))
    driver.pass_time(0.1)
    driver.answer(region(1, A, b"c", 2), region(2, b"c", M, 2))
    begun = len(driver.subscribed)
    assert 12 not in {s.region.id for s in driver.subscribed}
    done = 1
    while done < len(driver.subscribed):
        driver.initialize(driver.subscribed[done].sub_range)
        done += 1
    after = driver.subscribed[begun:]
    assert {(s.region.id, s.checkpoint) for s in after[:2]} == {(1, 500), (2, 500)}
    assert [s.region.id for s in after[2:]] == [12, 13, 14], "then the others, one after the other"


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


def test_a_register_on_its_way_to_a_stream_that_the_receiver_has_ended_begins_again() -> None:
    """Malformed bytes end a stream on our side. A subscription that is sent on it before the machine knows is made again."""
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = sub_ranges_of(driver)
    driver.resolve(right, 33)
    driver.fail(left, error(server_is_busy={}))
    driver.pass_time()
    slot = driver.live[left].slot
    driver.garble(slot, [left])
    driver.pass_time()
    driver.take()
    driver.answer(region(1, b"", M), region(2, M, b""))
    driver.open()
    assert sorted(driver.take()) == [(1, A, M, 10), (2, M, Z, 33)]


@pytest.mark.parametrize("phase", [Phase.GAP, Phase.LOADING, Phase.QUEUED])
def test_late_words_of_an_ended_subscription_change_nothing(phase: Phase) -> None:
    driver = started(region(1))
    (sub_range,) = sub_ranges_of(driver)
    driver.fail(sub_range, error(server_is_busy={}) if phase is Phase.QUEUED else error(region_not_found={"region_id": 1}))
    if phase is Phase.LOADING:
        driver.pass_time()
    machine = driver.machine
    before = (machine.covered(1), machine.next_time(), dict(machine.errors))
    assert before[0] == [(A, Z, phase)]
    machine.failed(sub_range, 99, error(not_leader={"region_id": 1}), driver.now)
    machine.broken(sub_range, 99, driver.now)
    machine.frozen(sub_range, 99, driver.now)
    machine.scan_done(sub_range, driver.now)
    machine.stream_lost(0, [(sub_range, 99)], driver.now, last=False)
    assert (machine.covered(1), machine.next_time(), dict(machine.errors)) == before
    assert machine.actions() == []
    found = machine.sub_range(sub_range)
    assert found is not None
    assert found.resolved_ts == 10


def test_the_end_of_a_stream_is_nothing_to_who_has_left_it() -> None:
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = sub_ranges_of(driver)
    slot = driver.live[left].slot
    driver.fail(left, error(not_leader={"region_id": 1, "leader": {"id": 7, "store_id": 2}}))
    driver.pass_time()
    driver.open()
    driver.take()
    driver.initialize(left)
    driver.machine.stream_lost(slot, [(left, 99), (right, 33)], driver.now)
    assert driver.machine.covered(1) == [(A, M, Phase.LIVE), (M, Z, Phase.GAP)]
    found = driver.machine.sub_range(left)
    assert found is not None
    assert found.resolved_ts == 10


def test_nothing_is_subscribed_on_a_stream_that_has_ended() -> None:
    """Between the end of a stream and the receiver's report of it, sub-ranges that wait for its store get a new stream."""
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = sub_ranges_of(driver)
    slot = driver.live[left].slot
    driver.fail(left, error(server_is_busy={}))
    driver.machine.stream_ended(slot, driver.now)
    driver.pass_time()
    assert len(driver.opens) == 1
    assert driver.take() == []
    assert driver.open() != slot
    assert driver.take() == [(1, A, M, 10)]
    del driver.live[right]
    driver.machine.stream_lost(slot, [(right, 10)], driver.now)
    driver.pass_time()
    driver.answer(region(1, b"", M), region(2, M, b""))
    assert driver.take() == [(2, M, Z, 10)]


@pytest.mark.parametrize("kind", ["server_is_busy", "congested"])
def test_a_store_that_complains_is_given_fewer_scans(kind: str) -> None:
    n = 100
    borders = [A, *(A + bytes([i]) for i in range(1, n))]
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))
    driver.answer(*(region(i + 1, borders[i], borders[i + 1] if i + 1 < n else b"") for i in range(n)))
    driver.open()
    begun = list(driver.subscribed)
    assert len(begun) == FIRST_WINDOW
    driver.subscribed.clear()
    for s in begun[:3]:
        driver.fail(s.sub_range, error(**{kind: {"region_id": 1} if kind == "congested" else {"reason": "busy"}}))
    assert driver.subscribed == [], "it still has more than it can take"
    driver.initialize(*(s.sub_range for s in begun[3:]))
    scanning = len(driver.subscribed)
    assert FIRST_WINDOW / 8 < scanning <= FIRST_WINDOW / 8 + len(begun) - 3, "it grows again with each scan that ends well"


def test_a_frozen_region_is_looked_for_again() -> None:
    """A silent store may not have the region any more: PD is asked, and the store gets a deregister."""
    driver = started(region(1))
    (sub_range,) = sub_ranges_of(driver)
    old = driver.live.pop(sub_range)
    driver.machine.frozen(sub_range, 21, driver.now)
    driver.act()
    assert driver.deregistered == [R.Deregister(old.slot, 1, old.request_id)]
    driver.pass_time()
    driver.answer(region(1, store=2))
    driver.open()
    assert driver.subscribed[0].region.leader == Peer(1012, 2)
    assert driver.take() == [(1, A, Z, 21)]


@pytest.mark.parametrize(
    "problem",
    [error(server_is_busy={}), error(congested={"region_id": 1}), error(region_not_found={"region_id": 1}), error()],
    ids=["busy", "congested", "not found", "unknown"],
)
def test_errors_that_come_faster_than_they_can_be_handled(problem: StoreError) -> None:
    """A store refuses every register at once, for a minute: its queue holds each region once, back-off limits registers and questions to
    PD, and when it recovers every region continues from its resolved ts."""
    n = 300
    borders = [A, *(A + i.to_bytes(2, "big") for i in range(1, n))]
    known = [region(i + 1, borders[i], borders[i + 1] if i + 1 < n else b"") for i in range(n)]
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))
    store = driver.machine._streams.store(1)
    registers = questions = 0

    def serve(refuse: bool) -> None:
        nonlocal registers, questions
        while driver.loads or driver.opens or driver.subscribed:
            while driver.loads:
                questions += 1
                driver.answer(*asked_for(driver.loads[0], known))
            while driver.opens:
                driver.open()
            begun, driver.subscribed = driver.subscribed, []
            registers += len(begun)
            assert len(begun) <= MAX_SCANS
            for s in begun if refuse else ():
                driver.fail(s.sub_range, problem)
            if not refuse:
                driver.initialize(*(s.sub_range for s in begun))
            assert len(store.queue) + len(store.live) <= n

    for _ in range(240):
        serve(refuse=True)
        driver.pass_time(0.25)
    assert driver.frontier() == 10
    assert registers <= n * (7 + 60 / 1.0), "each region at most once a second when its back-off has grown"
    assert questions < 60 * 30, "gaps that are due together are asked for together"
    registers = 0
    for _ in range(40):
        serve(refuse=False)
        driver.pass_time(0.25)
    assert driver.machine.counts()["live"] == n
    assert registers == n


def test_a_busy_store_is_left_alone_for_ten_minutes_at_most() -> None:
    driver = started(region(1))
    (sub_range,) = sub_ranges_of(driver)
    driver.fail(sub_range, error(server_is_busy={"reason": "busy", "backoff_ms": 10**9}))
    due = driver.machine.next_time()
    assert due is not None
    assert due - driver.now == BUSY_CAP == 600


def waits_of(driver: Driver, sub_range: int, end: Callable[[], None], times: int) -> list[float]:
    """End a sub-range's subscription so many times; how long it waits for the next one each time."""
    waits = []
    for _ in range(times):
        end()
        driver.act()
        begun = driver.now
        while sub_range not in driver.live:
            while driver.loads:
                driver.answer(region(1, b"", M), region(2, M, b""))
            due = driver.machine.next_time()
            if due is not None:
                driver.pass_time(max(due - driver.now, 0.001))
        waits.append(driver.now - begun)
        driver.initialize(sub_range)
    return waits


@pytest.mark.parametrize("cause", ["protocol", "unknown", "congested"])
def test_what_ends_for_the_same_reason_again_and_again_waits_longer_and_longer_alone(cause: str) -> None:
    driver = started(region(1, b"", M), region(2, M, b""))
    bad, good = sub_ranges_of(driver)
    driver.initialize(bad, good)
    failures = {"unknown": error(), "congested": error(congested={"region_id": 1})}

    def end() -> None:
        driver.live.pop(bad, None)
        if cause == "protocol":
            driver.machine.broken(bad, 21, driver.now, "PUT without a value")
        else:
            driver.machine.failed(bad, 21, failures[cause], driver.now)

    most = {"protocol": AGAIN_CAP}.get(cause, REFUSED_CAP)
    assert driver.machine.ending_again(driver.now) == []
    waits = waits_of(driver, bad, end, 14)
    assert all(earlier < later for earlier, later in zip(waits[::2][:4], waits[::2][1:5], strict=True)), waits
    assert most / 2 <= max(waits) <= most
    (again,) = driver.machine.ending_again(driver.now)
    assert (again.id, again.ends) == (bad, 14)
    assert again.reason == ("PUT without a value" if cause == "protocol" else cause)
    assert good in driver.live, "others go on"
    driver.pass_time(RECOVERED + most)
    assert driver.machine.ending_again(driver.now) == [], "it is live now"
    driver.pass_time(BACKOFF_FORGET)
    assert waits_of(driver, bad, end, 1)[0] <= BACKOFF_FIRST, "five minutes without an end forget it"


def test_another_reason_begins_the_count_anew_and_splits_do_not_count() -> None:
    driver = started(region(1, b"", M), region(2, M, b""))
    sub_range, other = sub_ranges_of(driver)
    driver.initialize(sub_range, other)

    def end(cause: str) -> None:
        driver.live.pop(sub_range, None)
        driver.machine.broken(sub_range, 21, driver.now, cause)

    waits_of(driver, sub_range, lambda: end("PUT without a value"), 5)
    waits_of(driver, sub_range, lambda: end("COMMIT without its PREWRITE"), 2)
    assert driver.machine.ending_again(driver.now) == []
    for version in range(2, 8):
        driver.live.pop(sub_range, None)
        split = cdcpb.Error()
        split.epoch_not_match.current_regions.add(id=1)
        driver.machine.failed(sub_range, 21, parse_store_error(split.SerializeToString()), driver.now)
        driver.pass_time(3)
        driver.answer(region(1, b"", M, version))
        driver.pass_time(3)
        (sub_range,) = driver.live.keys() - {other}
        driver.initialize(sub_range)
    assert driver.machine.ending_again(driver.now) == []
