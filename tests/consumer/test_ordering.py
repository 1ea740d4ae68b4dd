"""The state machine: whatever is repeated, interleaved or killed, the target gets every transaction once, whole and in order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.consumer.streams import Feed, MemorySpill, Target, consume, ddl, row
from tidemill.consumer.order import pending
from tidemill.consumer.order.ordering import Ordering, Step, Transaction
from tidemill.consumer.order.pending import Pending
from tidemill.consumer.order.progress import PartitionProgress, Progress
from tidemill.protocols.open.codes import DdlType
from tidemill.protocols.open.events import DdlMessage, Event, ResolvedMessage, RowEvent, RowKind

A, B, C = ("a", 0), ("a", 1), ("b", 0)


def ordering(progress: Progress | None = None, *sources: tuple[str, int], quota: int = 1 << 30) -> Ordering:
    made = Ordering(Pending(quota, MemorySpill()), progress)
    for source in sources or (A, B):
        made.join(source)
    return made


def feed(o: Ordering, source: tuple[str, int], *events: Event) -> None:
    """One message for each event."""
    for event in events:
        o.take(source, o.partitions[source].next_offset, [event])


def flush(o: Ordering, target_ts: int | None = None) -> list[Step]:
    upto = o.ready(target_ts)
    if upto is None:
        return []
    steps = list(o.drain(upto))
    o.flushed(upto)
    return steps


def resolved(ts: int) -> ResolvedMessage:
    return ResolvedMessage(ts)


def test_nothing_comes_out_before_all_partitions_are_resolved() -> None:
    o = ordering()
    feed(o, A, row(5, 1, None, 1), resolved(9))
    assert o.ready() is None
    assert (o.frontier, o.holding()) == (0, [B])
    feed(o, B, row(4, 2, None, 1), resolved(7), row(8, 2, 1, 2))
    assert [step.ts for step in flush(o)] == [4, 5]
    assert o.holding() == [B]
    feed(o, B, resolved(9))
    assert [step.ts for step in flush(o)] == [8]
    assert flush(o) == []


def test_a_transaction_of_several_partitions_and_topics_is_one() -> None:
    o = ordering(None, A, B, C)
    feed(o, C, row(5, 9, None, 9, "u"), resolved(5))
    feed(o, B, row(5, 3, None, 1), resolved(6))
    feed(o, A, row(5, 2, 1, None), row(5, 2, None, 7), resolved(5))
    [step] = flush(o)
    assert isinstance(step, Transaction)
    assert [(r.table, r.kind) for r in step.rows] == [
        ("t", RowKind.DELETE), ("t", RowKind.INSERT), ("t", RowKind.INSERT), ("u", RowKind.INSERT),
    ]  # fmt: skip


def test_a_ddl_of_all_partitions_is_applied_once_behind_the_rows_of_its_ts() -> None:
    o = ordering()
    first, second, later = ddl(6, "X"), ddl(6, "Y"), ddl(7, "X")
    for source in (A, B):
        feed(o, source, row(6, source[1], None, 1), first, second, row(7, source[1], 1, 2), later, resolved(7))
    assert [step.ts if isinstance(step, Transaction) else step.query for step in flush(o)] == [6, "X", "Y", 7, "X"]
    feed(o, B, first, second, later, resolved(8))
    feed(o, A, resolved(8))
    assert flush(o) == []
    assert o.ddls_repeated == 6


def test_a_ddl_that_only_one_partition_gets() -> None:
    """As Canal-JSON sends it: to the first one."""
    o = ordering()
    feed(o, A, ddl(6, "X"), resolved(6))
    feed(o, B, row(5, 1, None, 1), row(7, 1, 1, 2), resolved(9))
    assert [step.ts for step in flush(o)] == [5, 6]


def test_repeats_above_the_flushed_ts_are_one() -> None:
    o = ordering()
    rows = [row(5, 1, None, 1), row(6, 1, 1, 2), row(6, 3, None, 3)]
    feed(o, A, *rows, *rows[1:], *rows)
    feed(o, B, rows[0], resolved(6))  # sent to another partition, after the number of partitions was changed
    feed(o, A, resolved(6))
    assert [len(step.rows) for step in flush(o) if isinstance(step, Transaction)] == [1, 2]
    assert o.rows_repeated == 6


def test_repeats_of_what_was_flushed_are_dropped_and_nothing_else() -> None:
    o = ordering()
    feed(o, A, row(5, 1, None, 1), resolved(9))
    feed(o, B, resolved(6))
    assert len(flush(o)) == 1  # up to 6
    feed(o, A, row(5, 1, None, 1))  # a repeat
    feed(o, A, row(8, 1, 1, 2))  # below the partition's resolved ts, but never flushed
    feed(o, B, resolved(9))
    assert [step.ts for step in flush(o)] == [8]
    feed(o, A, row(8, 1, 1, 2))
    assert o.ready() is None


def test_a_resolved_ts_that_goes_back_is_ignored() -> None:
    o = ordering()
    feed(o, A, resolved(9), resolved(3))
    feed(o, B, resolved(9), resolved(4))
    assert o.frontier == 9
    assert o.resolved_ignored == 2
    flush(o)
    feed(o, A, resolved(5))
    assert o.ready() is None


def test_a_new_partition_holds_the_frontier_and_loses_nothing() -> None:
    o = ordering()
    feed(o, A, row(5, 1, None, 1), resolved(9))
    feed(o, B, resolved(9))
    assert len(flush(o)) == 1
    o.join(C)
    assert (o.frontier, o.holding(), o.ready()) == (0, [C], None)
    feed(o, C, row(7, 4, None, 1, "u"), row(12, 4, 1, 2, "u"), resolved(8))
    assert o.ready() is None  # not before it has caught up
    feed(o, C, resolved(9))
    assert [step.ts for step in flush(o)] == [7]  # older than what was flushed of the others, but never seen
    feed(o, C, resolved(12))
    feed(o, A, resolved(12))
    feed(o, B, resolved(12))
    assert [step.ts for step in flush(o)] == [12]


def test_offsets_never_pass_what_was_not_flushed() -> None:
    o = ordering()
    feed(o, A, row(5, 1, None, 1), row(8, 1, 1, 2), ddl(9, "X"), resolved(9), row(20, 1, 2, 3))
    feed(o, B, resolved(6), ddl(9, "X"))
    upto = o.ready()
    assert upto == 6
    list(o.drain(upto))
    progress = o.flushed(upto)
    assert progress == Progress(6, {A: PartitionProgress(1, 6), B: PartitionProgress(1, 6)}, tables={"a": (("d", "t"),)})
    feed(o, B, resolved(9))
    list(o.drain(9))
    assert o.flushed(9).partitions == {A: PartitionProgress(4, 9), B: PartitionProgress(3, 9)}


def test_rows_without_a_key_are_as_many_as_were_written() -> None:
    """Equal rows of one transaction are all there; those that a second delivery brings are not counted again."""

    def bare(ts: int, value: int) -> RowEvent:
        changed = row(ts, 0, None, value)
        return RowEvent(ts, "d", "k", None, None, RowKind.INSERT, changed.after[1:], (), False, None)

    o = ordering(None, A)
    delivery = [bare(4, 1), bare(5, 7), bare(5, 7), bare(5, 8)]
    feed(o, A, *delivery, *delivery, resolved(5))
    assert [len(step.rows) for step in flush(o) if isinstance(step, Transaction)] == [1, 3]


def test_the_topic_of_a_table_that_is_gone_holds_nothing_back() -> None:
    """TiCDC sends it no resolved ts any more; a table of that name that is made again counts again."""
    o = ordering(None, A, C)
    gone = ddl(6, "DROP TABLE `d`.`u`", "u")
    feed(o, C, row(5, 1, None, 1, "u"), resolved(5), gone)
    feed(o, A, resolved(5))
    assert o.ended() == {C: 3}
    assert [step.ts for step in flush(o)] == [5]
    feed(o, A, row(7, 1, None, 1), resolved(9))
    assert o.holding() == [A]
    upto = o.ready()
    assert upto == 9
    assert [step.ts for step in o.drain(upto)] == [6, 7]
    progress = o.flushed(upto)
    assert progress.partitions[C] == PartitionProgress(3, 9, True)
    again = ordering(Progress.from_json(progress.to_json()), A, C)
    feed(again, A, resolved(12))
    assert again.ready() == 12
    feed(again, C, ddl(13, "CREATE TABLE `d`.`u` (`id` INT)", "u"), row(14, 1, None, 1, "u"))
    feed(again, A, resolved(20))
    assert (again.frontier, again.holding(), again.ended()) == (9, [C], {})
    feed(again, C, resolved(20))
    assert [step.ts for step in flush(again)] == [13, 14]


def of_schema(ts: int, query: str) -> DdlMessage:
    return DdlMessage(ts, "d", "", query, DdlType.DROP_SCHEMA)


def test_a_dropped_schema_ends_the_topics_of_its_tables() -> None:
    """Its DDL is in the topic of the changefeed only, and may be read before the rows of the others."""
    o = ordering(None, A, B, C)
    for source in (A, B, C):
        feed(o, source, resolved(4))
    feed(o, C, row(5, 1, None, 1, "u"))
    feed(o, A, of_schema(8, "DROP DATABASE `D`"), resolved(9))
    feed(o, B, resolved(9))
    feed(o, C, row(7, 1, 1, 2, "u"))  # a row before it makes nothing live again
    assert (o.frontier, o.ended(9)) == (9, {C: 3})
    steps = flush(o)
    assert [step.ts for step in steps] == [5, 7, 8]
    feed(o, C, row(11, 1, None, 1, "u"))  # made again
    assert (o.ended(), o.holding()) == ({}, [C])


@pytest.mark.parametrize("kept", [False, True])
def test_a_schema_that_is_dropped_after_a_restart(kept: bool) -> None:
    """Which tables a topic has is kept; where the DDL was read before it, it is read again."""
    o = ordering(None, A, C)
    feed(o, C, row(5, 1, None, 1, "u"), resolved(6))
    feed(o, A, resolved(6), *([of_schema(8, "DROP DATABASE `d`")] if kept else []))
    upto = o.ready()
    assert upto == 6
    list(o.drain(upto))
    again = ordering(Progress.from_json(o.flushed(upto).to_json()), A, C)
    assert again.holding() == ([A] if kept else [A, C])
    feed(again, A, of_schema(8, "DROP DATABASE `d`"), resolved(9))
    assert [step.ts for step in flush(again)] == [8]


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE `d`.`u`",
        "drop table if exists x.y, u",
        "RENAME TABLE `d`.`u` TO `e`.`w`",
        "ALTER TABLE `d`.`u` RENAME `e`.`w`",
        "ALTER TABLE u COMMENT='(', RENAME TO w",
        "ALTER TABLE `d`.`u` DROP PRIMARY KEY",
        "ALTER TABLE `d`.`u` ADD COLUMN `a` DECIMAL(3,1), DROP INDEX `k`",
        "DROP INDEX `k` ON `d`.`u`",
        "ALTER TABLE `d`.`u` MODIFY COLUMN `k` INT NULL",
        "CREATE ALGORITHM = UNDEFINED DEFINER = `root`@`%` SQL SECURITY DEFINER VIEW `d`.`u` AS SELECT 1",
        "DROP VIEW `d`.`u`",
    ],
)
def test_a_ddl_after_which_a_topic_may_get_no_rows(query: str) -> None:
    o = ordering(None, A, C)
    feed(o, A, row(5, 1, None, 1), resolved(9))
    feed(o, C, row(5, 1, None, 1, "u"), resolved(5), ddl(6, query, "u"))
    assert (o.frontier, o.ended(9), o.holding()) == (9, {C: 3}, [A])
    feed(o, C, row(7, 1, 1, 2, "u"))  # the table goes on: it has another key, or is delivered without
    assert (o.frontier, o.ended(), o.holding()) == (5, {}, [C])


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE `d`.`u` ADD COLUMN `rename` INT COMMENT 'DROP PRIMARY KEY'",
        "ALTER TABLE `d`.`u` DROP COLUMN `primary`",
        "ALTER TABLE `d`.`u` RENAME COLUMN `a` TO `b`",
        "ALTER TABLE `d`.`u` TRUNCATE PARTITION `p`",
        "TRUNCATE TABLE `d`.`u`",
        "CREATE TABLE `d`.`u` (`view` INT)",
        "no SQL at all '",
        "DROP TABLE `d`.`other`",
    ],
)
def test_a_ddl_after_which_a_topic_is_waited_for(query: str) -> None:
    o = ordering(None, A, C)
    feed(o, A, resolved(9))
    feed(o, C, row(5, 1, None, 1, "u"), resolved(5), ddl(6, query, "u"))
    assert (o.frontier, o.ended(), o.holding()) == (5, {}, [C])


def test_a_topic_of_two_tables_is_waited_for_until_both_are_gone() -> None:
    o = ordering(None, A, C)
    feed(o, A, resolved(9))
    feed(o, C, row(5, 1, None, 1, "u"), row(5, 1, None, 1, "w"), resolved(5), ddl(6, "DROP TABLE `d`.`u`", "u"))
    assert o.holding() == [C]
    feed(o, C, ddl(7, "ALTER TABLE `d`.`p` EXCHANGE PARTITION `p0` WITH TABLE `d`.`w`", "p"), ddl(8, "DROP TABLE `d`.`w`", "w"))
    assert (o.frontier, o.ended(9)) == (9, {C: 6})


def test_where_all_topics_have_ended_the_last_promise_counts() -> None:
    o = ordering(None, A, C)
    feed(o, C, row(5, 1, None, 1, "u"), resolved(5), ddl(6, "DROP TABLE `d`.`u`", "u"))
    feed(o, A, row(7, 1, None, 1), ddl(8, "DROP TABLE `d`.`t`"), resolved(8))
    assert (o.frontier, o.holding(), o.ended(8)) == (8, [], {C: 3})  # C only if it is read to its end
    assert [step.ts for step in flush(o)] == [5, 6, 7, 8]


def test_a_topic_that_the_user_says_has_ended() -> None:
    o = Ordering(Pending(1 << 30, MemorySpill()), None, {"b"})
    for source in (A, C):
        o.join(source)
    feed(o, C, row(5, 1, None, 1, "u"))
    feed(o, A, resolved(9))
    assert (o.ready(), o.ended(9)) == (9, {C: 1})
    assert [step.ts for step in flush(o)] == [5]


def test_target_ts_is_the_end() -> None:
    o = ordering()
    for source in (A, B):
        feed(o, source, row(5, source[1], None, 1), ddl(6, "X"), row(8, source[1], 1, 2), resolved(9))
    assert [step.ts for step in flush(o, 6)] == [5, 6]
    assert o.ready(6) is None
    assert o.flushed_ts == 6


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    partitions=st.integers(1, 4),
    length=st.integers(1, 40),
    kills=st.integers(0, 6),
    quota=st.sampled_from([1 << 30, 5000, 1]),
)
def test_any_delivery_and_any_kills_give_each_transaction_once_and_in_order(
    seed: int, partitions: int, length: int, kills: int, quota: int
) -> None:
    random = Random(seed)
    sent = Feed(random, partitions)
    sent.make(length)
    sent.send()
    target = Target()
    consume(sent, target, random, kills=kills, quota=quota)
    check(sent, target)


@pytest.mark.parametrize("seed", range(5))
def test_runs_on_disk(seed: int) -> None:
    random = Random(seed)
    sent = Feed(random, 3)
    sent.make(60)
    sent.send()
    target = Target()
    done = consume(sent, target, random, kills=2, quota=3000, on_disk=True)
    check(sent, target)
    assert done.pending.spilled_rows > 0


def test_many_runs_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a file open."""
    monkeypatch.setattr(pending, "MOST_RUNS", 3)
    random = Random(3)
    sent = Feed(random, 3)
    sent.make(80)
    sent.send()
    target = Target()
    consume(sent, target, random, kills=1, quota=1, on_disk=True)
    check(sent, target)


def check(sent: Feed, target: Target) -> None:
    """Every transaction whole, once and in order; every DDL once, at its place."""

    def content(steps: list[Transaction | DdlMessage]) -> list[object]:
        return [(s.ts, sorted(map(repr, s.rows))) if isinstance(s, Transaction) else s for s in steps]

    assert content(target.steps) == content(sent.steps)
    assert target.state == sent.final
