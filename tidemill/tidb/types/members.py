"""ENUM, SET and BIT. They are stored as numbers; some protocols want names and bytes."""

from __future__ import annotations

from collections.abc import Sequence


def enum_name(index: int, elems: Sequence[str]) -> str:
    """Return the element at a 1-based index. 0 is the empty error value. Raises ValueError for an index beyond the last."""
    if not 0 <= index <= len(elems):
        raise ValueError(f"enum index {index} of {len(elems)} elements")
    return elems[index - 1] if index else ""


def set_names(mask: int, elems: Sequence[str]) -> str:
    """Return the elements of a bit mask, joined by commas in their declared order. Raises ValueError for a bit without an element."""
    if mask >> len(elems):
        raise ValueError(f"set value {mask} of {len(elems)} elements")
    return ",".join(elem for bit, elem in enumerate(elems) if mask >> bit & 1)


def parse_enum(text: str, elems: Sequence[str]) -> int:
    """Return the index of an element by its name, exact or ignoring case. A number is an index. Raises ValueError."""
    for wanted, names in ((text, list(elems)), (text.casefold(), [e.casefold() for e in elems])):
        if wanted in names:
            return names.index(wanted) + 1
    if text == "":
        return 0
    if text.isdecimal() and int(text) <= len(elems):
        return int(text)
    raise ValueError(f"{text[:60]!r} is not an element of the enum")


def parse_set(text: str, elems: Sequence[str]) -> int:
    """Return the bit mask of comma-separated names. A number is a mask. Raises ValueError."""
    mask = 0
    for name in text.split(",") if text else ():
        try:
            mask |= 1 << parse_enum(name, elems) - 1
        except ValueError:
            if text.isdecimal() and not int(text) >> len(elems):
                return int(text)
            raise ValueError(f"{text[:60]!r} has elements that the set does not have") from None
    return mask


def bit_bytes(value: int, width: int) -> bytes:
    """Return a BIT(width) as MySQL's clients get it: big-endian, (width + 7) / 8 bytes. Raises ValueError when it does not fit."""
    try:
        return value.to_bytes((width + 7) // 8, "big")
    except OverflowError:
        raise ValueError(f"{value} does not fit into bit({width})") from None
