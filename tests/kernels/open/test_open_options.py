"""Every option of the Open Protocol: kernel and reference give TiCDC's bytes, and each other's on random rows."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest

from tests.support.golden import ticdc
from tests.support.golden.open_options import CONFIGS, change, encode, golden, message, table_of
from tests.support.rows.random_rows import random_record, random_table
from tests.support.schema.tables import column, table
from tests.support.thorough import few_of, one_in
from tidemill.errors import ConfigError, MessageTooLarge, NoHandleKey
from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.common.claim_check import unpack
from tidemill.protocols.common.compression import expand, kind_of
from tidemill.protocols.open.batch import batches, event_size
from tidemill.protocols.open.encode import OpenTable, framed
from tidemill.protocols.open.fit import Change, Fitter
from tidemill.protocols.options import Compression, EncodingOptions, LargeMessage, LargeMessageOption
from tidemill.sinks.claim_check import ClaimCheckStorage, keeper
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row, stored_bytes
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

COLUMN_CONFIGS = ("delete-only-handle", "only-updated", "no-old-value", "handle-key-only")
COMPRESSED = ("lz4", "snappy")


def one_event_each(options: EncodingOptions) -> EncodingOptions:
    return dataclasses.replace(options, max_batch_size=1)


@pytest.mark.parametrize("config", COLUMN_CONFIGS)
def test_reference_writes_ticdcs_bytes(config: str) -> None:
    options = CONFIGS[config]
    fitter = Fitter(options)
    for line in golden()[config]:
        row = ticdc.rows()[line["id"]]
        if "error" in line:
            with pytest.raises((NoHandleKey, MessageTooLarge)):
                fitter.event(table_of(row, options), change(row))
        else:
            assert framed(*fitter.event(table_of(row, options), change(row))) == message(line), row.case


@pytest.mark.parametrize("config", COLUMN_CONFIGS)
def test_kernel_writes_ticdcs_bytes(config: str) -> None:
    lines = [line for line in golden()[config] if "error" not in line]
    messages, encoder = encode([line["id"] for line in lines], one_event_each(CONFIGS[config]))
    assert [line["id"] for line, got in zip(lines, messages, strict=True) if (got.key, got.value) != message(line)] == []
    assert encoder.slow_rows == 0


@pytest.mark.parametrize("config", ["delete-only-handle", "handle-key-only", "too-large"])
def test_kernel_refuses_the_rows_that_ticdc_refuses(config: str) -> None:
    refused = [line["id"] for line in golden()[config] if "error" in line]
    assert refused
    for row_id in one_in(3, refused):
        record = ticdc.rows()[row_id].record
        with pytest.raises((NoHandleKey, MessageTooLarge)) as error:
            encode([row_id], CONFIGS[config])
        assert f"key {record.key.hex()}" in str(error.value)
        assert f"commit_ts {record.commit_ts}" in str(error.value)
        if isinstance(error.value, MessageTooLarge):
            assert f"start_ts {record.start_ts}" in str(error.value)


@pytest.mark.parametrize("config", COMPRESSED)
def test_compressed_values_hold_ticdcs_json(config: str) -> None:
    lines = golden()[config]
    messages, encoder = encode([line["id"] for line in lines], one_event_each(CONFIGS[config]))
    for line, got in zip(lines, messages, strict=True):
        key, value = message(line)
        assert got.key == key
        assert got.value is not None
        assert kind_of(got.value[8:]) is kind_of(value[8:]) is Compression(config)
        assert int.from_bytes(got.value[:8], "big") == len(got.value) - 8
        assert expand(got.value[8:]) == expand(value[8:])
    assert encoder.slow_rows == 0


def random_options(rng: random.Random) -> EncodingOptions:
    return EncodingOptions(
        max_message_bytes=rng.choice((1 << 20, 20_000, 2_000)),
        max_batch_size=rng.choice((1, 4, 16)),
        only_output_updated_columns=rng.random() < 0.5,
        delete_only_handle_key_columns=rng.random() < 0.5,
        output_old_value=rng.random() < 0.7,
        large_message=LargeMessage(LargeMessageOption.HANDLE_KEY_ONLY),
    )


def with_few_changes(rng: random.Random, record: RawRecord, other: RawRecord) -> RawRecord:
    """An update between a row and itself, another row of the table, or nearly itself."""
    if record.value is None or other.value is None:
        return record
    return record._replace(old_value=rng.choice((record.value, other.value)))


@pytest.mark.parametrize("seed", few_of(range(6), 2))
def test_random_rows_under_random_options(seed: int) -> None:
    rng = random.Random(700 + seed)
    for _ in range(4):
        options = random_options(rng)
        programs = [TableProgram("s", f"t{i}", random_table(rng)) for i in range(4)]
        tables = [OpenTable(p.schema, p.table, p.info, p.zone, options) for p in programs]
        fitter = Fitter(options)
        records, events = [], []
        for _ in range(120):
            i = rng.randrange(4)
            record = with_few_changes(rng, *(random_record(rng, programs[i].info, i) for _ in range(2)))
            one = Change(record.key, record.value, record.old_value, record.start_ts, record.commit_ts)
            try:
                events.append(fitter.event(tables[i], one))
                records.append(record)
            except (NoHandleKey, MessageTooLarge) as refusal:
                rows, _keep = row_array([record])
                with pytest.raises(type(refusal)):
                    OpenRowEncoder(programs, options).encode(rows, np.array([0, 1], np.int32))
        rows, _keep = row_array(records)
        encoder = OpenRowEncoder(programs, options)
        got = encoder.encode(rows, np.array([0, len(rows)], np.int32)).to_list()
        assert [(m.key, m.value, m.rows) for m in got] == batches(events, options)
        assert encoder.slow_rows <= 3  # text that lost bytes, against a default


@pytest.mark.parametrize("kind", [Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("seed", range(3))
def test_random_rows_compressed(kind: Compression, seed: int) -> None:
    rng = random.Random(900 + seed)
    for _ in range(4):
        large = LargeMessage(rng.choice((LargeMessageOption.NONE, LargeMessageOption.HANDLE_KEY_ONLY)), kind)
        options = EncodingOptions(
            max_message_bytes=2_000 if large.option is LargeMessageOption.HANDLE_KEY_ONLY else 1 << 20, large_message=large
        )
        plain = dataclasses.replace(options, max_message_bytes=1 << 30, large_message=LargeMessage())
        info = random_table(rng)
        while not info.handle_key_ids:
            info = random_table(rng)
        program = TableProgram("s", "t", info)
        records = [random_record(rng, info) for _ in range(100)]
        rows, _keep = row_array(records)
        got = OpenRowEncoder([program], options).encode(rows, np.array([0, 100], np.int32)).to_list()
        whole, table_ = OpenTable("s", "t", info, program.zone, plain), OpenTable("s", "t", info, program.zone, options)
        events = [pair for m in got for pair in zip(pieces(m.key[8:]), pieces(m.value or b""), strict=True)]
        assert len(events) == 100
        assert max(len(m.key) + len(m.value or b"") + 36 for m in got) <= options.max_message_bytes
        for (key, value), r in zip(events, records, strict=True):
            if b'"ohk":true' in key:
                assert (key, expand(value)) == table_.stand_in(r.key, r.value, r.old_value, r.commit_ts)
            else:
                assert (key, expand(value)) == whole.row(r.key, r.value, r.old_value, r.commit_ts)


def pieces(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "big")
        found.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    return found


@pytest.mark.parametrize("kind", [Compression.SNAPPY, Compression.LZ4])
def test_any_text_is_compressed_and_back(kind: Compression) -> None:
    """Sizes around every limit of the formats: literals, copies, blocks of 64 KiB and 4 MiB; random bytes, and repeats."""
    rng = random.Random(5)
    info = table([column(MySQLType.LONG_BLOB, id=1, name="b")])
    program = TableProgram("s", "t", info)
    sizes = [0, 1, 3, 4, 11, 12, 13, 16, 17, 59, 60, 61, 66, 255, 256, 4095, 49_000, 49_500, 65_536, 200_000, 3_200_000, 7_000_000]
    contents = []
    for size in sizes:
        contents += [rng.randbytes(size), b"abc" * (size // 3), bytes(rng.choices(b"ab\0", k=min(size, 100_000)))]
    records = [RawRecord(record_key(info.id, i + 1), pack_row({1: data}), None, 1, 2, 0) for i, data in enumerate(contents)]
    rows, _keep = row_array(records)
    options = EncodingOptions(max_message_bytes=1 << 30, max_batch_size=1, large_message=LargeMessage(compression=kind))
    got = OpenRowEncoder([program], options).encode(rows, np.array([0, len(rows)], np.int32)).to_list()
    plain = OpenTable("s", "t", info, program.zone)
    for m, r in zip(got, records, strict=True):
        _, value = plain.row(r.key, r.value, None, 2)
        assert m.value is not None
        assert expand(m.value[8:]) == value
        assert len(m.value) <= len(value) + len(value) // 6 + 64
    assert len(got[-2].value or b"") < 700_000  # a text that repeats itself becomes small


# ---- values that are equal, though their text or their bytes are not


def one_column(tp: MySQLType, before: bytes, after: bytes, **parts: object) -> list[bytes]:
    """The values of an update under only-output-updated-columns by kernel and reference."""
    info = table([column(tp, id=1, name="v", **parts)])
    program = TableProgram("s", "t", info)
    record = RawRecord(record_key(info.id, 7), pack_row({1: after}), pack_row({1: before}), 1, 2, 0)
    rows, _keep = row_array([record])
    options = CONFIGS["only-updated"]
    (got,) = OpenRowEncoder([program], options).encode(rows, np.array([0, 1], np.int32)).to_list()
    plain = OpenTable("s", "t", info, program.zone, options)
    return [(got.value or b"")[8:], plain.row(record.key, record.value, record.old_value, 2)[1]]


@pytest.mark.parametrize("tp", [MySQLType.FLOAT, MySQLType.DOUBLE])
def test_minus_zero_is_zero(tp: MySQLType) -> None:
    zero, minus, one = (stored_bytes(column_info(tp), number) for number in (0.0, -0.0, 1.0))
    assert all(b'"p"' not in value for value in one_column(tp, zero, minus))
    assert all(b'"p"' in value for value in one_column(tp, one, minus))


def test_text_that_lost_bytes_is_compared_by_its_bytes() -> None:
    for value in one_column(MySQLType.VARCHAR, b"\xff", b"\xfe", Charset="utf8mb4", Collate="utf8mb4_bin"):
        assert json.loads(value)["p"]["v"]["v"] == "\ufffd"


def test_a_column_that_is_younger_than_the_row_is_compared_with_its_default() -> None:
    info = table(
        [
            column(MySQLType.VARCHAR, id=1, name="a"),
            column(MySQLType.VARCHAR, id=2, name="b", origin_default="x", Charset="utf8mb4", Collate="utf8mb4_bin"),
        ]
    )
    program = TableProgram("s", "t", info)
    records = [RawRecord(record_key(info.id, 7), pack_row({1: b"n", 2: new}), pack_row({1: b"o"}), 1, 2, 0) for new in (b"x", b"y")]
    rows, _keep = row_array(records)
    encoder = OpenRowEncoder([program], dataclasses.replace(CONFIGS["only-updated"], max_batch_size=1))
    same, other = (json.loads((m.value or b"")[8:]) for m in encoder.encode(rows, np.array([0, 2], np.int32)).to_list())
    assert (set(same["p"]), set(other["p"])) == ({"a"}, {"a", "b"})
    assert encoder.slow_rows == 0


def column_info(tp: MySQLType) -> ColumnInfo:
    return table([column(tp, id=1, name="v")]).columns[0]


# ---- "Old Value off" of the protocol's document


def test_old_value_off() -> None:
    """output-old-value=false with delete-only-output-handle-key-columns: updates look like inserts, deletes have the handle key only."""
    options = EncodingOptions(output_old_value=False, delete_only_handle_key_columns=True)
    updates = {line["id"]: message(line) for line in golden()["no-old-value"]}
    deletes = {line["id"]: message(line) for line in golden()["delete-only-handle"] if "error" not in line}
    want = updates | deletes
    messages, encoder = encode(want, one_event_each(options))
    assert [(m.key, m.value) for m in messages] == list(want.values())
    for row_id, m in zip(want, messages, strict=True):
        row = ticdc.rows()[row_id]
        members = json.loads((m.value or b"")[8:])
        assert set(members) == ({"u"} if row.record.value else {"d"})
        assert all(c["h"] for c in members.get("d", {}).values())
        assert (
            framed(*table_of(row, options).row(row.record.key, row.record.value, row.record.old_value, row.record.commit_ts))
            == want[row_id]
        )
    assert encoder.slow_rows == 0


# ---- claim checks


def claim_check(folder: Path, limit: int = 600, **parts: object) -> EncodingOptions:
    return EncodingOptions(
        max_message_bytes=limit,
        large_message=LargeMessage(LargeMessageOption.CLAIM_CHECK, claim_check_storage_uri=f"file://{folder}", **parts),
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(Compression))
def test_claim_checks(tmp_path: Path, kind: Compression) -> None:
    options = claim_check(tmp_path / "checks", compression=kind)
    lines = one_in(3, [line for line in golden()["handle-key-only"] if "error" not in line])
    messages, encoder = encode([line["id"] for line in lines], one_event_each(options))
    storage = ClaimCheckStorage(f"file://{tmp_path}/checks")
    kept = []
    for line, got in zip(lines, messages, strict=True):
        row = ticdc.rows()[line["id"]]
        plain = table_of(row, EncodingOptions())
        whole = plain.row(row.record.key, row.record.value, row.record.old_value, row.record.commit_ts)
        assert len(got.key) + len(got.value or b"") + 36 <= 600
        (key,), (value,) = pieces(got.key[8:]), pieces(got.value or b"")
        if b'"ccl"' not in key:
            assert (key, expand(value)) == whole
            continue
        location = json.loads(key)["ccl"]
        kept.append(location)
        assert location.startswith(f"file://{tmp_path}/checks/")
        assert location.endswith(".json")
        assert b'"ohk"' not in key
        assert expand(value) == plain.stand_in(row.record.key, row.record.value, row.record.old_value, row.record.commit_ts)[1]
        kept_key, kept_value = unpack(storage.fetch(location))
        assert kept_key == framed(whole[0], b"")[0]
        assert expand(kept_value[8:]) == whole[1]
        assert int.from_bytes(kept_value[:8], "big") == len(kept_value) - 8
    files = sorted((tmp_path / "checks").iterdir())
    assert files == sorted({Path(location.removeprefix("file://")) for location in kept})  # equal messages have one file
    assert len(kept) <= encoder.slow_rows <= len(kept) + 20  # the other compressor may make one fit
    assert len(kept) > (100 if kind is Compression.NONE else 5)
    assert encode([line["id"] for line in lines], one_event_each(options))[0] == messages  # sent again: the same files
    assert sorted((tmp_path / "checks").iterdir()) == files


def test_claim_checks_are_batched_with_the_others(tmp_path: Path) -> None:
    options = claim_check(tmp_path, 2000)
    ids = [line["id"] for line in golden()["handle-key-only"] if "error" not in line][:200]
    messages, _ = encode(ids, options)
    fitter = Fitter(options, ClaimCheckStorage(f"file://{tmp_path}").keep)
    events = [fitter.event(table_of(row, options), change(row)) for row in (ticdc.rows()[i] for i in ids)]
    assert [(m.key, m.value, m.rows) for m in messages] == batches(events, options)
    assert any(b'"ccl"' in m.key and m.rows > 1 for m in messages)


def test_a_handle_key_that_is_too_large_itself_names_the_row(tmp_path: Path) -> None:
    row_id = next(line["id"] for line in golden()["handle-key-only"] if "error" in line)
    record = ticdc.rows()[row_id].record
    with pytest.raises(
        MessageTooLarge,
        match=rf"nothing but its handle key.*key {record.key.hex()}, start_ts {record.start_ts}, commit_ts {record.commit_ts}",
    ):
        encode([row_id], claim_check(tmp_path))


def test_raw_claim_checks_do_not_go_with_open_protocol(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="claim-check-raw-value"):
        OpenRowEncoder([], claim_check(tmp_path, claim_check_raw_value=True))
    with pytest.raises(ConfigError, match="claim-check-storage-uri is empty"):
        keeper(EncodingOptions(large_message=LargeMessage(LargeMessageOption.CLAIM_CHECK)))


def test_an_event_of_the_largest_size_is_sent_whole() -> None:
    row = ticdc.rows()[next(line["id"] for line in golden()["handle-key-only"])]
    whole = table_of(row, EncodingOptions()).row(row.record.key, row.record.value, row.record.old_value, row.record.commit_ts)
    for spare, sent in ((0, whole), (-1, None)):
        options = EncodingOptions(
            max_message_bytes=event_size(*whole) + spare, large_message=LargeMessage(LargeMessageOption.HANDLE_KEY_ONLY)
        )
        (got,), _ = encode([row.id], options)
        assert (got.key, got.value) == framed(
            *(sent or table_of(row, options).stand_in(row.record.key, row.record.value, row.record.old_value, row.record.commit_ts))
        )
