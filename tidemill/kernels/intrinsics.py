"""The building blocks of kernels: loads and stores at raw addresses, wide copies, byte masks, bit counts, 128-bit products.

Every address is an int64. Kernels work on addresses instead of numpy arrays: signatures stay simple and compile fast, there is no code
for index wrap-around, loads have any width at any alignment, and Arrow buffers are used in place. In return a kernel has to check every
bound itself.

- int64 and uint64 in one expression are an error of the compiler: `as_u` and `as_i` reinterpret (no code is made).
- `copy16/32/64`, `ld…` and masks read whole words; `page_safe(address, n)` says whether n bytes from there stay in one page.
- Byte order is little-endian, as on all hosts that Spark runs on.
- `jit` is for functions that kernels call; `entry(n)` makes an entry point of n int64 arguments. Recursion is an error.

The operations themselves are in `compiler/primitives.py`, what `jit` and `entry` do in `entries.py`.
"""

from __future__ import annotations

from tidemill.kernels.compiler.primitives import (
    Primitive,
    as_i,
    as_u,
    bits_f64,
    bswap64,
    byte_mask,
    clz,
    copy16,
    copy32,
    copy64,
    ctz,
    every,
    f32_bits,
    f64_bits,
    ld8,
    ld8s,
    ld16,
    ld16s,
    ld32,
    ld32s,
    ld64,
    ldu64,
    memcpy,
    memmove,
    mulhi,
    mum,
    prefetch,
    st8,
    st16,
    st32,
    st64,
)
from tidemill.kernels.entries import callback, entry, jit

__all__ = [
    "Primitive",
    "as_i",
    "as_u",
    "bits_f64",
    "bswap64",
    "byte_mask",
    "callback",
    "clz",
    "copy16",
    "copy32",
    "copy64",
    "ctz",
    "entry",
    "every",
    "f32_bits",
    "f64_bits",
    "jit",
    "ld8",
    "ld8s",
    "ld16",
    "ld16s",
    "ld32",
    "ld32s",
    "ld64",
    "ldu64",
    "memcpy",
    "memmove",
    "mulhi",
    "mum",
    "page_safe",
    "prefetch",
    "put",
    "put_exact_source",
    "put_short",
    "readable",
    "same_bytes",
    "st8",
    "st16",
    "st32",
    "st64",
]


@jit
def page_safe(address, size):
    """Return whether `size` (up to 4096) bytes from here lie in one 4 KiB page. Then all are readable if the first one is."""
    return (address & 4095) <= 4096 - size


@jit
def readable(address, rest, width, scratch):
    """Return where `width` bytes can be read that begin with the `rest` from here: here, or at `scratch`, to which they are copied if there
    are fewer and a load of `width` bytes could touch the next page."""
    if rest < width and not page_safe(address, width):
        memcpy(scratch, address, rest)
        return scratch
    return address


@jit
def put(target, source, size):
    """Copy in steps of 32 bytes; may read and write up to 31 bytes past the end. Returns the end."""
    done = 0
    while done < size:
        copy32(target + done, source + done)
        done += 32
    return target + size


@jit
def put_short(target, source, size):
    """Copy as `put` does, the first 32 bytes without a branch: for constants, which mostly have no more. Returns the end."""
    copy32(target, source)
    done = 32
    while done < size:
        copy32(target + done, source + done)
        done += 32
    return target + size


@jit
def put_exact_source(target, source, size):
    """Copy without reading past the source's page; may write up to 31 bytes past the end. Returns the end."""
    if size >= 32:
        done = 0
        while done < size - 32:
            copy32(target + done, source + done)
            done += 32
        copy32(target + size - 32, source + size - 32)
    elif size > 0 and page_safe(source, 32):  # with size 0 no byte of the source may be read
        copy32(target, source)
    else:
        memcpy(target, source, size)
    return target + size


@jit
def same_bytes(left, right, size):
    """Return whether two byte strings of one length are equal. Reads nothing past them."""
    done = 0
    while done + 8 <= size:
        if ld64(left + done) != ld64(right + done):
            return False
        done += 8
    while done < size:
        if ld8(left + done) != ld8(right + done):
            return False
        done += 1
    return True
