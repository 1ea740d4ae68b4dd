"""The primitive encodings, against bytes that TiDB's own encoders wrote (golden/tidb/codec.json)."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import MalformedBytes
from tidemill.tidb import codec
from tidemill.tidb.datums import Datum, DatumFlag, decode_datum, encode_datum

GOLDEN = Path(__file__).parents[1] / "golden" / "tidb" / "codec.json"
VECTORS: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
U64 = st.integers(0, (1 << 64) - 1)


def of(group: str) -> list[Any]:
    return [pytest.param(v, id=f"{v['name']}-{str(v['input'])[:40]}") for v in VECTORS if v["group"] == group]


NUMBER_CODECS = {
    "EncodeInt": (codec.encode_int, codec.decode_int),
    "EncodeUint": (codec.encode_uint, codec.decode_uint),
    "EncodeUintDesc": (codec.encode_uint_desc, codec.decode_uint_desc),
    "EncodeVarint": (codec.encode_varint, codec.decode_varint),
    "EncodeUvarint": (codec.encode_uvarint, codec.decode_uvarint),
}


@pytest.mark.parametrize("vector", of("bytes"))
def test_bytes(vector: dict[str, Any]) -> None:
    data, encoded = bytes.fromhex(vector["input"].removeprefix("hex:")), bytes.fromhex(vector["hex"])
    assert codec.encode_bytes(data) == encoded
    assert codec.decode_bytes(encoded) == (data, len(encoded))


@pytest.mark.parametrize("vector", of("int") + of("uint") + of("varint"))
def test_integers(vector: dict[str, Any]) -> None:
    encode, decode = NUMBER_CODECS[vector["name"]]
    encoded = bytes.fromhex(vector["hex"])
    assert encode(int(vector["input"])) == encoded
    assert decode(encoded) == (int(vector["input"]), len(encoded))


@pytest.mark.parametrize("vector", of("compactbytes"))
def test_compact_bytes(vector: dict[str, Any]) -> None:
    encoded = bytes.fromhex(vector["hex"])
    assert codec.encode_compact_bytes(vector["input"].encode()) == encoded
    assert codec.decode_compact_bytes(encoded) == (vector["input"].encode(), len(encoded))


@pytest.mark.parametrize("vector", of("float"))
def test_floats(vector: dict[str, Any]) -> None:
    encoded = bytes.fromhex(vector["hex"])
    assert codec.encode_float(float(vector["input"])) == encoded
    assert codec.decode_float(encoded) == (float(vector["input"]), 8)


def test_negative_zero_is_stored_as_zero() -> None:
    assert codec.encode_float(-0.0) == codec.encode_float(0.0)
    assert math.copysign(1, codec.decode_float(bytes.fromhex("7fffffffffffffff"))[0]) == -1


def _datum(text: str) -> tuple[Datum, int, int]:
    """A value of the golden file as the datum that a key has."""
    text = text.strip()
    if text.startswith("'"):
        return Datum(DatumFlag.BYTES, text.strip("'").encode()), 0, 0
    kind, _, rest = text.partition(" ")
    if kind.startswith("decimal("):
        prec, frac = (int(n) for n in re.findall(r"\d+", kind))
        return Datum(DatumFlag.DECIMAL, rest), prec, frac
    if kind == "datetime":
        return Datum(DatumFlag.UINT, 1844199302927220736), 0, 0
    if kind == "time":
        return Datum(DatumFlag.DURATION, 40_953_000_000_000), 0, 0
    if kind == "bit":
        return Datum(DatumFlag.UINT, 0b1010001), 0, 0
    if kind == "float64":
        return Datum(DatumFlag.FLOAT, float(rest)), 0, 0
    if kind in ("uint", "enum", "set"):
        return Datum(DatumFlag.UINT, int(rest)), 0, 0
    number = {"year": "1970", "int": rest}.get(kind, text)
    return Datum(DatumFlag.INT, int(number)), 0, 0


@pytest.mark.parametrize("vector", [p for p in of("handle") if p.values[0]["name"] == "EncodeKey datums"])
def test_datums_of_keys(vector: dict[str, Any]) -> None:
    expected = [_datum(part) for part in _split(vector["input"])]
    encoded = bytes.fromhex(vector["hex"])
    assert b"".join(encode_datum(d, prec=p, frac=f) for d, p, f in expected) == encoded
    pos = 0
    for datum, _, _ in expected:
        found, pos = decode_datum(encoded, pos)
        assert found == datum
    assert pos == len(encoded)


def _split(text: str) -> list[str]:
    """The parts of `('a',1)`, where a comma inside parentheses does not count."""
    parts, depth = [""], 0
    for char in text[1:-1]:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


@given(st.binary())
def test_bytes_round_trip(data: bytes) -> None:
    assert codec.decode_bytes(b"x" + codec.encode_bytes(data) + b"y", 1)[0] == data


@given(st.binary(), st.binary())
def test_bytes_sort_as_the_plain_ones(one: bytes, two: bytes) -> None:
    assert (codec.encode_bytes(one) < codec.encode_bytes(two)) == (one < two)


@given(I64, U64, st.floats(allow_nan=False), st.binary())
def test_datums_round_trip(signed: int, unsigned: int, number: float, data: bytes) -> None:
    datums = [
        Datum(DatumFlag.NULL, None),
        Datum(DatumFlag.INT, signed),
        Datum(DatumFlag.VARINT, signed),
        Datum(DatumFlag.DURATION, signed),
        Datum(DatumFlag.UINT, unsigned),
        Datum(DatumFlag.UVARINT, unsigned),
        Datum(DatumFlag.FLOAT, number),
        Datum(DatumFlag.BYTES, data),
        Datum(DatumFlag.COMPACT_BYTES, data),
        Datum(DatumFlag.VECTOR, b"\x01\0\0\0\0\0\x80\x3f"),
        Datum(DatumFlag.JSON, b"\x04\x01"),
        Datum(DatumFlag.MAX, None),
    ]
    encoded, pos = b"".join(encode_datum(d) for d in datums), 0
    for datum in datums:
        found, pos = decode_datum(encoded, pos)
        assert found == datum
    assert pos == len(encoded)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_datum_or_malformed(data: bytes) -> None:
    try:
        _, end = decode_datum(data)
    except MalformedBytes:
        return
    assert 0 < end <= len(data)


@pytest.mark.parametrize(
    ("decode", "data", "expected"),
    [
        (codec.decode_bytes, "0102030405060708", "at byte 0 needs 9 bytes, 8 are left"),
        (codec.decode_bytes, "0102030405060708f6", "the marker at byte 8 is 0xf6"),
        (codec.decode_bytes, "0102000000000001f9", "padding of the group at byte 0 is not zero"),
        (codec.decode_bytes, "0102030405060708ff", "at byte 9 needs 9 bytes, 0 are left"),
        (codec.decode_int, "00000000000000", "needs 8 bytes, 7 are left"),
        (codec.decode_uvarint, "ff" * 9 + "02", "more than 64 bits"),
        (codec.decode_uvarint, "ff" * 11, "more than 64 bits"),
        (codec.decode_uvarint, "8080", "at byte 2 needs 1 bytes"),
        (codec.decode_compact_bytes, "0a61", "needs 5 bytes, 1 are left"),
        (codec.decode_compact_bytes, "0161", "needs -1 bytes"),
        (decode_datum, "", "a datum at byte 0"),
        (decode_datum, "0b", "unknown flag 0x0b"),
        (decode_datum, "14ffffffff00", "a vector at byte 1 needs"),
    ],
)
def test_malformed(decode: Any, data: str, expected: str) -> None:
    with pytest.raises(MalformedBytes, match=re.escape(expected)):
        decode(bytes.fromhex(data), 0)


def test_a_datum_holds_what_its_flag_says() -> None:
    with pytest.raises(TypeError, match="INT cannot hold str"):
        encode_datum(Datum(DatumFlag.INT, "1"))
