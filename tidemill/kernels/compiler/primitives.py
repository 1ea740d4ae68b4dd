"""Operations that Python's language lacks, as pieces of LLVM's text: loads, stores, copies, bits, vectors.

In a piece `{0}` is the first argument, `{r}` the result, any other letter a value of the piece's own.

What is written by hand here is what a loop of bytes is not turned into by LLVM. In one process: to find the first of a set of characters in
9600 bytes takes 0.25 µs by `byte_mask` and 5.9 µs byte by byte; what vectors bring to base64 and UTF-8 stands in `write/base64.py` and
`canal/text.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.kernels.compiler.values import DOUBLE, INT, NONE, UINT


@dataclass(frozen=True, slots=True)
class Primitive:
    """An operation. Integers of either kind are arguments of it. `needs`: what LLVM has to be told of."""

    name: str
    arguments: str  # a kind each; INT: of either kind
    result: str
    text: str
    needs: tuple[str, ...] = ()

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.name} is an operation of kernels: only they can call it")


def load(name: str, width: int, *, result: str = INT, signed: bool = False) -> Primitive:
    """A load of `width` bits at any alignment."""
    if width == 64:
        return Primitive(name, INT, result, "{p} = inttoptr i64 {0} to ptr\n{r} = load i64, ptr {p}, align 1")
    extended = "sext" if signed else "zext"
    text = f"{{p}} = inttoptr i64 {{0}} to ptr\n{{v}} = load i{width}, ptr {{p}}, align 1\n{{r}} = {extended} i{width} {{v}} to i64"
    return Primitive(name, INT, result, text)


def store(name: str, width: int) -> Primitive:
    """A store of the low `width` bits at any alignment."""
    if width == 64:
        return Primitive(name, INT * 2, NONE, "{p} = inttoptr i64 {0} to ptr\nstore i64 {1}, ptr {p}, align 1")
    text = f"{{p}} = inttoptr i64 {{0}} to ptr\n{{v}} = trunc i64 {{1}} to i{width}\nstore i{width} {{v}}, ptr {{p}}, align 1"
    return Primitive(name, INT * 2, NONE, text)


def wide_copy(name: str, size: int) -> Primitive:
    """A copy of `size` bytes with one load and one store."""
    text = (
        f"{{s}} = inttoptr i64 {{1}} to ptr\n{{t}} = inttoptr i64 {{0}} to ptr\n"
        f"{{v}} = load <{size} x i8>, ptr {{s}}, align 1\nstore <{size} x i8> {{v}}, ptr {{t}}, align 1"
    )
    return Primitive(name, INT * 2, NONE, text)


def block_copy(name: str) -> Primitive:
    """LLVM's memcpy or memmove."""
    called = f"@llvm.{name}.p0.p0.i64"
    text = (
        "{t} = inttoptr i64 {0} to ptr\n{s} = inttoptr i64 {1} to ptr\n"
        f"call void {called}(ptr align 1 {{t}}, ptr align 1 {{s}}, i64 {{2}}, i1 false)"
    )
    return Primitive(name, INT * 3, NONE, text, (f"declare void {called}(ptr, ptr, i64, i1)",))


def intrinsic(name: str, called: str, arguments: str, result: str, rest: str = "") -> Primitive:
    """One of LLVM's functions of an int64."""
    text = f"{{r}} = call i64 @{called}.i64(i64 {{0}}{rest})"
    return Primitive(name, arguments, result, text, (f"declare i64 @{called}.i64(i64{', i1' if rest else ''})",))


def byte_mask(name: str, chars: bytes, *, below: int = 0, first: int = 0, not_ascii: bool = False) -> Primitive:
    """mask(address) over 32 bytes. Bit i: byte i is below `below`, in `chars`, at least `first` (0: none is), or (`not_ascii`) at least
    0x80."""
    # Signed compare: bytes from 0x80 on are negative, so one compare finds both.
    tests = [("slt" if not_ascii else "ult", below)]
    tests += [("uge", first)] * (first > 0) + [("eq", char) for char in chars]
    lines = ["{p} = inttoptr i64 {0} to ptr", "{v} = load <32 x i8>, ptr {p}, align 1"]
    lines += [f"{{t{i}}} = icmp {how} <32 x i8> {{v}}, {every(32, 'i8', byte)}" for i, (how, byte) in enumerate(tests)]
    lines += [f"{{o{i}}} = or <32 x i1> {{{'t0' if i == 1 else f'o{i - 1}'}}}, {{t{i}}}" for i in range(1, len(tests))]
    found = f"{{o{len(tests) - 1}}}" if len(tests) > 1 else "{t0}"
    lines += [f"{{w}} = bitcast <32 x i1> {found} to i32", "{r} = zext i32 {w} to i64"]
    return Primitive(name, INT, INT, "\n".join(lines))


def every(count: int, kind: str, number: int) -> str:
    """A vector of equal numbers."""
    return "<" + ", ".join([f"{kind} {number}"] * count) + ">"


def _product(last: str) -> str:
    return f"{{x}} = zext i64 {{0}} to i128\n{{y}} = zext i64 {{1}} to i128\n{{m}} = mul i128 {{x}}, {{y}}\n{last}"


_HIGH = "{s} = lshr i128 {m}, 64\n{h} = trunc i128 {s} to i64"
PREFETCH = (
    "{p} = inttoptr i64 {0} to ptr\ncall void @llvm.prefetch.p0(ptr {p}, i32 0, i32 3, i32 1)",
    ("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",),
)

ld8, ld8s = load("ld8", 8), load("ld8s", 8, signed=True)
ld16, ld16s = load("ld16", 16), load("ld16s", 16, signed=True)
ld32, ld32s = load("ld32", 32), load("ld32s", 32, signed=True)
ld64, ldu64 = load("ld64", 64), load("ldu64", 64, result=UINT)
st8, st16, st32, st64 = store("st8", 8), store("st16", 16), store("st32", 32), store("st64", 64)
"""Loads give int64 (ldu64: uint64); the ending s means sign-extended."""

copy16, copy32, copy64 = wide_copy("copy16", 16), wide_copy("copy32", 32), wide_copy("copy64", 64)
memcpy, memmove = block_copy("memcpy"), block_copy("memmove")
"""(target, source): so many bytes with one load and one store. (target, source, size): memcpy's two must not overlap."""

prefetch = Primitive("prefetch", INT, NONE, *PREFETCH)
"""(address): a hint that this cache line will be read soon; any address is allowed."""

bswap64 = intrinsic("bswap64", "llvm.bswap", INT, UINT)
ctz = intrinsic("ctz", "llvm.cttz", INT, INT, ", i1 false")
clz = intrinsic("clz", "llvm.ctlz", INT, INT, ", i1 false")
"""Bytes reversed; the number of trailing and of leading zero bits, 64 for 0."""

mulhi = Primitive("mulhi", INT * 2, UINT, _product(_HIGH.replace("{h}", "{r}")))
mum = Primitive("mum", INT * 2, UINT, _product(_HIGH + "\n{l} = trunc i128 {m} to i64\n{r} = xor i64 {l}, {h}"))
"""The high 64 bits of a 128-bit product; its low half xor its high half: the mixing step of a multiplicative hash."""

f64_bits = Primitive("f64_bits", DOUBLE, UINT, "{r} = bitcast double {0} to i64")
bits_f64 = Primitive("bits_f64", INT, DOUBLE, "{r} = bitcast i64 {0} to double")
f32_bits = Primitive(
    "f32_bits", DOUBLE, UINT, "{s} = fptrunc double {0} to float\n{w} = bitcast float {s} to i32\n{r} = zext i32 {w} to i64"
)
"""A double's bits, the double of bits, the bits of the float32 nearest to a double."""

as_u, as_i = Primitive("as_u", INT, UINT, ""), Primitive("as_i", INT, INT, "")
"""An integer as the other kind, without code."""
