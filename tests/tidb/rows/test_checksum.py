"""Row checksums of all versions."""

from __future__ import annotations

import struct
import zlib
from datetime import UTC

import pytest

from tests.support.schema.tables import column, table
from tidemill.errors import MalformedKey
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows import RowReader, Verdict, verify_checksum
from tidemill.tidb.rows.checksum import columns_checksum
from tidemill.tidb.rows.write import encode_row_v2, with_checksum
from tidemill.tidb.schema.codes import MySQLType

COLUMNS = [
    column(MySQLType.LONG),
    column(MySQLType.VARCHAR),
    column(MySQLType.FLOAT, Decimal=-1),
    column(MySQLType.TIMESTAMP, Decimal=1),
    column(MySQLType.DURATION),
    column(MySQLType.NEWDECIMAL, Flen=6, Decimal=2),
    column(MySQLType.JSON),
    column(MySQLType.VECTOR),
    column(MySQLType.ENUM, Elems=["a"]),
    column(MySQLType.BLOB),
]
TABLE = table(COLUMNS)
KEY = record_key(100, 7)
CELLS = (-2, b"ab", 1.5, "2024-01-02 03:04:05.6", "-01:00:00", "1.50", '{"a": 1}', "[1]", 1, None)
ROW = encode_row_v2(CELLS, TABLE)


def trailer(header: int, *sums: int) -> bytes:
    body = ROW[:1] + bytes([ROW[1] | 2]) + ROW[2:]
    return body + struct.pack(f"<B{len(sums)}I", header, *sums)


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode()


COLUMNS_SUM = zlib.crc32(
    struct.pack("<q", -2)
    + text("ab")
    + struct.pack("<d", 1.5)
    + text("2024-01-02 03:04:05.6")
    + text("-01:00:00")
    + text("1.50")
    + text('{"a": 1}')
    + bytes.fromhex("010000000000803f")
    + struct.pack("<Q", 1)
)


def test_version_0_sums_the_columns() -> None:
    assert columns_checksum(TABLE, RowReader(TABLE, UTC).read(KEY, ROW)) == COLUMNS_SUM
    assert verify_checksum(KEY, trailer(0, COLUMNS_SUM), TABLE) is Verdict.MATCHES
    assert verify_checksum(KEY, trailer(0, COLUMNS_SUM ^ 1), TABLE) is Verdict.DIFFERS


def test_either_of_two_checksums_may_match() -> None:
    assert verify_checksum(KEY, trailer(8, 1, COLUMNS_SUM), TABLE) is Verdict.MATCHES
    assert verify_checksum(KEY, trailer(8, COLUMNS_SUM, 1), TABLE) is Verdict.MATCHES
    assert verify_checksum(KEY, trailer(8, 1, 2), TABLE) is Verdict.DIFFERS


def test_columns_are_summed_by_id_and_not_by_place() -> None:
    one, two = column(MySQLType.LONG, id=5), column(MySQLType.VARCHAR, id=2)
    assert columns_checksum(table([one, two]), (1, b"x")) == zlib.crc32(text("x") + struct.pack("<q", 1))


def test_version_1_sums_row_and_key() -> None:
    value = trailer(1, 0)
    found = zlib.crc32(value[:-4] + KEY)
    assert verify_checksum(KEY, trailer(1, found), TABLE) is Verdict.MATCHES
    assert verify_checksum(record_key(100, 8), trailer(1, found), TABLE) is Verdict.DIFFERS
    assert verify_checksum(record_key(101, 7), trailer(1, found), TABLE) is Verdict.DIFFERS


def test_version_2_sums_row_and_handle() -> None:
    value = with_checksum(KEY, ROW)
    assert verify_checksum(KEY, value, TABLE) is Verdict.MATCHES
    assert verify_checksum(record_key(101, 7), value, TABLE) is Verdict.MATCHES
    assert verify_checksum(record_key(100, 8), value, TABLE) is Verdict.DIFFERS
    assert RowReader(TABLE, UTC).read(KEY, value) == CELLS


def test_versions_to_come_and_rows_without() -> None:
    assert verify_checksum(KEY, trailer(3, 0), TABLE) is Verdict.UNKNOWN
    assert verify_checksum(KEY, ROW, TABLE) is Verdict.NONE


def test_a_key_that_is_none() -> None:
    with pytest.raises(MalformedKey):
        verify_checksum(b"t", with_checksum(KEY, ROW), TABLE)
