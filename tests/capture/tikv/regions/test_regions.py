"""The region state machine: the C scenarios one by one, with the machine's actions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.capture.region_driver import A, Driver, F, M, Z, asked_for, error, region, started, sub_ranges_of
from tidemill.capture.tikv.model import Peer, StoreError
from tidemill.capture.tikv.regions import actions as R
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.regions.cover import MAX_REFUSED
from tidemill.capture.tikv.regions.machine import MAX_SCANS
from tidemill.capture.tikv.regions.state import BACKOFF_CAP, FIRST_WINDOW, LEAST_WINDOW, Phase


def test_c1_split() -> None:
    driver = started(region(1))
    (sub_range,) = sub_ranges_of(driver)
    driver.resolve(sub_range, 20)
    driver.fail(sub_range, error(epoch_not_match={"current_regions": [{"id": 1}, {"id": 2}]}))
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
        (sub_range,) = sub_ranges_of(driver)
        driver.fail(sub_range, error(epoch_not_match={"current_regions": [{"id": 1}, {"id": 2}]}))
        due = driver.machine.next_time()
        assert due is not None
        waits.append(due - driver.now)
        driver.pass_time(waits[-1])
        driver.answer(region(1))
    assert waits[0] == 0
    assert all(w > 0 for w in waits[1:])
    assert waits[5] > 0.4, "it backs off"
    (sub_range,) = sub_ranges_of(driver)
    driver.take()
    driver.fail(sub_range, error(epoch_not_match={}))
    driver.pass_time()
    driver.answer(region(1, b"", M, 2), region(2, M, b"", 2))
    assert [t[:3] for t in driver.take()] == [(1, A, M), (2, M, Z)]


def test_c3_merge_takes_the_smaller_resolved_ts() -> None:
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = sub_ranges_of(driver)
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
    assert driver.held == {sub_ranges_of(driver)[0]: 25}


def test_c3_merge_whose_errors_come_apart_waits_for_the_other_half() -> None:
    """PD reports the merged region while its right half still has its subscription: one subscription replaces both."""
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = sub_ranges_of(driver)
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
    """The range lock must not delay a subscription forever: in the end there are two subscriptions of one region, with different request
    ids."""
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = sub_ranges_of(driver)
    other = driver.live[right]
    driver.fail(left, error(epoch_not_match={}))
    for _ in range(MAX_REFUSED + 1):
        assert driver.take() == []
        driver.pass_time(1)
        driver.answer(region(2, b"", b"", 3))
    first = driver.subscribed[0]
    assert driver.take() == [(2, A, M, 10)]
    assert first.slot == other.slot
    assert first.request_id != other.request_id


def test_c6_a_split_that_pd_knows_first_waits_for_the_old_region() -> None:
    driver = started(region(1, b"", F), region(2, F, b""))
    left, right = sub_ranges_of(driver)
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
    _, right = sub_ranges_of(driver)
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
    for sub_range in list(driver.live):
        driver.initialize(sub_range)
        driver.resolve(sub_range, 50)
    assert driver.frontier() == 10
    assert driver.machine.covered(1) == [(A, F, Phase.LIVE), (F, M, Phase.GAP), (M, Z, Phase.LIVE)]
    driver.pass_time()
    assert driver.loads[0].ranges == ((F, M),)
    driver.answer(region(1, b"", F), region(2, F, M), region(3, M, b""))
    assert driver.take() == [(2, F, M, 10)]


def test_an_answer_cut_by_its_limit_is_continued_at_once() -> None:
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))
    driver.answer(region(1, b"", F), complete=False)
    driver.pass_time(0)
    assert driver.loads[0].ranges == ((F, Z),)


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
    (sub_range,) = sub_ranges_of(driver)
    driver.resolve(sub_range, 33)
    driver.fail(sub_range, error(not_leader={"region_id": 1, "leader": {"id": 7, "store_id": 2}}))
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
        (sub_range,) = sub_ranges_of(driver)
        driver.fail(sub_range, error(not_leader={"region_id": 1}))
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
    sub_ranges = sub_ranges_of(driver)
    slots = {driver.live[p].slot for p in sub_ranges}
    assert len(slots) == 2
    broken = driver.live[sub_ranges[1]].slot
    lost = []
    for i, sub_range in enumerate(sub_ranges):
        driver.resolve(sub_range, 20 + i)
        if driver.live[sub_range].slot == broken:
            lost.append((sub_range, 20 + i))
    driver.machine.stream_ended(broken, driver.now)
    for sub_range, _ in lost:
        del driver.live[sub_range]
    driver.machine.stream_lost(broken, lost, driver.now)
    driver.act()
    driver.pass_time()
    while driver.loads:
        driver.answer(*(region(i + 1, borders[i], borders[i + 1] if i + 1 < n else b"", store=1) for i in range(n)))
    got = []
    while begun := list(driver.subscribed):
        got += driver.take()
        driver.initialize(*(s.sub_range for s in begun))
    assert {(r, ts) for r, _, _, ts in got} == {(i + 1, 20 + i) for i in range(1, n, 2)}
    assert not driver.opens, "the open stream of store 1 serves them"


def test_a_storm_of_errors_is_smoothed_and_work_grows_with_progress() -> None:
    """5,000 regions of two stores; one store breaks repeatedly, the other is busy: never more scans at a time than the window, few
    questions to PD, and each region continues from its own resolved ts."""
    n = 5000
    borders = [A, *(A + i.to_bytes(2, "big") for i in range(1, n))]
    known = [region(i + 1, borders[i], borders[i + 1] if i + 1 < n else b"", store=1 + i % 2) for i in range(n)]
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))

    def look() -> int:
        questions = 0
        while driver.loads:
            questions += 1
            found = asked_for(driver.loads[0], known)[:1024]
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
        driver.initialize(*(s.sub_range for s in begun))
    assert FIRST_WINDOW * 2 < most <= 2 * MAX_SCANS
    lost = [(p, 1000 + p) for p, s in driver.live.items() if s.slot == slots[1]]
    assert len(lost) == n // 2
    driver.machine.stream_ended(slots[1], driver.now)
    for sub_range, _ in lost:
        del driver.live[sub_range]
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
        driver.fail(s.sub_range, error(server_is_busy={"reason": "too many", "backoff_ms": 500}))
    assert len(driver.subscribed) <= len(busy) + LEAST_WINDOW
    while len(driver.live) < n:
        driver.pass_time(1)
        look()
        begun, driver.subscribed = list(driver.subscribed), []
        driver.initialize(*(s.sub_range for s in begun))
    assert all(driver.held[p] >= ts for p, ts in lost), "each goes on from its own resolved ts"
    assert driver.machine.counts()["live"] == n - len(driver.subscribed)


def test_c12_a_split_during_the_scan_goes_on_from_the_checkpoint() -> None:
    driver = Driver()
    driver.add(Span(1, A, Z, 0, 10))
    driver.answer(region(1))
    driver.open()
    (sub_range,) = driver.live
    driver.take()
    driver.fail(sub_range, error(epoch_not_match={"current_regions": [{"id": 1}, {"id": 2}]}))
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
    driver.machine.scan_done(old.sub_range, driver.now)
    driver.machine.failed(old.sub_range, 50, error(region_not_found={"region_id": 1}), driver.now)
    driver.add(Span(2, A, Z, 0, 40))
    assert driver.loads == [], "PD has told of the region a moment ago"
    new = driver.subscribed[0]
    assert (new.slot, new.region.id) == (old.slot, 1)
    assert new.request_id != old.request_id


def test_the_id_of_a_scan_that_failed_is_not_used_again_on_the_stream() -> None:
    """TiKV queues what a scan has read apart from errors: rows and INITIALIZED may come behind the error that ended their subscription."""
    driver = started(region(1))
    live = next(iter(driver.live.values()))
    ids = []
    for _ in range(3):  # the first one was live, the others fail during their scans
        driver.fail(next(iter(driver.live)), error(region_not_found={"region_id": 1}))
        driver.pass_time()
        driver.answer(region(1))
        driver.pass_time()
        (again,) = driver.subscribed
        driver.subscribed.clear()
        assert again.slot == live.slot
        ids.append(again.request_id)
    assert ids[0] == live.request_id, "no message follows the error of a subscription whose scan had ended"
    assert len(set(ids)) == 3


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
def test_c20_waits_and_retries_the_same_region(problem: StoreError, least: float) -> None:
    driver = started(region(1))
    (sub_range,) = sub_ranges_of(driver)
    driver.resolve(sub_range, 44)
    driver.fail(sub_range, problem)
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
def test_c21_fatal(problem: StoreError, code: str, text: str) -> None:
    driver = started(region(1))
    driver.fail(sub_ranges_of(driver)[0], problem)
    (failure,) = driver.failures
    assert getattr(failure, "code", "") == code
    assert text in str(failure)


def test_c22_a_duplicate_opens_the_stream_anew_and_is_fatal_the_second_time() -> None:
    driver = started(region(1, b"", M), region(2, M, b""))
    left, right = sub_ranges_of(driver)
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
    """Without multiplexing a region can be subscribed once per stream: a second sub-range of it takes another stream."""
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
