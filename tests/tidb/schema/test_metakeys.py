"""Meta keys of a whole bootstrap: which of them schemas depend on."""

from __future__ import annotations

import pytest

from tests.support.schema.schemas import read_json
from tidemill.errors import MalformedKey
from tidemill.tidb import keys
from tidemill.tidb.schema.metakeys import MetaName, Subject, capture_ranges, meta_filter, meta_ranges, name_of


@pytest.fixture(scope="module")
def pairs() -> list[dict[str, str]]:
    return read_json("tikv/meta_kvs.json.gz")


def test_what_each_key_is_about(pairs: list[dict[str, str]]) -> None:
    found = 0
    for pair in pairs:
        name = name_of(bytes.fromhex(pair["key"]))
        field = pair.get("field", "")
        if pair["name"] == "DBs":
            assert name == MetaName(Subject.DATABASE, int(field.removeprefix("DB:")))
        elif field.startswith("Table:"):
            assert name == MetaName(Subject.TABLE, int(pair["name"].removeprefix("DB:")), int(field.removeprefix("Table:")))
        elif pair["name"] == "SchemaVersionKey":
            assert name == MetaName(Subject.SCHEMA_VERSION)
        elif pair["name"] == "DDLJobHistory":
            assert name == MetaName(Subject.JOB_HISTORY)
        else:
            assert name is None, pair["name"]
            continue
        found += 1
    assert found > 60


def test_the_ranges_hold_what_the_filter_keeps(pairs: list[dict[str, str]]) -> None:
    ranges = meta_ranges()
    assert list(ranges) == sorted(ranges)
    kept = 0
    for pair in pairs:
        key = bytes.fromhex(pair["key"])
        if meta_filter(key):
            assert keys.covers(ranges, key)
            kept += 1
        if pair["name"] in ("DDLJobHistory", "NextGlobalID", "BootstrapKey") or pair["name"].startswith("Diff:"):
            assert not keys.covers(ranges, key)
    assert kept > 60


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (keys.BDR_ROLE_KEY, MetaName(Subject.BDR_ROLE)),
        (bytes(keys.MetaKey(keys.MetaKind.LIST_ITEM, b"DDLJobList", index=-3)), MetaName(Subject.JOB)),
        (bytes(keys.MetaKey(keys.MetaKind.LIST_ITEM, b"DDLJobAddIdxList", index=0)), MetaName(Subject.JOB)),
        (bytes(keys.MetaKey(keys.MetaKind.LIST_HEAD, b"DDLJobList")), None),
        (keys.meta_hash_field(b"DB:3", b"TID:4"), None),
        (keys.meta_hash_field(b"DBs", b"x"), None),
        (keys.meta_string(b"Diff:26"), None),
    ],
)
def test_single_keys(key: bytes, name: MetaName | None) -> None:
    assert name_of(key) == name
    if name is not None:
        assert meta_filter(key)
        assert keys.covers(meta_ranges(), key)


def test_a_key_of_another_kind_is_refused() -> None:
    with pytest.raises(MalformedKey):
        name_of(keys.record_key(5, 1))


def test_the_schema_stream_is_meta_keys_and_jobs() -> None:
    ranges = capture_ranges([keys.DDL_JOB_TABLE_ID])
    assert [table_id for table_id, _ in ranges[:-1]] == [0] * len(meta_ranges())
    table_id, records = ranges[-1]
    assert table_id == keys.DDL_JOB_TABLE_ID
    assert keys.covers([records], keys.record_key(keys.DDL_JOB_TABLE_ID, 7))
    assert not keys.covers([records], keys.record_key(keys.DDL_JOB_TABLE_ID + 1, 7))
