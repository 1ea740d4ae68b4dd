"""The building blocks of kernels do what their names say, at odd addresses too."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import numpy as np

from tidemill.kernels import intrinsics as x

DATA = np.frombuffer(bytes(range(120, 256)) + bytes(range(120)), np.uint8).copy()
AT = DATA.ctypes.data
BYTES = DATA.tobytes()
ODD = x.byte_mask("odd", b'"\\', below=0x20, not_ascii=True)
FROM_E0 = x.byte_mask("from_e0", b"", first=0xE0)
OUT = np.zeros(16, np.int64)


@x.entry(2)
def loads(a, out):
    x.st64(out, x.ld8(a))
    x.st64(out + 8, x.ld8s(a))
    x.st64(out + 16, x.ld16(a))
    x.st64(out + 24, x.ld16s(a))
    x.st64(out + 32, x.ld32(a))
    x.st64(out + 40, x.ld32s(a))
    x.st64(out + 48, x.ldu64(a))
    x.st64(out + 56, x.ld64(a))
    return 8


def test_loads() -> None:
    for at in (1, 7, 9, 13):
        count = loads(AT + at, OUT.ctypes.data)
        expected = [int.from_bytes(BYTES[at : at + n], "little", signed=s) for n in (1, 2, 4, 8) for s in (False, True)]
        expected[6] = expected[7]
        assert OUT[:count].tolist() == expected


@x.entry(2)
def stores(a, v):
    x.st8(a, v)
    x.st16(a + 1, v)
    x.st32(a + 3, v)
    x.st64(a + 7, v)
    return 15


def test_stores() -> None:
    out = np.zeros(16, np.uint8)
    assert stores(out.ctypes.data, 0x0102030405060708) == 15
    assert out.tobytes() == bytes.fromhex("080807080706050807060504030201") + b"\0"


@x.entry(2)
def copies(t, s):
    x.copy16(t, s)
    x.copy32(t + 16, s + 16)
    x.copy64(t + 48, s + 48)
    x.memcpy(t + 112, s + 112, 5)
    x.memmove(t + 1, t, 20)
    x.prefetch(0)
    return 0


def test_copies() -> None:
    out = np.zeros(128, np.uint8)
    copies(out.ctypes.data, AT + 3)
    source = BYTES[3:131]
    assert out.tobytes()[:117] == source[:1] + source[:20] + source[21:117]


@x.entry(1)
def odd_mask(a):
    return ODD(a)


@x.entry(1)
def high_mask(a):
    return FROM_E0(a)


def test_byte_mask() -> None:
    for at in range(0, 200, 3):
        window = BYTES[at : at + 32]
        assert odd_mask(AT + at) == sum(1 << i for i, c in enumerate(window) if c < 0x20 or c >= 0x80 or c in b'"\\')
        assert high_mask(AT + at) == sum(1 << i for i, c in enumerate(window) if c >= 0xE0)


@x.entry(4)
def bits(number, signed, a, out):
    u = x.as_u(number)
    f = x.bits_f64(x.ldu64(a))
    x.st64(out, x.bswap64(u))
    x.st64(out + 8, x.ctz(u))
    x.st64(out + 16, x.ctz(signed))
    x.st64(out + 24, x.clz(u))
    x.st64(out + 32, x.clz(signed))
    x.st64(out + 40, x.mulhi(u, u))
    x.st64(out + 48, x.mum(u, u))
    x.st64(out + 56, x.f64_bits(f))
    x.st64(out + 64, x.f32_bits(f))
    x.st64(out + 72, x.as_i(u) == number)
    return 10


def test_bits() -> None:
    u, f = 0xF123456789ABCDE0, np.array([-0.1])
    product, mask = u * u, (1 << 64) - 1
    count = bits(u, -8, f.ctypes.data, OUT.ctypes.data)
    got = [int(word) & mask for word in OUT[:count]]
    assert got[0] == int.from_bytes(u.to_bytes(8, "big"), "little")
    assert got[1:5] == [5, 3, 0, 0]
    assert got[5:7] == [product >> 64, (product >> 64 ^ product) & mask]
    assert got[7:] == [int(f.view(np.uint64)[0]), int(f.astype(np.float32).view(np.uint32)[0]), 1]


@x.entry(4)
def helpers(t, s, n, out):
    x.st64(out, x.put(t, s, n) - t)
    x.st64(out + 8, x.put_short(t + 256, s, n) - t)
    x.st64(out + 16, x.put_exact_source(t + 512, s, n) - t)
    x.st64(out + 24, x.same_bytes(t, t + 512, n))
    x.st64(out + 32, x.page_safe(4095, 2))
    return 5


def test_puts() -> None:
    for n in (0, 1, 7, 8, 31, 32, 33, 64, 100):
        out = np.zeros(1024, np.uint8)
        count = helpers(out.ctypes.data, AT, n, OUT.ctypes.data)
        assert OUT[:count].tolist() == [n, 256 + n, 512 + n, 1, 0]
        assert out[:n].tobytes() == out[256 : 256 + n].tobytes() == out[512 : 512 + n].tobytes() == BYTES[:n]
