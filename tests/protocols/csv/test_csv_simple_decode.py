"""CSV and simple back into rows: TiCDC's bytes give what was stored; what is broken is refused with place and fault."""

from __future__ import annotations

import contextlib
import json
import random
import tracemalloc
from typing import Any

import pytest

from tests.support.golden import ticdc
from tidemill.errors import MalformedMessage
from tidemill.protocols.common.jsonmessage import JsonMessageError
from tidemill.protocols.csv import CsvError, CsvReader, CsvTable
from tidemill.protocols.open.decode import Fault
from tidemill.protocols.open.events import RowKind
from tidemill.protocols.options import BinaryEncoding, CsvOptions
from tidemill.protocols.simple import Bootstrap, DdlMessage, RowEvent, SimpleDecoder, SimpleTable, Watermark, decode
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.typenames import type_name
from tidemill.tidb.types.members import enum_name, set_names

FULL = CsvOptions("|", "'", include_commit_ts=True, binary_encoding=BinaryEncoding.HEX, output_old_value=True, output_handle_key=True)
BARE = CsvOptions(",", "", output_old_value=True)


def cells_of(row: ticdc.Row, stored: bytes) -> dict[str, Any]:
    reader = RowReader(row.version.info, ticdc.zone_of(row.zone))
    return {c.name: cell for c, cell in zip(row.version.info.output_columns, reader.read(row.record.key, stored), strict=True)}


def members_named(row: ticdc.Row, cells: dict[str, Any]) -> list[Any]:
    """Cells with ENUM and SET as names, as CSV has them."""
    found = []
    for column in row.version.info.output_columns:
        cell = cells[column.name]
        kind = type_name(column)
        if isinstance(cell, int) and kind in ("enum", "set"):
            cell = enum_name(cell, column.elems) if kind == "enum" else set_names(cell, column.elems)
        found.append(cell)
    return found


@pytest.mark.parametrize(("config", "options"), [("default", CsvOptions()), ("full", FULL), ("", BARE)])
def test_csv_lines_come_back(config: str, options: CsvOptions) -> None:
    count = 0
    for line in ticdc.lines("csv"):
        if line["kind"] != "row" or "value" not in line or line["config"] != (config or "default"):
            continue
        row = ticdc.rows()[line["id"]]
        record, info = row.record, row.version.info
        data = ticdc.raw(line["value"]) or b""
        if not config:
            table = CsvTable(row.version.schema, row.version.table, info, ticdc.zone_of(row.zone), options)
            data = table.header() + table.row(record.key, record.value, record.old_value, record.commit_ts)
        columns = [(c.name, type_name(c)) for c in info.output_columns]
        lines = CsvReader(options, columns).decode(data)
        two = record.value and record.old_value and options.output_old_value
        images = [record.old_value, record.value] if two else [record.value or record.old_value]
        assert [list(one.values) for one in lines] == [members_named(row, cells_of(row, image or b"")) for image in images], line
        assert {(one.schema, one.table) for one in lines} == {(row.version.schema, row.version.table)}
        assert {one.commit_ts for one in lines} == {record.commit_ts if options.include_commit_ts else None}
        assert [one.updated for one in lines] == ([True, True] if two else [None if not options.output_old_value else False])
        assert CsvReader(options).decode(data)[-1].kind is lines[-1].kind
        count += 1
    assert count > 1100


@pytest.mark.parametrize(
    ("data", "place", "problem", "fault"),
    [
        (b'"I","t","s",1', "line 1, byte 13", "it ends without a terminator", Fault.SENDER),
        (b'"I","t","s",1,"x\r\n', "line 1, byte 14", "a quote is not closed", Fault.SENDER),
        (b'"I","t","s",1,"x"\r\n"I","t","s",1,"x"y\r\n', "line 2, byte 36", "expected a delimiter, found b'y", Fault.SENDER),
        (b'"X","t","s",1,"x"\r\n', "line 1, byte 0, operation", "expected I, U or D, found b'X'", Fault.SENDER),
        (b'"I","t","s",one,"x"\r\n', "line 1, byte 12, id", "expected an integer, found 'one' (its type is int)", Fault.SENDER),
        (b'"I","t","s",1,"x",2\r\n', "line 1, byte 12", "it has 3 columns, the table has 2", Fault.READER),
        (b'"I","t"\r\n', "line 1, byte 0", "it has 2 fields, expected more than 3", Fault.READER),
        (b'"I",\\N,"s",1,"x"\r\n', "line 1, byte 4, table", "it is NULL", Fault.SENDER),
    ],
)
def test_csv_that_is_refused(data: bytes, place: str, problem: str, fault: Fault) -> None:
    with pytest.raises(CsvError) as caught:
        CsvReader(CsvOptions(), [("id", "int(11)"), ("v", "varchar(9)")]).decode(data)
    assert caught.value.message.startswith(f"CSV {place}: {problem}")
    assert caught.value.fault is fault


def peak_of(reader: CsvReader, data: bytes) -> int:
    """Bytes that a file takes to be read or refused, at its peak."""
    tracemalloc.start()
    try:
        with contextlib.suppress(CsvError):
            reader.decode(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("quote", ['"', ""])
def test_csv_text_takes_a_small_multiple_of_its_size(quote: str) -> None:
    size = 200_000
    reader = CsvReader(CsvOptions(quote=quote))
    for inside in (b"a", (quote * 2).encode() or b"\\n"):
        text = inside * size
        data = f"I,t,s,{quote}".encode() + text + f"{quote}\r\n".encode()
        assert peak_of(reader, data) < 5 * len(data) + 20_000
        assert peak_of(reader, data[:-3]) < 5 * len(data) + 20_000


class CountedBytes(bytes):
    """Counts the bytes that searches look at."""

    looked_at = 0

    def find(self, sub: bytes, start: int = 0) -> int:  # type: ignore[override]
        found = super().find(sub, start)
        CountedBytes.looked_at += (len(self) if found < 0 else found + len(sub)) - min(start, len(self))
        return found


@pytest.mark.parametrize("quote", ['"', ""])
@pytest.mark.parametrize("data", [b"," * 3000, b"I,t,s," + b"1," * 2000 + b"x" * 50_000 + b"\r\n", b"I\r\n" * 900, b"I,t,s,1\r" * 900])
def test_csv_is_searched_once(quote: str, data: bytes) -> None:
    """However many fields a line has: by every mark once, and the text of no field again."""
    CountedBytes.looked_at = 0
    with contextlib.suppress(CsvError):
        CsvReader(CsvOptions(quote=quote)).decode(CountedBytes(data))
    assert 0 < CountedBytes.looked_at <= 4 * len(data)


def test_csv_fields_end_at_their_marks() -> None:
    def values(text: str, **options: str) -> list[tuple[Any, ...]]:
        return [line.values for line in CsvReader(CsvOptions(**options)).decode(text.encode())]  # type: ignore[arg-type]

    assert values('"I","t","s","",\\N,"a""b","""","\r\n,"\r\n') == [(b"", None, b'a"b', b'"', b"\r\n,")]
    assert values("I,t,s,\\,,\\\\,a\\r\\n\\q\r\nI,t,s,\\\r\n,x\r\n", quote="") == [(b",", b"\\", b"a\r\nq"), (b"\r\n", b"x")]
    assert values("I||t||s||1|2||\n", delimiter="||", terminator="\n") == [(b"1|2", b"")]


def test_simple_messages_come_back() -> None:
    """Rows are typed by the descriptions that DDLs and bootstrap messages bring."""
    rows = {line["id"]: line["value"].encode() for line in ticdc.lines("simple") if line["kind"] == "row"}
    seen: set[tuple[str, str, int]] = set()
    decoder = SimpleDecoder()
    for row_id, value in rows.items():
        row = ticdc.rows()[row_id]
        info, record = row.version.info, row.record
        named = row.version.schema, row.version.table, info.update_ts
        if named not in seen:
            seen.add(named)
            untyped = decoder.decode(value)
            assert isinstance(untyped, RowEvent)
            assert not untyped.typed
            table = SimpleTable(row.version.schema, row.version.table, info, ticdc.zone_of(row.zone))
            learned = decoder.decode(table.bootstrap(5))
            assert isinstance(learned, Bootstrap)
            assert (learned.table.schema, learned.table.table, learned.table.version) == named
        event = decoder.decode(value)
        assert isinstance(event, RowEvent)
        assert (event.typed, event.commit_ts, event.table_id) == (True, record.commit_ts, row.expected["physical_table_id"])
        for image, stored in ((event.after, record.value), (event.before, record.old_value)):
            assert dict(image) == (cells_of(row, stored) if stored else {})
        kind = RowKind.DELETE if not record.value else RowKind.UPDATE if record.old_value else RowKind.INSERT
        assert event.kind is kind


def test_simple_ddls_and_watermarks() -> None:
    for line in ticdc.lines("simple"):
        if line["kind"] == "checkpoint":
            assert decode(line["value"].encode()) == Watermark(line["ts"])
        elif line["kind"] == "ddl":
            event, members = decode(line["value"].encode()), json.loads(line["value"])
            assert isinstance(event, DdlMessage)
            assert (event.query, event.type, event.commit_ts) == (members["sql"], members["type"], members["commitTs"])
            for table, name in ((event.table, "tableSchema"), (event.table_before, "preTableSchema")):
                assert (table is None) == (name not in members)
                if table is not None:
                    want = members[name]
                    assert (table.schema, table.table, table.version) == (want["schema"], want["table"], want["version"])
                    assert [c.name for c in table.columns] == [c["name"] for c in want["columns"]]
                    assert [list(i.columns) for i in table.indexes] == [i["columns"] for i in want["indexes"]]


@pytest.mark.parametrize(
    ("change", "field", "problem", "fault"),
    [
        ({"version": 2}, "version", "it is 2, expected 1", Fault.READER),
        ({"commitTs": None}, "commitTs", "it is missing", Fault.SENDER),
        ({"data": [1]}, "data", "expected an object, found [1]", Fault.SENDER),
        ({"data": {"v": 1}}, "data.v", "expected a string, an object or null, found 1", Fault.SENDER),
        ({"data": {"v": {"value": "x"}}}, "data.v.location", "it is missing", Fault.SENDER),
        ({"type": "BOOTSTRAP"}, "tableSchema", "it is missing", Fault.SENDER),
        ({"type": "ALTER"}, "sql", "it is missing", Fault.SENDER),
        ({"type": "ALTER", "sql": "x", "tableSchema": {"schema": "s", "table": "t", "tableID": 1, "version": 2, "columns": [1]}},
         "tableSchema.columns", "expected a list of objects, found [1]", Fault.SENDER),
    ],
)  # fmt: skip
def test_simple_that_is_refused(change: dict[str, Any], field: str, problem: str, fault: Fault) -> None:
    message = {"version": 1, "database": "d", "table": "t", "tableID": 1, "type": "INSERT", "commitTs": 5, "buildTs": 6, "data": {"v": "1"}}
    with pytest.raises(JsonMessageError) as caught:
        decode(json.dumps(message | change).encode())
    assert (caught.value.field, caught.value.fault) == (field, fault)
    assert problem in caught.value.message


def test_no_bytes_crash_them() -> None:
    rng = random.Random(9)
    simple = [line["value"].encode() for line in ticdc.lines("simple") if "value" in line]
    lines = [ticdc.raw(line["value"]) or b"" for line in ticdc.lines("csv") if line["kind"] == "row" and "value" in line]
    readers = [CsvReader(CsvOptions()), CsvReader(FULL), CsvReader(BARE), CsvReader(CsvOptions(), [("a", "int"), ("b", "blob")])]
    refused = 0
    for i in range(3000):
        data = bytearray(rng.choice(simple if i % 2 else lines))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(3):
                case 0 if at < len(data):
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at : at + rng.randint(1, 9)]
                case _:
                    data[at:at] = rng.choice((b'"', b"{", b"'", b"\\", b"\r\n", b"9" * 30, b"\xff", b","))
        try:
            decode(bytes(data)) if i % 2 else rng.choice(readers).decode(bytes(data))
        except MalformedMessage:
            refused += 1
    assert refused > 1000
