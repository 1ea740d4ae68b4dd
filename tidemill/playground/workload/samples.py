"""Seeded values of every column type, as plain (stored) values: ordinary ones mostly, the edges of the type now and then."""

from __future__ import annotations

import json
import struct
from random import Random

from tidemill.tidb.rows.cells import Family, Plain, family
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.types.jsonbin import encode_json_text
from tidemill.tidb.types.times import Moment, pack_time
from tidemill.tidb.types.vectors import encode_vector

_INT_BITS = {MySQLType.TINY: 8, MySQLType.SHORT: 16, MySQLType.INT24: 24, MySQLType.LONG: 32, MySQLType.LONGLONG: 64}
_WORDS = (
    "tide",
    "mill",
    "wheel",
    "sluice",
    "miller",
    "grain",
    "flour",
    "ebb",
    "flood",
    "moon",
    "Mühle",
    "潮汐",
    "磨坊",
    "🌊",
    "quote'\"\\",
    "tab\tnew\nline",
)
_EDGE = 0.05
_NULL = 0.1


def sample(column: ColumnInfo, random: Random) -> Plain | None:
    """A value for a column; NULL sometimes where it is allowed."""
    if not column.not_null and random.random() < _NULL:
        return None
    return filled(column, random)


def filled(column: ColumnInfo, random: Random) -> Plain:
    """A value for a column, never NULL."""
    match family(column):
        case Family.INT:
            return _integer(column, random)
        case Family.YEAR:
            return random.choice((0, 1901, 2155)) if random.random() < _EDGE else random.randint(1970, 2069)
        case Family.NUMBER:
            return _number(column, random)
        case Family.FLOAT:
            return _float(column, random)
        case Family.DECIMAL:
            return _decimal(column, random)
        case Family.TIME:
            return _moment(column, random)
        case Family.DURATION:
            limit = 838 * 3600 + 59 * 60 + 59
            return random.randint(-limit, limit) * 1_000_000_000 + _fraction(column, random) * 1000
        case Family.BYTES:
            return _string(column, random)
        case Family.JSON:
            return encode_json_text(json.dumps(_document(random, 2), ensure_ascii=False))
        case Family.VECTOR:
            size = column.flen if column.flen > 0 else random.randint(0, 4)
            return encode_vector([round(random.uniform(-9, 9), 2) for _ in range(size)])


def _integer(column: ColumnInfo, random: Random) -> int:
    bits = 1 if column.flen == 1 and column.tp == MySQLType.TINY else _INT_BITS[MySQLType(column.tp)]
    low, high = (0, (1 << bits) - 1) if column.unsigned or bits == 1 else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if random.random() < _EDGE:
        return random.choice((low, high, 0))
    return random.randint(max(low, -100_000), min(high, 1_000_000))


def _number(column: ColumnInfo, random: Random) -> int:
    if column.tp == MySQLType.ENUM:
        return random.randint(1, len(column.elems))
    bits = len(column.elems) if column.tp == MySQLType.SET else column.flen
    return (1 << bits) - 1 if random.random() < _EDGE else random.getrandbits(bits)


def _float(column: ColumnInfo, random: Random) -> float:
    number = random.choice((0.0, 1e30, -1e-30)) if random.random() < _EDGE else round(random.uniform(-1e6, 1e6), 3)
    if column.unsigned:
        number = abs(number)
    return float(struct.unpack("<f", struct.pack("<f", number))[0]) if column.tp == MySQLType.FLOAT else number


def _decimal(column: ColumnInfo, random: Random) -> str:
    frac = max(column.decimal, 0)
    whole = (column.flen if column.flen > 0 else 10) - frac
    digits = random.randint(0, 10 ** (whole + frac) - 1) if random.random() < _EDGE else random.randint(0, 10 ** min(whole + frac, 9) - 1)
    text = str(digits).rjust(frac + 1, "0")
    sign = "-" if random.random() < 0.3 and digits and not column.unsigned else ""
    return f"{sign}{text[:-frac]}.{text[-frac:]}" if frac else sign + text


def _moment(column: ColumnInfo, random: Random) -> int:
    if random.random() < _EDGE and column.tp != MySQLType.TIMESTAMP:
        return random.choice((0, pack_time(Moment(9999, 12, 31)), pack_time(Moment(1000, 1, 1))))
    day = Moment(random.randint(1971, 2037), random.randint(1, 12), random.randint(1, 28))
    if column.tp in (MySQLType.DATE, MySQLType.NEWDATE):
        return pack_time(day)
    clock = (random.randrange(24), random.randrange(60), random.randrange(60), _fraction(column, random))
    return pack_time(Moment(day.year, day.month, day.day, *clock))


def _fraction(column: ColumnInfo, random: Random) -> int:
    """Microseconds with as many digits as the column has."""
    step = 10 ** (6 - max(column.decimal, 0))
    return random.randrange(0, 1_000_000, step) if step < 1_000_000 else 0


def _string(column: ColumnInfo, random: Random) -> bytes:
    limit = min(column.flen, 400) if column.flen > 0 else 400
    length = limit if random.random() < _EDGE else random.randint(0, min(limit, 24))
    if column.is_binary:
        data = random.randbytes(length)
        return data.ljust(column.flen, b"\0") if column.tp == MySQLType.STRING else data
    if column.charset not in ("utf8mb4", "gbk"):
        return bytes(random.choices(b"abcdefghijklmnop ", k=length)).rstrip(b" ")
    words = _WORDS if column.charset == "utf8mb4" else tuple(w for w in _WORDS if "🌊" not in w and "ü" not in w)
    text = ""
    while len(text) < length:
        text += random.choice(words) + " "
    text = text[:length]
    if column.tp == MySQLType.TINY_BLOB:  # its length is in bytes
        return text.encode()[: column.flen].decode(errors="ignore").encode()
    return (text.rstrip(" ") if column.tp == MySQLType.STRING else text).encode()


def _document(random: Random, depth: int) -> object:
    kind = random.randrange(7 if depth else 5)
    match kind:
        case 0:
            return random.randint(-1000, 1 << 40)
        case 1:
            return random.choice(_WORDS)
        case 2:
            return random.choice((True, False, None))
        case 3:
            return round(random.uniform(-100, 100), 2)
        case 4:
            return ""
        case 5:
            return [_document(random, depth - 1) for _ in range(random.randrange(4))]
    return {random.choice(_WORDS): _document(random, depth - 1) for _ in range(random.randrange(4))}
