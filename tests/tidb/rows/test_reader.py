"""RowReader's rules, one by one, on small tables."""

from __future__ import annotations

import math
import re
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.schema.tables import column, table
from tidemill.errors import MalformedBytes, MalformedKey, MalformedRow
from tidemill.tidb.codec import decode_float, encode_bytes, encode_float, encode_int
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows import RowReader
from tidemill.tidb.rows.write import encode_record_key, encode_row_v1, encode_row_v2, pack_row
from tidemill.tidb.schema.codes import ColumnFlag, MySQLType, SchemaState
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.types.jsonbin import json_quote

EMPTY = pack_row({})
KEY = record_key(100, 1)
INT = column(MySQLType.LONG)
NOT_NULL = ColumnFlag.NOT_NULL


def read(columns: list[dict[str, Any]], value: bytes | None, at: bytes = KEY, zone: str = "UTC", **options: Any) -> tuple[Any, ...]:
    return RowReader(table(columns, **options), ZoneInfo(zone)).read(at, value)


def test_what_is_stored_wins_over_the_key() -> None:
    assert read([INT, INT], pack_row({1: b"\x05"}), record_key(100, 7), pk_is_handle=True) == (5, None)
    text = column(MySQLType.VARCHAR, Collate="utf8mb4_general_ci")
    handle = record_key(100, b"\x01" + encode_bytes(b"\0A\0B\0C"))
    assert read([text], pack_row({1: b"Abc "}), handle, key=[0]) == (b"Abc ",)
    assert read([text], EMPTY, handle, key=[0]) == (b"\0A\0B\0C",)


def read_key(columns: list[dict[str, Any]], handle: bytes, key: list[Any]) -> tuple[Any, ...]:
    return read(columns, EMPTY, record_key(100, handle), key=key)


def test_integer_handles() -> None:
    assert read([INT], EMPTY, record_key(100, -5), pk_is_handle=True) == (-5,)
    unsigned = column(MySQLType.LONGLONG, Flag=ColumnFlag.UNSIGNED)
    assert read([unsigned], EMPTY, record_key(100, -1), pk_is_handle=True) == ((1 << 64) - 1,)


def test_a_hidden_row_id_is_no_column() -> None:
    assert read([INT], EMPTY, record_key(100, 7)) == (None,)


def test_common_handles_in_index_order() -> None:
    year, time = column(MySQLType.YEAR), column(MySQLType.DURATION)
    handle = bytes.fromhex("078000253f1d047a00") + bytes.fromhex("0380000000000007cf")
    assert read_key([year, INT, time], handle, [2, 0]) == (1999, None, "11:22:33")
    decimal = column(MySQLType.NEWDECIMAL, Flen=10, Decimal=2)
    assert read_key([decimal], bytes.fromhex("060a028000000c22"), [0]) == ("12.34",)


def test_a_prefix_in_the_key_is_not_the_column() -> None:
    text = column(MySQLType.VARCHAR)
    handle = b"\x01" + encode_bytes(b"ab")
    assert read_key([text], handle, [(0, 2)]) == (None,)
    assert read([text], pack_row({1: b"abcdef"}), record_key(100, handle), key=[(0, 2)]) == (b"abcdef",)


def test_unknown_columns_are_skipped() -> None:
    assert read([INT], pack_row({1: b"\x01", 9: b"\xff", 10: None})) == (1,)


def test_columns_that_are_not_public_or_virtual_or_hidden_are_left_out() -> None:
    columns = [
        INT,
        column(MySQLType.LONG, state=SchemaState.WRITE_ONLY),
        column(MySQLType.LONG, generated_expr_string="`c1` + 1"),
        column(MySQLType.LONG, generated_expr_string="`c1` + 1", generated_stored=True),
        column(MySQLType.LONG, hidden=True),
    ]
    assert read(columns, pack_row({i: bytes([i]) for i in range(1, 6)})) == (1, 4)


def test_a_deleted_row_whose_old_value_is_unknown_has_its_key() -> None:
    columns = [INT, column(MySQLType.LONG, Flag=NOT_NULL, origin_default="7")]
    assert read(columns, None, record_key(100, 3), pk_is_handle=True) == (3, None)
    assert read(columns, EMPTY, record_key(100, 3), pk_is_handle=True) == (3, 7)


TIME, STAMP = MySQLType.DATETIME, MySQLType.TIMESTAMP


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (column(MySQLType.LONG), None),
        (column(MySQLType.LONG, Flag=NOT_NULL), 0),
        (column(MySQLType.LONG, Flag=NOT_NULL, default="5"), 0),
        (column(MySQLType.LONG, origin_default="9"), 9),
        (column(MySQLType.LONG, origin_default=9), 9),
        (column(MySQLType.LONGLONG, Flag=ColumnFlag.UNSIGNED, origin_default="18446744073709551615"), (1 << 64) - 1),
        (column(MySQLType.LONG, origin_default="1.5"), 2),
        (column(MySQLType.DOUBLE, Decimal=-1, origin_default="0.1"), 0.1),
        (column(MySQLType.FLOAT, Decimal=-1, origin_default="0.1"), 0.10000000149011612),
        (column(MySQLType.DOUBLE, Flag=NOT_NULL), 0.0),
        (column(MySQLType.NEWDECIMAL, Flen=10, Decimal=3, origin_default="-1.5"), "-1.500"),
        (column(MySQLType.NEWDECIMAL, Flen=10, Decimal=2, Flag=NOT_NULL), "0.00"),
        (column(MySQLType.VARCHAR, origin_default="zé"), "zé".encode()),
        (column(MySQLType.VARCHAR, Flag=NOT_NULL), b""),
        (column(MySQLType.STRING, Flen=5, origin_default="a "), b"a"),
        (column(MySQLType.STRING, Flen=4, Charset="binary", Collate="binary", origin_default="a"), b"a\0\0\0"),
        (column(MySQLType.BLOB, Flag=NOT_NULL), b""),
        (column(MySQLType.BIT, Flen=6, origin_default="\x05", origin_default_bit="BQ=="), 5),
        (column(MySQLType.BIT, Flen=6, Flag=NOT_NULL), 0),
        (column(MySQLType.ENUM, Elems=["m", "n"], origin_default="n"), 2),
        (column(MySQLType.ENUM, Elems=["m", "n"], Flag=NOT_NULL), 1),
        (column(MySQLType.SET, Elems=["m", "n"], origin_default="m,n"), 3),
        (column(MySQLType.SET, Elems=["m", "n"], Flag=NOT_NULL), 0),
        (column(MySQLType.DATE, origin_default="2001-01-01"), "2001-01-01"),
        (column(MySQLType.DATE, origin_default="2001-01-01 10:00:00"), "2001-01-01"),
        (column(MySQLType.DATE, Flag=NOT_NULL), "0000-00-00"),
        (column(TIME, Decimal=3, origin_default="2022-02-02 02:02:02.222"), "2022-02-02 02:02:02.222"),
        (column(TIME, Flag=NOT_NULL), "0000-00-00 00:00:00"),
        (column(STAMP, origin_default="2020-02-20 10:00:00"), "2020-02-20 18:00:00"),
        (column(STAMP, Flag=NOT_NULL), "0000-00-00 00:00:00"),
        (column(MySQLType.DURATION, Decimal=2, origin_default="-01:02:03"), "-01:02:03.00"),
        (column(MySQLType.DURATION, Flag=NOT_NULL), "00:00:00"),
        (column(MySQLType.YEAR, origin_default="1999"), 1999),
        (column(MySQLType.YEAR, origin_default="70"), 1970),
        (column(MySQLType.YEAR, origin_default="0000"), 0),
        (column(MySQLType.YEAR, origin_default="0"), 2000),
        (column(MySQLType.YEAR, origin_default="00"), 2000),
        (column(MySQLType.YEAR, origin_default="000"), 2000),
        (column(MySQLType.YEAR, origin_default="00000"), 2000),
        (column(MySQLType.YEAR, origin_default="1"), 2001),
        (column(MySQLType.YEAR, origin_default="69"), 2069),
        (column(MySQLType.YEAR, origin_default="99"), 1999),
        (column(MySQLType.YEAR, origin_default=0), 0),
        (column(MySQLType.YEAR, origin_default=69), 2069),
        (column(MySQLType.JSON, Flag=NOT_NULL), "null"),
        (column(MySQLType.JSON, origin_default='{"b": 1,"a": 2}'), '{"a": 2, "b": 1}'),
        (column(MySQLType.VECTOR, origin_default="[1, 2.5]"), "[1,2.5]"),
        (column(MySQLType.VECTOR, Flag=NOT_NULL), "[]"),
    ],
)
def test_columns_younger_than_the_row(spec: dict[str, Any], expected: Any) -> None:
    reader = RowReader(table([INT, spec]), ZoneInfo("Asia/Shanghai"))
    assert reader.read(KEY, EMPTY) == (None, expected)
    assert reader.absent == (None, expected)


def test_a_default_that_cannot_be_read_names_its_column() -> None:
    spec = column(MySQLType.LONG, origin_default="seven")
    with pytest.raises(MalformedRow, match=r"column c1: its origin default 'seven' cannot be read: it is not a number"):
        read([spec], EMPTY)
    assert read([spec], pack_row({1: b"\x01"})) == (1,)


def test_timestamps_are_shown_in_the_zone_of_the_reader() -> None:
    columns = [column(STAMP, Decimal=3), column(TIME)]
    value = encode_row_v2(("2024-07-01 00:00:00.250", "2024-07-01 00:00:00"), table(columns), UTC)
    assert read(columns, value, zone="America/New_York") == ("2024-06-30 20:00:00.250", "2024-07-01 00:00:00")
    assert encode_row_v2(("2024-06-30 20:00:00.250", "2024-07-01 00:00:00"), table(columns), ZoneInfo("America/New_York")) == value


@pytest.mark.parametrize("stored", ["fff8000000000000", "0007ffffffffffff", "fff0000000000000", "000fffffffffffff"])
def test_nan_and_infinities_are_zero(stored: str) -> None:
    columns = [column(MySQLType.DOUBLE, Decimal=-1), column(MySQLType.FLOAT, Decimal=-1)]
    assert not math.isfinite(decode_float(bytes.fromhex(stored))[0])
    assert read(columns, pack_row({1: bytes.fromhex(stored), 2: bytes.fromhex(stored)})) == (0.0, 0.0)


def test_a_double_too_large_for_a_float_is_zero() -> None:
    assert read([column(MySQLType.FLOAT, Decimal=-1)], pack_row({1: encode_float(1e300)})) == (0.0,)


@pytest.mark.parametrize(
    ("spec", "stored", "expected"),
    [
        (INT, "010203", "an integer has 3 bytes"),
        (INT, "", "an integer has 0 bytes"),
        (column(MySQLType.DOUBLE), "00", "needs 8 bytes, 1 are left"),
        (column(MySQLType.DOUBLE), "00" * 9, "1 bytes follow the value"),
        (column(MySQLType.NEWDECIMAL), "0a028000000c2200", "1 bytes follow the value, which ends at byte 7"),
        (column(TIME), "ffffffffffffffff", "has year"),
        (column(STAMP), "0100000000000000", "is not in the calendar"),
        (column(MySQLType.JSON), "", "a JSON type code at byte 0"),
        (column(MySQLType.VECTOR), "01", "a vector needs 4 bytes"),
        (column(MySQLType.GEOMETRY), "01", "values of type 255 are not known"),
    ],
)
def test_malformed_columns_name_table_and_column(spec: dict[str, Any], stored: str, expected: str) -> None:
    with pytest.raises(MalformedRow, match=re.escape("table t, column c2: ") + ".*" + re.escape(expected)):
        read([INT, spec], pack_row({2: bytes.fromhex(stored)}))


def test_malformed_rows_name_their_table() -> None:
    with pytest.raises(MalformedRow, match="table t: row format 2: its head needs 6 bytes"):
        read([INT], b"\x80")


def test_malformed_keys() -> None:
    with pytest.raises(MalformedKey):
        read([INT], EMPTY, b"t")
    with pytest.raises(MalformedRow, match="the key has a common handle, expected an integer"):
        read([INT], EMPTY, record_key(100, b"\x01"), pk_is_handle=True)
    with pytest.raises(MalformedRow, match="the key has an integer handle"):
        read([INT], EMPTY, KEY, key=[0])
    with pytest.raises(MalformedRow, match="column c1: found a datum BYTES, expected INT or UINT"):
        read_key([INT], b"\x01" + encode_bytes(b"a"), [0])
    with pytest.raises(MalformedRow, match="column c2: the datum at byte 9 has the unknown flag 0x63"):
        read_key([INT, INT], b"\x03" + encode_int(1) + b"c", [0, 1])
    with pytest.raises(MalformedRow, match="bytes follow the last key column, at byte 9"):
        read_key([INT], b"\x03" + encode_int(1) + b"\x00\x01", [0])


def test_format_1_datums_must_fit_their_column() -> None:
    with pytest.raises(MalformedRow, match="found a datum VARINT, expected FLOAT"):
        read([column(MySQLType.DOUBLE)], bytes.fromhex("08020802"))
    assert read([column(MySQLType.LONGLONG, Flag=ColumnFlag.UNSIGNED)], bytes.fromhex("08020801")) == ((1 << 64) - 1,)


# Round trips and broken rows over all types

U64 = st.integers(0, (1 << 64) - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
ALL_TYPES: list[tuple[dict[str, Any], st.SearchStrategy[Any]]] = [
    (column(MySQLType.LONGLONG), st.integers(-(1 << 63), (1 << 63) - 1)),
    (column(MySQLType.LONGLONG, Flag=ColumnFlag.UNSIGNED), U64),
    (column(MySQLType.YEAR, Flag=ColumnFlag.UNSIGNED), st.integers(1901, 2155)),
    (column(MySQLType.FLOAT, Decimal=-1), st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda f: f + 0.0)),
    (column(MySQLType.DOUBLE, Decimal=-1), st.floats(allow_nan=False, allow_infinity=False).map(lambda f: f + 0.0)),
    (column(MySQLType.NEWDECIMAL, Flen=20, Decimal=5), st.integers(0, 10**14).map(lambda n: f"{n}.00500")),
    (column(MySQLType.DATE), st.dates().map(str)),
    (column(MySQLType.DATETIME), st.datetimes().map(lambda t: f"{t:%H:%M:%S}").map("2020-00-31 {}".format)),
    (column(MySQLType.TIMESTAMP, Decimal=6), st.datetimes().map(lambda t: f"2020-03-05 {t:%H:%M:%S.%f}")),
    (column(MySQLType.DURATION, Decimal=2), st.integers(-838, 838).map(lambda h: f"{'-' if h < 0 else ''}{abs(h):02d}:59:01.50")),
    (column(MySQLType.VARCHAR), st.binary(max_size=20)),
    (column(MySQLType.LONG_BLOB), st.binary(max_size=20)),
    (column(MySQLType.ENUM, Elems=["a"] * 300), st.integers(0, 300)),
    (column(MySQLType.SET, Elems=["a"] * 64), U64),
    (column(MySQLType.BIT, Flen=64), U64),
    (column(MySQLType.JSON), TEXT.map(lambda t: '{"a": [1, ' + json_quote(t.encode()) + "]}")),
    (column(MySQLType.VECTOR), st.lists(st.integers(-99, 99), max_size=3).map(lambda e: f"[{','.join(map(str, e))}]")),
]
EVERY_TYPE = table([spec for spec, _ in ALL_TYPES])
CELLS = st.tuples(*(st.none() | values for _, values in ALL_TYPES))


@given(CELLS, st.sampled_from(["UTC", "Asia/Tokyo", "America/St_Johns"]))
def test_rows_round_trip_in_both_formats(cells: tuple[Any, ...], name: str) -> None:
    zone = ZoneInfo(name)
    reader = RowReader(EVERY_TYPE, zone)
    for encode in (encode_row_v1, encode_row_v2):
        assert reader.read(KEY, encode(cells, EVERY_TYPE, zone)) == cells


KEYED_BY = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14]
KEYED: TableInfo = table([spec for spec, _ in ALL_TYPES], key=KEYED_BY)


@given(st.tuples(*(values for _, values in ALL_TYPES)))
def test_clustered_keys_round_trip(cells: tuple[Any, ...]) -> None:
    key, value = encode_record_key(cells, KEYED, 100), encode_row_v2(cells, KEYED)
    assert RowReader(KEYED, UTC).read(key, value) == cells
    only_key = RowReader(KEYED, UTC).read(key, None)
    assert only_key == tuple(cell if i in KEYED_BY else None for i, cell in enumerate(cells))


@given(CELLS, st.booleans(), st.data())
def test_broken_rows_are_read_or_malformed(cells: tuple[Any, ...], old: bool, data: st.DataObject) -> None:
    value = bytearray((encode_row_v1 if old else encode_row_v2)(cells, EVERY_TYPE))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        RowReader(EVERY_TYPE, ZoneInfo("Asia/Tokyo")).read(KEY, bytes(value))
    except MalformedBytes:
        return
