"""What many tables cost: scan slots, request ids, questions to PD."""

from __future__ import annotations

import random
from collections import Counter

from tests.support.region_driver import A, Driver, F, M, Z, region
from tidemill.capture.tikv.pieces import RequestIds
from tidemill.capture.tikv.regions import RegionMachine, Span


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
