"""Typed arrays of Canal's messages, column by column: what decoding one entry after the other gives, for entries of Canal, of TiCDC, random
and broken ones."""

from __future__ import annotations

import base64
import random

import pyarrow as pa
import pytest

from tests.support.canal.golden import conversations, lines
from tests.support.golden import ticdc
from tests.support.rows.mutation import mutated
from tests.support.rows.random_rows import maximal_varint
from tests.support.thorough import few_of
from tidemill.errors import MalformedMessage
from tidemill.kernels.decode import canal_columns
from tidemill.kernels.decode.canal_columns import decode_array
from tidemill.protocols.canal.arrow import decode_plainly, event_type
from tidemill.protocols.canal.encode import packet
from tidemill.protocols.canal.packets import Messages, PacketError, parse_packet, write_packet
from tidemill.protocols.canal.parse import parse_entry
from tidemill.protocols.common.mysqlvalues import BINARIES, INTEGERS, MEMBERS, base_type
from tidemill.wire import canal_entry_pb2 as pb


def array(messages: list[bytes | None]) -> pa.Array:
    return pa.array(messages, pa.binary())


def outcome(work: object, *args: object, **options: object) -> object:
    try:
        return work(*args, **options)  # type: ignore[operator]
    except MalformedMessage as error:
        return str(error)


def of_canal() -> list[list[bytes]]:
    """Batches of entries that Canal's server sent."""
    found = [[base64.b64decode(entry) for entry in batch["entries"]] for batch in lines("flat_message")]
    for recording in conversations():
        for _, direction, data in recording["events"]:
            if direction == "s2c" and 400 < len(data) < 100_000:
                try:
                    body = parse_packet(data[4:])
                except PacketError:
                    continue
                if isinstance(body, Messages) and body.entries:
                    found.append(list(body.entries))
    return found


def of_ticdc() -> list[bytes]:
    return [ticdc.raw(line["entry"]) or b"" for line in ticdc.lines("canal") if "entry" in line]


def wanted_type(rng: random.Random, kind: str) -> pa.DataType:
    """A type that a user may want for a column of this MySQL type."""
    if kind in INTEGERS:
        return rng.choice((pa.int64(), pa.int32(), pa.int8(), pa.bool_(), pa.float64(), pa.decimal128(20, 0), pa.string(), pa.binary()))
    if kind in ("float", "double"):
        return rng.choice((pa.float64(), pa.float32(), pa.string(), pa.decimal128(38, 10)))
    if kind in ("date", "datetime", "timestamp"):
        return rng.choice((pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32(), pa.string()))
    if kind == "time":
        return rng.choice((pa.string(), pa.duration("us")))
    if kind == "decimal":
        return rng.choice((pa.decimal128(38, 20), pa.decimal128(12, 2), pa.string(), pa.float64()))
    if kind in MEMBERS:
        return rng.choice((pa.string(), pa.int64()))
    return rng.choice((pa.binary(), pa.binary(), pa.string())) if kind in BINARIES else rng.choice((pa.string(), pa.binary()))


def schema_of(rng: random.Random, entries: list[bytes]) -> pa.StructType:
    columns: dict[str, str] = {}
    for data in entries:
        change = parse_entry(data).change
        for row in change.rows if change is not None else ():
            columns |= {c.name: c.mysql_type for c in (*row.before, *row.after)}
    chosen = [name for name in columns if rng.random() < 0.6] or list(columns)
    return pa.struct([*((name, wanted_type(rng, base_type(columns[name]))) for name in chosen), ("younger", pa.int64())])


def compared(values: pa.Array, schema: pa.StructType | None, table: tuple[str, str] | None = None, *, entries: bool = False) -> bool:
    """Compare both; whether the quick one read it."""
    want = outcome(decode_plainly, values, schema, table=table, entries=entries)
    assert outcome(decode_array, values, schema, table=table, entries=entries) == want
    found = canal_columns.read(values, event_type(schema), schema, table, entries=entries)
    if found is not None:
        found.validate(full=True)
        assert found == want
    return found is not None


def is_ordinary(data: bytes) -> bool:
    """Whether an entry has rows, or is a DDL or the end of a transaction: not the text of a statement."""
    change = parse_entry(data).change
    return change is None or bool(change.rows) or change.ddl


@pytest.mark.slow
@pytest.mark.parametrize("seed", few_of(range(3), 1))
def test_batches_of_canal(seed: int) -> None:
    rng = random.Random(seed)
    quick, all_of_them = 0, 0
    for batch in of_canal():
        entries = [data for data in batch if is_ordinary(data)]
        tables = sorted({(e.header.schema, e.header.table) for e in map(parse_entry, entries) if e.change is not None and e.change.rows})
        for schema, table in ((None, None), (schema_of(rng, entries), rng.choice(tables or [("d", "t")]))):
            quick += compared(array([packet(entries), None, write_packet(Messages(7, tuple(entries[:3]))), packet([])]), schema, table)
            quick += compared(array([*entries, None]), schema, table, entries=True)
            all_of_them += 2
        assert not compared(array([packet(batch)]), None) or len(batch) == len(entries)
    assert quick > all_of_them * 0.8


@pytest.mark.slow
@pytest.mark.parametrize("seed", few_of(range(3), 1))
def test_entries_of_ticdc(seed: int) -> None:
    rng = random.Random(seed)
    entries = of_ticdc()
    by_table: dict[tuple[str, str], list[bytes]] = {}
    for data in entries:
        header = parse_entry(data).header
        by_table.setdefault((header.schema, header.table), []).append(data)
    quick = 0
    for name, some in by_table.items():
        schema = schema_of(rng, some)
        quick += compared(array([packet(some[:50]), packet(some[50:90])]), None)
        quick += compared(array([packet(some[:50]), packet(rng.sample(entries, 20))]), schema, name)
    assert quick > len(by_table)


def test_slices_and_nothing() -> None:
    entries = of_ticdc()[:60]
    values = array([packet(entries[i : i + 6]) for i in range(0, 60, 6)])
    schema = pa.struct([("id", pa.int64())])
    for one in (values[3:7], values[0:0], array([]), array([None, None]), values.cast(pa.large_binary())):
        for wanted in (None, schema):
            assert decode_array(one, wanted, table=("a", "b")) == decode_plainly(one, wanted, table=("a", "b"))


TYPES = {
    "int(11)": ("0", "-1", "2147483647", "007", "-0", "x", ""),
    "bigint(20) unsigned": ("18446744073709551615", "18446744073709551616", "1", "9999999999999999999999"),
    "bigint(20)": ("-9223372036854775808", "-9223372036854775809", "9223372036854775807"),
    "year(4)": ("2155", "0000"),
    "double": ("0.1", "1.0E16", "-1e-300", "1e999", "5", ".5", "5.", "nan", "4.9E-324"),
    "float": ("0.1", "3.4028235E38", "1.0E39", "16777217", "-0.0"),
    "decimal(10,2)": ("5.0", "5.00", "-1.25", "123456789012345678901", "1e3", ""),
    "datetime(6)": ("2024-02-29 23:59:59.123456", "2023-02-29 00:00:00", "0000-00-00 00:00:00", "2024-01-01", "0999-12-31 00:00:00.5"),
    "date": ("2024-02-29", "9999-12-31", "0001-01-01", "0000-00-00", "2024-13-01", "2024-1-1", "soon", "1900-02-29", "2000-02-29"),
    "timestamp": ("1970-01-01 00:00:01", "2024-05-06T07:08:09", "2024-05-06 24:00:00", "2024-05-06 07:08:09.1234567"),
    "time(3)": ("-838:59:59", "00:00:00.500", "-00:00:00.000001", "1:02:03", "99:99:99", "1000:00:00", "12:3:4"),
    "varchar(20)": ("a", "中文😀", "", "\x00", "é" * 40),
    "text": ("x" * 1000, "12"),
    "varbinary(9)": ("ÿ\x80\x00", "abc", "中", ""),
    "enum('a','b')": ("1", "a", "007", "-3", "99999999999999999999"),
    "set('x')": ("18446744073709551615", "x"),
    "json": ('{"a": 1}', "null"),
    "point": ("\x00ÿ", "x"),
}  # fmt: skip
"""Values of types, also such as no server sends."""


def random_entry(rng: random.Random, types: dict[str, str], fine: bool) -> bytes:
    event = rng.randint(1, 3)
    change = pb.RowChange(event_type=event, is_ddl=False, table_id=rng.getrandbits(40))
    for _ in range(rng.choice((1, 1, 2, 30))):
        row = change.row_datas.add()
        for image, is_there in ((row.before_columns, event != 1), (row.after_columns, event != 3)):
            for index, (name, kind) in enumerate(types.items() if is_there else ()):
                column = image.add(index=index, sql_type=rng.choice((4, -5, -7, 2005, 1)), name=name.encode(), mysql_type=kind.encode())
                column.is_key = index == 0
                column.updated = rng.random() < 0.5
                column.is_null = rng.random() < 0.2
                if not column.is_null:
                    values = TYPES[kind]
                    column.value = values[0 if fine else rng.randrange(len(values))].encode()
                if not fine and rng.random() < 0.01:
                    column.value = rng.choice((b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3"))
    made = pb.Entry(entry_type=2, store_value=change.SerializeToString())
    made.header.schema_name, made.header.table_name = rng.choice(((b"d", b"t"), (b"d", b"u"), (b"\xe4\xb8\xad", b"t")))
    made.header.execute_time = rng.choice((0, 1_795_255_172_000, (1 << 63) - 1))
    for key in rng.choice(((), (b"rowsCount", b"commit_ts"), (b"commit_ts", b"start_ts", b"commit_ts"))):
        values = (b"1", b"9223372036854775807", b"470616264291647490", *(() if fine else (b"9223372036854775808", b"x", b"")))
        made.header.props.add(key=key, value=rng.choice(values))
    return made.SerializeToString()


@pytest.mark.parametrize("seed", few_of(range(60), 20))
def test_random_entries(seed: int) -> None:
    rng = random.Random(seed)
    fine = seed % 3 == 0
    kinds = rng.sample(sorted(TYPES), rng.randint(1, 6))
    names = {f"c{i}" if i else "é": kind for i, kind in enumerate(kinds)}
    entries = [random_entry(rng, names, fine) for _ in range(rng.choice((1, 5)))]
    schema = pa.struct([(name, wanted_type(rng, base_type(kind))) for name, kind in names.items()])
    for wanted, table in ((None, None), (schema, None), (schema, ("d", "t"))):
        values = array([packet(entries), packet(entries[:1])])
        want = outcome(decode_plainly, values, wanted, table=table)
        got = outcome(decode_array, values, wanted, table=table)
        if got != want:  # a value of a table that is not asked for is not looked at
            assert isinstance(want, str)
            assert table is not None
            assert not isinstance(got, str)
        if fine and wanted is None:
            assert canal_columns.read(values, event_type(None), None, None, entries=False) == want


@pytest.mark.parametrize("seed", few_of(range(40), 15))
def test_broken_messages(seed: int) -> None:
    """Whatever is wrong: what the reference says, or what is right in it if the fault is in a column that is not wanted."""
    rng = random.Random(seed)
    batches = of_canal()[:20]
    for _ in range(12):
        entries = rng.choice(batches)[:12]
        messages = [packet(entries), packet(entries[:2])]
        at = rng.randrange(2)
        if rng.random() < 0.5:
            messages[at] = mutated(rng, messages[at])
        else:
            which = rng.randrange(len(entries))
            broken = bytearray(mutated(rng, entries[which]))
            if rng.random() < 0.5:
                cut = rng.randrange(len(broken) + 1)
                broken[cut:cut] = maximal_varint(rng)
            messages[at] = packet([*entries[:which], bytes(broken), *entries[which + 1 :]])
        want = outcome(decode_plainly, array(messages))
        assert outcome(decode_array, array(messages)) == want
