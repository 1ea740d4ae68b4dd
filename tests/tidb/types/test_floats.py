"""Floating point text in Go's form."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.tidb.types.floats import go_float, go_float_plain, to_float32


@pytest.mark.parametrize(
    ("value", "bits", "expected"),
    [
        (0.0, 64, "0"),
        (-0.0, 64, "-0"),
        (7.0, 64, "7"),
        (1e15, 64, "1000000000000000"),
        (0.1, 64, "0.1"),
        (1e-6, 64, "0.000001"),
        (9.99e-7, 64, "9.99e-7"),
        (1e-7, 64, "1e-7"),
        (1e20, 64, "100000000000000000000"),
        (1e21, 64, "1e+21"),
        (-1.5e300, 64, "-1.5e+300"),
        (5e-324, 64, "5e-324"),
        (1.7976931348623157e308, 64, "1.7976931348623157e+308"),
        (0.3, 32, "0.3"),
        (123456789.0, 32, "123456790"),
        (1.1754943508222875e-38, 32, "1.1754944e-38"),
        (3.4028234663852886e38, 32, "3.4028235e+38"),
        (1e-45, 32, "1e-45"),
        (1e-6, 32, "0.000001"),
        (1e21, 32, "1e+21"),
        (16777216.0, 32, "16777216"),
    ],
)
def test_json_numbers(value: float, bits: int, expected: str) -> None:
    assert go_float(value, bits) == expected


@pytest.mark.parametrize(
    ("value", "bits", "expected"),
    [
        (1e21, 64, "1000000000000000000000"),
        (1e-7, 64, "0.0000001"),
        (-2.5, 64, "-2.5"),
        (-0.0, 64, "-0"),
        (1e10, 32, "10000000000"),
        (1e-10, 32, "0.0000000001"),
    ],
)
def test_plain_numbers(value: float, bits: int, expected: str) -> None:
    assert go_float_plain(value, bits) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(2.0**-44)
@example(9007199254740993.0)
def test_doubles_read_back(value: float) -> None:
    assert float(go_float(value)) == value
    assert float(go_float_plain(value)) == value
    digits = go_float(abs(value)).partition("e")[0].replace(".", "").strip("0")
    assert len(digits) <= len(repr(abs(value)).partition("e")[0].replace(".", "").strip("0"))


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(2.0**-126)
@example(8388608.0)
def test_floats_read_back(value: float) -> None:
    for text in (go_float(value, 32), go_float_plain(value, 32)):
        assert to_float32(float(text)) == value
        assert math.copysign(1, float(text)) == math.copysign(1, value)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=2.0**-100, max_value=2.0**100))
def test_float_digits_are_the_fewest(value: float) -> None:
    digits = len(go_float(value, 32).partition("e")[0].replace(".", "").strip("0"))
    for fewer in range(1, digits):
        assert struct.pack("<f", float(f"{value:.{fewer - 1}e}")) != struct.pack("<f", value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_has_no_text(value: float) -> None:
    with pytest.raises(ValueError, match="has no text"):
        go_float(value)
    with pytest.raises(ValueError, match="has no text"):
        go_float_plain(value)


def test_beyond_single_precision_is_infinite() -> None:
    assert math.isinf(to_float32(1e39))
