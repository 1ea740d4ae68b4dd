"""VECTOR columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import MalformedBytes
from tidemill.tidb.types.vectors import decode_vector, encode_vector, parse_vector, vector_text


@pytest.mark.parametrize(("text", "data"), [("[1,2.5,-3]", "030000000000803f00002040000040c0"), ("[]", "00000000")])
def test_bytes_of_tidb(text: str, data: str) -> None:
    assert encode_vector(parse_vector(text)).hex() == data
    assert vector_text(bytes.fromhex(data)) == text


def test_no_exponents() -> None:
    assert vector_text(encode_vector((1e10, 1e-10, -0.0))) == "[10000000000,0.0000000001,-0]"


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
def test_round_trip(elements: list[float]) -> None:
    data = encode_vector(elements)
    assert decode_vector(data) == tuple(elements)
    assert parse_vector(vector_text(data)) == pytest.approx(elements, rel=1e-7)


@pytest.mark.parametrize("data", ["", "000000", "01000000", "0100000000", "ffffffff00000000", "010000000000c07f", "010000000000807f"])
def test_malformed(data: str) -> None:
    with pytest.raises(MalformedBytes, match="vector"):
        vector_text(bytes.fromhex(data))


@pytest.mark.parametrize("text", ["1", '["a"]', "[1", "{}"])
def test_texts_that_are_no_vector(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a vector|Expecting"):
        parse_vector(text)


def test_the_longest_vector() -> None:
    elements = tuple(float(i) for i in range(16383))
    data = encode_vector(elements)
    assert len(data) == 4 + 4 * 16383
    assert decode_vector(data) == elements
    assert vector_text(data).endswith(",16382]")
