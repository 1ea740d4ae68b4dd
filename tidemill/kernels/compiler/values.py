"""Kinds of values in kernels, and how a value changes its kind.

A kind is a letter: INT and UINT (64 bits), BOOL, DOUBLE, SINGLE (which only becomes a double again); NONE is what a function without a
result returns. The kind of a tuple is a tuple of kinds.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

INT, UINT, BOOL, DOUBLE, SINGLE, NONE = "iubfs-"
Kind = str | tuple[str, ...]

LLVM = {INT: "i64", UINT: "i64", BOOL: "i1", DOUBLE: "double", SINGLE: "float", NONE: "void"}
_INTEGERS = (INT, UINT)


class KernelError(Exception):
    """A kernel has what the compiler does not know, or mixes kinds of values. The message names the place."""


class Value(NamedTuple):
    """A value: a number that is known now, or the name that LLVM's text has for it. Of a tuple the values."""

    kind: str
    it: int | float | str

    @property
    def text(self) -> str:
        """How it stands in LLVM's text."""
        if isinstance(self.it, str):
            return self.it
        if self.kind == DOUBLE:
            return f"0x{struct.unpack('<Q', struct.pack('<d', self.it))[0]:016X}"
        if self.kind == BOOL:
            return "true" if self.it else "false"
        return str(self.it)

    @property
    def typed(self) -> str:
        """Its type and text."""
        return f"{LLVM[self.kind]} {self.text}"

    @property
    def known(self) -> int | None:
        """The number, if it is an integer that is known now."""
        return int(self.it) if not isinstance(self.it, str) and self.kind != DOUBLE else None


def llvm_type(kind: Kind) -> str:
    """The type of a kind in LLVM's text."""
    return LLVM[kind] if isinstance(kind, str) else "{ " + ", ".join(LLVM[k] for k in kind) + " }"


def constant(found: object) -> Value:
    """The value of a constant of Python or numpy."""
    kind = getattr(getattr(found, "dtype", None), "kind", None)
    if isinstance(found, bool) or kind == "b":
        return Value(BOOL, int(bool(found)))
    if kind == "u":
        return Value(UINT, wrapped(UINT, int(found)))  # type: ignore[call-overload]
    if isinstance(found, int) or kind == "i":
        number = int(found)  # type: ignore[call-overload]
        return Value(INT if number < 1 << 63 else UINT, number)
    if isinstance(found, float):
        return Value(DOUBLE, found)
    raise KernelError(f"{found!r} is no constant that a kernel can have")


def wrapped(kind: str, number: int) -> int:
    """A number as 64 bits hold it."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if kind == INT and number >> 63 else number


def joined(one: Kind, other: Kind) -> Kind:
    """The kind that can hold both. Raises KernelError."""
    if one == other:
        return one
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(str(joined(a, b)) for a, b in zip(one, other, strict=True))
    if BOOL in (one, other):
        wide = other if one == BOOL else one
        if wide in _INTEGERS:
            return wide
    raise KernelError(f"{name_of(one)} and {name_of(other)} in one place: as_i and as_u reinterpret")


def name_of(kind: Kind) -> str:
    """A kind's name, for errors."""
    names = {INT: "int64", UINT: "uint64", BOOL: "bool", DOUBLE: "double", SINGLE: "single", NONE: "nothing"}
    return names[kind] if isinstance(kind, str) else "(" + ", ".join(names[k] for k in kind) + ")"
