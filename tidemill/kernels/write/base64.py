"""Base64 in steps of 24 bytes: vector code without a table of digits and with one branch for each step. Reference: Python's base64."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tidemill.kernels.intrinsics import jit, ld8, ld16, page_safe, st8, st16
from tidemill.kernels.write.tables import O_BASE64, O_MASK

_I64 = types.int64
_i8, _i32 = ir.IntType(8), ir.IntType(32)
_BYTES, _WORDS = ir.VectorType(_i8, 32), ir.VectorType(_i32, 8)

# Byte k of word g is byte 3g + 2 - k of the source, so a word is its three bytes as a number; 32 is a zero.
_GROUPS = ir.Constant(ir.VectorType(_i32, 32), [i for g in range(8) for i in (3 * g + 2, 3 * g + 1, 3 * g, 32)])
_STEPS = ((25, 6), (51, -75), (61, -15), (62, 3))
"""(digit, change): past this digit the distance between digit and letter changes by so much. It begins with the distance of A."""


@intrinsic
def base64_24(typing_context, target, source, mask):
    """Write the 32 letters of 24 bytes. Reads 32 bytes at `source`, masked by the 32 bytes at `mask`."""

    def generate(context, builder, signature, args):
        def vector(address):
            value = builder.load(builder.inttoptr(address, _BYTES.as_pointer()))
            value.align = 1
            return value

        def every(number, kind=_WORDS):
            return ir.Constant(kind, [number] * kind.count)

        data = builder.and_(vector(args[1]), vector(args[2]))
        words = builder.bitcast(builder.shuffle_vector(data, ir.Constant(_BYTES, None), _GROUPS), _WORDS)
        digits = builder.and_(builder.lshr(words, every(18)), every(63))
        digits = builder.or_(digits, builder.and_(builder.lshr(words, every(4)), every(63 << 8)))
        digits = builder.or_(digits, builder.and_(builder.shl(words, every(10)), every(63 << 16)))
        digits = builder.or_(digits, builder.and_(builder.shl(words, every(24)), every(63 << 24)))
        digits = builder.bitcast(digits, _BYTES)
        letters = builder.add(digits, every(65, _BYTES))
        for past, change in _STEPS:
            above = builder.icmp_signed(">", digits, every(past, _BYTES))
            letters = builder.add(letters, builder.select(above, every(change, _BYTES), every(0, _BYTES)))
        done = builder.store(letters, builder.inttoptr(args[0], _BYTES.as_pointer()))
        done.align = 1
        return context.get_dummy_value()

    return types.void(_I64, _I64, _I64), generate


@jit
def w_base64(T, p, s, n):
    """Write n bytes as standard base64 with padding. Writes up to 31 bytes past the end, reads past the source only inside its page."""
    i = 0
    whole = T + O_MASK
    while i + 32 <= n:
        base64_24(p, s + i, whole)
        p += 32
        i += 24
    while i < n and page_safe(s + i, 32):
        size = min(n - i, 24)
        base64_24(p, s + i, whole + 32 - size)
        p += ((size + 2) * 171 >> 9) * 4  # a division by three
        i += size
    if i >= n:
        rest = n % 3
        if rest:
            st8(p - 1, 61)
            st8(p - 2, 61 if rest == 1 else ld8(p - 2))
        return p
    while i + 3 <= n:
        v = ld8(s + i) << 16 | ld8(s + i + 1) << 8 | ld8(s + i + 2)
        st16(p, ld16(T + O_BASE64 + 2 * (v >> 12)))
        st16(p + 2, ld16(T + O_BASE64 + 2 * (v & 0xFFF)))
        p += 4
        i += 3
    rest = n - i
    if rest == 1:
        st16(p, ld16(T + O_BASE64 + 2 * (ld8(s + i) << 4)))
        st16(p + 2, 0x3D3D)
        p += 4
    elif rest == 2:
        v = ld8(s + i) << 8 | ld8(s + i + 1)
        st16(p, ld16(T + O_BASE64 + 2 * (v >> 4)))
        st16(p + 2, ld16(T + O_BASE64 + 2 * ((v & 15) << 8)) & 0xFF | 0x3D00)
        p += 4
    return p
