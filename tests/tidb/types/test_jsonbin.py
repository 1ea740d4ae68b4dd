"""Binary JSON: TiDB's bytes, round trips, and documents that lie about themselves."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.errors import MalformedBytes
from tidemill.tidb.types.jsonbin import (
    encode_json,
    encode_json_text,
    encode_printed_json,
    json_quote,
    json_size,
    json_text,
    printed_style,
)
from tidemill.tidb.types.jsonstyle import JsonStyle, style_of
from tidemill.tidb.types.times import Moment, to_core

GOLDEN = Path(__file__).parents[2] / "golden" / "tidb" / "codec.json"
VECTORS = [v for v in json.loads(GOLDEN.read_text(encoding="utf-8")) if v["group"] == "json"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(-1e15, 1e15) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize("vector", VECTORS, ids=[v["input"][:40] for v in VECTORS])
def test_vectors(vector: dict[str, Any]) -> None:
    document = bytes.fromhex(vector["hex"])
    text = vector["name"].partition("back=")[2]
    if not text.endswith("..."):
        assert json_text(document) == text
    assert json_size(document) == len(document)
    if text[:7] != '"base64' and not text.endswith("...") and vector["input"][:4] not in ("date", "time"):
        assert encode_json_text(vector["input"]) == document


@given(VALUES)
def test_round_trip(value: Any) -> None:
    document = encode_json(value)
    assert json_size(b"x" + document + b"y", 1) == len(document)
    back = json.loads(json_text(document))
    assert back == value
    assert encode_json(json.loads(json.dumps(value))) == document


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [], "": {}}, '{"": {}, "a": [], "b": 1}'),
        ("tab\t nl\n cr\r b\b f\f nul\0 <>&/ \x7f \u2028é😀", '"tab\\t nl\\n cr\\r b\\u0008 f\\u000c nul\\u0000 <>&/ \x7f \\u2028é😀"'),
        (1.0, "1"),
        (1e21, "1e+21"),
        (-1e-10, "-1e-10"),
        (9007199254740993.0, "9007199254740992"),
        (1e20, "100000000000000000000"),
        (1 << 64, "18446744073709552000"),
        (-(1 << 63) - 1, "-9223372036854776000"),
    ],
)
def test_text(value: Any, text: str) -> None:
    assert json_text(encode_json(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("tab\t nl\n cr\r b\b f\f nul\0 <>&/ \x7f \u2028é😀", '"tab\\t nl\\n cr\\r b\\b f\\f nul\\u0000 <>&/ \x7f \\u2028é😀"'),
        ({"a\b": [1, 1.0, -0.0, 0.0]}, '{"a\\b": [1, 1.0, -0.0, 0.0]}'),
        (2.5, "2.5"),
        (999999999999999.0, "999999999999999.0"),
        (1e15, "1e15"),
        (1234567890123456.5, "1.2345678901234565e15"),
        (1.5e300, "1.5e300"),
        (-1e21, "-1e21"),
        (1e-15, "0.000000000000001"),
        (1.25e-10, "0.000000000125"),
        (9.999999999999999e-16, "9.999999999999999e-16"),
        (-5e-324, "-5e-324"),
        (9007199254740993.0, "9.007199254740992e15"),
        (1e20, "1e20"),
        (1 << 64, "1.8446744073709552e19"),
    ],
)
def test_text_of_newer_versions(value: Any, text: str) -> None:
    document = encode_json(value)
    assert json_text(document, JsonStyle.MYSQL) == text
    assert encode_printed_json(text) == document
    assert printed_style(text) is (JsonStyle.GO if json_text(document) == text else JsonStyle.MYSQL)


@given(VALUES)
def test_both_ways_of_printing_are_the_same_values(value: Any) -> None:
    document = encode_json(value)
    new, old = json_text(document, JsonStyle.MYSQL), json_text(document)
    assert json.loads(new) == json.loads(old) == value
    assert encode_printed_json(new) == document
    assert printed_style(old) is JsonStyle.GO
    assert json_text(encode_printed_json(old), printed_style(old)) == old
    assert json_text(encode_printed_json(new), printed_style(new)) == new


@pytest.mark.parametrize(
    ("version", "style"),
    [
        ("", JsonStyle.GO), ("?", JsonStyle.GO), ("7.5.0", JsonStyle.GO), ("v8.5.7", JsonStyle.GO), ("v8.5.8-fips", JsonStyle.GO),
        ("8.5.1-alpha-3-gabc-dirty", JsonStyle.GO), ("9.0.0-beta.1", JsonStyle.GO), ("9.0.0-beta.1.pre-6-gabc", JsonStyle.GO),
        ("9.0.0-beta.2.pre", JsonStyle.MYSQL), ("9.0.0-beta.2", JsonStyle.MYSQL), ("v9.0.0-alpha-12-gabc", JsonStyle.MYSQL),
        ("9.0.0", JsonStyle.MYSQL), ("9.1.0-beta.1", JsonStyle.MYSQL), ("26.3.0", JsonStyle.MYSQL),
    ],
)  # fmt: skip
def test_versions(version: str, style: JsonStyle) -> None:
    assert style_of(version) is style


def test_bytes_that_are_no_utf8() -> None:
    assert json_quote(b"a\xff\xe4\xb8z\xed\xa0\x80") == '"a\\ufffd\\ufffd\\ufffdz\\ufffd\\ufffd\\ufffd"'


def test_times_and_opaque_values_inside_of_containers() -> None:
    moment = to_core(Moment(2020, 2, 29, 12, 34, 56, 789_000)) | 0b1110
    bodies = [
        (0x0F, moment.to_bytes(8, "little")),
        (0x0E, moment.to_bytes(8, "little")),
        (0x11, struct.pack("<qI", -45_296_123_456_000, 6)),
        (0x0D, b"\xfd\x02\x01\x02"),
    ]
    assert json_text(_array(bodies)) == '["2020-02-29 12:34:56.789000", "2020-02-29", "-12:34:56.123456", "base64:type253:AQI="]'


def _array(bodies: list[tuple[int, bytes]]) -> bytes:
    offset, entries, tail = 8 + 5 * len(bodies), b"", b""
    for code, body in bodies:
        entries += struct.pack("<BI", code, offset + len(tail))
        tail += body
    return b"\x03" + struct.pack("<II", len(bodies), offset + len(tail)) + entries + tail


def test_deep_documents() -> None:
    value: Any = 1
    for _ in range(500):
        value = [value]
    document = encode_json(1)
    for _ in range(5000):
        document = _array([(document[0], document[1:])])
    assert json_text(document) == "[" * 5000 + "1" + "]" * 5000
    with pytest.raises(ValueError, match="nested too deeply"):
        encode_json_text("[" * 100_000 + "]" * 100_000)


def test_a_wide_document() -> None:
    value = {f"key{i:05d}": [i, str(i)] for i in range(20_000)}
    assert json.loads(json_text(encode_json(value))) == value


def test_of_equal_keys_the_last_counts() -> None:
    assert json_text(encode_json_text('{"dup": 1, "dup": 2}')) == '{"dup": 2}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"k" * 65536: 1}])
def test_values_that_json_cannot_hold(value: Any) -> None:
    with pytest.raises(ValueError, match=r"cannot hold|65535"):
        encode_json(value)


def test_types_that_json_cannot_hold() -> None:
    with pytest.raises(TypeError, match="cannot hold set"):
        encode_json({1, 2})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("", "a JSON type code at byte 0"),
        ("02", "type code at byte 0 is 0x02"),
        ("0403", "the JSON literal at byte 1 is 3"),
        ("040000", "is followed by 1 more"),
        ("09ffff", "needs 9 bytes, 3 are left"),
        ("0c05616263", "needs 7 bytes, 5 are left"),
        ("0b000000000000f07f", "is inf"),
        ("0f" + "ff" * 8, "has year 16383"),
        ("030100000004000000", "is followed by 4 more"),
        ("03ffffffff08000000", "has 4294967295 members"),
        ("030000000009000000", "needs 10 bytes, 9 are left"),
        ("03010000000d0000000900000000", "points to 1, outside of"),
        ("03010000000d000000090d000000", "points to 14, outside of"),
        ("0301000000150000000c0d00000008616263646566", "needs"),
        ("01010000001800000003000000010004010000006161616161", "key 0 of the JSON object at byte 1 lies outside"),
    ],
)
def test_malformed(document: str, expected: str) -> None:
    with pytest.raises(MalformedBytes, match=expected):
        json_text(bytes.fromhex(document))


def test_a_document_that_contains_itself() -> None:
    with pytest.raises(MalformedBytes, match="points to 1, outside"):
        json_text(bytes.fromhex("03010000000d0000000300000000"))


def test_bodies_that_are_shared_do_not_multiply() -> None:
    """Arrays of 100 members that all point to the same next array: 100^40 values in a few kilobytes."""
    count = 100
    body = struct.pack("<II", 0, 8)
    for _ in range(40):
        head = 8 + 5 * count
        entries = struct.pack("<BI", 3, head) * count
        body = struct.pack("<II", count, head + len(body)) + entries + body
    with pytest.raises(MalformedBytes, match="overlap"):
        json_text(b"\x03" + body)


@given(VALUES, st.data())
@example([[]], None)
def test_a_changed_byte_gives_text_or_malformed(value: Any, data: Any) -> None:
    document = bytearray(encode_json(value))
    places = range(len(document)) if data is None else data.draw(st.lists(st.integers(0, len(document) - 1), max_size=3))
    for place in places:
        document[place] = 0xFF if data is None else data.draw(st.integers(0, 255))
        _read(bytes(document))


@given(st.sampled_from([1, 3, 9, 11, 12, 13, 14, 15, 16, 17]), st.binary(max_size=64))
def test_any_bytes_are_json_or_malformed(code: int, body: bytes) -> None:
    _read(bytes([code]) + body)


def _read(document: bytes) -> None:
    try:
        text = json_text(document)
    except MalformedBytes:
        return
    assert len(text) <= 30 * len(document)


def test_minus_zero_is_an_integer_of_a_user_and_a_double_of_a_printer() -> None:
    for text in ("-0", '{"a": [-0, 1]}'):
        assert json_text(encode_json_text(text)) == text.replace("-0", "0")
        assert json_text(encode_printed_json(text)) == text
    assert json_text(encode_json_text("-0.0")) == "-0"
    assert encode_printed_json(json_text(encode_json(-0.0))) == encode_json(-0.0)
    assert encode_printed_json('[-1, 0, 18446744073709551615, "-0"]') == encode_json_text('[-1, 0, 18446744073709551615, "-0"]')
