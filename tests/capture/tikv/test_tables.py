"""Spans follow schemas: partitions, switches, exchanges, restarts between heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from tests.support.capture.region_driver import M, error, region, started
from tests.support.capture.table_changes import N, change, version
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.tables import Moved, TableSpans
from tidemill.changelog.spread import Layout, SplitTable, partition_of
from tidemill.tidb.codec import decode_bytes
from tidemill.tidb.keys import encode_range, record_range
from tidemill.tidb.schema.tracking.versions import PhysicalChange, TableVersion


@dataclass
class Log:
    """What TableSpans asked for."""

    spans: dict[int, Span] = field(default_factory=dict)
    moves: list[Moved] = field(default_factory=list)
    left: list[Moved] = field(default_factory=list)

    def make(self, layout: Layout | int = N, wants: Callable[[TableVersion], bool] = lambda version: True) -> TableSpans:
        put = lambda span: self.spans.update({span.id: span})  # noqa: E731
        remove = lambda id_: self.spans.pop(id_) and None  # noqa: E731
        return TableSpans(layout, put, remove, self.moves.append, wants, renamed=put, left=self.left.append)

    def captured(self) -> set[tuple[bytes, int, int]]:
        return {(s.start, s.partition, s.checkpoint) for s in self.spans.values()}


def span(physical: int, table: int, checkpoint: int) -> tuple[bytes, int, int]:
    return encode_range(*record_range(physical))[0], partition_of(table, N), checkpoint


def test_partitions_are_the_crc_of_the_logical_id() -> None:
    assert [partition_of(i, 4) for i in (1, 2, 45, 112, 281474976710654)] == [3, 1, 0, 1, 0]
    assert partition_of(7, 1) == 0


def test_tables_come_and_go() -> None:
    log, heads = Log(), [100] * N
    spans = log.make()
    spans.follow([change(150, (), (version(45),)), change(160, (version(45),), (version(46),))], heads)
    assert log.captured() == {span(45, 45, 150), span(46, 46, 160)}
    assert len(spans) == 1
    spans.retire([159] * N)
    assert len(log.spans) == 2, "the old table's rows up to 160 are still to come"
    spans.retire([160] * N)
    assert log.captured() == {span(46, 46, 160)}


def test_partitions_of_a_table_stay_together() -> None:
    log = Log()
    log.make().follow([change(150, (), (version(50, 51, 52, 53),))], [0] * N)
    assert log.captured() == {span(p, 50, 150) for p in (51, 52, 53)}


def test_an_exchange_moves_two_tables_at_its_ts() -> None:
    plain, parted = next((a, b) for a in range(60, 99) for b in range(100, 140) if partition_of(a, N) != partition_of(b, N))
    log, heads = Log(), [100] * N
    spans = log.make()
    spans.follow([change(110, (), (version(plain), version(parted, 901, 902)))], heads)
    exchange = change(200, (version(plain), version(parted, 901, 902)), (version(plain, 902), version(parted, 901, plain)))
    assert exchange.added == exchange.removed == ()
    spans.follow([exchange], heads)
    one, other = partition_of(plain, N), partition_of(parted, N)
    assert sorted(log.moves, key=lambda m: m.physical_id) == [Moved(plain, 200, one, other), Moved(902, 200, other, one)]
    assert span(902, plain, 200) in log.captured()
    assert span(plain, parted, 200) in log.captured()
    spans.retire([199] * N)
    assert log.left == []
    spans.retire([200] * N)
    assert sorted(log.left, key=lambda m: m.physical_id) == sorted(log.moves, key=lambda m: m.physical_id)
    assert log.captured() == {span(901, parted, 110), span(plain, parted, 200), span(902, plain, 200)}


def test_a_split_table_has_a_span_for_each_range() -> None:
    """Of every physical table: also those that come later, with a partition that is added or truncated. A new logical table is whole."""
    log, heads = Log(), [100, 101, 102, 103]
    spans = log.make(Layout(1, N, (SplitTable(50, "d.t50", (b"\x40", b"\x80"), (2, 0, 3)),)))
    parted = version(50, 51, 52)
    spans.follow([change(90, (), (parted,)), change(200, (parted,), (version(50, 51, 53),))], heads)
    assert ranges(log, 51) == [(b"", b"\x40", 2, 102), (b"\x40", b"\x80", 0, 100), (b"\x80", b"", 3, 103)]
    assert ranges(log, 53) == [(b"", b"\x40", 2, 200), (b"\x40", b"\x80", 0, 200), (b"\x80", b"", 3, 200)]
    assert len(spans) == 2
    assert spans.counts() == [2, 0, 2, 2]
    spans.retire([200, 0, 199, 200])
    assert [place[2] for place in ranges(log, 52)] == [2], "the others are past its end"
    spans.follow([change(300, (version(50, 51, 53),), (version(60, 61),))], heads)
    spans.retire([300] * N)
    assert [(low, high, partition) for low, high, partition, _ in ranges(log, 61)] == [(b"", b"", partition_of(60, N))]
    assert ranges(log, 51) == ranges(log, 53) == []
    assert log.moves == [], "other physical tables: nothing goes from one partition to another"


def test_ranges_that_are_elsewhere_after_an_exchange_move() -> None:
    """A partition of a split table becomes a plain table, then goes to another split table, and back: each range by itself."""
    one, two = SplitTable(50, "d.a", (b"\x40",), (2, 0)), SplitTable(60, "d.b", (b"\x80",), (0, 2))
    home = partition_of(70, N)
    log, heads = Log(), [100] * N
    spans = log.make(Layout(1, N, (one, two)))
    spans.follow([change(110, (), (version(50, 51), version(60, 61), version(70)))], heads)
    a, b, plain = (version(50, 51), version(60, 61), version(70))
    a2, plain2 = version(50, 70), version(70, 51)
    spans.follow([change(200, (a, plain), (a2, plain2))], heads)
    low, middle, high = (b"", b"\x40"), (b"\x40", b"\x80"), (b"\x80", b"")
    moved = lambda id_, ts: {m.handles: (m.old, m.new) for m in log.moves if (m.physical_id, m.ts) == (id_, ts)}  # noqa: E731
    assert moved(51, 200) == {r: (p, home) for r, p in ((low, 2), (middle, 0), (high, 0)) if p != home}
    assert moved(70, 200) == {r: (home, p) for r, p in ((low, 2), (middle, 0), (high, 0)) if p != home}
    spans.follow([change(300, (a2, b), (version(50, 61), version(60, 70)))], heads)
    assert moved(70, 300) == {low: (2, 0), high: (0, 2)}, "the range between is where it was"
    assert moved(61, 300) == {low: (0, 2), high: (2, 0)}
    spans.retire([300] * N)
    assert len(log.left) == len({(m.old, m.physical_id, m.ts) for m in log.moves}), "each partition is told once of a table that left"
    assert [place[:3] for place in ranges(log, 70)] == [(b"", b"\x80", 0), (b"\x80", b"", 2)]


def not_out(version: TableVersion) -> bool:
    return not version.table.startswith("out")


ORDERS, ARCHIVE, STAGE = 50, 61, 71
assert len({partition_of(id_, N) for id_ in (ORDERS, ARCHIVE, STAGE)}) == 3


@pytest.mark.parametrize("head", [100, 250])
def test_rows_move_from_where_the_last_spans_were(head: int) -> None:
    """A partition goes to a table that the rules leave out, which is dropped and recovered, and from there to another table. The old
    partition of the log has passed the first exchange, or not."""
    log, heads = Log(), [100] * N
    spans = log.make(wants=not_out)
    orders, archive, stage = version(ORDERS, 51), version(ARCHIVE, 62), version(STAGE, name="out")
    spans.follow([change(110, (), (orders, archive, stage))], heads)
    away = version(51, name="out")
    spans.follow([change(200, (orders, stage), (version(ORDERS, STAGE), away))], heads)
    spans.retire([head] * N)
    spans.follow([change(210, (away,), ()), change(220, (), (away,))], heads)
    assert [moved.physical_id for moved in log.moves] == [STAGE], "what belongs to no table is in nobody's way"
    log.moves.clear()
    log.left.clear()
    spans.follow([change(300, (archive, away), (version(ARCHIVE, 51), version(62, name="out")))], heads)
    assert log.moves == [Moved(51, 300, partition_of(ORDERS, N), partition_of(ARCHIVE, N))]
    assert log.left == (log.moves if head == 250 else []), "at once, if no span is left there"
    spans.retire([300] * N)
    assert log.left == log.moves
    assert span(51, ARCHIVE, 300) in log.captured()


def test_a_partition_takes_back_what_a_left_out_table_had() -> None:
    """It had told its rows to go elsewhere, with no end: see `Bounds`."""
    log, heads = Log(), [100] * N
    spans = log.make(wants=not_out)
    orders, keep = version(ORDERS, 51), version(STAGE, name="keep")
    spans.follow([change(110, (), (orders, keep))], heads)
    one, other = version(ORDERS, STAGE), version(51, name="keep")
    out = version(51, name="out")
    changes = [change(200, (orders, keep), (one, other)), change(210, (other,), (out,)), change(220, (one, out), (orders, keep))]
    spans.follow(changes, heads)
    home, away = partition_of(ORDERS, N), partition_of(51, N)
    assert home != away
    assert [moved for moved in log.moves if moved.physical_id == 51] == [Moved(51, 200, home, away), Moved(51, 220, away, home)]


def test_tables_that_come_and_go_move_nowhere() -> None:
    """Nothing is told of tables that are created, truncated, dropped, recovered, or renamed out of the rules and into them."""
    log, heads = Log(), [100] * N
    spans = log.make(wants=not_out)
    table, out, new = version(45), version(45, name="out"), version(46)
    changes = [change(110, (), (table,)), change(120, (table,), (out,)), change(130, (out,), (table,)), change(140, (table,), (new,))]
    spans.follow([*changes, change(150, (new,), ()), change(160, (), (new,))], heads)
    assert log.moves == log.left == []


@pytest.mark.parametrize("exchanged", [False, True])
def test_new_rules_end_no_span_before_its_table_is_left_out(exchanged: bool) -> None:
    """The rules change at 200. At 300 what they want becomes a table that they leave out, in the same partition of the log: a table is
    renamed, or a partition exchanged. The capture begins again while that partition is between the two, and others are below 200."""
    table, part = (ORDERS, 57) if exchanged else (45, 45)
    assert partition_of(table, N) == partition_of(part, N)
    out = replace(version(part, name="out"), from_ts=300)
    before, after = (version(45),), (out,)
    if exchanged:
        before, after = (version(ORDERS, part), version(STAGE, name="out")), (version(ORDERS, STAGE), out)
    heads = [250 if p == partition_of(table, N) else 150 for p in range(N)]

    class Known:
        resolved_ts = 400

        def snapshot(self, ts: int) -> SimpleNamespace:
            return SimpleNamespace(tables={v.table_id: v for v in (before if ts < 300 else after)})

        def next_table_changes(self, from_ts: int, to_ts: int) -> list[PhysicalChange]:
            return [change(300, before, after)]

    log = Log()
    spans = log.make()
    spans.begin(Known(), heads)  # type: ignore[arg-type]
    spans.narrow(not_out, Known(), 200)  # type: ignore[arg-type]
    spans.retire(heads)
    assert span(part, table, 250) in log.captured(), "its rows up to 300 are still to come"
    spans.retire([300] * N)
    assert span(part, table, 250) not in log.captured()


def ranges(log: Log, physical: int) -> list[tuple[bytes, bytes, int, int]]:
    """The spans of a physical table: handles, partition, checkpoint."""
    start, end = record_range(physical)
    found = []
    for span in log.spans.values():
        low, high = decode_bytes(span.start)[0], decode_bytes(span.end)[0]
        if start <= low < end:
            found.append((low[11:], b"" if high == end else high[11:], span.partition, span.checkpoint))
    return sorted(found)


def test_a_rename_changes_nothing() -> None:
    log = Log()
    spans = log.make()
    spans.follow([change(110, (), (version(45),)), change(120, (version(45),), (version(45),))], [0] * N)
    assert log.captured() == {span(45, 45, 110)}
    assert log.moves == []


@pytest.mark.parametrize("head", [100, 155, 300])
def test_after_a_restart_no_span_begins_below_its_partitions_head(head: int) -> None:
    log = Log()
    spans = log.make()
    spans.follow([change(150, (), (version(45),))], [head] * N)
    assert log.captured() == {span(45, 45, max(150, head))}


def test_a_restart_follows_what_changed_between_the_slowest_head_and_the_schema() -> None:
    """Tables that came and went above the slowest head have rows there."""

    class Known:
        resolved_ts = 300

        def snapshot(self, ts: int) -> SimpleNamespace:
            assert ts == 100
            return SimpleNamespace(tables={45: version(45)})

        def next_table_changes(self, from_ts: int, to_ts: int) -> list[PhysicalChange]:
            assert (from_ts, to_ts) == (100, 300)
            return [change(150, (version(45),), (version(46),))]

    log = Log()
    heads = [100] * N
    heads[partition_of(46, N)] = 200
    log.make().begin(Known(), heads)  # type: ignore[arg-type]
    assert log.captured() == {span(45, 45, heads[partition_of(45, N)]), span(46, 46, heads[partition_of(46, N)])}


def test_a_table_that_is_renamed_is_called_by_its_new_name() -> None:
    log, heads = Log(), [100] * N
    spans = log.make()
    before, after = version(45, 45, 46), version(45, 45, 46, name="renamed")
    spans.follow([change(150, (), (before,))], heads)
    ids = set(log.spans)
    spans.follow([change(160, (before,), (after,))], heads)
    assert [spans.label(i) for i in (45, 46)] == ["d.renamed (45)", "d.renamed (46)"]
    assert {s.label for s in log.spans.values()} == {"d.renamed (45)", "d.renamed (46)"}
    assert set(log.spans) == ids, "nothing is subscribed again"


def test_a_piece_is_called_by_its_new_name_too() -> None:
    driver = started(region(1))
    driver.machine.rename_span(1, "shop.orders (112)")
    driver.machine.rename_span(7, "nobody's")
    (sub_range,) = (driver.machine.sub_range(id_) for id_ in driver.live)
    assert sub_range is not None
    assert driver.machine.describe(sub_range) == "region 1 of shop.orders (112) at store 1"
    driver.fail(sub_range.id, error(epoch_not_match={}))
    driver.pass_time()
    driver.answer(region(1, b"", M, 2), region(2, M, b"", 2))
    assert {driver.machine.sub_range(id_).span.label for id_ in driver.live} == {"shop.orders (112)"}  # type: ignore[union-attr]
