"""`python -m tests.support.rows.guarded_fuzz SEED ROUNDS [FAMILY…]`: kernels on hostile bytes, between pages without access.

Rows end (or begin) at such a page, and so does the room that kernels write to: a read or write out of bounds ends the process. Kernels are
loaded once, and each family runs in a fork of its own: what one does to its process, the others do not see. Each round prints its number
first, so that one knows which one it was; a line `FAMILY STATUS` follows. What kernels give is compared with references elsewhere.
"""

from __future__ import annotations

import base64
import os
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tests.support.binlog.guarded import fuzz_binlog
from tests.support.binlog.guarded_pump import fuzz_pump
from tests.support.canal.golden import lines
from tests.support.capture.eventfeeds import recorded_messages
from tests.support.golden.text_encoders import VARIANTS, encoder_of
from tests.support.rows import debezium_avro_programs as debezium_avro
from tests.support.rows.avro_programs import MODES, programs_of
from tests.support.rows.guard_pages import Guarded, GuardedRows, guarded_array
from tests.support.rows.mutation import mutated
from tests.support.rows.open_programs import random_programs
from tests.support.rows.random_rows import broken, maximal_varint, overlapped, random_plain, random_record
from tidemill.capture.tikv.feed.http2 import frame
from tidemill.capture.tikv.receive.decode import PAD, Scanner
from tidemill.capture.tikv.receive.matcher import FOREVER, Matcher
from tidemill.capture.tikv.receive.memory import Array, Chunks
from tidemill.errors import TidemillError
from tidemill.kernels.address import address
from tidemill.kernels.avro import AvroRowEncoder
from tidemill.kernels.avro import encoder as avro_encoder
from tidemill.kernels.canal import CanalRowEncoder, entry_encoder
from tidemill.kernels.canal import encoder as canal_encoder
from tidemill.kernels.canal.entry_encoder import CanalEntryEncoder
from tidemill.kernels.columns import ColumnBuilder, ColumnProgram, ObjectBuilder, ObjectProgram
from tidemill.kernels.columns import builder as column_builder
from tidemill.kernels.decode import canal_columns
from tidemill.kernels.load.pairs import BadAnswer, locate_pairs
from tidemill.kernels.messages.buffer import Buffer
from tidemill.kernels.open import encoder as open_encoder
from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.receive import layout as L
from tidemill.kernels.receive.deframe import deframe
from tidemill.kernels.receive.layout import ENTRY
from tidemill.kernels.receive.scan import scan
from tidemill.kernels.routing.identity import KeyHash, unique_change
from tidemill.kernels.rows.mount import MountEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord
from tidemill.kernels.templates import encoder as text_encoder
from tidemill.protocols.canal.arrow import event_type
from tidemill.protocols.canal.encode import packet
from tidemill.protocols.options import Compression, EncodingOptions, LargeMessage, LargeMessageOption, MessageFormat
from tidemill.tidb.codec import encode_varint
from tidemill.tidb.columns.forms import TimeAs
from tidemill.tidb.datums import DatumFlag
from tidemill.tidb.rows.cells import Family, Plain, family
from tidemill.tidb.rows.write import pack_row, stored_bytes
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.types.jsonbin import encode_json
from tidemill.tidb.types.vectors import encode_vector

ROWS_A_CALL = 6
ROW_ROOM = 1 << 15
FIRST_ROOM = 256
OPEN_OPTIONS = (
    EncodingOptions(max_message_bytes=1 << 30),
    EncodingOptions(only_output_updated_columns=True, delete_only_handle_key_columns=True),
    EncodingOptions(max_message_bytes=700, large_message=LargeMessage(LargeMessageOption.HANDLE_KEY_ONLY)),
    EncodingOptions(large_message=LargeMessage(compression=Compression.SNAPPY)),
    EncodingOptions(large_message=LargeMessage(compression=Compression.LZ4), output_old_value=False),
)


# Rows whose text is as long as can be


def longest_document(rng: random.Random) -> bytes:
    """Binary JSON whose text is many times as long as it is."""
    control = "\x01" * rng.randrange(40)
    numbers = [5e-324, -2.2250738585072014e-308, 1.7976931348623157e308, -1e-7, 1e20]
    return encode_json(
        rng.choice(
            ([False] * rng.randrange(200), {control: control}, [[]] * rng.randrange(90), {"": {"": {"": None}}}, numbers, [control] * 7)
        )
    )


def longest_plain(rng: random.Random, info: ColumnInfo) -> Plain:
    """A value of a column that becomes much text."""
    match family(info):
        case Family.BYTES:
            return rng.choice((b"\x01", b"<", b"\xff", b'"', b"'", b"\\", b"\xe2\x80\xa8", b"\xc2\xad", b"||", b"\n")) * rng.randrange(300)
        case Family.FLOAT:
            return rng.choice((5e-324, -2.2250738585072014e-308, 1.7976931348623157e308, -1.401298464324817e-45, -3.4e38))
        case Family.JSON:
            return longest_document(rng)
        case Family.VECTOR:
            return encode_vector([-1.1754942e-38] * rng.randrange(60))
    return random_plain(rng, info)


def longest(rng: random.Random, program: TableProgram, record: RawRecord) -> RawRecord:
    """The record with images whose text is as long as can be."""

    def image() -> bytes:
        plains = {c.id: longest_plain(rng, c) for c in program.info.output_columns if program.info.pk_column is not c}
        return pack_row({i: stored_bytes(program.info.columns_by_id[i], plain) for i, plain in plains.items()})

    return record._replace(value=record.value and image(), old_value=record.old_value and image())


def chunk_of(rng: random.Random, programs: Sequence[TableProgram]) -> list[RawRecord]:
    records = []
    for _ in range(rng.randint(1, ROWS_A_CALL)):
        index = rng.randrange(len(programs))
        record = random_record(rng, programs[index].info, index)
        if rng.random() < 0.4:
            record = longest(rng, programs[index], record)
        match rng.randrange(4):
            case 0 | 1:
                record = broken(rng, record)
            case 2:
                record = record._replace(value=all_overlapped(rng, record.value), old_value=all_overlapped(rng, record.old_value))
            case 3 if rng.random() < 0.3:
                record = record._replace(value=record.value and ending_empty(rng, programs[index]))
        records.append(record)
    return records


def ending_empty(rng: random.Random, program: TableProgram) -> bytes:
    """A row of format 1 that ends with a value of no bytes: it stands where nothing can be read."""
    texts = [c.id for c in program.info.output_columns if family(c) is Family.BYTES] or [300]
    return bytes([DatumFlag.VARINT]) + encode_varint(rng.choice(texts)) + bytes([DatumFlag.COMPACT_BYTES]) + encode_varint(0)


def all_overlapped(rng: random.Random, row: bytes | None) -> bytes | None:
    """The row with values that overlap."""
    out = bytearray(row or b"")
    overlapped(rng, out)
    return None if row is None else bytes(out)


# Encoders


def guarded(encoder: Any) -> Any:
    """The encoder with its scratch at a guard."""
    scratch = guarded_array(len(encoder._scratch))
    encoder._scratch = scratch
    return encoder


def fuzz_encoders(
    rng: random.Random, rounds: int, make: Callable[[], tuple[Sequence[TableProgram], list[Callable[[Any, Any], object]]]]
) -> None:
    room = GuardedRows(ROW_ROOM)
    for number in range(rounds):
        print(number, flush=True)
        programs, works = make()
        for _ in range(12):
            records = chunk_of(rng, programs)
            rows, _keep = room.place(records, last=rng.random() < 0.8)
            for work in works:
                try:
                    work(rows, np.array([0, len(rows)], np.int32))
                except TidemillError:
                    # What stands behind a refused row has to be read, too.
                    for i in range(len(rows)):
                        one = np.ascontiguousarray(rows[i : i + 1])
                        try:
                            work(one, np.array([0, 1], np.int32))
                        except TidemillError:
                            continue


def fuzz_open(rng: random.Random, rounds: int) -> None:
    def make() -> tuple[Sequence[TableProgram], list[Callable[[Any, Any], object]]]:
        programs = random_programs(rng, 2)
        unique, hashes = guarded(unique_change(programs)), guarded(KeyHash(programs))
        every = guarded(KeyHash(programs, [[c.name for c in p.columns] for p in programs]))
        works: list[Callable[[Any, Any], object]] = [guarded(OpenRowEncoder(programs, rng.choice(OPEN_OPTIONS))).encode]
        works += [guarded(MountEncoder(programs)).encode, lambda rows, _: unique.changed(rows)]
        return programs, [*works, lambda rows, _: hashes.hash(rows), lambda rows, _: every.hash(rows)]

    fuzz_encoders(rng, rounds, make)


def fuzz_texts(rng: random.Random, rounds: int) -> None:
    names = sorted(VARIANTS)

    def make() -> tuple[Sequence[TableProgram], list[Callable[[Any, Any], object]]]:
        programs = random_programs(rng, 2)
        options = VARIANTS[rng.choice(names)]
        if rng.random() < 0.3:
            options = replace(options, large_message=LargeMessage(compression=rng.choice((Compression.LZ4, Compression.SNAPPY))))
        return programs, [guarded(encoder_of(programs, options)).encode]

    fuzz_encoders(rng, rounds, make)


def fuzz_avro(rng: random.Random, rounds: int) -> None:
    def make() -> tuple[Sequence[TableProgram], list[Callable[[Any, Any], object]]]:
        programs = programs_of(rng, 2)
        envelopes = debezium_avro.encoder_of(programs, rng.choice(debezium_avro.MODES))
        return programs, [guarded(AvroRowEncoder(programs, rng.choice(MODES), [(1, 2), (3, 4)])).encode, guarded(envelopes).encode]

    fuzz_encoders(rng, rounds, make)


def fuzz_columns(rng: random.Random, rounds: int) -> None:
    """The first program's tables alone are read: a builder of columns has one."""

    def make() -> tuple[Sequence[TableProgram], list[Callable[[Any, Any], object]]]:
        programs = random_programs(rng, 1)
        typed = guarded(ColumnBuilder([ColumnProgram(programs[0], time_as=rng.choice(list(TimeAs)), strict=rng.random() < 0.3)]))
        objects = guarded(ObjectBuilder([ObjectProgram(programs[0])]))
        return programs, [lambda rows, _: list(typed.build(rows)), lambda rows, _: list(objects.build(rows))]

    fuzz_encoders(rng, rounds, make)


def fuzz_canal(rng: random.Random, rounds: int) -> None:
    def make() -> tuple[Sequence[TableProgram], list[Callable[[Any, Any], object]]]:
        programs = random_programs(rng, 2)
        limit = rng.choice((1 << 30, 1 << 16, 2000))
        options = EncodingOptions(MessageFormat.CANAL, max_message_bytes=limit, delete_only_handle_key_columns=rng.random() < 0.3)
        works: list[Callable[[Any, Any], object]] = [guarded(CanalRowEncoder(programs, options)).encode]
        return programs, [*works, lambda rows, _: guarded(CanalEntryEncoder(programs, 7)).encode(rows, last=rng.random() < 0.5)]

    fuzz_encoders(rng, rounds, make)


# What comes over the network


def mangled(rng: random.Random, message: bytes) -> bytes:
    """A message with bytes changed, cut out or put in, and with lengths that no field has."""
    out = bytearray(message)
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0:
                out[at : at + 1] = bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))])
            case 1:
                del out[at : at + rng.randint(1, 9)]
            case 2:
                out[at:at] = rng.randbytes(rng.randint(1, 9))
            case 3:
                tags = [i + 1 for i, byte in enumerate(out) if byte in (10, 18, 26, 42, 50, 58)]
                at = rng.choice(tags) if tags else at
                out[at : at + rng.randrange(3)] = maximal_varint(rng)
            case _:
                del out[at:]
    return bytes(out)


class GuardedChunks(Chunks):
    """Chunks whose bytes end at a guard: nothing is shared."""

    def room(self, n: int) -> tuple[int, Array]:
        buffer = guarded_array(n)
        return self.add(buffer, n), buffer


def fuzz_receive(rng: random.Random, rounds: int) -> None:
    pool = [m for name in ("live_2pc", "scan_past", "feed_v2", "region_split", "not_leader") for m in recorded_messages(name)]
    for number in range(rounds):
        print(number, flush=True)
        matcher = Matcher(1, GuardedChunks())
        for region in range(1, 200):
            for request in range(4):
                matcher.subscribe(0, region, request, 0)
        scanner = Scanner(matcher.chunks)
        for _ in range(40):
            batch = scanner.scan([mangled(rng, rng.choice(pool)) for _ in range(rng.randint(1, 4))])
            matcher.feed(batch)
        matcher.release(matcher.take(0, FOREVER - 1))
        scan_alone(rng, pool)
        deframe_alone(rng)
        locate_alone(rng)


def scan_alone(rng: random.Random, pool: Sequence[bytes]) -> None:
    """The scanner with room for few entries, which ends at a guard, too."""
    for _ in range(40):
        message = mangled(rng, rng.choice(pool))
        data, entries = guarded_array(len(message) + PAD), guarded_array(ENTRY.itemsize * rng.randint(1, 8))
        data[: len(message)] = np.frombuffer(message, np.uint8)
        data[len(message) :] = rng.choice((0, 0x7F, 0x80, 0xFF))
        ends, streams, state = np.array([len(message)]), np.zeros(1, np.int64), np.zeros(6, np.int64)
        cap = len(entries) // ENTRY.itemsize
        found = scan(address(data), address(ends), address(streams), 0, 1, address(entries), cap, address(state))
        assert 0 <= found <= cap


def deframe_alone(rng: random.Random) -> None:
    for _ in range(40):
        wire = b"".join(
            frame(
                rng.choice((0, 0, 0, 1, 4)), rng.choice((0, 8)), 1, rng.choice((b"", bytes(4), b"\0\xff\xff\xff\xff")) + rng.randbytes(30)
            )
            for _ in range(5)
        )
        wire = mangled(rng, wire) or b"\0"
        room, out = guarded_array(len(wire) + PAD), guarded_array(100 + PAD)
        room[: len(wire)] = np.frombuffer(wire, np.uint8)
        ends, frames, state = guarded_array(8 * 4), guarded_array(32 * L.D_CONTROLS), np.zeros(L.D_WORDS, np.int64)
        state[L.D_MSG], state[L.D_STREAM] = -1, 1
        used = deframe(address(state), address(room), len(wire), address(out), 100, address(ends), 4, address(frames))
        assert 0 <= used <= len(wire)


def locate_alone(rng: random.Random) -> None:
    """Answers of an initial load."""
    for _ in range(40):
        pair = b"\x12\x01k\x1a\x05value\x20\x07"
        answer = mangled(rng, b"".join(b"\x12" + bytes([len(pair)]) + pair for _ in range(3)))
        room = Guarded(len(answer) or 1)
        room.put(answer, last=True)
        try:
            pairs = locate_pairs(room.tail(len(answer)).data, 5)
        except BadAnswer:
            continue
        assert (pairs.places >= 0).all()
        assert (pairs.places[:, [0, 2]] + pairs.places[:, [1, 3]] <= len(answer)).all()


# Canal's messages


CANAL_COLUMNS = (
    "id",
    "c_int",
    "c_bigint_u",
    "c_dec",
    "c_float",
    "c_double",
    "c_datetime6",
    "c_date",
    "c_time6",
    "c_blob",
    "c_varchar",
    "name",
)
CANAL_KINDS = (
    *(pa.int64(), pa.int8(), pa.float64(), pa.float32(), pa.bool_(), pa.decimal128(20, 3), pa.string(), pa.binary()),
    *(pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32(), pa.duration("us")),
)


def hostile_entry(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(mutated(rng, data) if rng.random() < 0.7 else data)
    if rng.random() < 0.5:
        at = rng.randrange(len(made) + 1)
        made[at:at] = maximal_varint(rng)
    return bytes(made[: rng.randrange(len(made) + 1)] if rng.random() < 0.1 else made)


def fuzz_canal_read(rng: random.Random, rounds: int) -> None:
    """Messages whose last byte is the last that may be read."""
    recorded = [base64.b64decode(entry) for batch in lines("flat_message") for entry in batch["entries"]]
    data = Guarded(1 << 20)
    for number in range(rounds):
        print(number, flush=True)
        for _ in range(40):
            entries = rng.random() < 0.5
            messages = [hostile_entry(rng, rng.choice(recorded)) for _ in range(rng.randint(1, 4))]
            if not entries:
                messages = [packet(messages[: i + 1]) for i in range(len(messages))]
                if rng.random() < 0.3:
                    messages[-1] = hostile_entry(rng, messages[-1])
            place = data.put(b"".join(messages), last=True)
            offsets = np.cumsum([0, *map(len, messages)], dtype=np.int32)
            size = int(offsets[-1])
            values = pa.Array.from_buffers(pa.binary(), len(messages), [None, pa.py_buffer(offsets), pa.foreign_buffer(place, size)])
            schema = pa.struct([(name, rng.choice(CANAL_KINDS)) for name in CANAL_COLUMNS]) if rng.random() < 0.6 else None
            table = ("ct", "t_types") if rng.random() < 0.3 else None
            found = canal_columns.read(values, event_type(schema), schema, table, entries=entries)
            if found is not None:
                found.validate(full=True)


FAMILIES: dict[str, Callable[[random.Random, int], None]] = {
    "open": fuzz_open,
    "texts": fuzz_texts,
    "avro": fuzz_avro,
    "columns": fuzz_columns,
    "canal": fuzz_canal,
    "canal-read": fuzz_canal_read,
    "receive": fuzz_receive,
    "binlog": fuzz_binlog,
    "pump": fuzz_pump,
}


def main(seed: str, rounds: int, *names: str) -> None:
    Buffer.room = staticmethod(guarded_array)
    for module in (open_encoder, text_encoder, avro_encoder, canal_encoder, entry_encoder):
        module._FIRST_SIZE = FIRST_ROOM
    column_builder._FIRST_ROOM = 0
    for name in names or FAMILIES:
        child = os.fork()
        if child == 0:
            _fuzz(name, seed, rounds)
        _, status = os.waitpid(child, 0)
        print(name, os.waitstatus_to_exitcode(status), flush=True)


def _fuzz(name: str, seed: str, rounds: int) -> NoReturn:
    """A family, in a fork: it ends here."""
    code = 1
    try:
        FAMILIES[name](random.Random(f"{name} {seed}"), rounds)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
