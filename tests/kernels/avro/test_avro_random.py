"""Kernel and reference agree on random rows of random tables in all modes, whole and broken."""

from __future__ import annotations

import gc
import random
import struct
import weakref
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.support.rows.avro_programs import MODES, programs_of
from tests.support.rows.random_rows import TYPES, broken, random_record
from tests.support.schema.tables import column, table
from tests.support.thorough import FUZZ, few_of
from tidemill.errors import CorruptedRow, MalformedRow, MessageTooLarge, TidemillError
from tidemill.kernels.avro import AvroRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.avro.encode import has_checksum
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.checksum import ROW_AND_HANDLE, ROW_AND_KEY, row_checksum
from tidemill.tidb.rows.raw import FORMAT_2, decode_row
from tidemill.tidb.rows.write import pack_row, stored_bytes, with_checksum
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.codes import MySQLType as T

Message = tuple[bytes | None, bytes | None]


def encoder_of(programs: Sequence[TableProgram], options: EncodingOptions) -> AvroRowEncoder:
    """An encoder with ids of one to four bytes."""
    return AvroRowEncoder(programs, options, [(7 << 4 * i, (9 << 4 * i) + 1) for i in range(len(programs))])


def encode(encoder: AvroRowEncoder, records: Sequence[RawRecord]) -> list[Message]:
    rows, _keep = row_array(records)
    return [(m.key, m.value) for m in encoder.encode(rows, np.array([0, len(rows)], np.int32)).to_list()]


def plain(encoder: AvroRowEncoder, record: RawRecord) -> Message | TidemillError:
    """What the reference makes of a row."""
    try:
        return encoder.programs[record.table].avro.row(record.key, record.value, record.old_value, record.commit_ts)
    except TidemillError as error:
        return error


@pytest.mark.parametrize("mode", range(len(MODES)))
def test_random_rows(mode: int) -> None:
    rng = random.Random(mode)
    for _ in range(FUZZ):
        programs = programs_of(rng, 5)
        encoder = encoder_of(programs, MODES[mode])
        records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(5) for _ in range(120))]
        wanted = [plain(encoder, record) for record in records]
        good = [(record, want) for record, want in zip(records, wanted, strict=True) if not isinstance(want, TidemillError)]
        assert len(good) > 60
        assert encode(encoder, [record for record, _ in good]) == [want for _, want in good]


@pytest.mark.slow
@pytest.mark.parametrize("options", MODES[:2] + MODES[-2:-1], ids=["precise", "precise-ext", "strings-ext"])
def test_every_type_is_in_the_kernel(options: EncodingOptions) -> None:
    """No whole row of any type is handed back, in no format."""
    rng = random.Random(99)
    for tp in TYPES:
        programs = programs_of(rng, 4, (MySQLType(tp),))
        encoder = encoder_of(programs, options)
        records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(4) for _ in range(40))]
        pairs = [(record, plain(encoder, record)) for record in records]
        good = [(record, want) for record, want in pairs if not isinstance(want, TidemillError)]
        assert encode(encoder, [record for record, _ in good]) == [want for _, want in good]
        assert encoder.slow_rows == 0, tp.name


def summed(rng: random.Random, key: bytes, row: bytes | None) -> bytes | None:
    """A row value with a checksum that fits it, of versions 1 and 2, alone or as the second of two."""
    if row is None or row[0] != FORMAT_2 or has_checksum(row):
        return row
    header = rng.choice((ROW_AND_KEY, ROW_AND_HANDLE)) | (extra := rng.choice((0, 8)))
    body = row[:1] + bytes([row[1] | 2]) + row[2:]
    checksum = row_checksum(key, body, header)
    if not extra:
        return body + struct.pack("<BI", header, checksum)
    return body + struct.pack("<BII", header, *rng.sample((checksum, rng.getrandbits(32)), 2))


def test_row_checksums_are_in_the_kernel() -> None:
    """Of every type, in every zone, of updates too."""
    rng = random.Random(5)
    for types in ((tp,) for tp in TYPES):
        programs = programs_of(rng, 4, types)
        encoder = encoder_of(programs, MODES[-1])
        records = []
        for at in (rng.randrange(4) for _ in range(20)):
            record = random_record(rng, programs[at].info, at)
            value, old = summed(rng, record.key, record.value), summed(rng, record.key, record.old_value)
            records.append(record._replace(value=value, old_value=old))
        pairs = [(record, plain(encoder, record)) for record in records]
        good = [(r, want) for r, want in pairs if not isinstance(want, TidemillError)]
        half = [(r, want) for r, want in good if r.value and not has_checksum(r.value) and r.old_value and has_checksum(r.old_value)]
        assert encode(encoder, [record for record, _ in good]) == [want for _, want in good]
        # a row that lost its checksum, and those of random_record, whose checksum is another row's
        assert encoder.slow_rows <= len(half) + sum(any(v and is_wrong(r.key, v) for v in (r.value, r.old_value)) for r, _ in good)


def test_a_corrupted_row_stops_where_it_shall() -> None:
    info = table([column(T.LONG), column(T.LONG, name="n")], pk_is_handle=True)
    encoder = AvroRowEncoder([TableProgram("s", "t", info)], replace(MODES[-1], corrupted_rows_fail=True), [(1, 2)])
    keys = [record_key(1, i) for i in range(3)]
    records = [RawRecord(key, with_checksum(key, pack_row({2: b"\5"})), None, 1, 2, 0) for key in keys]
    assert len(encode(encoder, records)) == 3
    with pytest.raises(CorruptedRow, match=keys[1].hex()):
        encode(encoder, [records[0], records[1]._replace(value=records[2].value)])
    assert encoder.slow_rows == 0


def is_wrong(key: bytes, value: bytes) -> bool:
    """Whether a checksum does not fit the row."""
    found = decode_row(value).checksum
    if found is None:
        return False
    return row_checksum(key, value[: found.body_size], found.header) not in (found.checksum, found.extra)


@pytest.mark.parametrize("seed", few_of(range(4), 2))
def test_broken_rows(seed: int) -> None:
    """Where the reference gives a message the kernel gives the same; where it refuses the row, so does the encoder."""
    rng = random.Random(1000 + seed)
    for _ in range(2 * FUZZ):
        programs = programs_of(rng, 3)
        encoder = encoder_of(programs, rng.choice(MODES))
        for _ in range(60):
            at = rng.randrange(3)
            record = broken(rng, random_record(rng, programs[at].info, at))
            want = plain(encoder, record)
            if isinstance(want, TidemillError):
                with pytest.raises(type(want)):
                    encode(encoder, [record])
            else:
                assert encode(encoder, [record]) == [want]


@pytest.mark.parametrize("scale", [0, 1, 4, 9, 10, 18, 27, 30])
def test_decimals_of_all_sizes(scale: int) -> None:
    rng = random.Random(scale)
    for digits in sorted({scale + extra for extra in (0, 1, 8, 9, 10, 18, 19, 27, 35)} - {0}):
        digits = min(digits, 65)
        info = table([column(T.LONG), column(T.NEWDECIMAL, name="d", Flen=digits, Decimal=scale)], pk_is_handle=True)
        encoder = encoder_of([TableProgram("s", "t", info)], MODES[0])
        numbers = [0, 1, 10**digits - 1, 127, 128, 32767, 32768, 1 << 63, (1 << 63) - 1, 1 << 64, 1 << 127]
        numbers += [rng.randrange(10 ** rng.randint(1, digits)) for _ in range(40)]
        records = []
        for number in numbers:
            whole = f"{number % 10**digits:0{scale + 1}d}"
            text = rng.choice(("", "-")) + (whole[:-scale] + "." + whole[-scale:] if scale else whole)
            records.append(RawRecord(record_key(1, 1), pack_row({2: stored_bytes(info.columns[1], text)}), None, 1, 2, 0))
        assert encode(encoder, records) == [plain(encoder, record) for record in records]
        assert encoder.slow_rows == 0


def test_groups_targets_and_sizes() -> None:
    info = table([column(T.LONG), column(T.VARCHAR, name="v")], pk_is_handle=True)
    encoder = AvroRowEncoder([TableProgram("s", "t", info)], replace(MODES[0], max_message_bytes=150), [(1, 2)])
    records = [RawRecord(record_key(1, i), pack_row({2: b"x" * i}), None, 1, 2, 0) for i in range(1, 102)]
    rows, _keep = row_array(records[:97], [0] * 40 + [7] * 57)
    messages = encoder.encode(rows, np.array([0, 40, 97], np.int32))
    assert [m.target for m in messages.to_list()] == [0] * 40 + [7] * 57
    assert messages.bytes == sum(len(m.key or b"") + len(m.value or b"") for m in messages.to_list())
    with pytest.raises(MessageTooLarge, match=r"s\.t takes 151 bytes .* max-message-bytes is 150.*start_ts 1, commit_ts 2"):
        encode(encoder, records[97:99])
    assert len(encode(encoder, records[:3])) == 3
    assert encode(encoder, []) == []


def test_the_buffer_grows() -> None:
    """Rows larger than the buffer, of the kernel and of the reference."""
    info = table([column(T.LONG), column(T.LONG_BLOB, name="v"), column(T.ENUM, name="e", Elems=["a"])], pk_is_handle=True)
    encoder = encoder_of([TableProgram("s", "t", info)], replace(MODES[0], max_message_bytes=1 << 30))
    records = [RawRecord(record_key(1, i), pack_row({2: bytes([i]) * (3 << 20)}), None, 1, 2, 0) for i in range(5)]
    wrong_size = pack_row({2: b"y" * (5 << 20), 3: b"\1\0\0"})
    assert encode(encoder, records) == [plain(encoder, record) for record in records]
    with pytest.raises(MalformedRow, match="3 bytes"):
        encode(encoder, [RawRecord(record_key(1, 1), wrong_size, None, 1, 2, 0)])


def test_programs_are_made_once_and_go_with_their_table() -> None:
    program = TableProgram("s", "t", table([column(T.LONG)], pk_is_handle=True))
    first, second = (AvroRowEncoder([program], MODES[0], [(1, 2)]) for _ in range(2))
    other = AvroRowEncoder([program], MODES[0], [(1, 3)])
    assert first.programs[0] is second.programs[0]
    assert first.programs[0] is not other.programs[0]
    made, gone = weakref.ref(first.programs[0]), weakref.ref(program)
    del program, first, second, other
    gc.collect()
    assert (made(), gone()) == (None, None)


def test_wrong_arguments() -> None:
    encoder = encoder_of([], MODES[0])
    rows, _keep = row_array([])
    assert len(encoder.encode(rows, np.array([0], np.int32))) == 0
    with pytest.raises(ValueError, match="zip"):
        AvroRowEncoder([TableProgram("s", "t", table([column(T.LONG)]))], MODES[0], [])
