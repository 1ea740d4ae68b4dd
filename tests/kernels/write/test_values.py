"""Parts of the encode kernels by themselves: zones, numbers, texts."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest

from tests.support.schema.tables import column, table
from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.kernels.write.tables import O_CRC, O_POW10, POW10_MIN, TABLES, crc_state
from tidemill.kernels.write.zones import zone_table
from tidemill.protocols.common.gotext import go_quote, json_string, printable_ranges, runes
from tidemill.protocols.open import decode
from tidemill.tidb.codec import encode_float
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import MySQLType


def offset_of(words: np.ndarray, second: int) -> int:
    """What the kernel's search finds."""
    periods = words[3:].reshape(-1, 2)
    return int(periods[np.searchsorted(periods[:, 0], second, "right") - 1, 1])


@pytest.mark.parametrize("name", sorted(available_timezones())[::23])
def test_zone_tables(name: str) -> None:
    zone = ZoneInfo(name)
    words = zone_table(zone)
    rng = random.Random(name)
    for second in [rng.randrange(1 << 31) for _ in range(300)]:
        offset = datetime.fromtimestamp(second, zone).utcoffset()
        assert offset is not None
        assert (0 if words is None else offset_of(words, second)) == offset.total_seconds()
    for first, offset in () if words is None else words[3:].reshape(-1, 2)[1:].tolist():
        assert offset_of(words, first) == offset == (datetime.fromtimestamp(first, zone).utcoffset() or timedelta()).total_seconds()
        assert offset_of(words, first - 1) == (datetime.fromtimestamp(first - 1, zone).utcoffset() or timedelta()).total_seconds()


def test_zones_without_changes() -> None:
    assert zone_table(UTC) is None
    assert zone_table(ZoneInfo("UTC")) is None
    assert zone_table(timezone(timedelta(hours=8))).tolist()[0::4] == [1, 28800]  # type: ignore[union-attr]


def test_tables() -> None:
    assert crc_state(b"123456789") ^ 0xFFFFFFFF == 0xCBF43926
    assert int.from_bytes(TABLES[O_CRC + 4 : O_CRC + 8].tobytes(), "little") == 0x77073096
    one = O_POW10 - POW10_MIN * 16
    assert int.from_bytes(TABLES[one : one + 8].tobytes(), "little") == 1 << 63


def encoded(tp: MySQLType, stored: list[bytes]) -> list[object]:
    """What a consumer reads of stored values of a type, through kernel and decoder; also checks against the reference."""
    info = table([column(MySQLType.LONGLONG), column(tp)], pk_is_handle=True)
    program = TableProgram("s", "t", info)
    records = [RawRecord(record_key(100, i + 1), pack_row({2: value}), None, 1, 2, 0) for i, value in enumerate(stored)]
    rows, _keep = row_array(records)
    encoder = OpenRowEncoder([program])
    events = []
    for message in encoder.encode(rows, np.array([0, len(rows)], np.int32)).to_list():
        events += decode(message.key, message.value or b"")
    assert encoder.slow_rows == 0
    return [event.after[1].value for event in events]  # type: ignore[union-attr]


def test_floats_come_back() -> None:
    """Shortest digits that read back to the same number, over the whole range."""
    rng = random.Random(11)
    doubles = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(6_000)]
    doubles = [d for d in doubles if np.isfinite(d)] + [2.0**e for e in range(-1074, 1024)] + [10.0**e for e in range(-323, 309)]
    assert encoded(MySQLType.DOUBLE, [encode_float(d) for d in doubles]) == doubles
    singles = [float(np.float32(struct.unpack("<f", rng.randbytes(4))[0])) for _ in range(6_000)]
    singles = [f for f in singles if np.isfinite(f)]
    assert encoded(MySQLType.FLOAT, [encode_float(f) for f in singles]) == singles


def test_integers_come_back() -> None:
    rng = random.Random(12)
    numbers = [rng.randint(-(1 << 63), (1 << 63) - 1) >> rng.randrange(64) for _ in range(5000)]
    numbers += [s * 10**e + d for e in range(19) for d in (-1, 0, 1) for s in (1, -1)]
    assert encoded(MySQLType.LONGLONG, [n.to_bytes(8, "little", signed=True) for n in numbers]) == numbers


def test_strings_of_every_length_and_rune() -> None:
    texts = [bytes([c]) * n for n in range(70) for c in b'a"<\x01']
    texts += ["".join(map(chr, range(first, first + 16))).encode() for first in [*range(0, 0xD800, 16), *range(0xE000, 0x12000, 16)]]
    assert encoded(MySQLType.VARCHAR, texts) == texts


def test_runes_are_gos() -> None:
    assert [point for point, _ in runes(b"a\xc3\xa9\xe2\x80\xf0\x9f\x99\x82\xff\xed\xa0\x80")] == [97, 233, -1, -1, 0x1F642, -1, -1, -1, -1]
    assert json_string(b"<\xe2\x80\xa8\x08\x7f/\xff>") == b'"\\u003c\\u2028\\b\x7f/\\ufffd\\u003e"'
    assert json_string(b"<>", html=False) == b'"<>"'
    assert (
        go_quote('\a\x00\x7f é\u200b\xa0\U000e0001\\"'.encode() + b"\xff") == b'\\a\\x00\\x7f \xc3\xa9\\u200b\\u00a0\\U000e0001\\\\\\"\\xff'
    )
    assert (0x20, 0x7E) in list(printable_ranges())
