"""The tables' file: what is durable and when, names, values at their limits, rows without a key, tables that come back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.consumer.fed_tables import BEFORE, apply, differences
from tests.support.consumer.streams import columns, ddl, row
from tests.support.consumer.upstreams import events, playground_with
from tidemill import tso
from tidemill.consumer.order.progress import PartitionProgress, Progress
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.errors import Fenced, SchemaError, SinkError, SinkUnavailable
from tidemill.protocols.open.codes import ColumnFlag, ColumnType, DdlType
from tidemill.protocols.open.events import Column, DdlMessage, RowEvent, RowKind, Value


def query(tables: SqliteTables, sql: str) -> list[tuple[object, ...]]:
    return tables.connection.execute(sql).fetchall()


def ts(second: float) -> int:
    return tso.compose(1_700_000_000_000 + int(second * 1000))


def said(second: float, text: str, table: str = "t", schema: str = "d", kind: DdlType | int = 0) -> DdlMessage:
    return DdlMessage(ts(second), schema, table, text, kind)


def insert(second: float, table: str, values: Sequence[Column], schema: str = "d", row_id: int | None = None) -> RowEvent:
    return RowEvent(ts(second), schema, table, row_id, None, RowKind.INSERT, tuple(values), (), False, None)


def test_rows_and_progress_are_durable_together(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "x.db"
    tables = SqliteTables(file)
    progress = Progress(9, {("t", 0): PartitionProgress(4, 9)}, "c")
    tables.rows([row(5, 1, None, 1)])
    tables.commit(progress)
    tables.rows([row(11, 1, 1, 2)])
    tables.ddl(ddl(12, "ALTER TABLE `d`.`t` ADD COLUMN `w` INT"))
    tables.close()  # as a crash would
    again = SqliteTables(file)
    assert again.progress() == progress
    assert query(again, 'SELECT * FROM "d.t"') == [(1, 1)]
    again.rows([row(11, 1, 1, 2)])
    again.abandon()
    again.commit(progress)
    assert query(again, 'SELECT * FROM "d.t"') == [(1, 1)]
    again.close()


def test_a_ddl_that_comes_again_is_not_applied_again(tmp_path: Path) -> None:
    tables = SqliteTables(MEMORY)
    tables.rows([row(5, 1, None, 1)])
    for _ in range(2):
        tables.ddl(ddl(6, "TRUNCATE TABLE `d`.`t`"))
        tables.rows([row(7, 2, None, 2)])
    tables.commit(Progress(9))
    assert query(tables, 'SELECT id FROM "d.t"') == [(2,)]
    assert tables.ddls_applied == 1


@pytest.mark.parametrize(
    ("sql", "then"),
    [
        ("drop table d.t", "RECOVER TABLE `d`.`t`"),
        ("drop table d.t", "FLASHBACK TABLE `d`.`t` TO `t9`"),
        ("truncate table d.t", "FLASHBACK TABLE `d`.`t` TO `t9`"),
    ],
)
def test_a_table_that_was_dropped_comes_back_with_its_rows(sql: str, then: str) -> None:
    tables = SqliteTables(MEMORY)
    apply(tables, events(playground_with(BEFORE)))
    before = query(tables, 'SELECT * FROM "d.t" ORDER BY id')
    now = events(playground_with(BEFORE + sql))
    tables.ddl(now[-1])  # type: ignore[arg-type]
    assert before
    assert tables.catalog.find(("d", "t")) is None or query(tables, 'SELECT * FROM "d.t"') == []
    name = "t9" if "t9" in then else "t"
    tables.ddl(DdlMessage(now[-1].ts + 1, "d", name, then, DdlType.RECOVER_TABLE))
    tables.commit(Progress())
    assert query(tables, f'SELECT * FROM "d.{name}" ORDER BY id') == before


def test_dropped_tables_are_kept_for_a_while_only() -> None:
    tables = SqliteTables(MEMORY, keep_dropped_ms=60_000)
    for number, second in enumerate((0, 30, 100)):
        tables.rows([insert(second, f"t{number}", columns(1, 1))])
        tables.ddl(said(second + 1, f"DROP TABLE `d`.`t{number}`", f"t{number}"))
    assert query(tables, "SELECT name FROM _tidemill_tables WHERE dropped_ts IS NOT NULL ORDER BY 1") == [("t2",)]


def test_rows_without_a_key_keep_their_number() -> None:
    sql = BEFORE + (
        "create table d.k (a int, b varchar(10), f double); insert into d.k values (1, 'x', 0.1), (1, 'x', 0.1), (2, null, null);"
        "insert into d.k values (1, 'x', 0.1); delete from d.k where a = 1 limit 1; update d.k set b = 'y' where a = 2"
    )
    assert differences(playground_with(sql), keyless=True) == []


def test_rows_without_a_key_or_a_row_id() -> None:
    """As Canal-JSON brings them: one of the equal rows goes."""
    tables = SqliteTables(MEMORY)
    bare = columns(1, 5)[1:]
    tables.rows([insert(1, "k", bare), insert(1, "k", bare), insert(1, "k", columns(1, 6)[1:])])
    gone = RowEvent(ts(2), "d", "k", None, None, RowKind.DELETE, (), bare, False, None)
    changed = RowEvent(ts(2), "d", "k", None, None, RowKind.UPDATE, columns(1, 7)[1:], columns(1, 6)[1:], False, None)
    tables.rows([gone, changed])
    tables.commit(Progress())
    assert sorted(query(tables, 'SELECT v FROM "d.k"')) == [(5,), (7,)]


def test_a_key_that_changes() -> None:
    sql = BEFORE + (
        "create table d.c (a int not null, b int not null, v int, unique key ka (a)); insert into d.c values (1, 10, 1), (2, 20, 2);"
        "alter table d.c add primary key (b) nonclustered; update d.c set v = 5 where b = 20; delete from d.c where b = 10;"
        "alter table d.c drop index ka; insert into d.c values (2, 30, 3)"
    )
    assert differences(playground_with(sql)) == []


def test_updates_that_say_only_what_changed_and_deletes_that_say_only_the_key() -> None:
    tables = SqliteTables(MEMORY)
    tables.rows([insert(1, "t", columns(1, 5)), insert(1, "t", columns(2, 6))])
    moved = RowEvent(ts(2), "d", "t", None, None, RowKind.UPDATE, columns(3, 5), columns(1, 0)[:1], False, None)
    kept = RowEvent(ts(2), "d", "t", None, None, RowKind.UPDATE, columns(2, 8), columns(0, 6)[1:], False, None)
    tables.rows([moved, kept])
    tables.rows([RowEvent(ts(3), "d", "t", None, None, RowKind.DELETE, (), columns(3, 0)[:1], False, None)])
    tables.commit(Progress())
    assert query(tables, 'SELECT id, v FROM "d.t"') == [(2, 8)]


def cell(kind: ColumnType, value: Value, flags: ColumnFlag = ColumnFlag.BINARY | ColumnFlag.NULLABLE, name: str = "v") -> Column:
    return Column(name, kind, flags, False, value)


VALUES = [
    (cell(ColumnType.BIGINT, 18446744073709551615, ColumnFlag.BINARY | ColumnFlag.UNSIGNED), "18446744073709551615"),
    (cell(ColumnType.BIGINT, 7, ColumnFlag.BINARY | ColumnFlag.UNSIGNED), 7),
    (cell(ColumnType.BIGINT, -9223372036854775808), -9223372036854775808),
    (cell(ColumnType.BIT, 1 << 63, ColumnFlag.BINARY | ColumnFlag.UNSIGNED), str(1 << 63)),
    (cell(ColumnType.DECIMAL, "12.00"), "12.00"),
    (cell(ColumnType.DOUBLE, 3.0), 3.0),
    (cell(ColumnType.VARCHAR, b"007", ColumnFlag.NULLABLE), "007"),
    (cell(ColumnType.VARCHAR, b"a\0b", ColumnFlag.NULLABLE), "a\0b"),
    (cell(ColumnType.VARCHAR, b"007"), b"007"),
    (cell(ColumnType.TEXT, b"\xff\x00"), b"\xff\x00"),
    (cell(ColumnType.DATETIME, "0000-00-00 00:00:00"), "0000-00-00 00:00:00"),
    (cell(ColumnType.JSON, '{"a": 1}'), '{"a": 1}'),
    (cell(ColumnType.ENUM, 2, ColumnFlag.NULLABLE), 2),
    (cell(ColumnType.TIME, None), None),
]


@pytest.mark.parametrize(("column", "want"), VALUES)
def test_values_are_kept_as_they_are(column: Column, want: object) -> None:
    tables = SqliteTables(MEMORY)
    tables.rows([insert(1, "t", [columns(1, 0)[0], column])])
    tables.commit(Progress())
    [(got,)] = query(tables, 'SELECT v FROM "d.t"')
    assert (got, type(got)) == (want, type(want))


@pytest.mark.parametrize("schema", ["d", "a.b", "sqlite_x", 'q"q', "Ünïcödé", "_tidemill_tables"])
@pytest.mark.parametrize("table", ["t", 'a"b', "select", "x.y", "中文"])
def test_any_name(schema: str, table: str) -> None:
    tables = SqliteTables(MEMORY)
    key, value = columns(1, 5)
    named = [replace(key, name="É k"), replace(value, name='v"1')]
    tables.rows([insert(1, table, named, schema)])
    back, other = table.replace("`", "``"), "other"
    tables.ddl(said(2, f'ALTER TABLE `{schema}`.`{back}` RENAME COLUMN `v"1` TO `w`', table, schema))
    tables.ddl(said(3, f"RENAME TABLE `{schema}`.`{back}` TO `{schema}`.`{other}`", other, schema))
    tables.ddl(said(4, f"CREATE TABLE `{schema}`.`{back}` (`id` INT PRIMARY KEY)", table, schema))
    tables.rows([replace(insert(5, other, [named[0], replace(value, name="w", value=6)], schema), kind=RowKind.INSERT)])
    tables.commit(Progress())
    found = tables.catalog.find((schema.upper(), "OTHER"))
    assert found is not None
    stored = found.stored.replace('"', '""')
    assert query(tables, f'SELECT * FROM "{stored}"') == [(1, 6)]


def test_what_came_late_does_not_touch_what_is_newer() -> None:
    """From a partition that is read again: rows older than the table they name now."""
    tables = SqliteTables(MEMORY)
    tables.rows([insert(1, "t", columns(1, 5))])
    tables.ddl(said(3, "DROP TABLE `d`.`t`"))
    tables.ddl(said(4, "CREATE TABLE `d`.`t` (`id` INT PRIMARY KEY,`v` INT)"))
    tables.ddl(said(5, "ALTER TABLE `d`.`t` ADD COLUMN `n` INT DEFAULT 8"))
    tables.ddl(said(5, "RENAME TABLE `d`.`x` TO `d`.`y`", "y"))
    tables.rows([insert(6, "t", [*columns(2, 6), replace(columns(0, 9)[1], name="n")])])
    tables.rows([insert(2, "t", columns(1, 5))])  # of the table that was dropped
    tables.rows([insert(4.5, "t", columns(2, 7))])  # from before the column
    tables.commit(Progress())
    assert query(tables, 'SELECT id, v, n FROM "d.t"') == [(2, 7, 9)]


def test_what_cannot_be_applied_is_said() -> None:
    tables = SqliteTables(MEMORY)
    tables.rows([insert(1, "p", columns(1, 5))])
    with pytest.raises(SchemaError, match="no message said how it is partitioned"):
        tables.ddl(said(2, "ALTER TABLE `d`.`p` TRUNCATE PARTITION `p0`", "p", kind=DdlType.TRUNCATE_TABLE_PARTITION))
    tables.abandon()
    tables.rows([insert(1, "p", columns(1, 5))])
    with pytest.raises(SchemaError, match="not understood"):
        tables.ddl(said(2, "ALTER TABLE `d`.`p` FIRST PARTITION LESS THAN (5)", "p", kind=DdlType.DROP_TABLE_PARTITION))
    with pytest.raises(SinkError, match="its message holds only the key"):
        tables.rows([replace(insert(3, "p", columns(1, 5)[:1]), only_handle_key=True)])
    tables.rows([insert(3, "q", columns(1, 5))])
    tables.ddl(said(4, "RENAME TABLE `d`.`p` TO `d`.`q`", "q"))
    with pytest.raises(SchemaError, match="the table that has this name was not renamed"):
        tables.commit(Progress())


def _number(name: str, value: Value, *, key: bool = False) -> Column:
    flags = ColumnFlag.BINARY | (ColumnFlag.HANDLE_KEY | ColumnFlag.PRIMARY_KEY if key else ColumnFlag.NULLABLE)
    return Column(name, ColumnType.BIGINT, flags, key, value)


_HIDING = [("rowid",), ("ROWID", "oid"), ("rowid", "_rowid_"), ("oid", "rowid", "_rowid_"), ("rowid", "_RowId_", "oid", "_tidemill_rowid")]


@pytest.mark.parametrize("names", _HIDING)
@pytest.mark.parametrize("row_ids", [(1, 2, 3), (None, None, None)])
def test_columns_named_like_the_row_id_of_sqlite_in_a_table_without_a_key(names: Sequence[str], row_ids: Sequence[int | None]) -> None:
    def values(second: int) -> list[Column]:
        return [_number("v", second), *(_number(name, 7) for name in names)]

    tables = SqliteTables(MEMORY)
    tables.rows([insert(n, "t", values(n), row_id=hidden) for n, hidden in enumerate(row_ids, 1)])
    tables.commit(Progress())
    tables.ddl(said(5, "ALTER TABLE `d`.`t` ADD COLUMN `w` INT"))
    gone = [*values(2), _number("w", None)]
    tables.rows([RowEvent(ts(6), "d", "t", row_ids[1], None, RowKind.DELETE, (), tuple(gone), False, None)])
    tables.commit(Progress())
    listed = ", ".join(f'"{name}"' for name in ("v", *names))
    assert query(tables, f'SELECT {listed} FROM "d.t" ORDER BY v') == [(n, *(7 for _ in names)) for n in (1, 3)]


@pytest.mark.parametrize("names", _HIDING)
def test_columns_named_like_the_row_id_of_sqlite_in_partitions(names: Sequence[str]) -> None:
    def values(number: int) -> list[Column]:
        return [_number("id", number, key=True), *(_number(name, 12) for name in names)]

    listed = ", ".join(f"`{name}` BIGINT" for name in names)
    parts = "PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10), PARTITION `p1` VALUES LESS THAN (20))"
    tables = SqliteTables(MEMORY)
    tables.ddl(said(1, f"CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, {listed}) {parts}"))
    tables.ddl(said(2, f"CREATE TABLE `x` (`id` BIGINT PRIMARY KEY, {listed})", "x"))
    tables.rows([*(insert(3, "t", values(n)) for n in (1, 12, 13)), insert(3, "x", values(2))])
    tables.ddl(said(4, "ALTER TABLE `t` EXCHANGE PARTITION `p0` WITH TABLE `x`"))
    assert query(tables, 'SELECT id FROM "d.t" ORDER BY id') == [(2,), (12,), (13,)]
    assert query(tables, 'SELECT id FROM "d.x"') == [(1,)]
    tables.ddl(said(5, "ALTER TABLE `t` TRUNCATE PARTITION `p0`"))
    assert query(tables, 'SELECT id FROM "d.t" ORDER BY id') == [(12,), (13,)]


@pytest.mark.parametrize("count", [1, 1017, 1999])
def test_a_row_without_a_key_goes_from_a_table_of_many_columns(count: int) -> None:
    """TiDB allows 1017 columns without being asked for more; SQLite 2000."""
    values = [_number(f"c{n}", None if n % 3 == 1 else n) for n in range(count)]
    tables = SqliteTables(MEMORY)
    tables.rows([insert(1, "t", values), insert(1, "t", values)])
    tables.rows([RowEvent(ts(2), "d", "t", None, None, RowKind.DELETE, (), tuple(values), False, None)])
    tables.commit(Progress())
    assert query(tables, 'SELECT count(*) FROM "d.t"') == [(1,)]


def test_names_are_compared_as_tidb_does() -> None:
    """By lower case, character by character: a final sigma in a DDL's text is none in the name, and İ is i."""
    tables = SqliteTables(MEMORY)
    for at, name in enumerate(("ΟΔΟΣ", "οδος")):
        tables.rows([insert(1 + at, name, columns(at, at))])
    tables.ddl(said(3, "ALTER TABLE `οδοσ` ADD COLUMN `ΣΑΣ` INT DEFAULT 5", "ΟΔΟΣ"))
    tables.ddl(said(4, "ALTER TABLE `ΟΔΟΣ` RENAME COLUMN `σασ` TO `İd`", "ΟΔΟΣ"))
    tables.ddl(said(5, "ALTER TABLE `ΟΔΟΣ` CHANGE COLUMN `ID` `v2` INT", "ΟΔΟΣ"))
    tables.commit(Progress(ts(6)))
    [(own,)] = query(tables, """SELECT sql FROM sqlite_master WHERE name = 'd.ΟΔΟΣ'""")
    assert '"v2"' in str(own)
    assert len(query(tables, 'SELECT * FROM "d.οδος"')) == 1


def test_columns_that_only_case_tells_apart_are_refused() -> None:
    event = insert(1, "t", (*columns(1, 1), *(Column(name, ColumnType.INT, ColumnFlag.NULLABLE, False, 1) for name in ("É", "é"))))
    with pytest.raises(SchemaError, match=r"table d\.t at .* has columns whose names differ in nothing but case"):
        SqliteTables(MEMORY).rows([event])


def test_binary_columns_that_are_added_hold_zero_bytes() -> None:
    tables = SqliteTables(MEMORY)
    tables.rows([insert(1, "t", columns(1, 1))])
    added = "b BINARY(4) NOT NULL, ADD COLUMN d BINARY(3) NOT NULL DEFAULT 'x', ADD COLUMN n BINARY(2), ADD COLUMN c CHAR(2) NOT NULL"
    tables.ddl(said(2, f"ALTER TABLE t ADD COLUMN {added}, ADD COLUMN w VARBINARY(2) NOT NULL"))
    tables.commit(Progress(ts(3)))
    assert query(tables, 'SELECT b, d, n, c, w FROM "d.t"') == [(bytes(4), b"x\0\0", None, "", b"")]


def test_a_rename_that_was_abandoned_begins_again(tmp_path: Path) -> None:
    """Two tables change names, in two messages; between them the file cannot be written."""
    tables = SqliteTables(tmp_path / "x.db")
    tables.rows([row(5, 1, None, 1), row(5, 2, None, 2, "u")])
    tables.commit(Progress(5))
    renames = (ddl(6, "RENAME TABLE `d`.`t` TO `d`.`u`"), ddl(6, "RENAME TABLE `d`.`u` TO `d`.`t`", "u"))
    tables.ddl(renames[0])
    tables.abandon()
    for one in renames:
        tables.ddl(one)
    tables.commit(Progress(6))
    assert query(tables, 'SELECT * FROM "d.t"') == [(2, 2)]
    assert query(tables, 'SELECT * FROM "d.u"') == [(1, 1)]


def test_a_consumer_whose_file_another_has_taken_says_so_before_it_writes(tmp_path: Path) -> None:
    """The table that it knows is not the table that is there any more."""
    old = SqliteTables(tmp_path / "x.db")
    old.rows([row(5, 1, None, 1)])
    old.commit(Progress(5))
    new = SqliteTables(tmp_path / "x.db")
    new.ddl(ddl(6, "ALTER TABLE `d`.`t` DROP COLUMN `v`"))
    new.commit(Progress(6))
    with pytest.raises(Fenced, match="another consumer has taken"):
        old.rows([row(7, 2, None, 2)])
    with pytest.raises(Fenced, match="another consumer has taken"):
        old.commit(Progress(7))
    new.commit(Progress(8))


def test_a_file_that_is_locked_while_it_is_read_again_may_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = SqliteTables(tmp_path / "x.db")
    load = tables._moves.load

    def locked() -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(tables._moves, "load", locked)
    with pytest.raises(SinkUnavailable, match="locked"):
        tables.abandon()
    monkeypatch.setattr(tables._moves, "load", load)
    tables.abandon()
