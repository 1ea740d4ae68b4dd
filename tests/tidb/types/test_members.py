"""ENUM, SET and BIT."""

from __future__ import annotations

import pytest

from tidemill.tidb.types.members import bit_bytes, enum_name, parse_enum, parse_set, set_names

ELEMS = ("a", "B", "ü", "10")


def test_enum() -> None:
    assert [enum_name(i, ELEMS) for i in range(5)] == ["", *ELEMS]
    assert [parse_enum(name, ELEMS) for name in ("", *ELEMS, "A", "Ü", "3")] == [0, 1, 2, 3, 4, 1, 3, 3]
    with pytest.raises(ValueError, match="enum index 5 of 4"):
        enum_name(5, ELEMS)
    with pytest.raises(ValueError, match="not an element"):
        parse_enum("x", ELEMS)


def test_set() -> None:
    assert set_names(0, ELEMS) == ""
    assert set_names(0b1101, ELEMS) == "a,ü,10"
    assert [parse_set(text, ELEMS) for text in ("", "a", "b,ü", "a,a", "7")] == [0, 1, 6, 1, 7]
    with pytest.raises(ValueError, match="set value 16 of 4"):
        set_names(16, ELEMS)
    for text in ("a,x", "16", "a,"):
        with pytest.raises(ValueError, match="does not have"):
            parse_set(text, ELEMS)


def test_bit() -> None:
    assert bit_bytes(0b1010001, 7) == b"\x51"
    assert bit_bytes(5, 12) == b"\x00\x05"
    assert bit_bytes((1 << 64) - 1, 64) == b"\xff" * 8
    with pytest.raises(ValueError, match=r"does not fit into bit\(8\)"):
        bit_bytes(256, 8)
