"""Rows of real systems: what TiCDC's mounter made of them, what SELECT showed, and TiDB's own bytes written again."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.support.golden.rows import row_events
from tidemill.tidb import keys
from tidemill.tidb.rows import Cell, RowReader, Verdict, decode_row, verify_checksum
from tidemill.tidb.rows.write import encode_record_key, encode_row_v1, encode_row_v2, with_checksum
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.members import bit_bytes, enum_name, set_names
from tidemill.tidb.types.times import SECOND, parse_duration
from tidemill.wire import cdcpb_pb2, kvrpcpb_pb2

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = sorted({event.case for event in row_events()})


def exactly(cells: tuple[Cell, ...]) -> list[str]:
    """Cells with their types and the sign of zero, for comparing."""
    return [repr(cell) for cell in cells]


# TiCDC's mounter, in six time zones


@pytest.mark.parametrize("case", CASES)
def test_cells_are_those_of_ticdc(case: str) -> None:
    for event in row_events():
        if event.case == case:
            reader = RowReader(event.table, ZoneInfo(event.zone))
            assert event.names == tuple(c.name for c in event.table.output_columns)
            for stored, cells in event.images:
                assert exactly(reader.read(event.raw.key, stored)) == exactly(cells), f"row {event.id} of {event.table.name}"


def test_nothing_is_missing_from_the_golden_rows() -> None:
    assert len(row_events()) == 2010
    assert len({event.zone for event in row_events()}) == 6
    assert {c.tp for event in row_events() for c in event.table.output_columns} >= set(MySQLType) - {
        MySQLType.DECIMAL_OLD,
        MySQLType.NULL,
        MySQLType.NEWDATE,
        MySQLType.VAR_STRING,
        MySQLType.GEOMETRY,
    }


def written_as(event_table: TableInfo, key: bytes, stored: bytes) -> bytes:
    """The row written again from its cells, in the form that it has."""
    cells, row = RowReader(event_table, UTC).read(key, stored), decode_row(stored)
    value = encode_row_v1(cells, event_table) if row.format == 1 else encode_row_v2(cells, event_table)
    return value if row.checksum is None else with_checksum(key, value)


def test_rows_are_written_as_tidb_writes_them() -> None:
    """Where the table's columns are those of when the row was written: then only JSON times and doubles like 1.0 may differ."""
    outcome: Counter[str] = Counter()
    for event in row_events():
        for stored, cells in event.images:
            assert stored is not None
            row, ids = decode_row(stored), {c.id for c in event.table.output_columns}
            again = written_as(event.table, event.raw.key, stored)
            if again == stored:
                outcome["equal"] += 1
            elif set(row.columns) != set(decode_row(again).columns) or not set(row.columns) <= ids:
                outcome["another schema"] += 1
            else:
                outcome["json"] += 1
                reader = RowReader(event.table, ZoneInfo(event.zone))
                assert exactly(reader.read(event.raw.key, again)) == exactly(cells)
    assert outcome["equal"] > 2250
    assert outcome["json"] < 60


def test_record_keys_are_written_as_tidb_writes_them() -> None:
    written, unknown = 0, set()
    for event in row_events():
        for _, cells in event.images:
            record = keys.parse_record_key(event.raw.key)
            row_id = record.handle if isinstance(record.handle, int) else 0
            zone = ZoneInfo(event.zone)
            try:
                key = encode_record_key(cells, event.table, record.table_id, row_id, zone)
            except ValueError as error:
                unknown.add(re.search(r"collation (\w+) are not known", str(error)).group(1))  # type: ignore[union-attr]
            else:
                assert key == event.raw.key, f"row {event.id} of {event.table.name}"
                written += 1
    assert written > 2300
    assert unknown <= {"utf8mb4_0900_ai_ci", "utf8mb4_general_ci", "utf8mb4_unicode_ci", "gbk_chinese_ci"}


def test_checksums_of_the_golden_rows_match() -> None:
    verdicts = Counter(verify_checksum(e.raw.key, stored, e.table) for e in row_events() for stored, _ in e.images if stored)
    assert set(verdicts) == {Verdict.NONE, Verdict.MATCHES}
    assert verdicts[Verdict.MATCHES] == 7


# 42 rows of every kind of key and table


@functools.cache
def table_infos() -> dict[str, TableInfo]:
    with gzip.open(GOLDEN / "tidb" / "tableinfos.json.gz") as file:
        return {name: TableInfo.from_json(data) for name, data in json.load(file).items()}


VECTORS: list[dict[str, Any]] = json.loads((GOLDEN / "tidb" / "rows.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{v['table']}-{v['key'][18:]}" for v in VECTORS])
def test_rows_of_the_mounter(vector: dict[str, Any]) -> None:
    key, value, info = bytes.fromhex(vector["key"]), bytes.fromhex(vector["value"]), table_infos()[vector["table"]]
    assert keys.to_encoded(key).hex() == vector["key_memcomparable"]
    assert keys.physical_table_id(key) == vector["physical_table_id"]
    if "decoded_by_tiflow_mounter" not in vector:
        assert not keys.is_record_key(key)
        return
    expected = vector["decoded_by_tiflow_mounter"]
    assert [c.id for c in info.output_columns] == [e["id"] for e in expected]
    for cell, column in zip(RowReader(info, UTC).read(key, value), expected, strict=True):
        shown = {"bytes_hex": cell.hex()} if isinstance(cell, bytes) else cell if cell is None else str(cell)
        assert shown == column["value"], column["name"]
    assert verify_checksum(key, value, info) is (Verdict.MATCHES if value[1] & 2 and value[0] == 0x80 else Verdict.NONE)
    if vector["table"] != "addcol":
        assert written_as(info, key, value) == value


# A recording of a real TiKV: rows of 38 types in format 1, 2 and 2 with checksums, against SELECT


@functools.cache
def recording() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / "tikv" / "recordings" / "all_types.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def recorded_tables() -> dict[str, TableInfo]:
    """Tables by name, from the meta keys that the recording reads."""
    found = {}
    for line in recording():
        if line.get("type") == "kvrpcpb.ScanResponse":
            for pair in kvrpcpb_pb2.ScanResponse.FromString(base64.b64decode(line["b64"])).pairs:
                if keys.table_id_of(keys.parse_meta_key(pair.key).field) is not None:
                    info = TableInfo.from_json(json.loads(pair.value))
                    found[info.name] = info
    return found


def committed() -> Iterator[Any]:
    """Rows of the feed with a value that is complete: of 1PC transactions and of scans."""
    for line in recording():
        if line.get("type") == "cdcpb.ChangeDataEvent" and line["kind"] == "resp":
            for event in cdcpb_pb2.ChangeDataEvent.FromString(base64.b64decode(line["b64"])).events:
                yield from (row for row in event.entries.entries if row.type == cdcpb_pb2.Event.COMMITTED)


def newest_rows() -> dict[int, dict[bytes, bytes]]:
    """By table id: the newest value of each key that was not deleted."""
    newest: dict[bytes, Any] = {}
    for row in committed():
        if row.key not in newest or row.commit_ts >= newest[row.key].commit_ts:
            newest[row.key] = row
    found: dict[int, dict[bytes, bytes]] = defaultdict(dict)
    for key, row in newest.items():
        if row.op_type == cdcpb_pb2.Event.Row.PUT:
            found[keys.physical_table_id(key)][key] = row.value
    return found


def same(column: ColumnInfo, cell: Cell, shown: str | None) -> bool:
    """Is a cell what a Python client printed of a SELECT? Floats and JSON by value, a fraction of seconds always has 6 digits."""
    if cell is None or shown is None:
        return cell is None and shown is None
    match column.tp:
        case MySQLType.BIT if isinstance(cell, int):
            return shown == "hex:" + bit_bytes(cell, column.flen).hex()
        case MySQLType.ENUM if isinstance(cell, int):
            return shown == enum_name(cell, column.elems)
        case MySQLType.SET if isinstance(cell, int):
            return shown == set_names(cell, column.elems)
        case MySQLType.FLOAT if isinstance(cell, float):
            return abs(float(shown) - cell) <= 1e-5 * abs(cell)
        case MySQLType.DOUBLE:
            return float(shown) == cell
        case MySQLType.JSON:
            return bool(json.loads(shown) == json.loads(str(cell)))
        case MySQLType.DURATION:
            return _timedelta(shown) == parse_duration(str(cell))
        case MySQLType.DATETIME | MySQLType.TIMESTAMP if "." in str(cell):
            return shown == str(cell).ljust(26, "0")
    if isinstance(cell, bytes):
        return shown == ("hex:" + cell.hex() if column.is_binary else cell.decode())
    return shown == str(cell)


def _timedelta(text: str) -> int:
    """Nanoseconds of Python's `-35 days, 1:00:01.5`."""
    days, _, clock = text.rpartition(", ")
    return int(days.partition(" ")[0] or 0) * 86_400 * SECOND + parse_duration(clock)


@pytest.mark.parametrize("name", ["v1", "v2", "ck", "ks", "km", "ku", "kr", "kd"])
def test_cells_are_what_select_shows(name: str) -> None:
    info = recorded_tables()[name]
    (selected,) = (line["rows"] for line in recording() if line["kind"] == "select" and line["table"] == name)
    reader, rows = RowReader(info, UTC), newest_rows()[info.id]
    first = info.output_columns[0]
    assert len(rows) == len(selected)
    for key, value in rows.items():
        cells = reader.read(key, value)
        fitting = [row for row in selected if all(same(c, v, row[c.name]) for c, v in zip(info.output_columns, cells, strict=True))]
        assert len(fitting) == 1, f"{first.name} = {cells[0]!r}"
        if "_tidb_rowid" in fitting[0]:
            assert keys.parse_record_key(key).handle == int(fitting[0]["_tidb_rowid"])
        assert decode_row(value).format == (1 if name == "v1" else 2)
        assert verify_checksum(key, value, info) is (Verdict.MATCHES if name == "ck" else Verdict.NONE)
