"""The building blocks of kernels do what their names say, at odd addresses too."""

from __future__ import annotations

import numpy as np
from numba import njit

from tidemill.kernels import intrinsics as x

DATA = np.frombuffer(bytes(range(120, 256)) + bytes(range(120)), np.uint8).copy()
AT = DATA.ctypes.data
BYTES = DATA.tobytes()
ODD = x.byte_mask("odd", b'"\\', below=0x20, not_ascii=True)
FROM_E0 = x.byte_mask("from_e0", b"", first=0xE0)


@njit
def loads(a):
    return x.ld8(a), x.ld8s(a), x.ld16(a), x.ld16s(a), x.ld32(a), x.ld32s(a), x.ld64(a), x.ldu64(a)


def test_loads() -> None:
    for at in (1, 7, 9, 13):
        expected = [int.from_bytes(BYTES[at : at + n], "little", signed=s) for n in (1, 2, 4, 8) for s in (False, True)]
        expected[6], expected[7] = expected[7], expected[6]
        assert list(loads(AT + at)) == expected


@njit
def stores(a, v):
    x.st8(a, v)
    x.st16(a + 1, v)
    x.st32(a + 3, v)
    x.st64(a + 7, v)


def test_stores() -> None:
    out = np.zeros(16, np.uint8)
    stores(out.ctypes.data, 0x0102030405060708)
    assert out.tobytes() == bytes.fromhex("080807080706050807060504030201") + b"\0"


@njit
def copies(t, s):
    x.copy16(t, s)
    x.copy32(t + 16, s + 16)
    x.copy64(t + 48, s + 48)
    x.memcpy(t + 112, s + 112, 5)
    x.memmove(t + 1, t, 20)
    x.prefetch(0)


def test_copies() -> None:
    out = np.zeros(128, np.uint8)
    copies(out.ctypes.data, AT + 3)
    source = BYTES[3:131]
    assert out.tobytes()[:117] == source[:1] + source[:20] + source[21:117]


@njit
def mask(a):
    return ODD(a), FROM_E0(a)


def test_byte_mask() -> None:
    for at in range(0, 200, 3):
        window = BYTES[at : at + 32]
        odd = sum(1 << i for i, c in enumerate(window) if c < 0x20 or c >= 0x80 or c in b'"\\')
        assert mask(AT + at) == (odd, sum(1 << i for i, c in enumerate(window) if c >= 0xE0))


@njit
def bits(u, i, f):
    return (
        x.bswap64(u), x.ctz(u), x.ctz(i), x.clz(u), x.clz(i), x.mulhi(u, u), x.mum(u, u), x.f64_bits(f), x.bits_f64(x.f64_bits(f)),
        x.f32_bits(f), x.as_i(u), x.as_u(i),
    )  # fmt: skip


def test_bits() -> None:
    u, i, f = 0xF123456789ABCDE0, -8, -0.1
    product = u * u
    got = bits(np.uint64(u), np.int64(i), f)
    assert got[0] == int.from_bytes(u.to_bytes(8, "big"), "little")
    assert got[1:5] == (5, 3, 0, 0)
    assert got[5:7] == (product >> 64, product >> 64 ^ product & (1 << 64) - 1)
    assert got[7] == np.float64(f).view(np.uint64)
    assert got[8] == f
    assert got[9] == np.float32(f).view(np.uint32)
    assert got[10:] == (u - (1 << 64), (1 << 64) - 8)


@njit
def helpers(t, s, n):
    ends = x.put(t, s, n) - t, x.put_short(t + 256, s, n) - t, x.put_exact_source(t + 512, s, n) - t
    return ends, x.same_bytes(t, t + 512, n), x.page_safe(4095, 2)


def test_puts() -> None:
    for n in (0, 1, 7, 8, 31, 32, 33, 64, 100):
        out = np.zeros(1024, np.uint8)
        assert helpers(out.ctypes.data, AT, n) == ((n, 256 + n, 512 + n), True, False)
        assert out[:n].tobytes() == out[256 : 256 + n].tobytes() == out[512 : 512 + n].tobytes() == BYTES[:n]
