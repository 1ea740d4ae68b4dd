"""The merge of Pumps, without any."""

from __future__ import annotations

import random

import pytest

from tidemill.binlog.merge import Merge


def given(merge: Merge[str]) -> list[int]:
    """Everything that can go on now."""
    found = []
    while (one := merge.next()) is not None:
        found.append(one[0])
    return found


def holding(merge: Merge[str], node_id: str, *stamps: int) -> None:
    """A Pump joins and gives binlogs."""
    merge.join(node_id)
    for ts in stamps:
        merge.add(node_id, ts, ts - 1, "", 10)


def test_example_b_a_pump_that_joins_is_merged_from_its_first_binlog_on() -> None:
    merge: Merge[str] = Merge(0)
    merge.join("pump1")
    merge.join("pump2")
    for ts in (1, 3, 5, 7):
        merge.add("pump1", ts, ts - 1, "", 10)
    for ts in (2, 4, 6):
        merge.add("pump2", ts, ts - 1, "", 10)
    merge.told("pump2", 7)
    assert given(merge) == [1, 2, 3, 4, 5, 6, 7]
    merge.add("pump1", 9, 8, "", 10)
    merge.add("pump2", 10, 9, "", 10)
    merge.join("pump3")
    assert given(merge) == []
    merge.add("pump3", 8, 7, "", 10)
    assert given(merge) == [8]
    merge.add("pump3", 12, 11, "", 10)
    assert given(merge) == [9]
    merge.told("pump1", 20)
    assert given(merge) == [10]


def test_example_e_a_pump_without_writes_does_not_hold_the_merge() -> None:
    merge: Merge[str] = Merge(0)
    holding(merge, "busy", 10, 20, 30)
    merge.join("idle")
    assert given(merge) == []
    holder = merge.holder()
    assert holder is not None
    assert (holder.node_id, holder.ts) == ("idle", 0)
    merge.told("idle", 25)
    assert given(merge) == [10, 20]
    merge.told("idle", 40)
    assert given(merge) == [30]


def test_without_binlogs_the_position_follows_the_fake_ones() -> None:
    merge: Merge[str] = Merge(5)
    for node_id, ts in (("one", 40), ("two", 50)):
        merge.join(node_id)
        merge.told(node_id, ts)
    assert given(merge) == []
    assert merge.position == 40


def test_what_a_pump_gave_before_it_went_offline_is_given_out_and_it_holds_nothing_any_more() -> None:
    merge: Merge[str] = Merge(0)
    holding(merge, "stays", 10, 30)
    holding(merge, "goes", 5, 20)
    merge.leave("goes")
    assert given(merge) == [5, 10, 20, 30]
    assert merge.sources == ("stays",)


def test_a_silent_pump_that_goes_offline_releases_the_merge() -> None:
    merge: Merge[str] = Merge(0)
    holding(merge, "busy", 10)
    merge.join("dead")
    assert given(merge) == []
    merge.leave("dead")
    assert given(merge) == [10]


def test_binlogs_that_come_again_after_a_new_connection_are_left_out() -> None:
    merge: Merge[str] = Merge(0)
    holding(merge, "pump", 10, 20)
    assert given(merge) == [10, 20]
    assert merge.join("pump") == 20
    for ts in (10, 20, 30):
        merge.add("pump", ts, ts - 1, "", 10)
    assert given(merge) == [30]
    assert merge.repeated == 2


def test_two_transactions_of_one_commit_ts_are_both_delivered() -> None:
    merge: Merge[str] = Merge(0)
    merge.join("one")
    merge.join("two")
    merge.add("one", 10, 7, "", 1)
    merge.add("two", 10, 8, "", 1)
    merge.told("one", 11)
    assert given(merge) == [10, 10]


@pytest.mark.parametrize("seed", range(20))
def test_any_way_of_coming_in_gives_all_in_order(seed: int) -> None:
    rng = random.Random(seed)
    streams = {f"pump{n}": sorted(rng.sample(range(1, 500), 40)) for n in range(4)}
    for node_id in streams:
        streams[node_id] = [ts * 10 + int(node_id[-1]) for ts in streams[node_id]]
    merge: Merge[str] = Merge(0)
    left = {node_id: list(stamps) for node_id, stamps in streams.items()}
    for node_id in streams:
        merge.join(node_id)
    out: list[int] = []
    while any(left.values()):
        node_id = rng.choice([name for name, stamps in left.items() if stamps])
        ts = left[node_id].pop(0)
        merge.add(node_id, ts, ts - 1, "", 10)
        if not left[node_id]:
            merge.told(node_id, 100_000)
        out += given(merge)
    assert out == sorted(ts for stamps in streams.values() for ts in stamps)
