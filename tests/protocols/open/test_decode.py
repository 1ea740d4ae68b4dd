"""Messages to events: TiCDC's own messages, what the encoder wrote, and bytes that are none."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import ticdc
from tidemill.protocols.common.gotext import go_quote, json_string, unquote
from tidemill.protocols.open import (
    Column,
    DdlMessage,
    Fault,
    OpenMessageError,
    ResolvedMessage,
    RowEvent,
    RowKind,
    ddl_message,
    decode,
    resolved_message,
)
from tidemill.protocols.open.codes import ColumnFlag, ColumnType, DdlType
from tidemill.protocols.open.encode import framed
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.events import DdlEvent

MESSAGES = [m for m in ticdc.lines("open") if m["kind"] != "config"]


def message(key: dict | bytes, value: dict | bytes) -> tuple[bytes, bytes]:
    return framed(*(part if isinstance(part, bytes) else json.dumps(part).encode() for part in (key, value)))


ROW_KEY = {"ts": 5, "scm": "s", "tbl": "t", "t": 1}


def test_rows_of_ticdc_are_the_cells_of_their_raw_changes() -> None:
    for line in MESSAGES:
        if line["kind"] != "row":
            continue
        row = ticdc.rows()[line["id"]]
        (event,) = decode(ticdc.raw(line["key"]), ticdc.raw(line["value"]))
        assert isinstance(event, RowEvent)
        reader = RowReader(row.version.info, ticdc.zone_of(row.zone))
        names = [c.name for c in row.version.info.output_columns]
        record = row.record
        for columns, image in ((event.after, record.value), (event.before, record.old_value)):
            if image is None:
                assert columns == ()
                continue
            cells = dict(zip(names, reader.read(record.key, image), strict=True))
            assert [c.name for c in columns] == sorted(names, key=str.encode)
            for column in columns:
                assert _same(column, cells[column.name]), (line["id"], column)
        assert event.ts == record.commit_ts
        assert event.kind.value == row.expected["kind"] or row.split != "none"
        assert (event.partition is None) == (not row.expected["is_partition"])


def _same(column: Column, cell: object) -> bool:
    """Text that is not UTF-8 cannot come back: its bad bytes are U+FFFD in JSON."""
    if isinstance(cell, bytes) and not column.flags & ColumnFlag.BINARY and column.type not in (249, 250, 251, 252):
        return column.value == "".join("�" if 0xDC80 <= ord(c) < 0xDD00 else c for c in cell.decode("utf-8", "surrogateescape")).encode()
    return repr(column.value) == repr(cell) or (isinstance(cell, float) and column.value == cell)


def test_ddls_of_ticdc() -> None:
    jobs = {line["seq"]: line for line in ticdc.lines("ddl")}
    count = 0
    for line in MESSAGES:
        if line["kind"] != "ddl":
            continue
        job = jobs[line["seq"]]
        events = job["result"].get("events") or job["result_force_replicate"]["events"]
        sent = [event for event in events if not event.get("ineligible")][line["idx"]]
        (event,) = decode(ticdc.raw(line["key"]), ticdc.raw(line["value"]))
        assert isinstance(event, DdlMessage)
        assert (event.ts, event.schema, event.type, event.query) == (sent["commit_ts"], sent["schema"], sent["type"], sent["sent_query"])
        assert event.table == sent.get("table", "")
        own = DdlEvent(event.ts, 0, 1, 1, 0, sent["type"], event.schema, event.table, "", "", 1, event.query, "", True)
        assert ddl_message(own) == (ticdc.raw(line["key"]), ticdc.raw(line["value"]))
        count += 1
    assert count == 294


def test_resolved_of_ticdc() -> None:
    for line in MESSAGES:
        if line["kind"] == "checkpoint":
            assert decode(ticdc.raw(line["key"]), ticdc.raw(line["value"])) == [ResolvedMessage(line["ts"])]
            assert resolved_message(line["ts"]) == (ticdc.raw(line["key"]), ticdc.raw(line["value"]))


def test_batches_of_ticdc() -> None:
    single = {m["id"]: decode(ticdc.raw(m["key"]), ticdc.raw(m["value"]))[0] for m in MESSAGES if m["kind"] == "row"}
    for batch in ticdc.lines("batches"):
        refused = {error["id"] for error in batch.get("errors") or ()}
        got = [event for m in batch["messages"] for event in decode(ticdc.raw(m["key"]), ticdc.raw(m["value"]))]
        assert got == [single[i] for i in batch["ids"] if i not in refused]


def test_values_by_type() -> None:
    columns = {
        "i": {"t": 8, "f": 129, "v": 18446744073709551615},
        "f": {"t": 5, "f": 65, "v": 1e21},
        "g": {"t": 5, "f": 65, "v": 100000000000000000000},
        "z": {"t": 4, "f": 65},
        "b": {"t": 252, "f": 65, "v": "AAE="},
        "q": {"t": 15, "f": 65, "v": "\\x00\\\\é"},
        "s": {"t": 254, "h": True, "f": 2, "v": "é"},
        "n": {"t": 3, "f": 64, "v": None},
        "new": {"t": 777, "f": 4096, "v": "x"},
    }
    key, value = message(ROW_KEY | {"rid": -7, "ptn": 9}, {"u": columns})
    value = value[:8] + value[8:].replace(b'"z": {"t": 4, "f": 65}', b'"z": {"t": 4, "f": 65, "v": -0}')
    value = (len(value) - 8).to_bytes(8, "big") + value[8:]
    (event,) = decode(key, value)
    assert isinstance(event, RowEvent)
    assert (event.kind, event.row_id, event.partition, event.before) == (RowKind.INSERT, -7, 9, ())
    assert [c.value for c in event.after] == [(1 << 64) - 1, 1e21, 1e20, -0.0, b"\0\1", b"\0\\\xc3\xa9", "é".encode(), None, "x"]
    assert repr(event.after[3].value) == "-0.0"
    assert event.after[6].handle
    assert event.after[6].type is ColumnType.CHAR
    assert event.after[8].type == 777


def test_unknown_codes_and_members_pass() -> None:
    assert decode(*message({"ts": 1, "scm": "s", "t": 2, "later": 1}, {"q": "x", "t": 9999})) == [DdlMessage(1, "s", "", "x", 9999)]
    assert decode(*message({"ts": 1, "scm": "s", "t": 2}, {"q": "x", "t": 3}))[0].type is DdlType.CREATE_TABLE


GOOD_KEY, GOOD_VALUE = message(ROW_KEY, {"u": {"a": {"t": 3, "f": 0, "v": 1}}})


@pytest.mark.parametrize(
    ("key", "value", "part", "offset", "field", "fault"),
    [
        (b"", b"", "key", 0, "version", Fault.SENDER),
        (b"\0" * 7 + b"\2", GOOD_VALUE, "key", 0, "version", Fault.READER),
        (GOOD_KEY[:8], b"", "key", 8, "", Fault.SENDER),
        (GOOD_KEY[:12], GOOD_VALUE, "key", 8, "length", Fault.SENDER),
        (GOOD_KEY[:-1], GOOD_VALUE, "key", 8, "length", Fault.SENDER),
        (GOOD_KEY, GOOD_VALUE[:-1], "value", 0, "length", Fault.SENDER),
        (GOOD_KEY, b"\xff" * 8, "value", 0, "length", Fault.SENDER),
        (GOOD_KEY, b"", "value", 0, "", Fault.SENDER),
        (*message(b"[1", {}), "key", 18, "", Fault.SENDER),
        (*message(b"\xff{}", {}), "key", 16, "", Fault.SENDER),
        (*message(b"[]", {}), "key", 16, "", Fault.SENDER),
        (*message(b'{"ts":1,"ts":2}', {}), "key", 16, "", Fault.SENDER),
        (*message(b"[" * 100_000, {}), "key", 16, "", Fault.SENDER),
        (*message(b'{"ts":' + b"1" * 5000 + b"}", {}), "key", 16, "", Fault.SENDER),
        (*message(b'{"ts":NaN}', {}), "key", 16, "", Fault.SENDER),
        (*message({"t": 1}, {}), "key", 16, "ts", Fault.SENDER),
        (*message({"ts": -1, "t": 1}, {}), "key", 16, "ts", Fault.SENDER),
        (*message({"ts": True, "t": 1}, {}), "key", 16, "ts", Fault.SENDER),
        (*message({"ts": 1, "t": 4}, {}), "key", 16, "t", Fault.READER),
        (*message({"ts": 1, "t": 3}, b"{}"), "value", 8, "", Fault.SENDER),
        (*message({"ts": 1, "t": 2}, {"t": 1}), "value", 8, "q", Fault.SENDER),
        (*message({"ts": 1, "t": 1, "tbl": "t"}, {"u": {}}), "key", 16, "scm", Fault.SENDER),
        (*message(ROW_KEY | {"ohk": 1}, {"u": {}}), "key", 16, "ohk", Fault.SENDER),
        (*message(ROW_KEY, {"p": {}}), "value", 8, "", Fault.SENDER),
        (*message(ROW_KEY, {"u": {}, "d": {}}), "value", 8, "", Fault.SENDER),
        (*message(ROW_KEY, {"u": []}), "value", 8, "u", Fault.SENDER),
        (*message(ROW_KEY, {"u": {"a": 1}}), "value", 8, "u.a", Fault.SENDER),
        (*message(ROW_KEY, {"u": {"a": {"f": 0, "v": 1}}}), "value", 8, "u.a.t", Fault.SENDER),
        (*message(ROW_KEY, {"u": {"a": {"t": 3, "f": 0}}}), "value", 8, "u.a.v", Fault.SENDER),
        (*message(ROW_KEY, {"u": {"a": {"t": 3, "f": 0, "v": "1"}}}), "value", 8, "u.a.v", Fault.SENDER),
        (*message(ROW_KEY, {"u": {"a": {"t": 3, "f": 0, "v": 1 << 64}}}), "value", 8, "u.a.v", Fault.SENDER),
        (*message(ROW_KEY, {"u": {"a": {"t": 5, "f": 0, "v": "1"}}}), "value", 8, "u.a.v", Fault.SENDER),
        (*message(ROW_KEY, {"u": {"a": {"t": 252, "f": 0, "v": "é"}}}), "value", 8, "u.a.v", Fault.SENDER),
        (*message(ROW_KEY, {"u": {"a": {"t": 15, "f": 1, "v": "\\q"}}}), "value", 8, "u.a.v", Fault.SENDER),
        (*message(ROW_KEY, {"u": {"a": {"t": 15, "f": 1, "v": "\\x1"}}}), "value", 8, "u.a.v", Fault.SENDER),
        (*message(ROW_KEY, {"u": {"a": {"t": 10, "f": 1, "v": 5}}}), "value", 8, "u.a.v", Fault.SENDER),
    ],
)
def test_refusals_say_where_and_whose_fault(key: bytes, value: bytes, part: str, offset: int, field: str, fault: Fault) -> None:
    with pytest.raises(OpenMessageError) as caught:
        decode(key, value)
    error = caught.value
    assert (error.part, error.offset, error.field, error.fault) == (part, offset, field, fault)


def test_broken_messages_are_refused_or_read() -> None:
    """Bytes changed, cut out or put in anywhere: nothing but the error of the decoder."""
    rng = random.Random(1)
    refused = 0
    for _ in range(3000):
        line = rng.choice(MESSAGES)
        parts = [bytearray(ticdc.raw(line["key"])), bytearray(ticdc.raw(line["value"]))]
        for _ in range(rng.randint(1, 3)):
            part = rng.choice(parts)
            at = rng.randrange(len(part) + 1)
            match rng.randrange(3):
                case 0:
                    part[at : at + 1] = bytes([rng.randrange(256)])
                case 1:
                    del part[at : at + rng.randint(1, 9)]
                case _:
                    part[at:at] = rng.choice([b'"', b"{", b"\\", b"\0\0\0\0\0\0\0\1", bytes([rng.randrange(256)])])
        try:
            decode(bytes(parts[0]), bytes(parts[1]))
        except OpenMessageError:
            refused += 1
    assert refused > 2000


@given(st.binary())
def test_quoted_bytes_come_back(data: bytes) -> None:
    assert unquote(go_quote(data).decode()) == data


@given(st.text())
def test_json_strings_come_back(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    expected = text if data.decode("utf-8", "replace") == text else None
    got = json.loads(json_string(data))
    assert expected is None or got == expected
    assert set(json_string(data)) & set(b"<>&\n") == set()


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_random_bytes_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(OpenMessageError):
        decode(key, value)
