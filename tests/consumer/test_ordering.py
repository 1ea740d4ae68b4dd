"""The state machine: whatever is repeated, interleaved or killed, the target gets every transaction once, whole and in order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.streams import Feed, MemorySpill, Target, consume, ddl, row
from tidemill.consumer import pending
from tidemill.consumer.ordering import Ordering, Step, Transaction
from tidemill.consumer.pending import Pending
from tidemill.consumer.progress import PartitionProgress, Progress
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
    assert progress == Progress(6, {A: PartitionProgress(1, 6), B: PartitionProgress(1, 6)})
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
