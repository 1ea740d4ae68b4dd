"""Text: bytes → the inside of a JSON string, base64, strconv.Quote. Reference: `tidemill.protocols.common.gotext`.

Sources are read in steps of 32 bytes, past their end only inside one 4 KiB page; targets are written up to 31 bytes past the end.
`S` is scratch of at least 64 bytes.
"""

from __future__ import annotations

from tidemill.kernels.intrinsics import (
    byte_mask,
    copy32,
    ctz,
    jit,
    ld8,
    ld16,
    ld32,
    ld64,
    readable,
    st8,
    st16,
    st32,
    st64,
)  # fmt: skip
from tidemill.kernels.write.base64 import w_base64
from tidemill.kernels.write.tables import O_DOCUMENT_SHORT, O_HEX, O_PRINTABLE, O_QUOTE, O_SHORT

__all__ = ["MODE_HTML", "MODE_NESTED", "MODE_PLAIN", "MODE_RAW", "mask_html", "rune_len", "w_base64", "w_escaped", "w_hex2", "w_quoted"]

MODE_PLAIN, MODE_HTML, MODE_NESTED, MODE_RAW = 0, 1, 2, 3
"""Modes of `w_escaped`: as TiDB prints a string in a document; with Go's HTML escapes; in a document that gets those escapes once more;
only quotes, backslashes and control characters."""

mask_html = byte_mask("mask_html", b'"\\<>&', below=0x20, not_ascii=True)
mask_quoted = byte_mask("mask_quoted", b'"\\<>&\x7f', below=0x20, not_ascii=True)
mask_plain = byte_mask("mask_plain", b'"\\', below=0x20, not_ascii=True)

# Texts as little-endian words.
BACKSLASH_U00 = int.from_bytes(b"\\u00", "little")
BACKSLASH_UFF = int.from_bytes(b"\\uff", "little")
FD = int.from_bytes(b"fd", "little")
BACKSLASH_U20 = int.from_bytes(b"\\u20", "little")
FOUR_BACKSLASHES = 0x5C5C5C5C


@jit
def rune_len(a, n):
    """Return the size of the valid UTF-8 rune of more than one byte at a; 0 if n bytes do not begin with one."""
    c = ld8(a)
    if c < 0xC2:
        return 0
    if c < 0xE0:
        return 2 if n >= 2 and (ld8(a + 1) & 0xC0) == 0x80 else 0
    if c < 0xF0:
        if n < 3:
            return 0
        b = ld8(a + 1)
        if (b & 0xC0) != 0x80 or (ld8(a + 2) & 0xC0) != 0x80 or (c == 0xE0 and b < 0xA0) or (c == 0xED and b >= 0xA0):
            return 0
        return 3
    if c > 0xF4 or n < 4:
        return 0
    b = ld8(a + 1)
    if (b & 0xC0) != 0x80 or (ld8(a + 2) & 0xC0) != 0x80 or (ld8(a + 3) & 0xC0) != 0x80:
        return 0
    if (c == 0xF0 and b < 0x90) or (c == 0xF4 and b >= 0x90):
        return 0
    return 4


@jit
def w_hex2(T, p, c):
    """Write two hex digits of a byte."""
    st8(p, ld8(T + O_HEX + (c >> 4)))
    st8(p + 1, ld8(T + O_HEX + (c & 15)))
    return p + 2


@jit
def w_escaped(T, p, s, n, mode, S):
    """Write the inside of a JSON string as encoding/json does. Each byte that is not UTF-8 becomes \\ufffd."""
    shorts = T + (O_SHORT if mode == MODE_HTML or mode == MODE_RAW else O_DOCUMENT_SHORT)
    i = 0
    while i < n:
        rest = n - i
        a = readable(s + i, rest, 32, S)
        found = mask_plain(a) if mode == MODE_PLAIN or mode == MODE_RAW else mask_html(a)
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
        while i < n:  # the run of bytes that may need escapes
            a = s + i
            c = ld8(a)
            if c < 128:
                short = ld8(shorts + c)
                if short:
                    if mode == MODE_NESTED:
                        st32(p, FOUR_BACKSLASHES)  # \\\\ or \\\" or \\n
                        if short == 34:
                            st8(p + 3, short)
                            p += 4
                        elif short == 92:
                            p += 4
                        else:
                            st8(p + 2, short)
                            p += 3
                    else:
                        st16(p, 92 | short << 8)
                        p += 2
                elif c < 32 or (mode != MODE_PLAIN and mode != MODE_RAW and (c == 60 or c == 62 or c == 38)):
                    if mode == MODE_NESTED and c < 32:
                        st8(p, 92)
                        p += 1
                    st32(p, BACKSLASH_U00)
                    p = w_hex2(T, p + 4, c)
                else:
                    break
                i += 1
                continue
            size = rune_len(a, n - i)
            if size == 0:
                if mode == MODE_NESTED:
                    st8(p, 92)
                    p += 1
                st32(p, BACKSLASH_UFF)
                st16(p + 4, FD)
                p += 6
                i += 1
            elif size == 3:
                tail = ld16(a + 1)
                st8(p, c)
                st16(p + 1, tail)
                if mode != MODE_RAW and c == 0xE2 and (tail == 0xA880 or tail == 0xA980):  # U+2028, U+2029
                    if mode == MODE_NESTED:
                        st8(p, 92)
                        p += 1
                    st32(p, BACKSLASH_U20)
                    st16(p + 4, 50 | (56 if tail == 0xA880 else 57) << 8)
                    p += 6
                else:
                    p += 3
                i += 3
            elif size == 2:
                st16(p, ld16(a))
                p += 2
                i += 2
            else:
                st32(p, ld32(a))
                p += 4
                i += 4
    return p


@jit
def w_quoted_rune(T, p, a, size):
    """Write the rune of `size` > 1 bytes at a: itself if Go prints it, else \\uNNNN or \\UNNNNNNNN (its backslash escaped)."""
    c = ld8(a)
    if size == 2:
        rune = (c & 31) << 6 | (ld8(a + 1) & 63)
    elif size == 3:
        rune = (c & 15) << 12 | (ld8(a + 1) & 63) << 6 | (ld8(a + 2) & 63)
    else:
        rune = (c & 7) << 18 | (ld8(a + 1) & 63) << 12 | (ld8(a + 2) & 63) << 6 | (ld8(a + 3) & 63)
    if (ld8(T + O_PRINTABLE + (rune >> 3)) >> (rune & 7)) & 1:
        for i in range(size):
            st8(p + i, ld8(a + i))
        return p + size
    st16(p, 0x5C5C)
    shift = 12
    st8(p + 2, 117)
    if rune >= 0x10000:
        st8(p + 2, 85)
        shift = 28
    p += 3
    while shift >= 0:
        st8(p, ld8(T + O_HEX + ((rune >> shift) & 15)))
        p += 1
        shift -= 4
    return p


@jit
def w_quoted(T, p, s, n, S):
    """Write strconv.Quote without the quotes, as the inside of a JSON string."""
    i = 0
    while i < n:
        rest = n - i
        a = readable(s + i, rest, 32, S)
        found = mask_quoted(a)
        copy32(p, a)
        if rest < 32:
            found &= (1 << rest) - 1
        else:
            rest = 32
        clean = ctz(found) if found else rest
        p += clean
        i += clean
        end = i + rest - clean
        while i < end:  # where one byte needs an escape, its neighbours mostly do too
            a = s + i
            c = ld8(a)
            size = rune_len(a, n - i) if 0xC2 <= c < 0xF5 else 0
            if size:
                p = w_quoted_rune(T, p, a, size)
                i += size
            else:
                text = ld64(T + O_QUOTE + 8 * c)
                st64(p, text)
                p += text >> 56
                i += 1
    return p
