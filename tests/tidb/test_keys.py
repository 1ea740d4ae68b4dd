"""Keys, against bytes of TiDB's own encoders (golden/tidb/codec.json) and a real cluster's meta range."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import MalformedKey
from tidemill.tidb import keys
from tidemill.tidb.keys import MetaKey, MetaKind, RecordKey

GOLDEN = Path(__file__).parents[1] / "golden"
VECTORS: list[dict[str, Any]] = json.loads((GOLDEN / "tidb" / "codec.json").read_text(encoding="utf-8"))
I64 = st.integers(-(1 << 63), (1 << 63) - 1)


def of(group: str, *names: str) -> list[Any]:
    return [pytest.param(v, id=f"{v['name']}-{v['input']}") for v in VECTORS if v["group"] == group and v["name"].startswith(names)]


@pytest.mark.parametrize("vector", of("key", "table prefix", "record range"))
def test_ranges(vector: dict[str, Any]) -> None:
    table_id = int(vector["input"])
    start, end = keys.record_range(table_id)
    encoded_start, encoded_end = keys.encode_range(start, end)
    expected = {
        "table prefix raw": keys.table_prefix(table_id),
        "record range start raw": start,
        "record range start encoded": encoded_start,
        "record range end encoded": encoded_end,
    }[vector["name"]]
    assert expected.hex() == vector["hex"]


@pytest.mark.parametrize("vector", of("key", "record key"))
def test_int_handles(vector: dict[str, Any]) -> None:
    table_id, handle = (int(n) for n in re.findall(r"-?\d+", vector["input"]))
    raw = keys.record_key(table_id, handle)
    assert (keys.to_encoded(raw) if "encoded" in vector["name"] else raw).hex() == vector["hex"]
    assert keys.parse_record_key(raw) == RecordKey(table_id, handle)
    assert bytes(RecordKey(table_id, handle)) == raw
    assert keys.from_encoded(keys.to_encoded(raw)) == raw


@pytest.mark.parametrize("vector", of("handle", "record key"))
def test_common_handles(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["hex"])
    found = keys.parse_record_key(raw)
    assert found.table_id == 100
    assert isinstance(found.handle, bytes)
    assert keys.record_key(100, found.handle) == raw


def test_index_key() -> None:
    vector = next(v for v in VECTORS if v["name"] == "index seek key prefix")
    assert keys.index_prefix(45, 1).hex() == vector["hex"]
    assert keys.parse_index_key(keys.index_prefix(45, 1) + b"\x03x") == keys.IndexKey(45, 1, b"\x03x")


def test_unsigned_handles_are_bit_patterns() -> None:
    assert keys.signed_handle((1 << 64) - 1) == -1
    assert keys.unsigned_handle(-1) == (1 << 64) - 1
    assert keys.unsigned_handle(keys.signed_handle(7)) == 7


def _meta(name: str, text: str) -> bytes:
    head, _, field = text.partition(" / ")
    if name == "string key":
        return keys.meta_string(head.encode())
    if name == "hash data prefix":
        return keys.meta_hash_prefix(head.encode())
    if name.startswith("hash data key"):
        return keys.meta_hash_field(head.encode(), (7).to_bytes(8, "big") if field.startswith("job 7") else field.encode())
    if name.startswith("list span"):
        start, end = keys.meta_list_range(head.encode())
        if "encoded" in name:
            start, end = keys.encode_range(start, end)
        return start if "start" in name else end
    if name == "list meta key":
        return bytes(MetaKey(MetaKind.LIST_HEAD, head.encode()))
    return bytes(MetaKey(MetaKind.LIST_ITEM, head.encode(), index=int(name.rpartition(" ")[2])))


@pytest.mark.parametrize("vector", of("meta", ""))
def test_meta_keys(vector: dict[str, Any]) -> None:
    assert _meta(vector["name"], vector["input"]).hex() == vector["hex"]


def test_a_real_meta_range_parses_and_is_written_the_same() -> None:
    with gzip.open(GOLDEN / "ticdc" / "meta_snapshot_0.jsonl.gz", "rt") as lines:
        found = [base64.b64decode(row["k"]) for row in map(json.loads, lines) if "k" in row]
    assert len(found) > 150
    for raw in found:
        assert bytes(keys.parse_meta_key(raw)) == raw
    kinds = {keys.parse_meta_key(raw).kind for raw in found}
    assert {MetaKind.STRING, MetaKind.HASH_FIELD} <= kinds


def test_ids_in_meta_names() -> None:
    assert keys.schema_id_of(b"DB:2") == 2
    assert keys.schema_id_of(b"DBs") is None
    assert keys.table_id_of(b"Table:45") == 45
    assert keys.table_id_of(b"TID:45") is None
    assert keys.table_id_of(b"Table:") is None
    assert keys.parse_meta_key(keys.table_key(2, 45)) == MetaKey(MetaKind.HASH_FIELD, b"DB:2", b"Table:45")
    assert keys.parse_meta_key(keys.db_key(2)) == MetaKey(MetaKind.HASH_FIELD, b"DBs", b"DB:2")
    assert keys.covers([keys.DB_HASHES_RANGE], keys.table_key(2, 45))
    assert not keys.covers([keys.DB_HASHES_RANGE], keys.db_key(2))


def test_keyspaces() -> None:
    key = keys.record_key(45, 1)
    prefix = keys.keyspace_prefix(0x010203)
    assert prefix.hex() == "78010203"
    assert keys.strip_keyspace(prefix + key, 0x010203) == key
    assert keys.keyspace_range(0x0102FF) == (bytes.fromhex("780102ff"), bytes.fromhex("78010300"))
    with pytest.raises(MalformedKey, match="not in keyspace 7"):
        keys.strip_keyspace(key, 7)
    with pytest.raises(ValueError, match="keyspace 16777216"):
        keys.keyspace_prefix(1 << 24)


def test_an_empty_end_stays_infinity() -> None:
    assert keys.encode_range(b"t", b"")[1] == b""
    assert keys.covers([(b"t", b"")], b"zzz")
    assert not keys.covers([(b"t", b"u")], b"u")


def test_system_schemas() -> None:
    assert keys.is_system_schema("MySQL")
    assert keys.is_system_schema("INFORMATION_SCHEMA")
    assert not keys.is_system_schema("test")


def test_fixed_ids() -> None:
    assert keys.table_prefix(keys.DDL_JOB_TABLE_ID).hex() == "748000fffffffffffe"
    assert keys.table_prefix(keys.DDL_HISTORY_TABLE_ID).hex() == "748000fffffffffffc"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (keys.record_key(45, -1), "t 45 _r -1"),
        (keys.record_key(45, b"\x01abc"), "t 45 _r 016162630000000000"),
        (keys.index_prefix(45, 2) + b"\x03", "t 45 _i 2 03"),
        (keys.table_key(2, 45), "m DB:2 h Table:45"),
        (keys.SCHEMA_VERSION_KEY, "m SchemaVersionKey s"),
        (bytes(MetaKey(MetaKind.LIST_ITEM, b"DDLJobList", index=-1)), "m DDLJobList l -1"),
        (b"t\x80", "key 7480"),
        (b"", "key "),
    ],
)
def test_display(key: bytes, expected: str) -> None:
    assert keys.display(key) == expected


@pytest.mark.parametrize(
    ("parse", "key", "expected"),
    [
        (keys.parse_record_key, b"", "is not a key of a table"),
        (keys.parse_record_key, b"t\x80\0\0", "is not a key of a table"),
        (keys.parse_record_key, keys.index_prefix(45, 1), "expected `_r` at byte 9, found b'_i'"),
        (keys.parse_record_key, keys.record_prefix(45) + b"\x80", "a handle of 1 bytes at byte 11"),
        (keys.parse_index_key, keys.record_key(45, 1), "expected `_i` at byte 9"),
        (keys.parse_index_key, keys.index_prefix(45, 1)[:-1], "ends inside its index id"),
        (keys.parse_meta_key, b"t", "is not a meta key: expected `m`"),
        (keys.parse_meta_key, b"mDB", "a group of memcomparable bytes at byte 1"),
        (keys.parse_meta_key, keys.SCHEMA_VERSION_KEY[:-1] + b"q", "expected s, h, H, l or L"),
        (keys.parse_meta_key, keys.SCHEMA_VERSION_KEY + b"q", "1 bytes follow its end"),
        (keys.from_encoded, keys.to_encoded(b"t") + b"x", "1 bytes follow its end"),
        (keys.from_encoded, b"t", "is not an encoded key"),
    ],
)
def test_malformed(parse: Any, key: bytes, expected: str) -> None:
    with pytest.raises(MalformedKey, match=re.escape(expected)):
        parse(key)


@given(I64, st.one_of(I64, st.binary(min_size=9)))
def test_record_keys_round_trip(table_id: int, handle: int | bytes) -> None:
    raw = keys.record_key(table_id, handle)
    assert keys.parse_record_key(raw) == RecordKey(table_id, handle)
    assert keys.physical_table_id(raw) == table_id
    assert keys.covers([keys.record_range(table_id)], raw)


@given(st.sampled_from([MetaKind.HASH_FIELD, MetaKind.LIST_ITEM, MetaKind.STRING]), st.binary(), st.binary(), I64)
def test_meta_keys_round_trip(kind: MetaKind, name: bytes, field: bytes, index: int) -> None:
    key = MetaKey(kind, name, field if kind is MetaKind.HASH_FIELD else b"", index if kind is MetaKind.LIST_ITEM else 0)
    assert keys.parse_meta_key(bytes(key)) == key


@given(st.binary(max_size=80))
def test_any_bytes_are_displayed(key: bytes) -> None:
    assert keys.display(b"t" + key)
    assert keys.display(b"m" + key)
