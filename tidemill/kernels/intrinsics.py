"""The building blocks of kernels: loads and stores at raw addresses, wide copies, byte masks, bit counts, 128-bit products.

Every address is an int64. Kernels work on addresses instead of numpy arrays: signatures stay simple and compile fast, there is no code
for index wrap-around, loads have any width at any alignment, and Arrow buffers are used in place. In return a kernel has to check every
bound itself.

- int64 and uint64 in one expression become float64 in numba: `as_u` and `as_i` reinterpret (no code is made).
- `copy16/32/64`, `ld…` and masks read whole words; `page_safe(address, n)` says whether n bytes from there stay in one page.
- Byte order is little-endian, as on all hosts that Spark and numba run on.
- `jit` is for functions that are inlined into entry points; `entry(n)` makes an entry point of n int64 arguments that is kept in the
  cache folder (call `cache.use_cache` before). Recursion is forbidden: with the cache numba crashes on the second start.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

I64, U64, F64 = types.int64, types.uint64, types.float64
_i1, _i8, _i16, _i32, _i64, _i128 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64, 128))

jit = njit(nogil=True, error_model="numpy", boundscheck=False, no_cpython_wrapper=True)
"""Decorator of a function that only kernels call."""

spliced = njit(nogil=True, error_model="numpy", boundscheck=False, inline="always")
"""Decorator of a function whose code is put into its caller before compilation. Each level of calls makes numba optimize all levels below
again, so the levels between an entry point and its writers are spliced. Each should have one caller."""


def entry(arguments: int) -> Any:
    """Return the decorator of an entry point: `arguments` int64 in, one int64 out, compiled on import and cached."""
    return njit(I64(*[I64] * arguments), nogil=True, error_model="numpy", boundscheck=False, cache=True)


def _pointer(builder, address, kind):
    return builder.inttoptr(address, kind.as_pointer())


def _load(name, kind, result, signed):
    @intrinsic
    def load(typing_context, address):
        def generate(context, builder, signature, args):
            value = builder.load(_pointer(builder, args[0], kind))
            value.align = 1
            if kind.width < 64:
                value = (builder.sext if signed else builder.zext)(value, _i64)
            return value

        return result(I64), generate

    load.__name__ = name
    return load


def _store(name, kind):
    @intrinsic
    def store(typing_context, address, value):
        value_type = U64 if value == U64 else I64

        def generate(context, builder, signature, args):
            word = args[1]
            if kind.width < 64:
                word = builder.trunc(word, kind)
            done = builder.store(word, _pointer(builder, args[0], kind))
            done.align = 1
            return context.get_dummy_value()

        return types.void(I64, value_type), generate

    store.__name__ = name
    return store


# Loads give int64 (ldu64: uint64); the ending s means sign-extended. Stores take int64 or uint64.
ld8, ld8s = _load("ld8", _i8, I64, False), _load("ld8s", _i8, I64, True)
ld16, ld16s = _load("ld16", _i16, I64, False), _load("ld16s", _i16, I64, True)
ld32, ld32s = _load("ld32", _i32, I64, False), _load("ld32s", _i32, I64, True)
ld64, ldu64 = _load("ld64", _i64, I64, False), _load("ldu64", _i64, U64, False)
st8, st16, st32, st64 = _store("st8", _i8), _store("st16", _i16), _store("st32", _i32), _store("st64", _i64)


def _copy(name, size):
    kind = ir.VectorType(_i8, size)

    @intrinsic
    def copy(typing_context, target, source):
        def generate(context, builder, signature, args):
            value = builder.load(_pointer(builder, args[1], kind))
            value.align = 1
            done = builder.store(value, _pointer(builder, args[0], kind))
            done.align = 1
            return context.get_dummy_value()

        return types.void(I64, I64), generate

    copy.__name__ = name
    return copy


# copyN(target, source): N bytes with one load and one store.
copy16, copy32, copy64 = _copy("copy16", 16), _copy("copy32", 32), _copy("copy64", 64)


@intrinsic
def memcpy(typing_context, target, source, size):
    """Copy `size` bytes; the two must not overlap."""

    def generate(context, builder, signature, args):
        cgutils.raw_memcpy(builder, _pointer(builder, args[0], _i8), _pointer(builder, args[1], _i8), args[2], 1)
        return context.get_dummy_value()

    return types.void(I64, I64, I64), generate


@intrinsic
def memmove(typing_context, target, source, size):
    """Copy `size` bytes; the two may overlap."""

    def generate(context, builder, signature, args):
        cgutils.raw_memmove(builder, _pointer(builder, args[0], _i8), _pointer(builder, args[1], _i8), args[2], 1)
        return context.get_dummy_value()

    return types.void(I64, I64, I64), generate


@intrinsic
def prefetch(typing_context, address):
    """Hint that this cache line will be read soon; any address is allowed."""

    def generate(context, builder, signature, args):
        pointer = ir.PointerType(_i8)
        shape = ir.FunctionType(ir.VoidType(), [pointer, _i32, _i32, _i32])
        function = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0")
        builder.call(function, [_pointer(builder, args[0], _i8), _i32(0), _i32(3), _i32(1)])
        return context.get_dummy_value()

    return types.void(I64), generate


def byte_mask(name: str, chars: bytes, *, below: int = 0, first: int = 0, not_ascii: bool = False) -> Any:
    """Return an intrinsic mask(address) over 32 bytes. Bit i: byte i is below `below`, in `chars`, at least `first` (0: none is), or
    (`not_ascii`) at least 0x80."""
    kind = ir.VectorType(_i8, 32)

    def every(byte):
        return ir.Constant(kind, [byte] * 32)

    @intrinsic
    def mask(typing_context, address):
        def generate(context, builder, signature, args):
            data = builder.load(_pointer(builder, args[0], kind))
            data.align = 1
            # Signed compare: bytes from 0x80 on are negative, so one compare finds both.
            compare = builder.icmp_signed if not_ascii else builder.icmp_unsigned
            found = compare("<", data, every(below))
            if first:
                found = builder.or_(found, builder.icmp_unsigned(">=", data, every(first)))
            for char in chars:
                found = builder.or_(found, builder.icmp_unsigned("==", data, every(char)))
            return builder.zext(builder.bitcast(found, _i32), _i64)

        return I64(I64), generate

    mask.__name__ = name
    return mask


@intrinsic
def bswap64(typing_context, value):
    """Reverse the bytes of a uint64."""

    def generate(context, builder, signature, args):
        return builder.bswap(args[0])

    return U64(U64), generate


@intrinsic
def ctz(typing_context, value):
    """Return the number of trailing zero bits of an int64 or uint64; 64 for 0."""
    value_type = U64 if value == U64 else I64

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(_i1, 0))

    return I64(value_type), generate


@intrinsic
def clz(typing_context, value):
    """Return the number of leading zero bits of an int64 or uint64; 64 for 0."""
    value_type = U64 if value == U64 else I64

    def generate(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(_i1, 0))

    return I64(value_type), generate


def _product(builder, args):
    return builder.mul(builder.zext(args[0], _i128), builder.zext(args[1], _i128))


@intrinsic
def mulhi(typing_context, x, y):
    """Return the high 64 bits of the 128-bit product of two uint64."""

    def generate(context, builder, signature, args):
        return builder.trunc(builder.lshr(_product(builder, args), ir.Constant(_i128, 64)), _i64)

    return U64(U64, U64), generate


@intrinsic
def mum(typing_context, x, y):
    """Return the low half xor high half of the 128-bit product: the mixing step of a multiplicative hash."""

    def generate(context, builder, signature, args):
        product = _product(builder, args)
        high = builder.trunc(builder.lshr(product, ir.Constant(_i128, 64)), _i64)
        return builder.xor(builder.trunc(product, _i64), high)

    return U64(U64, U64), generate


@intrinsic
def f64_bits(typing_context, value):
    """Return the bits of a double as uint64."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], _i64)

    return U64(F64), generate


@intrinsic
def bits_f64(typing_context, value):
    """Return the double of these bits."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return F64(U64), generate


@intrinsic
def f32_bits(typing_context, value):
    """Return the bits of the float32 nearest to a double, as uint64."""

    def generate(context, builder, signature, args):
        return builder.zext(builder.bitcast(builder.fptrunc(args[0], ir.FloatType()), _i32), _i64)

    return U64(F64), generate


@intrinsic
def as_u(typing_context, value):
    """Reinterpret an int64 as uint64."""

    def generate(context, builder, signature, args):
        return args[0]

    return U64(I64), generate


@intrinsic
def as_i(typing_context, value):
    """Reinterpret a uint64 as int64."""

    def generate(context, builder, signature, args):
        return args[0]

    return I64(U64), generate


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
