"""The merge of Pumps, without any."""

from __future__ import annotations

import random

import pytest

from tests.support.binlog.blocks import block, commits
from tidemill.binlog.merge import Merge
from tidemill.binlog.messages import Binlog, BinlogType, fake


def given(merge: Merge, most: int = 3) -> list[int]:
    """Everything that can go on now."""
    found: list[int] = []
    while len(some := merge.next(most)):
        assert len(some) <= most
        found += some.heads["commit_ts"].tolist()
    return found


def told(merge: Merge, node_id: str, ts: int) -> None:
    """A Pump tells that it has nothing up to a ts."""
    merge.add(node_id, block(fake(ts)))


def holding(merge: Merge, node_id: str, *stamps: int) -> None:
    """A Pump joins and gives binlogs."""
    merge.join(node_id)
    merge.add(node_id, commits(*stamps))


def test_example_b_a_pump_that_joins_is_merged_from_its_first_binlog_on() -> None:
    merge: Merge = Merge(0)
    merge.join("pump1")
    merge.join("pump2")
    merge.add("pump1", commits(1, 3, 5, 7))
    merge.add("pump2", commits(2, 4, 6))
    told(merge, "pump2", 7)
    assert given(merge) == [1, 2, 3, 4, 5, 6, 7]
    merge.add("pump1", commits(9))
    merge.add("pump2", commits(10))
    merge.join("pump3")
    assert given(merge) == []
    merge.add("pump3", commits(8))
    assert given(merge) == [8]
    merge.add("pump3", commits(12))
    assert given(merge) == [9]
    told(merge, "pump1", 20)
    assert given(merge) == [10]


def test_example_e_a_pump_without_writes_does_not_hold_the_merge() -> None:
    merge: Merge = Merge(0)
    holding(merge, "busy", 10, 20, 30)
    merge.join("idle")
    assert given(merge) == []
    holder = merge.holder()
    assert holder is not None
    assert (holder.node_id, holder.ts) == ("idle", 0)
    told(merge, "idle", 25)
    assert given(merge) == [10, 20]
    told(merge, "idle", 40)
    assert given(merge) == [30]


def test_without_binlogs_the_position_follows_the_fake_ones() -> None:
    merge: Merge = Merge(5)
    for node_id, ts in (("one", 40), ("two", 50)):
        merge.join(node_id)
        told(merge, node_id, ts)
    assert given(merge) == []
    assert merge.position == 40


def test_what_a_pump_gave_before_it_went_offline_is_given_out_and_it_holds_nothing_any_more() -> None:
    merge: Merge = Merge(0)
    holding(merge, "stays", 10, 30)
    holding(merge, "goes", 5, 20)
    merge.leave("goes")
    assert given(merge) == [5, 10, 20, 30]
    assert merge.sources == ("stays",)


def test_a_silent_pump_that_goes_offline_releases_the_merge() -> None:
    merge: Merge = Merge(0)
    holding(merge, "busy", 10)
    merge.join("dead")
    assert given(merge) == []
    merge.leave("dead")
    assert given(merge) == [10]


def test_binlogs_that_come_again_after_a_new_connection_are_left_out() -> None:
    merge: Merge = Merge(0)
    holding(merge, "pump", 10, 20)
    assert given(merge) == [10, 20]
    assert merge.join("pump") == 20
    merge.add("pump", commits(10, 20, 30))
    assert given(merge) == [30]
    assert merge.repeated == 2


def test_two_transactions_of_one_commit_ts_are_both_delivered() -> None:
    merge: Merge = Merge(0)
    merge.join("one")
    merge.join("two")
    merge.add("one", block(Binlog(BinlogType.COMMIT, 7, 10)))
    merge.add("two", block(Binlog(BinlogType.COMMIT, 8, 10)))
    told(merge, "one", 11)
    assert given(merge) == [10, 10]


@pytest.mark.parametrize("seed", range(20))
def test_any_way_of_coming_in_gives_all_in_order(seed: int) -> None:
    rng = random.Random(seed)
    streams = {f"pump{n}": sorted(rng.sample(range(1, 500), 40)) for n in range(4)}
    for node_id in streams:
        streams[node_id] = [ts * 10 + int(node_id[-1]) for ts in streams[node_id]]
    merge: Merge = Merge(0)
    left = {node_id: list(stamps) for node_id, stamps in streams.items()}
    for node_id in streams:
        merge.join(node_id)
    out: list[int] = []
    while any(left.values()):
        node_id = rng.choice([name for name, stamps in left.items() if stamps])
        ts = left[node_id].pop(0)
        merge.add(node_id, commits(ts))
        if not left[node_id]:
            told(merge, node_id, 100_000)
        out += given(merge)
    assert out == sorted(ts for stamps in streams.values() for ts in stamps)


def test_what_is_ready_waits_for_a_pump_that_joins() -> None:
    merge = Merge(0)
    holding(merge, "one", 1, 7, 9, 11)
    assert merge.next(2).heads["commit_ts"].tolist() == [1, 7]
    assert merge.join("two") == 7
    assert given(merge) == []
    told(merge, "two", 9)
    assert given(merge) == [9]
    merge.add("two", commits(10, 12))
    assert given(merge) == [10, 11]


def test_a_pump_that_leaves_twice_loses_nothing() -> None:
    merge = Merge(0)
    merge.join("holds")
    for ts in (5, 6):
        holding(merge, "goes", ts)
        merge.leave("goes")
    told(merge, "holds", 9)
    assert given(merge) == [5, 6]


def test_a_large_binlog_comes_alone_and_what_waits_is_counted() -> None:
    merge = Merge(0)
    merge.join("pump")
    large = Binlog(BinlogType.COMMIT, 1, 2, b"k", b"\x08" * 100_000)
    merge.add("pump", block(large, *(Binlog(BinlogType.COMMIT, ts - 1, ts) for ts in (3, 4, 5))))
    assert merge.waiting("pump") > 100_000
    assert [len(merge.next(10, 5_000)) for _ in range(3)] == [1, 3, 0]
    assert merge.waiting("pump") == 0
    assert merge.complete_ts == 5


def test_what_stands_in_no_order_is_left_out_as_what_came_already() -> None:
    merge = Merge(0)
    holding(merge, "pump", 10, 30, 20, 30, 40)
    assert given(merge) == [10, 30, 40]
    assert merge.repeated == 2
