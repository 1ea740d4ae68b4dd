"""Kernel and reference agree on random rows of random tables in all modes, whole and broken."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.support.rows.avro_programs import programs_of
from tests.support.rows.debezium_avro_programs import MODES, NOW, encoder_of
from tests.support.rows.random_rows import TYPES, broken, random_record
from tests.support.schema.tables import column, table
from tests.support.thorough import FUZZ, few_of
from tidemill.errors import MessageTooLarge, TidemillError
from tidemill.kernels.debezium_avro import DebeziumAvroRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import MySQLType as T

Message = tuple[bytes | None, bytes | None]


def encode(encoder: DebeziumAvroRowEncoder, records: Sequence[RawRecord]) -> list[Message]:
    rows, _keep = row_array(records)
    return [(m.key, m.value) for m in encoder.encode(rows, np.array([0, len(rows)], np.int32)).to_list()]


def plain(encoder: DebeziumAvroRowEncoder, record: RawRecord) -> Message | TidemillError:
    """What the reference makes of a row."""
    reference = encoder.programs[record.table].reference
    try:
        return reference.row(record.key, record.value, record.old_value, record.start_ts, record.commit_ts, NOW)
    except TidemillError as error:
        return error


def compare(encoder: DebeziumAvroRowEncoder, records: Sequence[RawRecord]) -> int:
    """Hold kernel and reference against each other. Returns how many rows the reference takes."""
    pairs = [(record, plain(encoder, record)) for record in records]
    good = [(record, want) for record, want in pairs if not isinstance(want, TidemillError)]
    assert encode(encoder, [record for record, _ in good]) == [want for _, want in good]
    return len(good)


@pytest.mark.parametrize("mode", range(len(MODES)))
def test_random_rows(mode: int) -> None:
    rng = random.Random(mode)
    for _ in range(FUZZ):
        programs = programs_of(rng, 5)
        encoder = encoder_of(programs, MODES[mode])
        assert compare(encoder, [random_record(rng, programs[i].info, i) for i in (rng.randrange(5) for _ in range(120))]) > 60


@pytest.mark.slow
@pytest.mark.parametrize("options", MODES[::2], ids=["precise", "strings"])
def test_every_type_is_in_the_kernel(options: object) -> None:
    """No whole row of any type is handed back, in no format, except members that an ENUM or SET does not have."""
    rng = random.Random(99)
    for tp in TYPES:
        programs = programs_of(rng, 4, (T(tp),))
        encoder = encoder_of(programs, options)  # type: ignore[arg-type]
        compare(encoder, [random_record(rng, programs[i].info, i) for i in (rng.randrange(4) for _ in range(60))])
        assert encoder.slow_rows == 0 or tp in (T.ENUM, T.SET)


@pytest.mark.parametrize("seed", few_of(range(2), 1))
def test_broken_rows(seed: int) -> None:
    """Where the reference gives a message the kernel gives the same; where it refuses the row, so does the encoder."""
    rng = random.Random(1000 + seed)
    for _ in range(4 * FUZZ):
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


TIMES = [
    column(tp, name=f"c{i}", Decimal=digits, Flag=flag)
    for i, (tp, digits, flag) in enumerate(
        (tp, digits, flag) for tp, digits in ((T.DATE, 0), (T.DATETIME, 3), (T.DATETIME, 6), (T.TIMESTAMP, 3)) for flag in (0, 1)
    )
]


def test_dates_that_no_calendar_has() -> None:
    """They are null, in a NOT NULL column 0; the zero TIMESTAMP is 1970."""
    info = table([column(T.LONG, name="id"), *TIMES], pk_is_handle=True)
    encoder = encoder_of([TableProgram("s", "t", info)], MODES[0])
    records = []
    for month, day in ((0, 0), (2, 30), (4, 31), (2, 29), (12, 31)):
        packed = ((2021 * 13 + month) << 5 | day) << 41 if month else 0
        stored = {c.id: bytes(8) if c.tp == T.TIMESTAMP else packed.to_bytes(8, "little") for c in info.columns[1:]}
        records.append(RawRecord(record_key(1, 1), pack_row(stored), None, 1, 2, 0))
    assert compare(encoder, records) == len(records)
    assert encoder.slow_rows == 0


def test_sizes_and_growth() -> None:
    info = table([column(T.LONG), column(T.LONG_BLOB, name="v")], pk_is_handle=True)
    program = TableProgram("s", "t", info)
    large = encoder_of([program], replace(MODES[0], max_message_bytes=1 << 30))
    records = [RawRecord(record_key(1, i), pack_row({2: bytes([i]) * (2 << 20)}), pack_row({2: b"x"}), 1, 2, 0) for i in range(4)]
    assert compare(large, records) == len(records)
    small = encoder_of([program], replace(MODES[0], max_message_bytes=200))
    with pytest.raises(MessageTooLarge, match=r"s\.t takes \d+ bytes .* max-message-bytes is 200.*start_ts 1, commit_ts 2"):
        encode(small, records)
    assert encode(small, []) == []


def test_programs_are_made_once_and_go_with_their_table() -> None:
    program = TableProgram("s", "t", table([column(T.LONG)], pk_is_handle=True))
    first, second = (encoder_of([program], MODES[0]) for _ in range(2))
    assert first.programs[0] is second.programs[0]
    made, gone = weakref.ref(first.programs[0]), weakref.ref(program)
    del program, first, second
    gc.collect()
    assert (made(), gone()) == (None, None)
