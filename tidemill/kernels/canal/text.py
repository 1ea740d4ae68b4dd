"""Text of a column of Canal's protobuf: bytes → UTF-8. Reference: `tidemill.protocols.canal.values`.

Sources are read in steps of 32 bytes, past their end only inside one 4 KiB page; targets are written up to 31 bytes past the end.
"""

from __future__ import annotations

from llvmlite import ir
from numba.extending import intrinsic

from tidemill.kernels.intrinsics import I64, byte_mask, copy32, ctz, jit, ld8, readable, st8, st16
from tidemill.kernels.write.text import rune_len

REPLACEMENT = int.from_bytes("�".encode(), "little")
mask_high = byte_mask("mask_high", b"", not_ascii=True)
from_c0, from_e0, from_f0 = (byte_mask(f"mask_from_{first:x}", b"", first=first) for first in (0xC0, 0xE0, 0xF0))


_i8, _i32, _i64 = (ir.IntType(bits) for bits in (8, 32, 64))
_BLOCK = ir.VectorType(_i8, 32)


@intrinsic
def never_in_utf8(typing_context, address):
    """Return a bit for each of the 32 bytes here that UTF-8 never has, or never has before the byte behind it. Reads 33 bytes."""

    def generate(context, builder, signature, args):
        def block(at):
            data = builder.load(builder.inttoptr(at, _BLOCK.as_pointer()))
            data.align = 1
            return data

        def those(data, how, byte):
            return builder.icmp_unsigned(how, data, ir.Constant(_BLOCK, [byte] * 32))

        data, behind = block(args[0]), block(builder.add(args[0], _i64(1)))
        wrong = those(data, ">=", 0xF5)
        for byte in (0xC0, 0xC1):
            wrong = builder.or_(wrong, those(data, "==", byte))
        for byte, how, bound in ((0xE0, "<", 0xA0), (0xED, ">=", 0xA0), (0xF0, "<", 0x90), (0xF4, ">=", 0x90)):
            wrong = builder.or_(wrong, builder.and_(those(data, "==", byte), those(behind, how, bound)))
        return builder.zext(builder.bitcast(wrong, _i32), _i64)

    return I64(I64), generate


@jit
def is_utf8(s, n, S):
    """Whether n bytes are UTF-8. No branch depends on a byte: a wrong guess costs more than a block of 32."""
    wrong = 0
    due = 0  # a bit for each byte of the next block that has to continue a rune
    i = 0
    while i < n:
        rest = n - i
        a = readable(s + i, rest, 33, S)
        keep = (1 << rest) - 1 if rest <= 32 else -1
        lead = from_c0(a) & keep
        due |= lead << 1 | (from_e0(a) & keep) << 2 | (from_f0(a) & keep) << 3
        high = mask_high(a) & keep
        wrong |= (high ^ lead ^ due) & 0xFFFFFFFF | never_in_utf8(a) & keep
        due >>= 32
        i += 32
    return wrong | due == 0


@jit
def w_repaired(p, s, n, S):
    """Text as it is, but each byte that is not UTF-8 becomes U+FFFD. Blocks of 32 bytes are copied while they are ASCII."""
    i = 0
    while i < n:
        rest = n - i
        a = readable(s + i, rest, 32, S)
        found = mask_high(a)
        copy32(p, a)
        if rest < 32:
            found &= (1 << rest) - 1
        else:
            rest = 32
        if found == 0:
            p += rest
            i += rest
            continue
        clean = ctz(found)
        p += clean
        i += clean
        while i < n and ld8(s + i) >= 128:
            size = rune_len(s + i, n - i)
            if size == 0:
                st16(p, REPLACEMENT & 0xFFFF)
                st8(p + 2, REPLACEMENT >> 16)
                p += 3
                i += 1
            else:
                for at in range(size):
                    st8(p + at, ld8(s + i + at))
                p += size
                i += size
    return p


@jit
def w_utf8(p, s, n, S):
    """Text as it is, but each byte that is not UTF-8 becomes U+FFFD."""
    high = 0
    i = 0
    while i < n:
        rest = n - i
        a = readable(s + i, rest, 32, S)
        copy32(p + i, a)
        high |= mask_high(a) & ((1 << rest) - 1 if rest < 32 else -1)
        i += 32
    if high == 0 or is_utf8(s, n, S):
        return p + n
    return w_repaired(p, s, n, S)


@jit
def w_latin(p, s, n, S):
    """Each byte as the character of its number, in UTF-8: those from 128 on take two bytes."""
    i = 0
    while i < n:
        rest = n - i
        a = readable(s + i, rest, 32, S)
        found = mask_high(a)
        if rest < 32:
            found &= (1 << rest) - 1
        else:
            rest = 32
        if found == 0:
            copy32(p, a)
            p += rest
        else:
            for at in range(rest):
                c = ld8(a + at)
                two = c >> 7
                # without a branch: a wrong guess a byte is what random bytes would cost
                st16(p, c + two * ((0xC0 | c >> 6) - c + ((0x80 | c & 63) << 8)))
                p += 1 + two
        i += rest
    return p
