"""Values whose kernels have paths of their own for what is common: the reference's text on each side of every border."""

from __future__ import annotations

import ctypes
import math
import mmap
import random

import numpy as np
import pytest

from tests.support.schema.tables import column, table
from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.codec import encode_float
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.types.jsonbin import encode_json


def same_as_reference(tp: MySQLType, stored: list[bytes], **parts: object) -> None:
    info = table([column(MySQLType.LONGLONG), column(tp, **parts)], pk_is_handle=True)
    program = TableProgram("s", "t", info)
    records = [RawRecord(record_key(100, i + 1), pack_row({2: value}), None, 1, 2, 0) for i, value in enumerate(stored)]
    rows, _keep = row_array(records)
    encoder = OpenRowEncoder([program], EncodingOptions(max_batch_size=1, max_message_bytes=1 << 30))
    got = [(m.value or b"")[8:] for m in encoder.encode(rows, np.array([0, len(rows)], np.int32)).to_list()]
    want = [program.open.row(r.key, r.value, None, 2)[1] for r in records]
    assert [(a, b) for a, b in zip(got, want, strict=True) if a != b] == []
    assert encoder.slow_rows == 0


@pytest.mark.parametrize("tp", [MySQLType.DOUBLE, MySQLType.FLOAT])
def test_decimals_and_their_neighbours(tp: MySQLType) -> None:
    rng = random.Random(1)
    numbers = []
    for digits in range(1, 18):
        for places in range(20):
            number = rng.randrange(10**digits) / 10**places
            numbers += [number, -number, math.nextafter(number, math.inf), math.nextafter(number, 0)]
    numbers += [x * 10.0**e for x in (1, 0.99999, 1.00001) for e in range(-8, 24)]
    numbers += [
        1e11 - 0.0001,
        1e11 - 0.00005,
        1e11,
        1e11 + 0.5,
        0.0001,
        0.00005,
        0.00015,
        0.99995,
        9999.99995,
        2**53 + 2.0,
        2**53 - 0.5,
        123456789012345.6,
    ]
    same_as_reference(tp, [encode_float(n) for n in numbers])


@pytest.mark.parametrize("binary", [False, True])
def test_text_of_every_length_in_base64(binary: bool) -> None:
    rng = random.Random(2)
    charset = {} if binary else {"Charset": "utf8mb4", "Collate": "utf8mb4_bin"}
    same_as_reference(
        MySQLType.BLOB, [rng.randbytes(n) for n in range(140)] + [rng.randbytes(n) for n in (1000, 4095, 4096, 4097, 70_000)], **charset
    )


def test_binary_strings() -> None:
    rng = random.Random(3)
    binary = {"Charset": "binary", "Collate": "binary"}
    texts = [bytes(rng.choices(b'ab\x7f<\x00\\"\xc3\xa9\xe2\x80\xa8\xf0\x9f\x99\x82\xff', k=n)) for n in range(130) for _ in range(3)]
    texts += [bytes([c]) * n for c in range(256) for n in (1, 31, 33)] + [rng.randbytes(n) for n in range(100)]
    texts += [b"a" * n + "é\u200b𝄞".encode() + b"b" * 40 for n in range(70)]
    same_as_reference(MySQLType.VARCHAR, texts, **binary)


def test_documents() -> None:
    rng = random.Random(4)

    def text() -> str:
        return "".join(rng.choices('abcdefg<é"\\\n😀', (30,) * 7 + (1,) * 6, k=rng.choice((0, 1, 5, 31, 32, 33, 80, 200))))

    def value(depth: int) -> object:
        scalar = rng.choice((None, True, False, rng.randrange(-(1 << 63), 1 << 63), rng.random(), round(rng.uniform(-1e6, 1e6), 2), text()))
        if depth == 0 or rng.random() < 0.5:
            return scalar
        return (
            [value(depth - 1) for _ in range(rng.randrange(5))]
            if rng.random() < 0.5
            else {text(): value(depth - 1) for _ in range(rng.randrange(5))}
        )

    same_as_reference(MySQLType.JSON, [encode_json(value(4)) for _ in range(600)])


def test_values_at_the_end_of_a_page() -> None:
    """Wide reads stop at the page: the one behind the value cannot be read."""
    room = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(room))
    libc = ctypes.CDLL(None, use_errno=True)
    end = base + mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0) == 0
    rng = random.Random(5)
    info = table([column(MySQLType.LONGLONG), column(MySQLType.BLOB), column(MySQLType.JSON), column(MySQLType.VARCHAR)], pk_is_handle=True)
    program = TableProgram("s", "t", info)
    encoder = OpenRowEncoder([program])
    for n in range(120):
        for last in (2, 3, 4):
            columns = {2: rng.randbytes(n), 3: encode_json({"k" * (n % 40): "v" * n}), 4: b"x" * n}
            # the column with the highest id lies at the end of the row
            record = RawRecord(record_key(100, n), pack_row({c: v for c, v in columns.items() if c <= last}), None, 1, 2, 0)
            rows, _keep = row_array([record])
            want = encoder.encode(rows, np.array([0, 1], np.int32)).to_list()
            size = len(record.value or b"")
            ctypes.memmove(end - size, int(rows[0]["value"]), size)
            rows[0]["value"] = end - size
            assert encoder.encode(rows, np.array([0, 1], np.int32)).to_list() == want
    assert libc.mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
