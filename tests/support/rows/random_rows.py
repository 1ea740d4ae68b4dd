"""Random tables over all types and random rows of them, as TiDB could have stored them; and the same with broken bytes."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

from tests.support.schema.tables import column
from tidemill.kernels.rows.views import RawRecord
from tidemill.tidb.codec import encode_uvarint, encode_varint
from tidemill.tidb.datums import DatumFlag
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.cells import Family, Plain, family
from tidemill.tidb.rows.write import format_1_datum, key_datum, needs_value, pack_row, sort_key, stored_bytes, with_checksum
from tidemill.tidb.schema.codes import ColumnFlag, HandleKind
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.jsonbin import encode_json
from tidemill.tidb.types.times import Moment, pack_time, to_core
from tidemill.tidb.types.vectors import encode_vector

INT_BITS = {T.TINY: 8, T.SHORT: 16, T.INT24: 24, T.LONG: 32, T.LONGLONG: 64}
STRINGS = (T.VARCHAR, T.STRING, T.VAR_STRING)
BLOBS = (T.TINY_BLOB, T.BLOB, T.MEDIUM_BLOB, T.LONG_BLOB)
TYPES = (
    *INT_BITS, *STRINGS, *BLOBS, T.FLOAT, T.DOUBLE, T.NEWDECIMAL, T.DATE, T.NEWDATE, T.DATETIME, T.TIMESTAMP, T.DURATION, T.YEAR, T.ENUM,
    T.SET, T.BIT, T.JSON, T.VECTOR,
)  # fmt: skip
KEY_TYPES = tuple(t for t in TYPES if t not in (T.JSON, T.VECTOR))
WORDS = (
    "",
    "a",
    "naïve café",
    "测试🙂",
    '<b>"x" & y</b>',
    "tab\tnew\nline\\",
    "\x00\x01\x7f",
    "\u200b\ufeff\u2028\u2029\xa0",
    "long " * 30,
)
DEFAULTS = {
    T.NEWDECIMAL: "1.50", T.DATE: "2020-02-29", T.NEWDATE: "2020-02-29", T.DATETIME: "2020-02-29 01:02:03.25",
    T.TIMESTAMP: "2020-02-29 01:02:03.25", T.DURATION: "-11:22:33.5", T.YEAR: "1999", T.ENUM: "b", T.SET: "x,z", T.BIT: "\x05",
    T.JSON: None, T.VECTOR: None, T.FLOAT: "0.25", T.DOUBLE: "1e-7",
}  # fmt: skip


def random_column(rng: random.Random, tp: T, **parts: Any) -> dict[str, Any]:
    """A column of a type with random attributes."""
    flag = 0
    if tp in INT_BITS and rng.random() < 0.5:
        flag |= ColumnFlag.UNSIGNED
    if tp in (T.YEAR, T.BIT):
        flag |= ColumnFlag.UNSIGNED
    if rng.random() < 0.3:
        flag |= ColumnFlag.NOT_NULL
    kind: dict[str, Any] = {"Flag": int(flag), "Flen": -1, "Decimal": 0}
    if tp == T.NEWDECIMAL:
        kind["Decimal"] = rng.choice((0, 1, 2, 9, 10, 30))
        kind["Flen"] = kind["Decimal"] + rng.choice((0, 1, 5, 9, 18, 30)) or 1
    elif tp in (T.DATETIME, T.TIMESTAMP, T.DURATION):
        kind["Decimal"] = rng.randrange(7)
    elif tp in (T.ENUM, T.SET):
        kind["Elems"] = ["a", "b", "c"] if tp == T.ENUM else ["x", "y", "z"]
    elif tp in STRINGS or tp in BLOBS:
        charset, collate = rng.choice(
            (("utf8mb4", "utf8mb4_bin"), ("utf8mb4", "utf8mb4_general_ci"), ("binary", "binary"), ("gbk", "gbk_bin"))
        )
        kind |= {"Charset": charset, "Collate": collate}
    own: dict[str, Any] = {}
    if rng.random() < 0.3:
        own["origin_default"] = DEFAULTS.get(tp, "7")
    return column(tp, **(own | kind | parts))


def random_table(rng: random.Random, types: tuple[T, ...] = TYPES) -> TableInfo:
    """A table of up to 30 columns with ids that have gaps, of any kind of handle, partitioned or not."""
    wanted = [rng.choice(types) for _ in range(rng.randint(1, 30))]
    columns = [random_column(rng, tp) for tp in wanted]
    kind = rng.choice(list(HandleKind))
    key: list[tuple[int, int]] = []
    if kind is HandleKind.INT:
        flag = ColumnFlag.PRIMARY_KEY | ColumnFlag.NOT_NULL | (ColumnFlag.UNSIGNED if rng.random() < 0.3 else 0)
        columns.insert(rng.randrange(len(columns) + 1), random_column(rng, T.LONGLONG, Flag=int(flag)))
    elif kind is HandleKind.COMMON:
        for _ in range(rng.randint(1, 3)):
            tp = rng.choice(KEY_TYPES)
            columns.append(random_column(rng, tp, origin_default=None))
            columns[-1]["type"]["Flag"] |= ColumnFlag.NOT_NULL
            if columns[-1]["type"].get("Collate", "") == "gbk_bin":
                columns[-1]["type"] |= {"Charset": "binary", "Collate": "binary"}
            if columns[-1]["type"].get("Collate", "").endswith("general_ci"):
                columns[-1]["type"] |= {"Collate": "utf8mb4_bin"}
            key.append((len(columns) - 1, 2 if tp in STRINGS and rng.random() < 0.2 else -1))
    ids, step = 0, rng.choice((1, 1, 3, 40))
    names = [f"c{i}" for i in range(len(columns))]
    rng.shuffle(names)
    for i, one in enumerate(columns):
        ids += rng.randint(1, step)
        one |= {"id": ids, "name": names[i] + rng.choice(("", "é", "<", '"')), "offset": i}
    indices = []
    if key:
        parts = [{"name": columns[offset]["name"], "offset": offset, "length": length} for offset, length in key]
        indices.append({"id": 1, "idx_name": "PRIMARY", "idx_cols": parts, "is_unique": True, "is_primary": True, "state": 5})
    unique = [i for i, one in enumerate(columns) if one["type"]["Tp"] not in (T.JSON, T.VECTOR)]
    if unique:
        parts = [{"name": columns[i]["name"], "offset": i, "length": -1} for i in rng.sample(unique, min(len(unique), rng.randint(1, 3)))]
        indices.append({"id": 2, "idx_name": "u", "idx_cols": parts, "is_unique": True, "is_primary": False, "state": 5})
    partition = {"enable": True, "definitions": [{"id": 777, "name": "p"}]} if rng.random() < 0.2 else None
    return TableInfo.from_json(
        {
            "id": 100, "name": "t", "state": 5, "cols": columns, "index_info": indices, "pk_is_handle": kind is HandleKind.INT,
            "is_common_handle": kind is HandleKind.COMMON, "common_handle_version": 1, "partition": partition,
        }
    )  # fmt: skip


# Values


def random_text(rng: random.Random) -> bytes:
    """Bytes of a string column: mostly text, sometimes no UTF-8."""
    match rng.randrange(6):
        case 0:
            return rng.randbytes(rng.randrange(50))
        case 1:
            return "".join(
                chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x250), rng.randrange(0xE000, 0x20000)))) for _ in range(9)
            ).encode()
    return (rng.choice(WORDS) + rng.choice(WORDS)).encode()[: rng.choice((3, 7, 31, 32, 33, 64, 1000))]


def random_float(rng: random.Random) -> float:
    match rng.randrange(5):
        case 0:
            return struct.unpack("<d", rng.randbytes(8))[0]
        case 1:
            return struct.unpack("<f", rng.randbytes(4))[0]
        case 2:
            return rng.choice(
                (0.0, -0.0, 1e-6, 9.99999e-7, 1e21, 9.99e20, 1e-7, 0.1, 123456789.0, 2.0**63, 5e-324, math.inf, -math.inf, math.nan)
            )
    return round(rng.uniform(-1e6, 1e6), rng.randrange(8))


def random_moment(rng: random.Random, stamp: bool) -> Moment:
    if rng.random() < 0.1:
        return Moment(0, 0, 0)
    year = rng.randint(1970, 2037) if stamp else rng.randint(0, 9999)
    month, day = rng.randint(1, 12), rng.randint(2 if stamp else 1, 28 if rng.random() < 0.9 else 31)
    if stamp and (month, day) in ((2, 29), (2, 30), (2, 31), (4, 31), (6, 31), (9, 31), (11, 31)):
        day = 28
    if not stamp and rng.random() < 0.1:
        month = 0
    return Moment(year, month, day, rng.randrange(24), rng.randrange(60), rng.randrange(60), rng.choice((0, rng.randrange(1_000_000))))


def random_json(rng: random.Random, depth: int = 0) -> Any:
    match rng.randrange(8 if depth < 4 else 6):
        case 0:
            return rng.choice((None, True, False))
        case 1:
            return rng.randint(-(1 << 63), (1 << 64) - 1)
        case 2:
            value = random_float(rng)
            return value if math.isfinite(value) else 0.5
        case 3 | 4 | 5:
            return random_text(rng).decode("utf-8", "replace")
        case 6:
            return [random_json(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(WORDS) + str(i): random_json(rng, depth + 1) for i in range(rng.randrange(4))}


def random_document(rng: random.Random) -> bytes:
    """Binary JSON; also of the kinds that no text makes: opaque bytes, dates, times."""
    match rng.randrange(6):
        case 0:
            data = rng.randbytes(rng.randrange(9))
            return bytes([0x0D, rng.choice((252, 253)), len(data)]) + data
        case 1:
            return bytes([rng.choice((0x0E, 0x0F, 0x10))]) + struct.pack("<Q", to_core(random_moment(rng, False)))
        case 2:
            return b"\x11" + struct.pack("<qI", rng.randint(-838 * 3600 * 10**9, 838 * 3600 * 10**9), 6)
    return encode_json(random_json(rng))


def random_plain(rng: random.Random, info: ColumnInfo) -> Plain:
    """A value of a column, as stored."""
    match family(info):
        case Family.INT:
            bits = INT_BITS[T(info.tp)]
            low, high = (0, (1 << bits) - 1) if info.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
            return rng.choice((low, high, 0, rng.randint(low, high), rng.randint(low, high) >> rng.randrange(bits)))
        case Family.YEAR:
            return rng.choice((0, rng.randint(1901, 2155)))
        case Family.NUMBER:
            return (
                rng.randint(0, 3)
                if info.tp == T.ENUM
                else rng.randint(0, 7)
                if info.tp == T.SET
                else rng.getrandbits(rng.choice((1, 12, 64)))
            )
        case Family.FLOAT:
            return random_float(rng)
        case Family.DECIMAL:
            whole = max(info.flen - info.decimal, 0)
            digits = str(rng.randrange(10 ** rng.randint(0, whole))) if whole else "0"
            fraction = "".join(rng.choice("0123456789") for _ in range(info.decimal)) if rng.random() < 0.8 else "0" * info.decimal
            return rng.choice(("", "-")) + digits + ("." + fraction if info.decimal else "")
        case Family.TIME:
            moment = random_moment(rng, info.tp == T.TIMESTAMP)
            if info.tp in (T.DATE, T.NEWDATE):
                moment = Moment(*moment[:3])
            return pack_time(moment)
        case Family.DURATION:
            unit = rng.choice((1, 10**3, 10**9))
            return rng.randint(-(838 * 3600 + 3599) * 10**9 // unit, (838 * 3600 + 3599) * 10**9 // unit) * unit
        case Family.BYTES:
            return random_text(rng)
        case Family.JSON:
            return random_document(rng)
    return encode_vector([rng.uniform(-10, 10) for _ in range(rng.randrange(5))] + rng.choice(([], [1e-45, 3.4e38, 0.1])))


# Rows


def random_row(rng: random.Random, table: TableInfo, key_plains: dict[int, Plain]) -> bytes:
    """A row value: format 1 or 2, large or not, with checksum or not, columns missing, NULL, or unknown to the table."""
    plains: dict[int, Plain | None] = {}
    in_key = {table.pk_column.id} if table.pk_column else {i for i, plain in key_plains.items() if not _repeated(table, i, plain)}
    missing, nulls = rng.choice((0, 0, 0.2, 1)), rng.choice((0, 0.2, 0.5))
    for info in table.output_columns:
        if info.id in in_key or (info.id not in key_plains and rng.random() < missing):
            continue
        plains[info.id] = key_plains.get(info.id, None if rng.random() < nulls else random_plain(rng, info))
    if rng.random() < 0.15:
        return _format_1(rng, table, plains)
    stored = {i: None if plain is None else stored_bytes(table.columns_by_id[i], plain) for i, plain in plains.items()}
    for _ in range(rng.choice((0, 0, 1, 5))):
        stranger = rng.choice((200, 230, 256, 70_000)) + rng.randrange(50)
        if stranger not in table.columns_by_id:
            stored[stranger] = rng.choice((None, b"", b"stranger"))
    row = pack_row(stored)
    if rng.random() < 0.2:
        row = with_checksum(record_key(100, 1), row)
    return row


def _repeated(table: TableInfo, column_id: int, plain: Plain) -> bool:
    index = table.primary_index
    assert index is not None
    part = next(p for p, c in zip(index.columns, table.index_columns(index), strict=True) if c.id == column_id)
    return part.length >= 0 or needs_value(table.columns_by_id[column_id])


def _format_1(rng: random.Random, table: TableInfo, plains: dict[int, Plain | None]) -> bytes:
    items = list(plains.items())
    rng.shuffle(items)
    row = b""
    for i, plain in items:
        datum = bytes([DatumFlag.NULL]) if plain is None else format_1_datum(table.columns_by_id[i], plain)
        row += bytes([DatumFlag.VARINT]) + encode_varint(i) + datum
    for _ in range(rng.choice((0, 0, 2))):
        stranger = rng.choice((b"\x00", b"\x08\x02", b"\x09\x05", b"\x02\x04ab", b"\x05" + bytes(8)))
        row += bytes([DatumFlag.VARINT]) + encode_varint(200_000 + len(row)) + stranger
    return row or b"\x00"


def random_record(rng: random.Random, table: TableInfo, index: int = 0) -> RawRecord:
    """An insert, an update or a delete."""
    physical = 777 if table.partition else 100
    key_plains: dict[int, Plain] = {}
    if table.handle_kind is HandleKind.COMMON:
        assert table.primary_index is not None
        handle = b""
        for part, info in zip(table.primary_index.columns, table.index_columns(table.primary_index), strict=True):
            plain = random_plain(rng, info)
            key_plains[info.id] = plain
            if isinstance(plain, bytes):
                plain = sort_key(info, plain if part.length < 0 else plain[: part.length])
            handle += key_datum(info, plain)
        key = record_key(physical, handle)
    else:
        key = record_key(physical, rng.choice((0, 1, -1, (1 << 63) - 1, -(1 << 63), rng.randint(-(1 << 63), (1 << 63) - 1))))
    kind = rng.randrange(3)
    value = random_row(rng, table, key_plains) if kind < 2 else None
    old = random_row(rng, table, key_plains) if kind > 0 else None
    return RawRecord(key, value, old, 1, rng.randrange(1 << 60), index)


def maximal_varint(rng: random.Random) -> bytes:
    """A varint that no length fits: near 2^63 or 2^64 (zig-zagged or not), one of more than 64 bits, or one that never ends."""
    near = rng.choice((1 << 31, 1 << 32, 1 << 34, 1 << 62, 1 << 63, 1 << 64)) - rng.randint(1, 3) + rng.choice((0, 0, 2))
    match rng.randrange(8):
        case 0:
            return b"\xff" * rng.randint(9, 12)
        case 1:
            return b"\xff" * 9 + bytes([rng.choice((0x01, 0x02, 0x7F))])
        case 2:
            return b"\x80" * rng.randint(5, 11) + b"\x01"
    return encode_uvarint(near & (1 << 64) - 1)


LENGTH_FLAGS = (0x02, 0x08, 0x09, 0x0A, 0x0C, 0x0D, 0x14)
"""Flags of datums and kinds of documents that a varint or a count follows."""


def overlapped(rng: random.Random, row: bytearray) -> None:
    """Let a column of a row of format 2 end before it begins, so that values overlap: the last column ends where it did."""
    if len(row) < 6 or row[0] != 0x80:
        return
    count, nulls = struct.unpack_from("<HH", row, 2)
    size, code = (4, "<I") if row[1] & 1 else (2, "<H")
    ends = 6 + (count + nulls) * (4 if size == 4 else 1)
    if count < 2 or ends + count * size > len(row):
        return
    (last,) = struct.unpack_from(code, row, ends + (count - 1) * size)
    for i in range(count - 1):
        if rng.random() < 0.5:
            struct.pack_into(code, row, ends + i * size, rng.choice((0, last, last, rng.randint(0, last))))


def format_1_with_maximal_length(rng: random.Random, row: bytearray) -> None:
    """A column, known or not, whose value says that it is longer than anything can be, behind what the row has."""
    column = rng.choice((rng.randint(1, 40), 200_000 + rng.randrange(9)))
    own = row if row[:1] == b"\x08" else b""
    row[:] = (
        own + b"\x08" + encode_varint(column) + bytes([rng.choice(LENGTH_FLAGS)]) + maximal_varint(rng) + rng.randbytes(rng.randrange(40))
    )


def broken(rng: random.Random, record: RawRecord) -> RawRecord:
    """The record with some bytes of key or values changed, cut out or put in, with lengths that are too large, or values that overlap."""
    parts = [bytearray(record.key), record.value and bytearray(record.value), record.old_value and bytearray(record.old_value)]
    for _ in range(rng.randint(1, 3)):
        part = rng.choice([p for p in parts[rng.random() < 0.8 :] if p] or [parts[0]])
        assert part is not None
        at = rng.randrange(len(part) + 1)
        if rng.random() < 0.3:
            at = rng.randrange(min(len(part), 24) + 1)
        match rng.randrange(8):
            case 0 | 1:
                part[at : at + 1] = bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))])
            case 2:
                del part[at : at + rng.randint(1, 8)]
            case 3:
                part[at:at] = rng.randbytes(rng.randint(1, 8))
            case 4:
                places = [i + 1 for i, byte in enumerate(part) if byte in LENGTH_FLAGS]
                at = rng.choice(places) if places and rng.random() < 0.7 else at
                part[at : at + rng.randrange(3)] = maximal_varint(rng)
            case 5:
                if part is parts[0]:
                    part[at:at] = maximal_varint(rng)
                else:
                    format_1_with_maximal_length(rng, part)
            case 6:
                overlapped(rng, part)
            case _:
                del part[at:]
    return record._replace(
        key=bytes(parts[0] or b""),
        value=None if parts[1] is None else bytes(parts[1]),
        old_value=None if parts[2] is None else bytes(parts[2]),
    )
