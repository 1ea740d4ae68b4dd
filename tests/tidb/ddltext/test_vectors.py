"""DDL texts byte for byte: what TiDB's own parser prints, and what TiCDC sent."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schemas import Json, read_lines
from tidemill.tidb.ddltext import DdlSyntaxError, SqlMode, canonical_ddl
from tidemill.tidb.ddltext.lexer import tokenize


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


def test_statements_that_tidb_refuses_fail_on_purpose() -> None:
    """They are refused here too, but for checks of meaning; nothing but DdlSyntaxError comes out."""
    refused = [row for row in vectors() if "error" in row]
    assert len(refused) == 1436
    assert sum(printed(row) is not None for row in refused) <= 43


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


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_tokens_or_an_error(sql: str) -> None:
    assert fault(lambda: tokenize(sql, SqlMode(0))) in range(-1, len(sql) + 1)


def test_deep_nesting_is_an_error() -> None:
    with pytest.raises(DdlSyntaxError, match="nested too deeply"):
        canonical_ddl(f"create table t (a int, check ({'(' * 5000}1{')' * 5000}))")


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
