"""Text of a column of Canal's protobuf: bytes → UTF-8. Reference: `tidemill.protocols.canal.values`.

In one process `is_utf8` takes 1.3 µs for 9600 bytes of text of all kinds, and a loop over its runes 7.2 µs.
Sources are read in steps of 32 bytes, past their end only inside one 4 KiB page; targets are written up to 31 bytes past the end.
"""

from __future__ import annotations

from tidemill.kernels.intrinsics import Primitive, byte_mask, copy32, ctz, every, jit, ld8, readable, st8, st16
from tidemill.kernels.write.text import rune_len

REPLACEMENT = int.from_bytes("�".encode(), "little")
mask_high = byte_mask("mask_high", b"", not_ascii=True)
from_c0, from_e0, from_f0 = (byte_mask(f"mask_from_{first:x}", b"", first=first) for first in (0xC0, 0xE0, 0xF0))

_ALONE = (("uge", 0xF5), ("eq", 0xC0), ("eq", 0xC1))
"""Bytes that UTF-8 never has."""
_BEFORE = ((0xE0, "ult", 0xA0), (0xED, "uge", 0xA0), (0xF0, "ult", 0x90), (0xF4, "uge", 0x90))
"""Bytes that UTF-8 never has before such a byte."""


def _wrong() -> str:
    """A bit for each of 32 bytes that is one of these."""
    lines = ["{p} = inttoptr i64 {0} to ptr", "{v} = load <32 x i8>, ptr {p}, align 1"]
    lines += ["{q} = getelementptr i8, ptr {p}, i64 1", "{n} = load <32 x i8>, ptr {q}, align 1"]
    lines += [f"{{f{i}}} = icmp {how} <32 x i8> {{v}}, {every(32, 'i8', byte)}" for i, (how, byte) in enumerate(_ALONE)]
    for i, (byte, how, bound) in enumerate(_BEFORE, len(_ALONE)):
        lines += [f"{{e{i}}} = icmp eq <32 x i8> {{v}}, {every(32, 'i8', byte)}"]
        lines += [f"{{b{i}}} = icmp {how} <32 x i8> {{n}}, {every(32, 'i8', bound)}", f"{{f{i}}} = and <32 x i1> {{e{i}}}, {{b{i}}}"]
    count = len(_ALONE) + len(_BEFORE)
    lines += [f"{{o{i}}} = or <32 x i1> {'{f0}' if i == 1 else f'{{o{i - 1}}}'}, {{f{i}}}" for i in range(1, count)]
    return "\n".join([*lines, f"{{w}} = bitcast <32 x i1> {{o{count - 1}}} to i32", "{r} = zext i32 {w} to i64"])


never_in_utf8 = Primitive("never_in_utf8", "i", "i", _wrong())
"""(address): a bit for each of the 32 bytes here that UTF-8 never has, or never has before the byte behind it. Reads 33 bytes."""


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
