"""Statements of a table's changes, and packets of statements."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.schema.tables import column, table
from tidemill.protocols.sql.keys import always_split, conflict_keys, spread_columns
from tidemill.protocols.sql.literals import SqlTable, quoted
from tidemill.protocols.sql.missed import Statement
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE
from tidemill.sinks.mysql.merge import Change
from tidemill.sinks.mysql.session import LENIENT, STRICT
from tidemill.sinks.mysql.statements import Limits, TableStatements, packets, text_of
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import IndexInfo, TableInfo

LONG, TEXT = MySQLType.LONGLONG, MySQLType.VARCHAR
INSERT = b"INSERT INTO `s`.`t``x` (`c1`,`c2`) VALUES "
SELECT = b"SELECT 1 FROM `s`.`t``x` WHERE `c1` IN (%d)"
UPDATE = b" ON DUPLICATE KEY UPDATE `c1`=VALUES(`c1`),`c2`=VALUES(`c2`)"


def info(*types: MySQLType, unique: tuple[tuple[int, ...], ...] = (), **given: Any) -> TableInfo:
    """A table of these columns; `unique` are further unique keys by offset."""
    made = table([column(tp) for tp in types], **given)
    data = [
        {"id": 10 + n, "idx_name": f"u{n}", "is_unique": True, "state": 5}
        | {"idx_cols": [{"name": f"c{o + 1}", "offset": o, "length": -1} for o in offsets]}
        for n, offsets in enumerate(unique)
    ]
    return replace(made, indices=(*made.indices, *map(IndexInfo.from_json, data)))


def statements(made: TableInfo, changes: list[Change], *, safe: bool = False, **limits: Any) -> list[bytes]:
    return [one.text for one in TableStatements(SqlTable("s", "t`x", made)).of_changes(changes, Limits(**limits), safe=safe)]


def insert(n: int, row: bytes = b"") -> Change:
    return Change(KIND_INSERT, b"%d" % n, row or b"%d,'a'" % n)


def update(n: int, row: bytes = b"") -> Change:
    return Change(KIND_UPDATE, b"%d" % n, row or b"%d,'b'" % n)


def delete(n: int) -> Change:
    return Change(KIND_DELETE, b"%d" % n, b"")


KEYED = info(LONG, TEXT, pk_is_handle=True)


def test_a_transaction_deletes_updates_and_inserts_many_rows_at_a_time() -> None:
    changes = [insert(1), update(2), delete(3), insert(4), update(5), delete(6)]
    assert statements(KEYED, changes) == [
        b"DELETE FROM `s`.`t``x` WHERE `c1` IN (3,6)",
        INSERT + b"(2,'b'),(5,'b')" + UPDATE,
        INSERT + b"(1,'a'),(4,'a')",
    ]
    assert statements(KEYED, changes, safe=True) == [
        b"DELETE FROM `s`.`t``x` WHERE `c1` IN (3,6)",
        b"REPLACE INTO `s`.`t``x` (`c1`,`c2`) VALUES (1,'a'),(2,'b'),(4,'a'),(5,'b')",
    ]


def test_a_wide_bit_is_set_to_its_literal() -> None:
    """TiDB reads the bytes of its VALUES() in the wrong order."""
    made = table([column(LONG), column(MySQLType.BIT, Flen=57), column(MySQLType.BIT, Flen=56), column(TEXT)], pk_is_handle=True)
    assert statements(made, [update(1, b"1,258,259,'a,b'"), update(2, b"2,7,8,NULL")])[1::2] == [
        b"INSERT INTO `s`.`t``x` (`c1`,`c2`,`c3`,`c4`) VALUES (" + row + b") ON DUPLICATE KEY UPDATE `c1`=VALUES(`c1`),`c2`=" + bits
        + b",`c3`=VALUES(`c3`),`c4`=VALUES(`c4`)"
        for row, bits in ((b"1,258,259,'a,b'", b"258"), (b"2,7,8,NULL", b"7"))
    ]  # fmt: skip


def test_a_wide_set_is_compared_by_its_elements() -> None:
    elements = [f"e{n}" for n in range(53)] + ["it's"]
    wide = table([column(MySQLType.SET, Elems=elements), column(LONG)], key=[0])
    listed = ",".join(["'it''s'" if element == "it's" else f"'{element}'" for element in elements]).encode()
    assert SqlTable("s", "t", wide).key_of([b"3"]) == b"`c1`=MAKE_SET(3," + listed + b")"
    assert not SqlTable("s", "t", wide).key_is_list
    narrow, empty = (table([column(MySQLType.SET, Elems=some), column(LONG)], key=[0]) for some in (elements[1:], ["", *elements]))
    assert TableStatements(SqlTable("s", "t", narrow)).found(b"3") == b"`c1`=3"
    assert TableStatements(SqlTable("s", "t", empty)).found(b"3") == b"CAST(`c1` AS UNSIGNED)=3"


def test_limits_cut_statements() -> None:
    assert statements(KEYED, [insert(n) for n in range(3)], rows=2) == [INSERT + b"(0,'a'),(1,'a')", INSERT + b"(2,'a')"]
    assert statements(KEYED, [insert(n) for n in range(3)], bytes=10) == [INSERT + b"(%d,'a')" % n for n in range(3)]
    assert statements(KEYED, [update(n) for n in range(3)], update_rows=2) == [
        INSERT + b"(0,'b'),(1,'b')" + UPDATE,
        SELECT % 2,
        INSERT + b"(2,'b')" + UPDATE,
    ]
    assert len(statements(KEYED, [update(n) for n in range(3)], update_row_bytes=2)) == 6


def test_without_batches_each_change_is_a_statement_in_order() -> None:
    assert statements(KEYED, [insert(1), update(1), delete(1)], merge=False) == [
        INSERT + b"(1,'a')",
        SELECT % 1,
        INSERT + b"(1,'b')" + UPDATE,
        b"DELETE FROM `s`.`t``x` WHERE `c1` IN (1)",
    ]


def test_a_key_of_several_columns_and_no_key() -> None:
    made = info(LONG, TEXT, key=(0, 1))
    gone = Change(KIND_DELETE, b"`c1`=1 AND `c2`='a'", b"")
    assert statements(made, [gone, gone._replace(key=b"`c1`=2 AND `c2`='b'")]) == [
        b"DELETE FROM `s`.`t``x` WHERE (`c1`=1 AND `c2`='a') OR (`c1`=2 AND `c2`='b')"
    ]
    bare = info(LONG, TEXT)
    same = b"`c1`<=>1 AND `c2`<=>NULL"
    changes = [Change(KIND_DELETE, same, b""), Change(KIND_INSERT, same, b"1,NULL"), Change(KIND_UPDATE, same, b"1,NULL")]
    assert statements(bare, changes) == [b"DELETE FROM `s`.`t``x` WHERE " + same + b" LIMIT 1", INSERT + b"(1,NULL)"]


def test_an_enum_value_that_is_no_element_is_written_leniently() -> None:
    found = statements(KEYED, [insert(1), insert(2, b"2,0/*0*/"), insert(3)])
    assert found == [INSERT + b"(1,'a'),(3,'a')", LENIENT, INSERT + b"(2,0/*0*/)", STRICT]


def test_packets() -> None:
    texts = [Statement(one) for one in (b"aa", b"bb", b"cc")]
    assert [*map(text_of, packets(texts, 6, together=True))] == [b"aa;bb", b"cc"]
    assert [*map(text_of, packets(texts[:2], 100, together=False))] == [b"aa", b"bb"]
    assert [*map(text_of, packets([Statement(b"a" * 10)], 6, together=True))] == [b"a" * 10]


def test_text_is_escaped() -> None:
    assert quoted("a'b\\c\r\nd\"é".encode()) == b"'a\\'b\\\\c\\r\\nd\"" + "é".encode() + b"'"


@pytest.mark.parametrize(
    ("made", "keys", "spread", "split"),
    [
        (info(LONG, TEXT, pk_is_handle=True), (("c1",),), ("c1",), False),
        (info(LONG, LONG, pk_is_handle=True, unique=((1,),)), (("c1",), ("c2",)), (), False),
        (info(LONG, TEXT, key=(0, 1)), (("c1",),), ("c1",), False),  # 'a' and 'a ' are one value: only the number counts
        (info(TEXT, LONG, key=(0,)), None, (), False),
        (info(LONG, TEXT, pk_is_handle=True, unique=((1,),)), None, (), False),
        (info(LONG, MySQLType.DOUBLE, pk_is_handle=True, unique=((1,),)), None, (), False),
        (info(LONG, TEXT), None, (), True),
    ],
)
def test_keys(made: TableInfo, keys: object, spread: tuple[str, ...], split: bool) -> None:
    assert (conflict_keys(made), spread_columns(made), always_split(made)) == (keys, spread, split)


OWN_TABLES = {
    "sinks/mysql/bookkeeping.py",
    "sinks/mysql/ddls/plans.py",
    "consumer/database.py",
    "binlog/drainer/database/checkpoint.py",
    "binlog/drainer/mysql.py",
    "binlog/reparo/keyless.py",
}
"""Modules that write tables of Tidemill's own."""


def test_rows_of_users_are_written_by_one_module() -> None:
    package = Path("tidemill")
    writing = re.compile(r"\b(?:INSERT|REPLACE) INTO |\bDELETE FROM |\bUPDATE (?:`|$)")
    rooms = ("sinks/mysql", "consumer/*.py", "diff", "binlog", "protocols/sql")
    modules = {path for room in rooms for path in (package.glob(room) if room.endswith(".py") else (package / room).rglob("*.py"))}
    found = {str(path.relative_to(package)) for path in modules if any(map(writing.search, texts_in(path)))}
    assert found - OWN_TABLES == {"sinks/mysql/statements.py", "binlog/reparo/printing.py"}  # what is printed is no SQL
    assert found >= OWN_TABLES


def texts_in(path: Path) -> Iterator[str]:
    """The texts of a module, but for its docstrings and messages."""
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    said |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "hint" for part in ast.walk(node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in said and isinstance(node.value, str | bytes):
            yield node.value if isinstance(node.value, str) else node.value.decode("latin1")
