"""HPACK by the kernel and by the library, on blocks of an encoder, of every form, and on broken ones."""

from __future__ import annotations

import random

import hpack
import numpy as np
import pytest
from crc32c import crc32c

from tests.support.thorough import FUZZ
from tidemill.binlog.groups import Groups
from tidemill.binlog.http2.headers import KernelHeaders, PeerFault, PlainHeaders
from tidemill.binlog.messages import Binlog, BinlogType, Head
from tidemill.binlog.valuelog import frame
from tidemill.kernels.pump import layout as L

ROUNDS = 300 * FUZZ
NAMES = [b":method", b":path", b":scheme", b":authority", b"content-type", b"grpc-encoding", b"grpc-timeout", b"te", b"x", b"x-long" * 20]
VALUES = [
    b"POST", b"GET", L.WRITE_PATH, L.PULL_PATH, b"/", b"application/grpc", b"application/grpc+proto", b"application/grpcx", b"identity",
    b"gzip", b"14999953u", b"", b"v" * 300, bytes(range(32, 127)),
]  # fmt: skip


def both() -> tuple[KernelHeaders, PlainHeaders]:
    """A decoder of each kind."""
    return KernelHeaders(np.zeros(L.C_WORDS, np.int64)), PlainHeaders()


def literal(rng: random.Random, name: bytes, value: bytes) -> bytes:
    """A literal of any form, with its name as text."""
    packed = hpack.huffman.HuffmanEncoder(hpack.huffman_constants.REQUEST_CODES, hpack.huffman_constants.REQUEST_CODES_LENGTH)

    def text(data: bytes) -> bytes:
        squeezed = rng.random() < 0.5
        body = packed.encode(data) if squeezed else data
        size = hpack.hpack.encode_integer(len(body), 7)
        size[0] |= 0x80 if squeezed else 0
        return bytes(size) + body

    return rng.choice((b"\x40", b"\x00", b"\x10")) + text(name) + text(value)


@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_reads_what_the_library_reads(seed: int) -> None:
    rng = random.Random(seed)
    kernel, plain = both()
    encoder = hpack.Encoder()
    for _ in range(ROUNDS):
        if rng.random() < 0.1:
            encoder.header_table_size = rng.choice((0, 100, 1000, 4096))
        fields = [
            (rng.choice(NAMES), rng.choice(VALUES) + b"%d" % rng.randrange(50) * (rng.random() < 0.3)) for _ in range(rng.randrange(9))
        ]
        block = encoder.encode(fields, huffman=rng.random() < 0.7)
        assert kernel.decode(block) == plain.decode(block)


@pytest.mark.parametrize("seed", range(3))
def test_both_refuse_what_is_broken(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(ROUNDS):
        kernel, plain = both()
        for _ in range(4):
            parts = [literal(rng, rng.choice(NAMES), rng.choice(VALUES)) for _ in range(rng.randrange(4))]
            parts += [bytes([0x80 | rng.randrange(128)]) for _ in range(rng.randrange(3))]
            block = bytearray(b"".join(parts))
            for _ in range(rng.randrange(2)):
                if block:
                    block[rng.randrange(len(block))] = rng.randrange(256)
            try:
                found = kernel.decode(bytes(block))
            except PeerFault:
                with pytest.raises(PeerFault):
                    plain.decode(bytes(block))
                break
            assert found == plain.decode(bytes(block))


def test_records_are_framed_as_the_value_log_has_them() -> None:
    rng = random.Random(5)
    groups = Groups()
    payloads = [
        Binlog(BinlogType.PREWRITE, n + 1, 0, b"k", rng.randbytes(rng.choice((0, 1, 7, 8, 9, 300, 70_000)))).encode() for n in range(60)
    ]
    for n, payload in enumerate(payloads):
        groups.add(payload, Head(BinlogType.PREWRITE, n + 1, 0))
    found, at = b"", []
    while (group := groups.take()) is not None:
        at += [len(found) + int(mark[L.M_AT]) for mark in group.marks[: group.count]]
        found += bytes(group.records)
    assert found == b"".join(frame(payload) for payload in payloads)
    assert [found[place : place + 4] for place in at] == [frame(b"")[:4]] * len(payloads)
    assert all(
        crc32c(found[a + 16 : b]) == int.from_bytes(found[a + 12 : a + 16], "little")
        for a, b in zip(at, [*at[1:], len(found)], strict=True)
    )
