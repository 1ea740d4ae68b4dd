"""The Canal kernel and its reference agree on random rows of random tables, whole and broken; packets are cut where they have to be."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.golden.text_rows import encode_all, outcome
from tests.support.rows.random_programs import random_programs
from tests.support.rows.random_rows import TYPES, broken, random_record, random_table
from tests.support.thorough import FUZZ
from tidemill.errors import MalformedRow, MessageTooLarge
from tidemill.kernels.canal import CanalRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import row_array
from tidemill.protocols.canal.encode import packet, packets_of
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import MySQLType

VARIANTS = {
    "default": EncodingOptions(MessageFormat.CANAL),
    "handle deletes": EncodingOptions(MessageFormat.CANAL, delete_only_handle_key_columns=True),
    "small packets": EncodingOptions(MessageFormat.CANAL, max_message_bytes=40_000),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_random_rows(variant: str) -> None:
    rng = random.Random(variant)
    options = VARIANTS[variant]
    for _ in range(2 * FUZZ):
        programs = random_programs(rng, 4)
        encoder = CanalRowEncoder(programs, options)
        records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(4) for _ in range(80))]
        wanted = [outcome(lambda record=record: encoder.entry_of(record), MalformedRow) for record in records]  # noqa: B023
        good = [(r, want) for r, want in zip(records, wanted, strict=True) if isinstance(want, bytes) and len(want) < 39_000]
        messages = encode_all(encoder, [record for record, _ in good])
        assert [(m.value, m.rows) for m in messages] == packets_of([want for _, want in good], options.max_message_bytes)
        assert encoder.slow_rows == 0


def test_every_type_is_in_the_kernel() -> None:
    """No whole row of any type is handed back."""
    rng = random.Random(99)
    for tp in TYPES:
        programs = random_programs(rng, 3, MySQLType(tp))
        records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(3) for _ in range(60))]
        encoder = CanalRowEncoder(programs)
        good = [r for r in records if isinstance(outcome(lambda r=r: encoder.entry_of(r), MalformedRow), bytes)]  # noqa: B023
        (message,) = encode_all(encoder, good)
        assert message.value == packet([encoder.entry_of(r) for r in good])
        assert encoder.slow_rows == 0, tp


@pytest.mark.parametrize("variant", ["default", "handle deletes"])
def test_broken_rows(variant: str) -> None:
    """Bytes changed anywhere: the reference's entry, or its error."""
    rng = random.Random(f"broken {variant}")
    refused = 0
    for _ in range(2 * FUZZ):
        programs = random_programs(rng, 2)
        encoder = CanalRowEncoder(programs, VARIANTS[variant])
        for _ in range(30):
            index = rng.randrange(2)
            record = broken(rng, random_record(rng, programs[index].info, index))
            want = outcome(lambda: packet([encoder.entry_of(record)]), MalformedRow)  # noqa: B023
            got = outcome(lambda: encode_all(encoder, [record])[0].value, MalformedRow)  # noqa: B023
            if isinstance(want, MalformedRow):
                refused += 1
                assert isinstance(got, MalformedRow)
                assert got.message == want.message
                assert record.key.hex() in want.message
            else:
                assert got == want
    assert refused > 15


def test_rows_of_one_packet_go_to_one_target() -> None:
    rng = random.Random(5)
    programs = random_programs(rng, 2)
    records = [random_record(rng, programs[i % 2].info, i % 2) for i in range(9)]
    rows, _keep = row_array(records, [3, 3, 3, 3, 4, 4, 7, 7, 7])
    encoder = CanalRowEncoder(programs)
    messages = encoder.encode(rows, np.array([0, 4, 6, 9], np.int32)).to_list()
    want = [(target, count, records[end].commit_ts) for target, count, end in ((3, 4, 3), (4, 2, 5), (7, 3, 8))]
    assert [(m.target, m.rows, m.commit_ts) for m in messages] == want
    entries = [encoder.entry_of(record) for record in records]
    assert [m.value for m in messages] == [packet(entries[:4]), packet(entries[4:6]), packet(entries[6:])]


def test_a_packet_has_up_to_2048_rows_also_over_calls() -> None:
    """The buffer grows many times on the way, so the kernel is called again in the middle of a packet."""
    rng = random.Random(6)
    (program,) = random_programs(rng, 1, MySQLType.LONGLONG)
    record = random_record(rng, program.info)
    encoder = CanalRowEncoder([program])
    encoder._values = type(encoder._values)(256)
    messages = encode_all(encoder, [record] * 5000)
    entry = encoder.entry_of(record)
    assert [m.rows for m in messages] == [2048, 2048, 904]
    assert [m.value for m in messages] == [packet([entry] * m.rows) for m in messages]


def test_texts_that_are_not_utf8_and_headers_of_any_time() -> None:
    """Each byte that is not UTF-8 is U+FFFD; a commit ts of any size, also one whose milliseconds are 0."""
    rng = random.Random(8)
    table = random_table(rng, (MySQLType.VARCHAR,))
    program = TableProgram("s", "t", table)
    encoder = CanalRowEncoder([program])
    column = next(c for c in table.output_columns if c.tp == MySQLType.VARCHAR)
    record = random_record(rng, table)._replace(old_value=None)
    for text in (b"", b"\xff", b"a\xe4\xb8", b"x" * 31 + b"\xf0\x9f\x98\x80" + b"\x80" * 40, b"\xe4\xb8\xad" * 50, b"k" * 20_000):
        for commit_ts in (1, 1 << 18, 1 << 25, 1 << 60, (1 << 64) - 1):
            changed = record._replace(value=pack_row({column.id: text}), commit_ts=commit_ts)
            want = outcome(lambda: packet([encoder.entry_of(changed)]), MalformedRow)  # noqa: B023
            got = outcome(lambda: encode_all(encoder, [changed])[0].value, MalformedRow)  # noqa: B023
            assert got == want or (isinstance(got, MalformedRow) and isinstance(want, MalformedRow))


def test_large_values_and_limits() -> None:
    rng = random.Random(3)
    table = random_table(rng, (MySQLType.BLOB,))
    column = next(c.id for c in table.output_columns if c.tp == MySQLType.BLOB)
    record = random_record(rng, table)._replace(value=pack_row({column: b"\x01<\xff" * 700_000}), old_value=None)
    program = TableProgram("s", "t", table)
    encoder = CanalRowEncoder([program], EncodingOptions(MessageFormat.CANAL, max_message_bytes=1 << 30))
    (message,) = encode_all(encoder, [record] * 3)
    assert message.value == packet([encoder.entry_of(record)] * 3)
    small = CanalRowEncoder([program], EncodingOptions(MessageFormat.CANAL, max_message_bytes=1000))
    with pytest.raises(MessageTooLarge, match=rf"s\.t takes \d+ bytes.*{record.key.hex()}, start_ts 1, commit_ts {record.commit_ts}"):
        encode_all(small, [record])
