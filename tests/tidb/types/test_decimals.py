"""DECIMAL, against bytes of TiDB's encoder and against Python's decimals."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import MalformedBytes
from tidemill.tidb.types.decimals import decimal_size, decode_decimal, encode_decimal, round_decimal

GOLDEN = Path(__file__).parents[2] / "golden" / "tidb" / "codec.json"
VECTORS = [v for v in json.loads(GOLDEN.read_text(encoding="utf-8")) if v["group"] == "decimal"]


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{v['name']}-{v['input']}" for v in VECTORS])
def test_vectors(vector: dict[str, Any]) -> None:
    prec, frac = (int(n) for n in re.findall(r"\d+", vector["name"]))
    encoded = bytes.fromhex(vector["hex"])
    assert decode_decimal(encoded) == (vector["input"], len(encoded))
    assert encode_decimal(vector["input"], prec, frac) == encoded


@st.composite
def numbers(draw: st.DrawFn) -> tuple[str, int, int]:
    prec = draw(st.integers(1, 65))
    frac = draw(st.integers(0, min(prec, 30)))
    digits = str(draw(st.integers(0, 10**prec - 1))).rjust(frac + 1, "0")
    sign = "-" if draw(st.booleans()) and digits.strip("0") else ""
    whole = digits[: len(digits) - frac]
    return f"{sign}{whole}.{digits[len(whole) :]}" if frac else sign + whole, prec, frac


@given(numbers())
def test_round_trip(number: tuple[str, int, int]) -> None:
    text, prec, frac = number
    encoded = encode_decimal(text, prec, frac)
    assert len(encoded) == 2 + decimal_size(prec, frac)
    found, end = decode_decimal(b"\x06" + encoded + b"\x00", 1)
    assert end == len(encoded) + 1
    assert found == text


@given(st.integers(1, 65).flatmap(lambda p: st.tuples(st.just(p), *(st.integers(-(10**p) + 1, 10**p - 1),) * 2)))
def test_equal_scales_sort_by_value(case: tuple[int, int, int]) -> None:
    prec, one, two = case
    assert (encode_decimal(str(one), prec, 0) < encode_decimal(str(two), prec, 0)) == (one < two)


def test_a_negative_zero_is_zero() -> None:
    assert decode_decimal(bytes(b ^ 0xFF if i > 1 else b for i, b in enumerate(bytes.fromhex("0a028000000000"))))[0] == "0.00"
    assert encode_decimal("-0.001", 10, 2) == encode_decimal("0", 10, 2)


@pytest.mark.parametrize(
    ("text", "frac", "expected"), [("1.005", 2, "1.01"), ("-1.5", 0, "-2"), ("7", 3, "7.000"), ("-0", 1, "0.0"), ("1e3", 0, "1000")]
)
def test_rounding(text: str, frac: int, expected: str) -> None:
    assert round_decimal(text, frac) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", "needs its precision and scale, 0 bytes are left"),
        ("0a", "1 bytes are left"),
        ("0000", "impossible precision 0"),
        ("ff0080", "impossible precision 255"),
        ("0203800000", "impossible precision 2 and scale 3"),
        ("0a0280000000", "needs 5 bytes, 4 are left"),
        ("0100ff", "has 127 at byte 2, where 1 digits stand"),
        ("0900ffffffff", "has 2147483647 at byte 2, where 9 digits stand"),
    ],
)
def test_malformed(data: str, expected: str) -> None:
    with pytest.raises(MalformedBytes, match=expected):
        decode_decimal(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("text", "prec", "frac"), [("100", 2, 0), ("9.99", 2, 1), ("x", 5, 0), ("NaN", 5, 0), ("Infinity", 5, 0), ("1", 0, 0), ("1", 3, 4)]
)
def test_what_does_not_fit_is_refused(text: str, prec: int, frac: int) -> None:
    with pytest.raises(ValueError, match=r"decimal|fit"):
        encode_decimal(text, prec, frac)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_decimal_or_malformed(data: bytes) -> None:
    try:
        text, end = decode_decimal(data)
    except MalformedBytes:
        return
    assert Decimal(text).is_finite()
    assert end <= len(data)
