"""Text becomes UTF-8 as by the reference, wherever a rune or a wrong byte lies in a block of 32; lengths of every size are right."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.golden.text_rows import encode_all
from tests.support.rows.random_rows import random_record, random_table
from tidemill.kernels.canal import CanalRowEncoder
from tidemill.kernels.canal.text import is_utf8, w_utf8
from tidemill.kernels.intrinsics import entry
from tidemill.kernels.rows.program import TableProgram
from tidemill.protocols.canal.encode import packet
from tidemill.protocols.canal.values import utf8
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.types.jsonbin import encode_json

PAGE = 4096
RUNES = ("a", "é", "中", "😀", "\u0800", "\ud7ff", "\ue000", "\U00010000", "\U0010ffff", "b" * 31, "中" * 12)
WRONG = (
    *(b"\x80", b"\xbf", b"\xc0", b"\xc1", b"\xf5", b"\xff", b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x98"),
    *(b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xc0\x80"),
)


@entry(4)
def written(out, at, size, scratch):
    return w_utf8(out, at, size, scratch) - out


@entry(3)
def valid(at, size, scratch):
    return is_utf8(at, size, scratch)


class Writer:
    """Writes text that lies at any place of a page."""

    def __init__(self) -> None:
        self._pages, self._out, self._scratch = np.zeros(3 * PAGE, np.uint8), np.zeros(4 * PAGE, np.uint8), np.zeros(128, np.uint8)
        self._page = -self._pages.ctypes.data % PAGE

    def __call__(self, text: bytes, offset: int) -> tuple[bytes, bool]:
        begin = self._page + offset
        self._pages[:] = 0xE4
        self._pages[begin : begin + len(text)] = np.frombuffer(text, np.uint8)
        at, scratch = self._pages.ctypes.data + begin, self._scratch.ctypes.data
        size = written(self._out.ctypes.data, at, len(text), scratch)
        return self._out[:size].tobytes(), bool(valid(at, len(text), scratch))


def is_valid(text: bytes) -> bool:
    """Whether Python reads it."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_any_text_at_any_place() -> None:
    rng, write = random.Random(31), Writer()
    count = 0
    for _ in range(6000):
        parts = [rng.choice(RUNES).encode() for _ in range(rng.randrange(12))]
        if rng.random() < 0.5:
            parts.insert(rng.randrange(len(parts) + 1), rng.choice(WRONG))
        text = b"".join(parts)
        want = utf8(text), is_valid(text)
        assert write(text, rng.choice((rng.randrange(64), PAGE - len(text), PAGE - rng.randrange(40)))) == want, text
        count += want[1]
    assert 2000 < count < 4000


@pytest.mark.parametrize("before", [0, 30, 31])
def test_any_two_bytes_and_what_may_follow(before: int) -> None:
    """Every pair that is not ASCII, with a tail that continues it; over the border of two blocks too."""
    write = Writer()
    for first in range(0x80, 0x100):
        for second in range(0x70, 0xD0):
            text = b"a" * before + bytes((first, second)) + (b"\x80\x80" if first >= 0xF0 else b"\x80" if first >= 0xE0 else b"")
            assert write(text, 5) == (utf8(text), is_valid(text)), text


def test_lengths_of_every_size() -> None:
    """Texts whose lengths take one more byte than was expected, or one less: bytes that become two or three, documents of any kind."""
    table = random_table(random.Random(4), (MySQLType.VARCHAR, MySQLType.BLOB, MySQLType.JSON))
    kinds = {c.tp: c.id for c in table.output_columns}
    record = random_record(random.Random(4), table)._replace(old_value=None)
    encoder = CanalRowEncoder([TableProgram("s", "t", table)])
    sizes = (*range(20, 135), *range(5400, 5500, 7), *range(8150, 8200, 7), *range(16300, 16400, 7))
    for size in sizes:
        for text, document in (
            (b"a" * size, ["x" * size]),
            ("é".encode() * (size // 2), [False] * (size // 7)),
            (b"\xff" * size, [7] * (size // 3)),
        ):
            cells = {kinds[MySQLType.VARCHAR]: text, kinds[MySQLType.BLOB]: text, kinds[MySQLType.JSON]: encode_json(document)}
            row = record._replace(value=pack_row(cells))
            assert encode_all(encoder, [row])[0].value == packet([encoder.entry_of(row)])
    assert encoder.slow_rows == 0
