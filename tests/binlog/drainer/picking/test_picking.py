"""What is left out of what goes downstream, without IO."""

from __future__ import annotations

import pytest

from tidemill.binlog.ddls import Ddl
from tidemill.binlog.drainer.picking.picking import Picking, Tables
from tidemill.binlog.drainer.picking.rules import Rule
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.messages import MutationType
from tidemill.binlog.outputs.ddl_text import read_ddl
from tidemill.binlog.outputs.transactions import DdlBinlog, TableChanges, Transaction
from tidemill.binlog.rows import Image, RowChange
from tidemill.tidb.datums import Datum, DatumFlag
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

INSERT, UPDATE, DELETE = MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW


def version(schema: str, table: str, *columns: str) -> TableVersion:
    kind = {"Tp": 8, "Flag": 0, "Flen": 20, "Charset": "binary"}
    found = [{"id": n, "name": {"O": c, "L": c}, "offset": n - 1, "state": 5, "type": kind} for n, c in enumerate(columns, 1)]
    info = TableInfo.from_json({"id": 50, "name": {"O": table, "L": table}, "state": 5, "cols": found})
    return TableVersion(schema, 2, info, (50,), 0)


def image(*values: int) -> Image:
    return {n: Datum(DatumFlag.VARINT, value) for n, value in enumerate(values, 1)}


def changes(of: TableVersion, *rows: RowChange) -> TableChanges:
    return TableChanges(of, rows)


def ddl(query: str, schema: str = "d", table: str = "t") -> DdlBinlog:
    return DdlBinlog(9, Ddl(schema, table, query, names_database=False))


T = version("d", "t", "id")
MARKS = version("retl", "_drainer_repl_mark", "id", "channel_id", "val")
ROW = changes(T, RowChange(INSERT, None, image(1)))


def marked(channel: int) -> Transaction:
    """A transaction that the Drainer of a channel made."""
    return Transaction(1, 2, (ROW, changes(MARKS, RowChange(UPDATE, image(0, channel, 1), image(0, channel, 2)))))


def test_what_a_drainer_of_the_own_channel_made_is_left_out_and_no_loop_begins() -> None:
    picking = Picking(DrainerSettings(loopback_control=True, channel_id=5))
    assert picking.picked(marked(5)) is None
    assert picking.picked(marked(6)) == marked(6)
    assert picking.picked(Transaction(1, 2, (ROW,))) == Transaction(1, 2, (ROW,))
    begins = changes(MARKS, RowChange(INSERT, None, image(0, 5, 1)))
    assert picking.picked(Transaction(1, 2, (begins,))) is None
    off = Picking(DrainerSettings(channel_id=5))
    assert not off.is_needed
    assert off.picked(marked(5)) == marked(5)


def test_marks_are_seen_where_the_filters_do_not_take_them() -> None:
    settings = DrainerSettings(loopback_control=True, channel_id=5, do_schemas=("d",))
    assert Tables(settings).takes("RETL", "_drainer_repl_mark")
    assert not Tables(settings).takes("retl", "other")
    assert not Tables(DrainerSettings(do_schemas=("d",))).takes("retl", "_drainer_repl_mark")
    picking = Picking(settings)
    assert picking.picked(marked(5)) is None
    assert picking.picked(marked(6)) == Transaction(1, 2, (ROW,))
    assert picking.picked(ddl("CREATE TABLE `retl`.`_drainer_repl_mark` (`id` INT)", "retl", "_drainer_repl_mark")) is None


def test_without_sync_ddl_only_rows_are_delivered() -> None:
    picking = Picking(DrainerSettings(sync_ddl=False))
    assert picking.picked(ddl("ALTER TABLE `t` ADD COLUMN `v` INT")) is None
    assert picking.picked(Transaction(1, 2, (ROW,))) is not None


def test_event_rules_leave_out_rows_by_kind_and_ddls_by_kind_and_text() -> None:
    rule = Rule("gold*", "t?", frozenset({"update", "drop table"}), ("^ALTER TABLE .* SHARD",))
    picking = Picking(DrainerSettings(rules=(rule,)))
    both = (RowChange(UPDATE, image(1), image(2)), RowChange(DELETE, image(1), None))
    fits, other = version("Gold7", "T1", "id"), version("gold7", "t12", "id")
    assert picking.picked(Transaction(1, 2, (changes(fits, *both), changes(other, *both)))) == Transaction(
        1, 2, (changes(fits, both[1]), changes(other, *both))
    )
    assert picking.picked(Transaction(1, 2, (changes(fits, both[0]),))) is None
    for query, left_out in (
        ("DROP TABLE `gold7`.`t1`", True),
        ("ALTER TABLE `gold7`.`t1` /*T! SHARD_ROW_ID_BITS = 2 */", True),
        ("ALTER TABLE `gold7`.`t1` ADD COLUMN `v` INT", False),
        ("CREATE TABLE `gold7`.`t1` (`a` INT) /*T! SHARD_ROW_ID_BITS = 4 */", False),
    ):
        assert (picking.picked(ddl(query, "gold7", "t1")) is None) == left_out, query
    assert picking.picked(ddl("DROP DATABASE `gold7`", "gold7", "")) is not None


@pytest.mark.parametrize(
    ("table", "events", "query", "left_out"),
    [
        ("", {"drop database"}, "DROP DATABASE `d`", True),
        ("t", {"drop database"}, "DROP DATABASE `d`", False),
        ("t", {"other ddl"}, "CREATE SEQUENCE `d`.`t`", True),
    ],
)
def test_a_rule_without_a_table_is_of_the_database(table: str, events: set[str], query: str, left_out: bool) -> None:
    picking = Picking(DrainerSettings(rules=(Rule("d", table, frozenset(events), ()),)))
    assert (picking.picked(ddl(query, "d", "" if "DATABASE" in query else "t")) is None) == left_out


@pytest.mark.parametrize(
    ("query", "kind", "tables"),
    [
        ("CREATE DATABASE IF NOT EXISTS `d` COLLATE x", "create database", [("d", "")]),
        ("create table t (id int)", "create table", [("now", "t")]),
        ("CREATE TABLE IF NOT EXISTS `a``b`.`c d` (`id` INT)", "create table", [("a`b", "c d")]),
        ("DROP TABLE IF EXISTS `a`.`b`, `c`", "drop table", [("a", "b"), ("now", "c")]),
        ("RENAME TABLE `a` TO `b`.`c`, `d` TO `e`", "rename table", [("now", "a"), ("b", "c"), ("now", "d"), ("now", "e")]),
        ("TRUNCATE TABLE `t`", "truncate table", [("now", "t")]),
        ("CREATE UNIQUE INDEX `i` ON `d`.`t` (`a`)", "create index", [("d", "t")]),
        ("DROP INDEX `i` ON `t`", "drop index", [("now", "t")]),
        ("ALTER TABLE `t` ADD PARTITION (PARTITION p1 VALUES LESS THAN (1))", "add table partition", [("now", "t")]),
        ("ALTER TABLE `t` DROP PARTITION `p`", "drop table partition", [("now", "t")]),
        ("/* why */ ALTER TABLE `t` ADD COLUMN `p` INT", "alter table", [("now", "t")]),
        (
            "CREATE OR REPLACE ALGORITHM = UNDEFINED DEFINER = `r`@`%` SQL SECURITY DEFINER VIEW `v` AS SELECT 1",
            "create view",
            [("now", "v")],
        ),
        ("CREATE SEQUENCE `s`", "", [("now", "")]),
    ],
)
def test_a_ddl_is_told_by_its_first_words(query: str, kind: str, tables: list[tuple[str, str]]) -> None:
    found = read_ddl(query, "now")
    assert (found.kind, list(found.tables)) == (kind, tables)


def test_a_statement_is_read_in_linear_time() -> None:
    """In quadratic time these take half an hour: the test's timeout then ends them."""
    text = "CREATE TABLE t (a int COMMENT '" + "/* " * 33_000
    for _ in range(60):
        assert read_ddl(text, "now").tables == (("now", "t"),)
    assert read_ddl("/* b */ DROP /**/ TABLE t /* c */ '/*", "now").tables == (("now", "t"),)
