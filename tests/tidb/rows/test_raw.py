"""Row values taken apart and put together: TiDB's bytes, round trips, broken bytes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.schema.tables import column, table
from tidemill.errors import MalformedRow
from tidemill.tidb.datums import Datum, DatumFlag
from tidemill.tidb.rows import RawRow, decode_row
from tidemill.tidb.rows.cells import plain_from_datum, plain_from_stored
from tidemill.tidb.rows.write import format_1_datum, pack_row, stored_bytes, with_checksum
from tidemill.tidb.schema.codes import ColumnFlag, MySQLType
from tidemill.tidb.types.jsonbin import encode_json

GOLDEN = Path(__file__).parents[2] / "golden" / "tidb" / "codec.json"
VECTORS = {
    (v["group"], v["name"]): bytes.fromhex(v["hex"]) for v in json.loads(GOLDEN.read_text(encoding="utf-8")) if v["group"][:3] == "row"
}

MIXED = next(name for group, name in VECTORS if group == "rowv2" and name.startswith("float32"))
INTS = "ints -1,127,128,-32768,65535u,2^31,-2^63,2^64-1u"

INT = column(MySQLType.LONGLONG)
UNSIGNED = column(MySQLType.LONGLONG, Flag=ColumnFlag.UNSIGNED)
MIXED_TABLE = table(
    [
        column(MySQLType.FLOAT),
        column(MySQLType.DOUBLE),
        column(MySQLType.NEWDECIMAL, Flen=10, Decimal=2),
        column(MySQLType.DATETIME),
        column(MySQLType.DURATION, Decimal=1),
        column(MySQLType.ENUM, Elems=["a", "b"]),
        column(MySQLType.SET, Elems=["a", "b"]),
        column(MySQLType.BIT, Flen=7),
        column(MySQLType.JSON),
    ]
)
MIXED_VALUES = (1.5, -2.25, "12.34", 1844199302927220736, -40_953_500_000_000, 2, 3, 81, encode_json({"a": 1}))
INT_TABLE = table([UNSIGNED if unsigned else INT for unsigned in (0, 0, 0, 0, 1, 0, 0, 1)])
INT_VALUES = (-1, 127, 128, -32768, 65535, 1 << 31, -(1 << 63), (1 << 64) - 1)

CASES = [(MIXED, MIXED_TABLE, MIXED_VALUES), (INTS, INT_TABLE, INT_VALUES)]


@pytest.mark.parametrize(("name", "info", "values"), CASES, ids=["mixed", "ints"])
def test_format_2_of_tidb(name: str, info: Any, values: tuple[Any, ...]) -> None:
    value = VECTORS["rowv2", name]
    row = decode_row(value)
    assert row.format == 2
    assert tuple(plain_from_stored(c, row.columns[c.id]) for c in info.columns) == values  # type: ignore[arg-type]
    assert pack_row({c.id: stored_bytes(c, plain) for c, plain in zip(info.columns, values, strict=True)}) == value


@pytest.mark.parametrize(("name", "info", "values"), CASES, ids=["mixed", "ints"])
def test_format_1_of_tidb(name: str, info: Any, values: tuple[Any, ...]) -> None:
    value = VECTORS["rowv1", name]
    row = decode_row(value)
    assert row.format == 1
    assert tuple(plain_from_datum(c, row.columns[c.id]) for c in info.columns) == values  # type: ignore[arg-type]
    written = b"".join(bytes([8, c.id << 1]) + format_1_datum(c, plain) for c, plain in zip(info.columns, values, strict=True))
    assert written == value


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("id2=int 1, id3='ab', id4=NULL", {2: b"\x01", 3: b"ab", 4: None}),
        ("no columns", {}),
        ("only NULLs 2,5", {2: None, 5: None}),
        ("large because column id 300", {1: b"\x01", 300: b"x", 5: None}),
    ],
)
def test_small_and_large_rows(name: str, columns: dict[int, bytes | None]) -> None:
    value = VECTORS["rowv2", name]
    assert decode_row(value) == RawRow(2, columns)
    assert pack_row(columns) == value
    old = decode_row(VECTORS["rowv1", name])
    assert old.format == 1
    assert {i: v.value if isinstance(v, Datum) else v for i, v in old.columns.items()} == {
        i: v if v is None or v.isalpha() else v[0] for i, v in columns.items()
    }


def test_a_row_is_large_because_of_its_data() -> None:
    columns: dict[int, bytes | None] = {1: b"\x07", 2: b"z" * 65536}
    value = pack_row(columns)
    (head,) = (v for (_, name), v in VECTORS.items() if name.startswith("large because data"))
    assert value[: len(head)] == head
    assert len(value) == 65559
    assert decode_row(value).columns == columns


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("raw checksum, handle int 1", "7480000000000000645f728000000000000001"),
        ("raw checksum, common handle ('abc')", "7480000000000000645f72016162630000000000fa"),
    ],
)
def test_checksums_of_tidb(name: str, key: str) -> None:
    value = VECTORS["rowv2", name]
    row = decode_row(value)
    assert row.columns == {2: b"\x01", 3: b"ab", 4: None}
    assert row.checksum is not None
    assert (row.checksum.version, row.checksum.extra, row.checksum.body_size) == (2, None, len(value) - 5)
    assert with_checksum(bytes.fromhex(key), pack_row(row.columns)) == value  # type: ignore[arg-type]


def test_two_checksums() -> None:
    row = decode_row(bytes.fromhex("800200000000" + "08" + "01000000" + "02000000"))
    assert row.checksum is not None
    assert (row.checksum.version, row.checksum.checksum, row.checksum.extra) == (0, 1, 2)


COLUMNS = st.dictionaries(st.one_of(st.integers(1, 255), st.integers(1, (1 << 32) - 1)), st.none() | st.binary(max_size=40), max_size=20)


@given(COLUMNS)
def test_round_trip(columns: dict[int, bytes | None]) -> None:
    value = pack_row(columns)
    assert decode_row(value) == RawRow(2, columns)
    assert bool(value[1]) == (max(columns, default=0) > 255)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", "has no bytes"),
        ("80", "head needs 6 bytes, the row has 1"),
        ("800400000000", "flags 0x04 at byte 1"),
        ("80000100000001", "1 columns and 0 nulls needs 9 bytes"),
        ("8000ffffffff", "65535 columns and 65535 nulls needs"),
        ("800001000000010500" + "00", "data needs 14 bytes, the row has 10"),
        ("800002000000020101000200" + "0000", "ids of columns do not ascend: 1 after 2"),
        ("8000000002000505", "ids of nulls do not ascend: 5 after 5"),
        ("800001000100050501000a", "both NULL and not"),
        ("8000020000000102020001000000", "column 2 ends at 1, before its start 2"),
        ("80000000000000", "1 bytes follow the data, which ends at byte 6"),
        ("8002000000000200", "checksum needs 11 bytes, the row has 8"),
        ("8002000000000800000000", "extra checksum needs 15 bytes"),
        ("800200000000020000000000", "1 bytes follow the checksum, which ends at byte 11"),
        ("0000", "byte 0 is a datum NULL, expected a VARINT"),
        ("0802", "column 1 at byte 0 has no value"),
        ("08020800080208", "a varint at byte 7"),
        ("08020800" * 2, "column 1 stands twice"),
        ("0802ff", "the datum at byte 2 has the unknown flag 0xff"),
        ("08020aff", "the JSON type code at byte 3 is 0xff"),
        ("0802140000", "the count of a vector at byte 3"),
    ],
)
def test_malformed(value: str, expected: str) -> None:
    with pytest.raises(MalformedRow, match=expected):
        decode_row(bytes.fromhex(value))


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x80\x00", b"\x80\x01", b"\x80\x02", b"\x80\x00\x01\x00\x01\x00", b"\x08\x02"]))
def test_any_bytes_are_a_row_or_malformed(tail: bytes, head: bytes) -> None:
    try:
        row = decode_row(head + tail)
    except MalformedRow:
        return
    assert len(row.columns) <= len(head + tail)


@given(COLUMNS.filter(bool), st.data())
def test_a_changed_byte_gives_a_row_or_malformed(columns: dict[int, bytes | None], data: st.DataObject) -> None:
    value = bytearray(pack_row(columns))
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    del value[data.draw(st.integers(len(value) // 2, len(value))) :]
    try:
        decode_row(bytes(value))
    except MalformedRow as error:
        assert error.code == "TM:ErrMalformedRow"  # noqa: PT017


def test_counts_do_not_allocate() -> None:
    """65535 columns and nulls are announced in 6 bytes: nothing is made before they are seen to be there."""
    with pytest.raises(MalformedRow, match="the row has 6"):
        decode_row(struct.pack("<BBHH", 0x80, 1, 65535, 65535))


def test_datum_flags_are_part_of_format_1() -> None:
    assert decode_row(bytes.fromhex("0804080208060204616208 0800".replace(" ", ""))).columns[2] == Datum(DatumFlag.VARINT, 1)
