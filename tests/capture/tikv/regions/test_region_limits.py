"""The cost of many tables: scan slots, request ids, questions to PD."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.support.capture.region_driver import A, Driver, F, M, Z, asked_for, error, region
from tidemill.capture.tikv.client.range_scan import scan_each
from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.regions.gaps import QUESTIONS
from tidemill.capture.tikv.regions.machine import RegionMachine
from tidemill.capture.tikv.regions.ranges import merged
from tidemill.capture.tikv.regions.region_cache import FRESH, RegionCache
from tidemill.capture.tikv.regions.state import RequestIds


def test_a_span_that_goes_while_it_scans_makes_room_for_the_next() -> None:
    driver = Driver(RegionMachine(2, max_scans=1))
    driver.add(Span(1, A, F, 0, 10))
    driver.answer(region(1, b"", F))
    driver.open()
    driver.add(Span(2, F, M, 0, 10))
    driver.answer(region(2, F, M))
    driver.add(Span(3, M, Z, 0, 10))
    driver.answer(region(3, M, b""))
    assert driver.take() == [(1, A, F, 10)]
    driver.machine.remove_span(1, driver.now)
    driver.act()
    assert driver.take() == [(2, F, M, 10)], "nothing else happens at this store that could let it in"
    driver.machine.remove_span(3, driver.now)
    driver.act()
    assert driver.take() == [], "a span that only waited had no slot"


def test_request_ids_are_the_smallest_that_are_free() -> None:
    random_ = random.Random(3)
    ids, taken = RequestIds(3), set[tuple[int, int]]()
    for _ in range(5000):
        if taken and random_.random() < 0.48:
            one = random_.choice(sorted(taken))
            taken.remove(one)
            ids.give_back(*one)
            continue
        region_id, partition = random_.randint(1, 3), random_.randrange(3)
        expected = 1 + partition
        while (region_id, expected) in taken:
            expected += 3
        assert ids.take(region_id, partition) == expected
        taken.add((region_id, expected))
    for one in taken:
        ids.give_back(*one)
    assert ids == RequestIds(3), "nothing is left behind"


def test_thousands_of_tables_in_one_region_have_a_request_id_each() -> None:
    n = 5000
    driver = Driver(RegionMachine(2, max_scans=10 * n))
    for i in range(n):
        driver.machine.add_span(Span(i, b"t%06d" % i, b"t%06d" % (i + 1), i % 2, 10), 0.0)
    whole = region(1)
    driver.pass_time(0)
    while len(driver.live) < n:
        while driver.loads:
            driver.answer(whole)
        while driver.opens:
            driver.open()
        driver.initialize(*driver.live)
        driver.pass_time()
    ids = Counter(s.request_id for s in driver.subscribed)
    assert len(ids) == n
    assert max(ids) == n


# ---- questions to PD ---------------------------------------------------------------------------------------------------


TABLES = 10_000
LIMIT = 1024


def table_key(i: int) -> bytes:
    return b"t%06d" % i


def tables(n: int, store: int = 1) -> list[Region]:
    """A region per table, with its indexes before its rows."""
    borders = [b"", *(table_key(i) for i in range(1, n)), b""]
    return [region(i + 1, a, b, store=store) for i, (a, b) in enumerate(pairwise(borders))]


def serve(driver: Driver, known: Sequence[Region]) -> int:
    """PD and stores answer until nothing more is asked. Returns the questions to PD."""
    questions = 0
    while driver.machine.counts()["live"] < len(driver.held):
        while driver.loads:
            questions += 1
            assert len(driver.loads) <= QUESTIONS
            found = asked_for(driver.loads[0], known)
            driver.answer(*found[:LIMIT], complete=len(found) < LIMIT)
        while driver.opens:
            driver.open()
        begun, driver.subscribed = driver.subscribed, []
        driver.initialize(*(s.sub_range for s in begun))
        driver.pass_time(0.001)
    return questions


def started_with(known: Sequence[Region], n: int = TABLES) -> tuple[Driver, int]:
    """A capture of n tables, and what PD was asked."""
    driver = Driver(RegionMachine(2))
    for i in range(n):
        driver.machine.add_span(Span(i, table_key(i) + b"_r", table_key(i) + b"_s", i % 2, 10), 0.0)
    driver.act()
    return driver, serve(driver, known)


def test_ten_thousand_tables_take_few_questions_to_pd_at_start_and_after_a_store_restart() -> None:
    known = tables(TABLES)
    driver, questions = started_with(known)
    assert questions <= TABLES / 500 + QUESTIONS, "one a table would be 10,000"
    (slot,) = {s.slot for s in driver.live.values()}
    driver.hang_up(slot)
    driver.now += 1.0
    assert serve(driver, known) <= TABLES / 500 + QUESTIONS
    assert driver.machine.counts()["live"] == TABLES


def test_tables_that_share_a_region_are_asked_for_once() -> None:
    driver, questions = started_with([region(1)])
    assert questions <= QUESTIONS
    assert driver.machine.questions == questions


def test_what_has_failed_is_asked_for_again() -> None:
    """Regions learned before a failure are not used for the sub-ranges that failed, and, if a store reported a region, for no sub-range."""
    driver, _ = started_with([region(1)], 3)
    first, second, _ = sorted(driver.live)
    driver.fail(first, error(epoch_not_match={}))
    driver.pass_time(0.1)
    assert [load.ranges for load in driver.loads] == [((table_key(0) + b"_r", table_key(0) + b"_s"),)]
    driver.answer(region(1, version=2))
    driver.fail(second, error(region_not_found={"region_id": 1}))
    driver.machine.add_span(Span(9, b"u", b"v", 0, 10), driver.now)
    driver.pass_time(0.1)
    assert [load.ranges for load in driver.loads] == [((table_key(1) + b"_r", table_key(1) + b"_s"), (b"u", b"v"))]


def test_what_pd_told_long_ago_is_asked_for_again() -> None:
    driver, _ = started_with([region(1)], 3)
    driver.now += FRESH
    driver.add(Span(9, b"u", b"v", 0, 10))
    assert [load.ranges for load in driver.loads] == [((b"u", b"v"),)]


def test_two_spans_of_the_same_keys_are_asked_for_as_one_range() -> None:
    """PD refuses ranges that overlap; an exchanged partition has two spans for a while."""
    driver = Driver(RegionMachine(2))
    for i, (start, end) in enumerate(((A, M), (A, M), (F, Z), (b"zz", b"zzz"))):
        driver.machine.add_span(Span(i, start, end, i % 2, 10), 0.0)
    driver.pass_time(0)
    assert [load.ranges for load in driver.loads] == [((A, Z), (b"zz", b"zzz"))]
    driver.answer(region(1, b"", M), region(2, M, b""))
    driver.open()
    assert sorted(driver.take()) == [(1, A, M, 10), (1, A, M, 10), (1, F, M, 10), (2, M, Z, 10), (2, b"zz", b"zzz", 10)]


@pytest.mark.parametrize("seed", range(20))
def test_the_cache_knows_what_was_told_last_and_is_newest(seed: int) -> None:
    """Compares the cache with a plain list of everything learned, key by key."""
    random_ = random.Random(seed)
    cache, told = RegionCache(), dict[int, tuple[Region, float]]()  # by key
    for now in range(60):
        cuts = sorted(random_.sample(range(1, 40), random_.randint(0, 8)))
        answer = [
            region(
                random_.randint(1, 30),
                b"%02d" % a if a else b"",
                b"%02d" % b if b < 40 else b"",
                random_.randint(1, 4),
                random_.choice((1, 1, None)),
            )
            for a, b in pairwise([0, *cuts, 40])
            if random_.random() < 0.7
        ]
        answer = list({r.id: r for r in answer}.values())
        answer.sort(key=lambda r: r.start)
        cache.learn(answer, float(now))
        before = dict(told)
        for one in answer:
            keys = range(int(one.start or 0), int(one.end or 40))
            about = {old for k, (old, _) in before.items() if k in keys or old.id == one.id}
            if one.leader is not None and all(old.version <= one.version for old in about):
                told = {k: v for k, v in told.items() if v[0] not in about}
                told |= dict.fromkeys(keys, (one, float(now)))
        assert len(cache) == len({r for r, _ in told.values()})
        low, high = sorted(random_.sample(range(40), 2))
        after = float(now - random_.randint(1, 12))
        fits = all(k in told and told[k][1] > max(after, now - FRESH) for k in range(low, high))
        expected = list(dict.fromkeys(told[k][0] for k in range(low, high))) if fits else None
        assert cache.cover(b"%02d" % low, b"%02d" % high, after, float(now)) == expected


def test_the_cache_has_a_bound() -> None:
    cache = RegionCache(most=100)
    for i in range(0, 1000, 50):
        cache.learn(tables(1000)[i : i + 50], i / 50)
        assert len(cache) <= 100
    assert cache.cover(table_key(960), table_key(970), 0.0, 19.0) is not None, "the newest are kept"


@pytest.mark.parametrize("seed", range(30))
def test_a_pd_that_is_asked_for_one_range_at_a_time_tells_the_same(seed: int) -> None:
    random_ = random.Random(seed)
    known = [r for r in tables(60) if random_.random() < random_.choice((1, 0.9))]
    ranges = merged(
        (table_key(a) + b"_r", table_key(a + random_.randint(0, 3)) + b"_s")
        for a in sorted(random_.sample(range(57), random_.randint(1, 20)))
    )
    calls = 0

    async def scan(start: bytes, end: bytes, limit: int) -> list[Region]:
        nonlocal calls
        calls += 1
        return [r for r in known if (not r.end or r.end > start) and (not end or r.start < end)][:limit]

    wanted = [r for r in known if any((not r.end or r.end > start) and r.start < end for start, end in ranges)]
    found = asyncio.run(scan_each(scan, ranges, LIMIT, ahead=random_.choice((1, 2, 5, 64))))
    assert set(wanted) <= set(found)
    assert found == sorted(set(found), key=lambda r: r.start)
    calls = 0
    found = asyncio.run(scan_each(scan, ranges, LIMIT))
    assert calls == 1, "all of it lies within one answer"
    few = asyncio.run(scan_each(scan, ranges, 5, ahead=2))
    assert len(few) <= 5
    assert few == found[: len(few)] or len(ranges) > 1
    assert few


def test_a_stale_answer_of_an_older_epoch_does_not_replace_a_newer_one() -> None:
    cache, new = RegionCache(), region(1, A, M, 5)
    cache.learn([new], 0.0)
    cache.learn([region(2, A, F, 4), region(3, F, M, 6)], 1.0)
    assert cache.cover(A, F, -1.0, 1.0) is None, "a part of it is known to be older"
    cache.learn([replace(new, version=7)], 2.0)
    cache.learn([region(2, b"", Z, 4)], 3.0)
    assert cache.cover(A, M, -1.0, 3.0) == [replace(new, version=7)]
    cache.forget(1)
    assert cache.cover(A, M, -1.0, 3.0) is None
