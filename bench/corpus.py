"""Corpora of raw row changes: 60 % inserts, 30 % updates with old values, 10 % deletes, in transactions of 1 to 16 rows.

Three tables: `narrow` (sysbench), `mixed` (12 columns of common types), `wide` (50 columns of nearly all types). `load` takes a
recorded corpus (NAME.parquet and NAME.tableinfo.json) where a folder has one, and makes one up otherwise, always the same for
the same seed: values in row format 2 as TiDB writes them, NULLs left out, about as many bytes a row as the recorded ones.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NAMES = ("narrow", "mixed", "wide")
MADE_UP_ROWS = {"narrow": 100_000, "mixed": 60_000, "wide": 20_000}
POOL = 512  # different values a column has
TABLE_IDS = {"narrow": 112, "mixed": 114, "wide": 116}

UNSIGNED, NOT_NULL, BINARY = 32, 1, 128
TEXT = (
    "order payment review express normal high low pending approved rejected store region customer credentials refund manager quantity "
    "discount account number job naïve Größe café 上海 北京 with and the to for was"
)
WORDS = TEXT.split()

Cell = bytes | None
Draw = Callable[[random.Random], bytes]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Changes of one table, ordered by (transaction, handle)."""

    name: str
    table_info: dict[str, Any]  # as TiDB stores it, with the id and name of the corpus
    op: np.ndarray[Any, Any]  # uint8: 1 put, 2 delete
    transaction: np.ndarray[Any, Any]  # int64: ascending numbers from 0
    handle: np.ndarray[Any, Any]  # int64
    value: pa.Array  # binary, null for a delete
    old_value: pa.Array  # binary, null for an insert

    def __len__(self) -> int:
        return len(self.op)


def load(name: str, folder: Path | None = None, seed: int = 1) -> Corpus:
    """The recorded corpus in the folder, or a made-up one."""
    if name not in NAMES:
        raise ValueError(f"{name!r} is not a corpus; there are {', '.join(NAMES)}")
    if folder is not None and (folder / f"{name}.parquet").is_file():
        return _recorded(name, folder)
    return make(name, MADE_UP_ROWS[name], seed)


def _recorded(name: str, folder: Path) -> Corpus:
    rows = pq.read_table(folder / f"{name}.parquet").combine_chunks()
    keys = rows["key"].combine_chunks()
    matrix = np.frombuffer(keys.buffers()[2], np.uint8).reshape(-1, 19)
    handles = matrix[:, 11:].copy().view(">u8").ravel().astype(np.uint64) ^ np.uint64(1 << 63)
    commit = rows["commit_ts"].to_numpy()
    transaction = np.concatenate([[0], np.cumsum(commit[1:] != commit[:-1])])
    info = json.loads((folder / f"{name}.tableinfo.json").read_text(encoding="utf-8"))
    one = [rows[c].combine_chunks() for c in ("value", "old_value")]
    return Corpus(name, info, rows["op"].to_numpy().astype(np.uint8), transaction, handles.view(np.int64), *one)


# ---- made up -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a made-up table and how its values are drawn, as stored in row format 2."""

    name: str
    tp: int
    flag: int
    flen: int
    decimal: int
    draw: Draw
    charset: str = "binary"
    elems: tuple[str, ...] | None = None
    default: str | None = None

    @property
    def nulls(self) -> float:
        return 0.0 if self.flag & NOT_NULL else 0.2


def make(name: str, rows: int, seed: int = 1) -> Corpus:
    """About `rows` changes, the same for the same seed."""
    rng = random.Random(f"{name} {seed}")
    columns = COLUMNS[name]()
    pools = [[c.draw(rng) for _ in range(POOL)] for c in columns]
    live: list[int] = []
    cells: dict[int, list[Cell]] = {}
    stored: dict[int, bytes] = {}
    op: list[int] = []
    transaction: list[int] = []
    handle: list[int] = []
    values: list[Cell] = []
    olds: list[Cell] = []
    number = 0
    while len(op) < rows:
        touched: dict[int, tuple[int, Cell, Cell]] = {}
        for _ in range(rng.randint(1, 16)):
            choice = rng.random()
            if choice < 0.6 or len(live) < 64:
                h = len(cells) + 1
                cells[h] = [_drawn(c, pool, rng) for c, pool in zip(columns, pools, strict=True)]
                stored[h] = row_value(cells[h])
                live.append(h)
                touched[h] = 1, stored[h], None
                continue
            at = rng.randrange(len(live))
            h = live[at]
            if h in touched:
                continue
            old = stored[h]
            if choice < 0.9:
                for k in rng.sample(range(len(columns)), max(1, len(columns) // 8)):
                    cells[h][k] = _drawn(columns[k], pools[k], rng)
                stored[h] = row_value(cells[h])
                touched[h] = 1, stored[h], old
            else:
                live[at] = live[-1]
                live.pop()
                touched[h] = 2, None, old
        for h in sorted(touched):
            o, value, old_value = touched[h]
            op.append(o)
            transaction.append(number)
            handle.append(h)
            values.append(value)
            olds.append(old_value)
        number += 1
    return Corpus(
        name,
        table_info(name, columns),
        np.array(op, np.uint8),
        np.array(transaction, np.int64),
        np.array(handle, np.int64),
        pa.array(values, pa.binary()),
        pa.array(olds, pa.binary()),
    )


def _drawn(column: Column, pool: Sequence[bytes], rng: random.Random) -> Cell:
    return None if column.nulls and rng.random() < column.nulls else pool[int(rng.random() * POOL)]


def row_value(cells: Sequence[Cell]) -> bytes:
    """Row format 2 of columns 2, 3, …; the first one is the handle and not stored, nor are NULLs without a default."""
    ids = bytes(i + 2 for i, cell in enumerate(cells) if cell is not None)
    present = [cell for cell in cells if cell is not None]
    ends, end = [], 0
    for cell in present:
        end += len(cell)
        ends.append(end)
    n = len(present)
    return struct.pack(f"<BBHH{n}s{n}H", 0x80, 0, n, 0, ids, *ends) + b"".join(present)


def table_info(name: str, columns: Sequence[Column]) -> dict[str, Any]:
    """TableInfo as TiDB stores it: a bigint primary key `id` that is the handle, then the columns."""
    key = Column("id", 8, 4099, 20, 0, _no_value)
    return {
        "id": TABLE_IDS[name],
        "name": {"O": name, "L": name},
        "charset": "utf8mb4",
        "collate": "utf8mb4_bin",
        "cols": [_column_info(i, c) for i, c in enumerate([key, *columns])],
        "index_info": None,
        "state": 5,
        "pk_is_handle": True,
        "is_common_handle": False,
        "max_col_id": len(columns) + 1,
        "update_timestamp": 470_000_000_000_000_000,
        "partition": None,
        "version": 5,
    }


def _column_info(offset: int, column: Column) -> dict[str, Any]:
    collate = "utf8mb4_bin" if column.charset == "utf8mb4" else "binary"
    field = {"Tp": column.tp, "Flag": column.flag, "Flen": column.flen, "Decimal": column.decimal, "Charset": column.charset}
    field |= {"Collate": collate, "Elems": list(column.elems) if column.elems else None, "ElemsIsBinaryLit": None, "Array": False}
    named = {"id": offset + 1, "name": {"O": column.name, "L": column.name.lower()}, "offset": offset}
    rest = {"origin_default": None, "default": column.default, "generated_expr_string": "", "state": 5, "hidden": False, "version": 2}
    return {**named, **rest, "type": field}


def _no_value(rng: random.Random) -> bytes:
    raise AssertionError("the handle is not stored")


# ---- values as stored ----------------------------------------------------------------------------------------------


def uint_bytes(value: int) -> bytes:
    """1, 2, 4 or 8 bytes, little endian."""
    size = next(n for n in (1, 2, 4, 8) if value < 1 << 8 * n)
    return value.to_bytes(size, "little")


def int_bytes(value: int) -> bytes:
    """1, 2, 4 or 8 bytes, little endian, two's complement."""
    size = next(n for n in (1, 2, 4, 8) if -(1 << 8 * n - 1) <= value < 1 << 8 * n - 1)
    return value.to_bytes(size, "little", signed=True)


def double_bytes(value: float) -> bytes:
    """Memcomparable."""
    bits = struct.unpack(">Q", struct.pack(">d", value))[0]
    return struct.pack(">Q", bits | 1 << 63 if value >= 0 else ~bits & (1 << 64) - 1)


def decimal_bytes(unscaled: int, precision: int, scale: int) -> bytes:
    """Precision, scale and MySQL's binary decimal of unscaled · 10^-scale."""
    digits = f"{abs(unscaled):0{precision}d}"
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    head = len(whole) % 9
    groups = [whole[:head], *(whole[i : i + 9] for i in range(head, len(whole), 9))]
    groups += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    data = bytearray(b"".join(int(g).to_bytes(sizes[len(g)], "big") for g in groups if g))
    if unscaled < 0:
        data = bytearray(b ^ 0xFF for b in data)
    data[0] ^= 0x80
    return bytes([precision, scale]) + bytes(data)


def time_bytes(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micro: int = 0) -> bytes:
    """Packed time."""
    return uint_bytes((((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6 | second) << 24 | micro)


def json_bytes(value: Any) -> bytes:
    """Type code and binary JSON."""
    code, body = _json(value)
    return bytes([code]) + body


def _json(value: Any) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([{None: 0, True: 1, False: 2}[value]])
    if isinstance(value, int):
        return 9, struct.pack("<q", value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        data = value.encode()
        size = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])
        return 12, size + data
    keys = sorted(k.encode() for k in value) if isinstance(value, dict) else []
    items = [_json(value[k.decode()]) for k in keys] if isinstance(value, dict) else [_json(v) for v in value]
    at = 8 + 6 * len(keys) + 5 * len(items)
    heads, data = b"", b"".join(keys)
    for k in keys:
        heads += struct.pack("<IH", at, len(k))
        at += len(k)
    for code, body in items:
        if code == 4:
            heads += bytes([code]) + body + b"\0\0\0"
            continue
        heads += bytes([code]) + struct.pack("<I", at)
        data += body
        at += len(body)
    return (1 if isinstance(value, dict) else 3), struct.pack("<II", len(items), at) + heads + data


def _ints(bits: int, *, unsigned: bool = False) -> Draw:
    if unsigned:
        return lambda rng: uint_bytes(rng.getrandbits(rng.randint(1, bits)))
    return lambda rng: int_bytes(rng.getrandbits(rng.randint(1, bits - 1)) * rng.choice((1, -1)))


def _decimals(precision: int, scale: int) -> Draw:
    return lambda rng: decimal_bytes(rng.randrange(10 ** rng.randint(2, precision)) * rng.choice((1, -1)), precision, scale)


def _text(low: int, high: int) -> Draw:
    def draw(rng: random.Random) -> bytes:
        size, text = rng.randint(low, high), ""
        while len(text) < size:
            text += rng.choice(WORDS) + " "
        return text[:size].strip().encode()

    return draw


def _digits(groups: int, size: int) -> Draw:
    return lambda rng: "-".join(f"{rng.randrange(10**size):0{size}d}" for _ in range(groups)).encode()


def _blob(low: int, high: int) -> Draw:
    return lambda rng: rng.randbytes(rng.randint(low, high))


def _times(kind: str, digits: int = 0) -> Draw:
    def draw(rng: random.Random) -> bytes:
        date = rng.randint(1990, 2037), rng.randint(1, 12), rng.randint(1, 28)
        if kind == "date":
            return time_bytes(*date)
        micro = rng.randrange(10**digits) * 10 ** (6 - digits)
        return time_bytes(*date, rng.randrange(24), rng.randrange(60), rng.randrange(60), micro)

    return draw


def _document(rng: random.Random) -> bytes:
    city, tags = rng.choice(WORDS), [rng.choice(WORDS) for _ in range(rng.randint(1, 4))]
    user = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(8))
    address = {"city": city, "zip": f"{rng.randrange(10**6):06d}"}
    return json_bytes(
        {
            "user": user,
            "n": rng.randrange(10**5),
            "score": rng.randrange(10**4) / 100,
            "ok": rng.random() < 0.5,
            "addr": address,
            "tags": tags,
        }
    )


def _narrow() -> list[Column]:
    return [
        Column("k", 3, NOT_NULL, 11, 0, lambda rng: int_bytes(rng.randrange(1, 10**6)), default="0"),
        Column("c", 254, NOT_NULL, 120, 0, _digits(10, 11), "utf8mb4", default=""),
        Column("pad", 254, NOT_NULL, 60, 0, _digits(5, 11), "utf8mb4", default=""),
    ]


_STATES = ("new", "paid", "shipped", "done", "void")


def _mixed() -> list[Column]:
    return [
        Column("a", 3, 4097, 11, 0, _ints(32)),
        Column("b", 8, UNSIGNED, 20, 0, _ints(64, unsigned=True)),
        Column("c", 246, 0, 18, 4, _decimals(18, 4)),
        Column("d", 5, 0, 22, -1, lambda rng: double_bytes(rng.uniform(-1e6, 1e6))),
        Column("e", 15, 0, 64, 0, _text(10, 60), "utf8mb4"),
        Column("f", 252, 0, 65535, 0, _text(40, 200), "utf8mb4"),
        Column("g", 12, BINARY, 26, 6, _times("datetime", 6)),
        Column("h", 7, BINARY | NOT_NULL, 19, 0, _times("timestamp"), default="CURRENT_TIMESTAMP"),
        Column("i", 10, BINARY, 10, 0, _times("date")),
        Column("j", 245, BINARY, 4294967295, 0, _document),
        Column("k", 247, 0, 7, 0, lambda rng: uint_bytes(rng.randint(1, 5)), "utf8mb4", elems=_STATES),
    ]


def _wide() -> list[Column]:
    draws: list[tuple[int, int, int, int, Draw, str, tuple[str, ...] | None]] = [
        (3, 4097, 11, 0, _ints(32), "", None),
        (8, 4097, 20, 0, _ints(64), "", None),
        (3, 0, 11, 0, _ints(32), "", None),
        (8, 0, 20, 0, _ints(64), "", None),
        (3, 0, 11, 0, _ints(32), "", None),
        (8, 0, 20, 0, _ints(64), "", None),
        (1, 4097, 4, 0, _ints(8), "", None),
        (1, UNSIGNED, 3, 0, _ints(8, unsigned=True), "", None),
        (2, 0, 6, 0, _ints(16), "", None),
        (9, UNSIGNED, 8, 0, _ints(24, unsigned=True), "", None),
        (3, 4129, 10, 0, _ints(32, unsigned=True), "", None),
        (8, UNSIGNED, 20, 0, _ints(64, unsigned=True), "", None),
        (8, 4129, 20, 0, _ints(64, unsigned=True), "", None),
        (246, 0, 10, 2, _decimals(10, 2), "", None),
        (246, 4097, 18, 4, _decimals(18, 4), "", None),
        (246, 0, 38, 10, _decimals(38, 10), "", None),
        (246, 0, 9, 0, _decimals(9, 0), "", None),
        (5, 0, 22, -1, lambda rng: double_bytes(rng.uniform(-1e9, 1e9)), "", None),
        (5, 4097, 22, -1, lambda rng: double_bytes(rng.uniform(-1, 1)), "", None),
        (4, 0, 12, -1, lambda rng: double_bytes(float(np.float32(rng.uniform(-1e3, 1e3)))), "", None),
        (15, 0, 16, 0, _text(4, 16), "utf8mb4", None),
        (15, 4097, 32, 0, _text(8, 32), "utf8mb4", None),
        (15, 4097, 32, 0, _text(8, 32), "utf8mb4", None),
        (15, 0, 64, 0, _text(10, 60), "utf8mb4", None),
        (15, 0, 64, 0, _text(10, 60), "utf8mb4", None),
        (15, 0, 128, 0, _text(20, 100), "utf8mb4", None),
        (15, 0, 128, 0, _text(20, 100), "utf8mb4", None),
        (15, 0, 255, 0, _text(40, 120), "utf8mb4", None),
        (254, 0, 8, 0, _text(3, 8), "utf8mb4", None),
        (254, 4097, 36, 0, _digits(4, 8), "utf8mb4", None),
        (252, 0, 65535, 0, _text(40, 160), "utf8mb4", None),
        (250, 0, 16777215, 0, _text(40, 160), "utf8mb4", None),
        (15, BINARY, 32, 0, _blob(4, 32), "", None),
        (252, BINARY, 65535, 0, _blob(20, 80), "", None),
        (254, BINARY, 16, 0, _blob(16, 16), "", None),
        (12, BINARY, 19, 0, _times("datetime"), "", None),
        (12, BINARY, 23, 3, _times("datetime", 3), "", None),
        (12, 4225, 26, 6, _times("datetime", 6), "", None),
        (7, BINARY | NOT_NULL, 19, 0, _times("timestamp"), "", None),
        (7, BINARY, 26, 6, _times("timestamp", 6), "", None),
        (10, BINARY, 10, 0, _times("date"), "", None),
        (10, 4225, 10, 0, _times("date"), "", None),
        (11, BINARY, 10, 0, lambda rng: int_bytes(rng.randrange(-3_000_000, 3_000_000) * 10**9), "", None),
        (13, 96, 4, 0, lambda rng: int_bytes(rng.randint(1950, 2050)), "", None),
        (245, BINARY, 4294967295, 0, _document, "", None),
        (247, 0, 1, 0, lambda rng: uint_bytes(rng.randint(1, 6)), "utf8mb4", ("a", "b", "c", "d", "e", "f")),
        (248, 0, 26, 0, lambda rng: uint_bytes(rng.randrange(32)), "utf8mb4", ("red", "green", "blue", "black", "white")),
        (16, UNSIGNED, 16, 0, lambda rng: uint_bytes(rng.getrandbits(16)), "", None),
        (1, NOT_NULL, 1, 0, lambda rng: int_bytes(rng.randrange(2)), "", None),
    ]
    found = [
        Column(f"c{i + 1:02d}", tp, flag, flen, dec, draw, cs or "binary", el)
        for i, (tp, flag, flen, dec, draw, cs, el) in enumerate(draws)
    ]
    found[-1] = Column("c49", 1, NOT_NULL, 1, 0, draws[-1][4], default="0")
    return found


COLUMNS: dict[str, Callable[[], list[Column]]] = {"narrow": _narrow, "mixed": _mixed, "wide": _wide}
