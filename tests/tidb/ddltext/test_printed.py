"""Texts that TiDB printed, read again: single backslashes stand for themselves where TiDB prints them so."""

from __future__ import annotations

import pytest

from tests.support.schema.schemas import read_lines
from tests.support.thorough import one_in
from tidemill.tidb.ddltext import EXACT, DdlSyntaxError, canonical_ddl, exact_ddl, was_printed

WRITTEN = [
    r"create table t (e enum('a\\b','\\','''') default '\\', s set('x\\y') comment 'c\\d', key i (e) comment 'k\\') comment 't\\e'",
    r"create table t (a int comment '\\') partition by range (a) (partition p values less than (1) comment 'p\\q')",
    r"alter table t add column (a int comment 'x\\', index i (a) comment 'y\\'), comment 'z\\'",
    r"alter table s.t modify column e enum('\\','\\n') comment '\\n' first, change b c set('\\')",
    r"create unique index i on t (a) comment 'a\\'",
    r"alter table t set tiflash replica 1 location labels 'a\\', 'b\\'",
    r"create table t (a varchar(9) default 'it''s \\ \n', check (a != '\\' and a like 'x\\_'))",
    r"create view v as select group_concat(a separator '\\') from t where a in ('\\', 'b')",
]


@pytest.mark.parametrize("sql", WRITTEN)
def test_what_tidb_printed_says_what_was_written(sql: str) -> None:
    printed = canonical_ddl(sql)
    assert was_printed(printed)
    assert exact_ddl(printed) == canonical_ddl(sql, dialect=EXACT)
    assert exact_ddl(sql) == canonical_ddl(sql, dialect=EXACT), "a text that a user wrote is read as MySQL reads it"
    assert canonical_ddl(canonical_ddl(sql, dialect=EXACT), dialect=EXACT) == canonical_ddl(sql, dialect=EXACT)


@pytest.mark.slow
def test_all_that_tidb_printed_is_read_as_it_was_meant() -> None:
    """The rest are texts that TiDB itself cannot read again: a comma before REORGANIZE and the like."""
    rows = one_in(4, [row for row in read_lines("ddl/vectors.jsonl.gz") if row.get("restored")])
    read = 0
    for row in rows:
        given = row["charset"], row["collate"]
        try:
            exact = canonical_ddl(row["restored"], 0, *given, dialect=EXACT, printed=True)
            read += not exact or canonical_ddl(exact, 0, *given) == canonical_ddl(row["restored"], 0, *given, printed=True)
        except DdlSyntaxError:
            continue
    assert read >= 0.97 * len(rows)


@pytest.mark.parametrize(
    ("sql", "exact"),
    [
        ("create table t (a int as (mod(b, 3) * 2))", "CREATE TABLE `t` (`a` INT GENERATED ALWAYS AS(MOD(`b`, 3)*2) VIRTUAL)"),
        ("create table t (a int, key ((char(a using latin1))))", "CREATE TABLE `t` (`a` INT,INDEX((CHAR(`a` USING latin1))))"),
        ("create table t (a int, check (insert(a, 1, 1, 'x') > ''))",
         "CREATE TABLE `t` (`a` INT,CHECK(INSERT(`a`, 1, 1, _UTF8MB4'x')>_UTF8MB4'') ENFORCED)"),
        ("alter table t force, pack_keys 1", "ALTER TABLE `t` FORCE, PACK_KEYS = DEFAULT"),
        ("alter table t attributes 'x'", ""),
    ],
)  # fmt: skip
def test_exact_texts_have_sql_names(sql: str, exact: str) -> None:
    assert canonical_ddl(sql, dialect=EXACT) == exact


def test_exact_values_are_read_as_utf8_whatever_the_job_was() -> None:
    assert canonical_ddl("create table t (a char default 'ü')", charset="gbk", dialect=EXACT) == (
        "CREATE TABLE `t` (`a` CHAR DEFAULT _UTF8MB4'ü')"
    )
