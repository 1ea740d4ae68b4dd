"""Messages of protocol canal → events: TiCDC's give back the rows; Canal's own lose nothing; hostile bytes are refused."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.support.canal.golden import frames
from tests.support.golden import ticdc
from tests.support.rows.random_rows import maximal_varint
from tidemill.errors import MalformedMessage
from tidemill.protocols.canal import DdlMessage, OtherEntry, RowEvent, RowKind, TransactionMark, decode, packet
from tidemill.protocols.canal.arrow import decode_plainly as decode_array
from tidemill.protocols.canal.control import control_messages
from tidemill.protocols.canal.decode import events_of
from tidemill.protocols.canal.encode import CanalTable
from tidemill.protocols.canal.packets import Messages, parse_packet
from tidemill.protocols.canal.parse import EntryError, parse_entry
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.wire import canal_entry_pb2 as pb


def golden(kind: str) -> list[tuple[dict[str, Any], bytes]]:
    return [(line, ticdc.raw(line["entry"]) or b"") for line in ticdc.lines("canal") if line["kind"] == kind and "entry" in line]


def as_delivered(cell: object) -> object:
    """A cell as an entry can hold it: bytes that are not UTF-8 are replaced."""
    return cell.decode("utf-8", "replace").encode() if isinstance(cell, bytes) else cell


def test_golden_rows_come_back() -> None:
    for line, entry in golden("row"):
        row = ticdc.rows()[line["id"]]
        info = row.version.info
        reader = CanalTable(row.version.schema, row.version.table, info, ticdc.zone_of(row.zone), EncodingOptions()).reader
        (event,) = decode(packet([entry]))
        assert isinstance(event, RowEvent)
        assert (event.schema, event.table, event.es) == (row.version.schema, row.version.table, row.record.commit_ts >> 18)
        assert event.commit_ts is None
        for image, stored in ((event.after, row.record.value), (event.before, row.record.old_value)):
            if not stored:
                assert image == ()
                continue
            cells = reader.read(row.record.key, stored)
            want = {c.name: cell if c.is_binary else as_delivered(cell) for c, cell in zip(info.output_columns, cells, strict=True)}
            got = {c.name: c.value for c in image}
            if line["config"] == "delete-only-handle":
                want = {name: want[name] for name in got}
            assert got == want, line


def test_golden_ddls() -> None:
    control = control_messages(EncodingOptions(MessageFormat.CANAL))
    assert control.resolved_message(5) is None
    assert control.ddl_on_first_partition
    for line, entry in golden("ddl"):
        (event,) = decode(packet([entry]))
        assert isinstance(event, DdlMessage)
        assert event.es == line["commit_ts"] >> 18
        assert event.query
        assert event.type in ("CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")


def canal_entries() -> list[bytes]:
    """Entries that Canal's server sent."""
    bodies = [parse_packet(bytes.fromhex(line["hex"])[4:]) for line in frames() if line["type"] == "MESSAGES"]
    return [entry for body in bodies if isinstance(body, Messages) for entry in body.entries]


def test_entries_of_canal_are_read_and_lose_nothing() -> None:
    entries = canal_entries()
    assert len(entries) > 300
    kinds = set()
    for data in entries:
        entry = pb.Entry.FromString(data)
        assert entry.SerializeToString() == data
        stored = {1: pb.TransactionBegin, 2: pb.RowChange, 3: pb.TransactionEnd}[entry.entry_type].FromString(entry.store_value)
        assert stored.SerializeToString() == entry.store_value
        events = events_of(parse_entry(data))
        kinds.update(map(type, events))
        for event in events:
            if isinstance(event, RowEvent):
                assert (bool(event.before), bool(event.after)) == (event.kind is not RowKind.INSERT, event.kind is not RowKind.DELETE)
    assert kinds == {RowEvent, DdlMessage, TransactionMark, OtherEntry}


def test_heartbeats_and_unknown_types() -> None:
    """An entry type that a client does not know is ROWDATA, as for Canal's own."""
    (beat,) = events_of(parse_entry(pb.Entry(header=pb.Header(execute_time=7), entry_type=4).SerializeToString()))
    assert beat == OtherEntry(7, "HEARTBEAT", "")
    change = pb.RowChange(event_type=1, row_datas=[pb.RowData()]).SerializeToString()
    (row,) = events_of(parse_entry(pb.Entry(entry_type=99, store_value=change).SerializeToString()))
    assert isinstance(row, RowEvent)


def entry_of(**fields: object) -> bytes:
    column = pb.Column(sql_type=4, name=b"a", mysql_type=b"int", value=b"1")
    for name, value in fields.items():
        setattr(column, name, value)
    change = pb.RowChange(event_type=1, row_datas=[pb.RowData(after_columns=[column])])
    header = pb.Header(schema_name=b"s", table_name=b"t", execute_time=1)
    return pb.Entry(header=header, entry_type=2, store_value=change.SerializeToString()).SerializeToString()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"\xff", "read as Packet"),
        (b"\x10\x01\x18\x03", "expected MESSAGES, found Ack"),
        (packet([b"\x0a\xff\xff\xff\xff\x7f"]), "read as Entry"),
        (packet([entry_of(value=b"x")]), r"afterColumns\.a: expected an integer, found 'x' \(its type is int\)"),
        (packet([entry_of(value="中".encode(), mysql_type=b"blob")]), "a character that is not a byte"),
        (packet([entry_of(value=b"\xff", mysql_type=b"json")]), "is not UTF-8"),
        (packet([entry_of(name=b"\xff")]), "name: .* is not UTF-8"),
        (packet([pb.Entry(entry_type=2, store_value=b"\x0a").SerializeToString()]), "storeValue: 1 bytes that cannot be read as RowChange"),
    ],
)
def test_what_is_refused(value: bytes, problem: str) -> None:
    with pytest.raises(MalformedMessage, match=problem):
        decode(value)


def test_hostile_entries() -> None:
    rng = random.Random(17)
    pool = canal_entries() + [entry for _, entry in golden("row")[:200]]
    refused = 0
    for _ in range(6000):
        data = bytearray(rng.choice(pool))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randrange(3)] = maximal_varint(rng) if rng.random() < 0.4 else rng.randbytes(rng.randrange(3))
        try:
            events_of(parse_entry(bytes(data)))
        except EntryError:
            refused += 1
    assert refused > 1000


def test_arrow() -> None:
    messages = [packet([entry for _, entry in golden("row")[:30]]), None, packet([entry for _, entry in golden("ddl")[:2]])]
    found = decode_array(pa.array(messages, pa.binary())).to_pylist()
    assert [len(found[0]), found[1], len(found[2])] == [30, None, 2]
    assert {event["type"] for event in found[0]} == {"row"}
    assert {event["type"] for event in found[2]} == {"ddl"}
    typed = decode_array(pa.array([packet([entry_of()])], pa.binary()), pa.struct([("a", pa.int64())]), table=("s", "t"))
    assert typed.to_pylist()[0][0]["after"] == {"a": 1}
    assert decode_array(pa.array([packet([entry_of()])], pa.binary()), table=("s", "other")).to_pylist() == [[]]
    with pytest.raises(MalformedMessage, match=r"message 1 of the batch: .*afterColumns\.a"):
        decode_array(pa.array([packet([entry_of()]), packet([entry_of(value=b"x")])], pa.binary()))
