"""The reference gives TiCDC's bytes; what TiCDC refuses has a result."""

from __future__ import annotations

import functools
import random
import zlib
from dataclasses import replace
from datetime import UTC

import pytest

from tests.support.golden import avro, ticdc
from tests.support.schema.tables import column, table
from tidemill.errors import CorruptedRow, MalformedRow
from tidemill.protocols.avro import wire
from tidemill.protocols.avro.control import control_messages
from tidemill.protocols.avro.encode import AvroTable
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row, stored_bytes, with_checksum
from tidemill.tidb.schema.codes import ColumnFlag
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.types.jsonbin import encode_json
from tidemill.tidb.types.jsonstyle import JsonStyle

PLAIN = EncodingOptions(MessageFormat.AVRO)
KEY = record_key(100, 1)


@functools.cache
def avro_table(table_id: int, version: int, zone: str, config: str) -> AvroTable:
    found = ticdc.versions()[table_id, version]
    return AvroTable(found.schema, found.table, found.info, ticdc.zone_of(zone), avro.configs()[config], (0, 0))


def row_of(info: TableInfo, **cells: object) -> bytes:
    """A row value of format 2 with these columns."""
    by_name = {c.name: c for c in info.columns}
    return pack_row({by_name[n].id: None if v is None else stored_bytes(by_name[n], v) for n, v in cells.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize("config", sorted(avro.expected()))
def test_messages_are_ticdcs(config: str) -> None:
    for want in avro.expected()[config]:
        if want.error is not None:
            continue
        record, version = want.row.record, want.row.version
        made = avro_table(version.info.id, version.version, want.row.zone, config)
        key, value = made.row(record.key, record.value, record.old_value, record.commit_ts)
        assert (key and key[5:], value and value[5:]) == (want.key and want.key[5:], want.value and want.value[5:]), want.row.case


def test_what_ticdc_refuses_has_a_result() -> None:
    refused = [want for want in avro.expected()[avro.PRECISE] if want.error is not None]
    assert len(refused) == 3
    for want in refused:
        record, version = want.row.record, want.row.version
        made = avro_table(version.info.id, version.version, want.row.zone, avro.PRECISE)
        assert all(made.row(record.key, record.value, record.old_value, record.commit_ts))


def test_enum_0_is_the_empty_text() -> None:
    info = table([column(T.LONG), column(T.ENUM, name="e", Elems=["a", ""])], pk_is_handle=True)
    made = AvroTable("s", "t", info, UTC, PLAIN, (1, 2))
    assert made.row(KEY, row_of(info, e=0), None, 1)[1] == b"\0\0\0\0\2" + b"\2" + b"\2\0"
    assert made.row(KEY, row_of(info, e=1), None, 1)[1] == b"\0\0\0\0\2" + b"\2" + b"\2\2a"
    with pytest.raises(MalformedRow, match="column e: enum index 3"):
        made.row(KEY, row_of(info, e=3), None, 1)


def test_null_in_a_not_null_column_names_the_row() -> None:
    info = table([column(T.LONG), column(T.LONG, name="n", Flag=int(ColumnFlag.NOT_NULL))], pk_is_handle=True)
    made = AvroTable("s", "t", info, UTC, PLAIN, (1, 2))
    with pytest.raises(MalformedRow, match=r"table s\.t, key 74.*commit_ts 9: column n is NOT NULL"):
        made.row(KEY, row_of(info, n=None), None, 9)


def test_key_and_value() -> None:
    info = table([column(T.LONG), column(T.LONG, name="n")], pk_is_handle=True)
    made = AvroTable("s", "t", info, UTC, PLAIN, (1, 258))
    row = row_of(info, n=5)
    assert made.row(KEY, row, None, 1) == (b"\0\0\0\0\1\2", b"\0\0\0\1\2\2\2\12")
    assert made.row(KEY, None, row, 1) == (b"\0\0\0\0\1\2", None)
    assert made.row(KEY, row, row, 1) == made.row(KEY, row, None, 1)
    keyless = table([column(T.LONG)])
    assert AvroTable("s", "t", keyless, UTC, PLAIN, (-1, 1)).row(KEY, row_of(keyless, c1=1), None, 1)[0] is None
    with pytest.raises(MalformedRow, match="neither"):
        made.row(KEY, None, b"", 1)


def test_a_delete_reads_its_handle_alone() -> None:
    info = table([column(T.LONG), column(T.DATETIME, name="d")], pk_is_handle=True)
    broken = pack_row({2: b"xyz"})
    made = AvroTable("s", "t", info, UTC, PLAIN, (1, 2))
    assert made.row(KEY, None, broken, 1)[0] == b"\0\0\0\0\1\2"
    with pytest.raises(MalformedRow):
        made.row(KEY, broken, None, 1)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_as_short_as_can_be(seed: int) -> None:
    rng = random.Random(seed)
    for bits in range(1, 220):
        for number in (rng.getrandbits(bits), -rng.getrandbits(bits), 1 << bits, -(1 << bits), (1 << bits) - 1):
            data = wire.shortest(number)
            assert int.from_bytes(data, "big", signed=True) == number
            assert len(data) == 1 or int.from_bytes(data[1:], "big", signed=True) != number


# Row checksums

SUMMED = avro.configs()[avro.CHECKSUM]


def summed(info: TableInfo, value: bytes, old: bytes | None) -> bytes:
    """The checksum fields at the end of a value."""
    made = AvroTable("s", "t", info, UTC, SUMMED, (1, 2))
    value_of = made.row(KEY, value, old, 0)[1]
    assert value_of is not None
    return value_of.partition(b"\2u\0\0" if old else b"\2c\0\0")[2]


def test_a_row_checksum_is_over_the_columns_and_says_what_is_corrupted() -> None:
    info = table([column(T.LONG), column(T.LONG, name="n")], pk_is_handle=True)
    plain, whole = row_of(info, n=5), with_checksum(KEY, row_of(info, n=5))
    other = with_checksum(record_key(100, 2), row_of(info, n=5))
    stored = int.from_bytes(other[-4:], "little")
    columns = zlib.crc32((1).to_bytes(8, "little") + (5).to_bytes(8, "little"))
    version = wire.varint(whole[-5] & 7)
    assert summed(info, plain, None) == b"\0\0\0"
    assert summed(info, whole, None) == wire.sized(b"%d" % columns) + b"\0" + version
    assert summed(info, whole, other) == wire.sized(b"%d" % columns) + b"\1" + version
    assert summed(info, other, None) == wire.sized(b"%d" % stored) + b"\1" + version
    assert summed(info, plain, whole) == wire.sized(b"0") + b"\0\0"


@pytest.mark.parametrize(("style", "text"), [(JsonStyle.GO, b"[1, -0]"), (JsonStyle.MYSQL, b"[1.0, -0.0]")])
def test_a_checksum_of_an_old_tidb_fits_its_row_after_an_upgrade(style: JsonStyle, text: bytes) -> None:
    """TiDB 7.1 to 8.2 summed documents as they print them; the message's sum is over the text that it has."""
    info = table([column(T.LONG), column(T.JSON, name="j")], pk_is_handle=True)
    row = pack_row({2: encode_json([1.0, -0.0])})

    def sum_of(document: bytes) -> int:
        return zlib.crc32((1).to_bytes(8, "little") + len(document).to_bytes(4, "little") + document)

    stored = row[:1] + bytes([row[1] | 2]) + row[2:] + b"\0" + sum_of(b"[1, -0]").to_bytes(4, "little")
    made = AvroTable("s", "t", info, UTC, replace(SUMMED, corrupted_rows_fail=True), (1, 2), style)
    value = made.row(KEY, stored, stored, 1)[1]
    assert value is not None
    assert text in value
    assert value.endswith(wire.sized(b"%d" % sum_of(text)) + b"\0" + wire.varint(0))


def test_a_corrupted_row_stops_where_it_shall() -> None:
    info = table([column(T.LONG), column(T.LONG, name="n")], pk_is_handle=True)
    row, other = (with_checksum(key, row_of(info, n=5)) for key in (KEY, record_key(100, 2)))
    made = AvroTable("s", "t", info, UTC, replace(SUMMED, corrupted_rows_fail=True), (1, 2))
    assert made.row(KEY, row, row, 1)[1]
    with pytest.raises(CorruptedRow, match=r"table s\.t, key 74.*, commit_ts 1: the checksum of its new value"):
        made.row(KEY, other, row, 1)
    with pytest.raises(CorruptedRow, match="old value"):
        made.row(KEY, row, other, 1)


# Words


def test_watermarks_are_ticdcs() -> None:
    config = next(name for name in avro.configs() if name.startswith("watermark"))
    speaks, ddls = control_messages(avro.configs()[config]), {line["seq"]: line for line in ticdc.lines("ddl")}
    seen = 0
    for line in ticdc.lines("avro"):
        if line["kind"] == "ddl":
            job = ddls[line["seq"]]
            event = (job["result"].get("events") or job["result_force_replicate"]["events"])[line["idx"]]
            names = event["schema"], event["table"], "", ""
            ddl = DdlEvent(job["finished_ts"], 0, 1, 1, 0, event["type"], *names, 1, event["sent_query"], "", True)
            assert speaks.ddl_message(ddl) == (None, ticdc.raw(line["value"]))
            seen += 1
        elif line["kind"] == "checkpoint":
            assert speaks.resolved_message(line["ts"]) == (None, ticdc.raw(line["value"]))
            seen += 1
    assert seen > 50


def test_nothing_is_said_by_default() -> None:
    silent = control_messages(PLAIN)
    assert silent.resolved_message(1) is None
    assert silent.ddl_message(DdlEvent(1, 1, 1, 1, 0, 3, "s", "t", "", "", 1, "q", "q", True)) is None
