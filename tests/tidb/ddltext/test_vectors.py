"""DDL texts byte for byte: what TiDB's own parser prints, and what TiCDC sent."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schema.schemas import Json, read_lines
from tidemill.tidb.ddltext import DdlSyntaxError, SqlMode, canonical_ddl
from tidemill.tidb.ddltext.queries.parser import Parser
from tidemill.tidb.ddltext.queries.select import RULES
from tidemill.tidb.ddltext.statements import statement
from tidemill.tidb.sql.errors import DdlTooComplex
from tidemill.tidb.sql.lexer import tokenize


@functools.cache
def vectors() -> list[Json]:
    return list(read_lines("ddl/vectors.jsonl.gz"))


def printed(row: Json) -> str | None:
    try:
        return canonical_ddl(row["sql"], row["sql_mode"], row["charset"], row["collate"])
    except DdlSyntaxError:
        return None


@pytest.mark.slow
def test_statements_that_tidb_accepts() -> None:
    accepted = [row for row in vectors() if "restored" in row]
    texts = [printed(row) for row in accepted]
    wrong = [row["sql"] for row, text in zip(accepted, texts, strict=True) if text not in (row["restored"], None)]
    refused = [row["sql"] for row, text in zip(accepted, texts, strict=True) if text is None]
    assert len(accepted) == 9133
    assert wrong == []
    assert len(refused) <= 1, refused


_TAKEN_SINCE = re.compile(r"\bvector index\b|\) where\b", re.IGNORECASE)
"""What TiDB took up after the vectors were made: other vector indexes, partial indexes."""


def test_statements_that_tidb_refuses_fail_on_purpose() -> None:
    """They are refused here too, but for checks of meaning; nothing but DdlSyntaxError comes out."""
    refused = [row for row in vectors() if "error" in row]
    assert len(refused) == 1436
    taken = [row["sql"] for row in refused if printed(row) is not None]
    assert sum(_TAKEN_SINCE.search(sql) is None for sql in taken) <= 38


def test_recorded_events() -> None:
    """All that TiCDC sent, from the job's query or the one made of the job."""
    count = 0
    for job in read_lines("ticdc/ddl.jsonl.gz"):
        for result in (job["result"], job.get("result_force_replicate") or {}):
            for event in result.get("events") or ():
                text = canonical_ddl(event["query"], job["job"].get("sql_mode", 0), job["charset"], job["collate"])
                assert text == event["sent_query"]
                count += 1
    assert count > 280


def test_what_is_printed_is_stable() -> None:
    """Printing the printed text gives it again, but for texts that TiDB itself reads otherwise (doubled backslashes and the like)."""
    sample = [row for row in vectors()[::7] if row.get("restored")]
    again = 0
    for row in sample:
        try:
            again += canonical_ddl(row["restored"], 0, row["charset"], row["collate"]) == row["restored"]
        except DdlSyntaxError:
            continue
    assert again >= 0.95 * len(sample)


def fault(read: Callable[[], object]) -> int:
    """Where a text is refused; -1 when it is not."""
    try:
        read()
    except DdlSyntaxError as error:
        return error.position
    return -1


_PIECES = re.compile(r"\s+|\w+|'[^']*'|`[^`]*`|.", re.DOTALL)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_mutated_statements_fail_on_purpose(data: st.DataObject) -> None:
    """Tokens dropped, doubled, swapped, spliced: a text comes out, or DdlSyntaxError with a position inside the text."""
    rows = vectors()
    pieces = _PIECES.findall(data.draw(st.sampled_from(rows))["sql"])[:400]
    other = _PIECES.findall(data.draw(st.sampled_from(rows))["sql"])[:400]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(pieces)))
        match data.draw(st.integers(0, 3)):
            case 0:
                del pieces[at : at + 2]
            case 1:
                pieces[at:at] = pieces[max(0, at - 2) : at]
            case 2:
                pieces[at:at] = other[at : at + 4]
            case _:
                pieces = pieces[:at] + other[at:]
    sql = "".join(pieces)
    mode = data.draw(st.sampled_from([0, 4, 2, 1 << 20]))
    assert fault(lambda: canonical_ddl(sql, mode)) in range(-1, len(sql) + 1)


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_tokens_or_an_error(sql: str) -> None:
    assert fault(lambda: tokenize(sql, SqlMode(0))) in range(-1, len(sql) + 1)


def test_deep_nesting_is_an_error() -> None:
    with pytest.raises(DdlSyntaxError, match="nested too deeply"):
        canonical_ddl(f"create table t (a int, check ({'(' * 5000}1{')' * 5000}))")


NESTED = [
    ("(", "1", ")"), ("(", "1", " + 1)"), ("- ", "1", ""), ("not ", "1", ""), ("f(", "1", ")"), ("row(1, ", "1", ")"),
    ("if(1, ", "1", ", 2)"),
    ("interval(", "1", ", 2)"), ("interval (1, ", "1", ")"), ("interval (", "1", ") day + 1"), ("1 + interval (", "1", ", 2)"),
    ("1 + interval (", "1", ") day"), ("interval ", "1", " day + 1"), ("1 + interval ", "1", " day"), ("1 + interval ", "1", ""),
    ("date_add(1, interval (", "1", ") day)"), ("adddate(1, interval(", "1", ", 2))"), ("adddate(1, ", "1", ")"),
    ("1 in (", "1", ")"), ("1 between (", "1", ") and 2"), ("1 like (", "1", ")"), ("1 member of (", "1", ")"), ("1 || (", "1", ")"),
    ("case when ", "1", " then 1 end"), ("case 1 when 1 then ", "1", " end"), ("cast(", "1", " as char)"), ("convert(", "1", ", char)"),
    ("trim(", "1", " from 1)"), ("extract(day from ", "1", ")"), ("count(", "1", ") over (order by 1)"), ("mod(", "1", ", 1)"),
    ("sum(1) over (partition by ", "1", ")"), ("substring(", "1", " from 1)"), ("{d ", "1", "}"), ("@a := ", "1", ""), ("binary ", "1", ""),
    ("exists (select ", "1", ")"), ("(select ", "1", ")"), ("((select ", "1", ") + 1)"), ("(((select ", "1", ")))"),
    ("((select ", "1", "), 1)"),
    ("1 in ((select ", "1", "))"), ("1 in ((select ", "1", ") + 1)"), ("1 = any (select ", "1", ")"), ("(select 1 limit 1) + (", "1", ")"),
]  # fmt: skip
"""Constructs of expressions that hold another one: what stands before it, the innermost, what stands behind it."""

NESTED_QUERIES = [
    ("select * from (", "select 1", ") a"), ("select * from ((", "select 1", ") a join t)"), ("select * from (((", "select 1", ") a), t)"),
    ("(", "select 1", ")"), ("(", "select 1", ") union select 1"), ("select 1 union (", "select 1", ")"), ("((", "select 1", ") limit 1)"),
    ("select 1 from t where a in (", "select 1", ")"), ("with a as (", "select 1", ") select 1"), ("(", "select 1", ") order by 1"),
    ("with a as (", "select 1", ") (select 1) limit 1"), ("with a as (select 1) (with b as (", "select 1", ") select 1) limit 1"),
    ("select 1 union (with b as (", "select 1", ") select 1)"), ("select (select * from ((", "select 1", ") a join t)) + 1"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("depth", [3, 12, 25, 50, 200])
@pytest.mark.parametrize(
    ("frame", "nested"),
    [("create table t (a int, check ({}))", one) for one in NESTED]
    + [("create table t (a int default ({}))", one) for one in NESTED]
    + [("create view v as select {}", one) for one in NESTED]
    + [("create view v as {}", one) for one in NESTED_QUERIES],
)
def test_nested_constructs_take_steps_in_proportion(frame: str, nested: tuple[str, str, str], depth: int) -> None:
    """No construct doubles the work at each level. Depths that are too large are refused, and so is a text that grows out of bounds."""
    before, middle, after = nested
    for close in (after, ""):  # as it should be, and without its end
        sql = frame.format(before * depth + middle + close * depth)
        parser = Parser(RULES, sql, SqlMode(0), "utf8mb4", "utf8mb4_bin")
        try:
            text = statement(parser)
        except DdlTooComplex:
            assert "with" in before  # TiDB prints it twice, and what is in it, too
            assert depth > 8
        except (DdlSyntaxError, RecursionError):
            text = ""
            assert parser.steps < 5 * len(parser.tokens)
        else:
            assert parser.steps < 5 * len(parser.tokens) + len(text) // 16


def test_more_steps_than_any_statement_takes_are_refused() -> None:
    nested = "with a as (select 1) (with b as (" * 30 + "select 1" + ") select 1) limit 1" * 30
    with pytest.raises(DdlTooComplex, match=r"^more than \d+ steps to read \d+ words"):
        canonical_ddl(f"create view v as {nested}")


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("create table t(a int default 1 comment 'x')", "CREATE TABLE `t` (`a` INT DEFAULT 1 COMMENT 'x')"),
        ("; drop database d ;", "DROP DATABASE `d`"),
        ("alter table t placement policy p", "ALTER TABLE `t`"),
        ("alter database d placement policy p", ""),
        ("truncate t", "TRUNCATE TABLE `t`"),
    ],
)
def test_examples(sql: str, text: str) -> None:
    assert canonical_ddl(sql) == text


@pytest.mark.parametrize(
    "sql", ["", ";", "select 1", "create table t (a int) x", "drop table a; drop table b", "create table t (a nothing)"]
)
def test_refused_examples(sql: str) -> None:
    with pytest.raises(DdlSyntaxError):
        canonical_ddl(sql)


def test_the_sql_mode_is_for_reading() -> None:
    assert canonical_ddl('alter table "t" add "a" int', SqlMode.ANSI_QUOTES) == "ALTER TABLE `t` ADD COLUMN `a` INT"
    assert canonical_ddl(r"alter table t comment 'a\b'", SqlMode.NO_BACKSLASH_ESCAPES) == r"ALTER TABLE `t` COMMENT = 'a\b'"


def test_the_job_charset_is_that_of_strings() -> None:
    assert canonical_ddl("create table t (a char default 'x')", charset="latin1") == "CREATE TABLE `t` (`a` CHAR DEFAULT _LATIN1'x')"
