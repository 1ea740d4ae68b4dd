"""Values of entries for Canal's clients: letters of every charset, bytes without loss, ENUM and SET as numbers or as texts. By the kernel
and its reference, and read again."""

from __future__ import annotations

import random
from datetime import UTC

import pytest

from tests.support.capture.captures import stored_changes
from tests.support.changelog.sqllogs import SqlLog
from tests.support.golden.text_rows import outcome
from tests.support.rows.random_programs import random_programs
from tests.support.rows.random_rows import random_record
from tidemill.errors import MalformedRow
from tidemill.kernels.canal.entry_encoder import CanalEntryEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.canal.decode import events_of
from tidemill.protocols.canal.entries import Change, Made, transaction_entries
from tidemill.protocols.canal.events import Column, RowEvent
from tidemill.protocols.canal.parse import parse_entry
from tidemill.protocols.common.mysqlvalues import Value
from tidemill.tidb.schema.codes import MySQLType

TS = 470_616_264_291_647_490
EVERY = bytes(range(256))
LETTERS = "naïve ÿ 中文 €"
LONG = "é" * 90
BINARY, CLOB, BLOB, BIT, CHAR, INTEGER = 2004, 2005, 2004, -7, 1, 4


def plain(encoder: CanalEntryEncoder, records: list[RawRecord]) -> list[Made]:
    """What the reference makes of rows of one transaction."""
    changes = [Change(r.table, r.key, r.value, r.old_value) for r in records]
    return transaction_entries(encoder.tables, changes, server_id=1, start_ts=TS - 1, commit_ts=TS)


def columns_of(ddl: str, *literals: str, member_names: bool = False) -> list[Column]:
    """The columns of a row with these values, by kernel and reference, read again."""
    sql = SqlLog(f"CREATE TABLE t ({ddl})")
    sql.run(f"INSERT INTO t VALUES ({', '.join(literals)})")
    ((info),) = [one.info for (_, name), one in sql.tables_at(sql.run()).items() if name == "t"]
    (row,) = [change for change in stored_changes(sql._playground.cluster, sql.start_ts, sql.run()) if change.table_id == info.id]
    encoder = CanalEntryEncoder([TableProgram("app", "t", info, UTC)], 1, member_names=member_names)
    records = [RawRecord(row.key, row.value, None, TS - 1, TS, 0)]
    rows, _keep = row_array(records)
    made = encoder.encode(rows, last=True).to_list()
    assert made == plain(encoder, records)
    ((event),) = [one for entry in made for one in events_of(parse_entry(entry.data)) if isinstance(one, RowEvent)]
    return list(event.after)


def values(ddl: str, *literals: str, member_names: bool = False) -> list[Value]:
    """The values of such columns behind their key."""
    return [column.value for column in columns_of(f"id INT PRIMARY KEY, {ddl}", "1", *literals, member_names=member_names)[1:]]


def test_letters_of_every_charset_are_right() -> None:
    """Canal loses those of latin1 and gbk."""
    ddl = (
        "a VARCHAR(20) CHARACTER SET latin1, b CHAR(20) CHARACTER SET latin1, c VARCHAR(20) CHARACTER SET gbk, d TEXT CHARACTER SET gbk, "
        "e VARCHAR(20), f LONGTEXT CHARACTER SET utf8"
    )
    assert values(ddl, "'naïve ÿ'", "'ÿ'", "'中文 €'", "'中文'", f"'{LETTERS}'", f"'{LETTERS}'") == [
        text.encode() for text in ("naïve ÿ", "ÿ", "中文 €", "中文", LETTERS, LETTERS)
    ]


def test_bytes_come_without_loss() -> None:
    """Also zeros at the end of BINARY, which Canal cuts off."""
    hexed = f"x'{EVERY.hex()}'"
    ddl = "a BINARY(4), b VARBINARY(256), c BLOB, d LONGBLOB, e TINYBLOB, f VARCHAR(256) CHARACTER SET binary"
    columns = columns_of(f"id INT PRIMARY KEY, {ddl}", "1", "x'80'", hexed, hexed, hexed, "x''", hexed)[1:]
    assert [column.value for column in columns] == [b"\x80\0\0\0", EVERY, EVERY, EVERY, b"", EVERY]
    assert {column.sql_type for column in columns} == {BLOB}


def test_bits_are_numbers() -> None:
    columns = columns_of("id INT PRIMARY KEY, a BIT(1), b BIT(64), c BIT(8)", "1", "b'1'", "18446744073709551615", "0")[1:]
    assert [(column.value, column.sql_type) for column in columns] == [(1, BIT), (18446744073709551615, BIT), (0, BIT)]


ELEMENTS = f"'1', 'two', '{LONG}'"
MEMBERS = f"a ENUM({ELEMENTS}), b ENUM({ELEMENTS}), c SET('x', '7', '{LONG}'), d SET('x', 'y'), e ENUM('x'), f ENUM('x')"
GIVEN = ("'two'", f"'{LONG}'", f"'x,7,{LONG}'", "''", "NULL", "'x'")


def test_enum_and_set_are_numbers() -> None:
    columns = columns_of(f"id INT PRIMARY KEY, {MEMBERS}", "1", *GIVEN)[1:]
    assert [column.value for column in columns] == [2, 3, 7, 0, None, 1]
    assert [column.sql_type for column in columns] == [INTEGER, INTEGER, BIT, BIT, INTEGER, INTEGER]


def test_enum_and_set_as_text_on_wish() -> None:
    """An element whose text is a number stays text: who took it for an index would have another element."""
    columns = columns_of(f"id INT PRIMARY KEY, {MEMBERS}", "1", *GIVEN, member_names=True)[1:]
    assert [column.value for column in columns] == [b"two", LONG.encode(), f"x,7,{LONG}".encode(), b"", None, b"x"]
    assert {column.sql_type for column in columns} == {CHAR}
    assert columns[3].mysql_type == "set('x','y')"
    assert values("a ENUM('2', '1')", "'2'", member_names=True) == [b"2"]


@pytest.mark.parametrize("seed", range(4))
def test_random_rows_with_texts(seed: int) -> None:
    """Rows that lack a column, updates, values without an element."""
    rng = random.Random(f"members {seed}")
    programs = random_programs(rng, 3, MySQLType.ENUM, MySQLType.SET, MySQLType.LONG)
    encoder = CanalEntryEncoder(programs, 1, member_names=True)
    good = []
    for number in range(120):
        one = random_record(rng, programs[number % 3].info, number % 3)._replace(commit_ts=TS, start_ts=TS - 1)
        if isinstance(outcome(lambda one=one: plain(encoder, [one]), MalformedRow), list):
            good.append(one)
    rows, _keep = row_array(good)
    assert encoder.encode(rows, last=True).to_list() == plain(encoder, good)
    assert encoder.slow_rows < len(good)


def test_a_number_without_an_element_is_refused() -> None:
    """The table says two elements, the row has the third."""
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, a ENUM('x', 'y', 'z'), b SET('x', 'y', 'z'))")
    sql.run("INSERT INTO t VALUES (1, 'z', '')", "INSERT INTO t VALUES (2, 'x', 'z')")
    ((info),) = [one.info for (_, name), one in sql.tables_at(sql.run()).items() if name == "t"]
    short = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, a ENUM('x', 'y'), b SET('x', 'y'))")
    ((narrow),) = [one.info for (_, name), one in short.tables_at(short.run()).items() if name == "t"]
    changes = [change for change in stored_changes(sql._playground.cluster, sql.start_ts, sql.run()) if change.table_id == info.id]
    for change, named in zip(changes, ("column a: enum index 3 of 2", "column b: set value 4 of 2"), strict=True):
        encoder = CanalEntryEncoder([TableProgram("app", "t", narrow, UTC)], 1, member_names=True)
        records = [RawRecord(change.key, change.value, None, TS - 1, TS, 0)]
        for encode in (lambda: plain(encoder, records), lambda: encoder.encode(row_array(records)[0], last=True)):  # noqa: B023
            with pytest.raises(MalformedRow, match=named) as error:
                encode()
            assert "table app.t" in error.value.message
