"""Queries made from jobs."""

from __future__ import annotations

import pytest

from tidemill.tidb.ddltext import DdlSyntaxError, SqlMode, canonical_ddl
from tidemill.tidb.ddltext.synthesized import drop_table, drop_view, exchange_partition, rename_table, split_statements

TABLE, OTHER = ("s", "x"), ("t", "y")


def test_drops_and_renames() -> None:
    assert canonical_ddl(drop_table(("s", "a b"))) == "DROP TABLE `s`.`a b`"
    assert canonical_ddl(drop_view(("s", "v"))) == "DROP VIEW `s`.`v`"
    assert canonical_ddl(rename_table(("s", "a"), ("t", "b"))) == "RENAME TABLE `s`.`a` TO `t`.`b`"


def test_names_with_backquotes_can_be_read() -> None:
    assert canonical_ddl(drop_table(("a`", "`b"))) == "DROP TABLE `a```.```b`"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("alter table p exchange partition  p1 with table y", "EXCHANGE PARTITION `p1` WITH TABLE `t`.`y`"),
        (
            "ALTER TABLE p EXCHANGE PARTITION P1 WITH TABLE y WITHOUT VALIDATION;",
            "EXCHANGE PARTITION `P1` WITH TABLE `t`.`y` WITHOUT VALIDATION",
        ),
        ("alter table p exchange /* c */ partition `p``1` with table y", "EXCHANGE PARTITION `p``1` WITH TABLE `t`.`y`"),
        ("alter table p exchange partition p1 with table y with validation", "EXCHANGE PARTITION `p1` WITH TABLE `t`.`y`"),
    ],
)
def test_exchange_partition(query: str, text: str) -> None:
    assert canonical_ddl(exchange_partition(query, TABLE, OTHER)) == f"ALTER TABLE `s`.`x` {text}"


def test_exchange_partition_in_ansi_quotes() -> None:
    query = 'alter table p exchange partition "p 1" with table y'
    assert "EXCHANGE PARTITION `p 1`" in exchange_partition(query, TABLE, OTHER, SqlMode.ANSI_QUOTES)


@pytest.mark.parametrize(
    "query", ["", "alter table p exchange partition", "alter table p exchange partition 'p' with table y", "alter table `p"]
)
def test_exchange_without_a_partition(query: str) -> None:
    with pytest.raises(DdlSyntaxError):
        exchange_partition(query, TABLE, OTHER)


def test_statements_of_one_job() -> None:
    assert split_statements("create table a (x char default ';');create table b (y int);") == [
        "create table a (x char default ';')",
        "create table b (y int)",
    ]
    assert split_statements("create table a (x int)") == ["create table a (x int)"]
    assert split_statements(" ; ") == []
