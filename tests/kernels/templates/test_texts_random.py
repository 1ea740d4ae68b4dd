"""The text kernels and their references agree on random rows of random tables, whole and broken, under all options."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

from tests.support.golden.text_encoders import CANAL_JSON, NO_SLOW_ROWS, QUIET, SIMPLE, VARIANTS, encoder_of
from tests.support.golden.text_rows import encode_all, outcome
from tests.support.rows.random_programs import random_programs
from tests.support.rows.random_rows import TYPES, broken, random_record, random_table
from tests.support.thorough import FUZZ
from tidemill.errors import MalformedRow, MessageTooLarge
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.kernels.simple import SimpleRowEncoder
from tidemill.kernels.templates.encoder import TextRowEncoder
from tidemill.protocols.common.compression import expand
from tidemill.protocols.csv.handles import handle_text
from tidemill.protocols.options import (
    Compression,
    EncodingOptions,
    LargeMessage,
    SimpleOptions,
)
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.schema.codes import MySQLType


def plain(encoder: TextRowEncoder, record: Any) -> bytes:
    return encoder.value_of(record, 1_795_000_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_random_rows(variant: str) -> None:
    rng = random.Random(variant)
    for _ in range(2 * FUZZ):
        programs = random_programs(rng, 4)
        encoder = encoder_of(programs, VARIANTS[variant])
        records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(4) for _ in range(80))]
        wanted = [outcome(lambda record=record: plain(encoder, record), MalformedRow) for record in records]  # noqa: B023
        good = [(record, want) for record, want in zip(records, wanted, strict=True) if isinstance(want, bytes)]
        messages = encode_all(encoder, [record for record, _ in good])
        assert [m.value for m in messages] == [want for _, want in good]
        assert [(m.key, m.rows, m.commit_ts) for m in messages] == [(encoder.key_of(record), 1, record.commit_ts) for record, _ in good]
        if variant in NO_SLOW_ROWS:
            assert encoder.slow_rows == infinite_handles(variant, [record for record, _ in good])


@pytest.mark.slow
def test_every_type_is_in_the_kernel() -> None:
    """No whole row of any type is handed back."""
    rng = random.Random(99)
    for tp in TYPES:
        programs = random_programs(rng, 3, MySQLType(tp))
        records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(3) for _ in range(20 * FUZZ))]
        for variant in NO_SLOW_ROWS:
            encoder = encoder_of(programs, VARIANTS[variant])
            good = [r for r in records if isinstance(outcome(lambda r=r: plain(encoder, r), MalformedRow), bytes)]  # noqa: B023
            assert [m.value for m in encode_all(encoder, good)] == [plain(encoder, r) for r in good]
            assert encoder.slow_rows == infinite_handles(variant, good), (tp, variant)


def infinite_handles(variant: str, records: list[RawRecord]) -> int:
    """Rows whose handle holds an infinity, which no table can: the reference prints them."""
    if "handles" not in variant:
        return 0
    return sum(re.search(rb"Inf|NaN", handle_text(parse_record_key(record.key))) is not None for record in records)


@pytest.mark.parametrize("variant", VARIANTS)
def test_broken_rows(variant: str) -> None:
    """Bytes changed anywhere: the reference's message, or its error."""
    rng = random.Random(f"broken {variant}")
    refused = 0
    for _ in range(2 * FUZZ):
        programs = random_programs(rng, 2)
        encoder = encoder_of(programs, VARIANTS[variant])
        for _ in range(30):
            index = rng.randrange(2)
            record = broken(rng, random_record(rng, programs[index].info, index))
            want = outcome(lambda: plain(encoder, record), MalformedRow)  # noqa: B023
            got = outcome(lambda: encode_all(encoder, [record])[0].value, MalformedRow)  # noqa: B023
            if isinstance(want, MalformedRow):
                refused += 1
                # CSV of an update without its old value does not look at it
                assert isinstance(got, MalformedRow)
                assert got.message == want.message
                assert record.key.hex() in want.message
            else:
                assert got == want
    assert refused > 15


@pytest.mark.parametrize("kind", [Compression.SNAPPY, Compression.LZ4])
def test_compressed_messages_expand_to_the_same(kind: Compression) -> None:
    rng = random.Random(4)
    programs = random_programs(rng, 3)
    records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(3) for _ in range(60))]
    options = EncodingOptions(SIMPLE, simple=QUIET, large_message=LargeMessage(compression=kind))
    encoder = encoder_of(programs, options)
    messages = encode_all(encoder, records)
    assert [expand(m.value or b"") for m in messages] == [plain(encoder, record) for record in records]
    assert encoder.slow_rows == 0


def test_large_values_and_limits() -> None:
    """The buffer grows; a message that is too large is refused by name."""
    from tidemill.tidb.rows.write import pack_row

    rng = random.Random(3)
    table = random_table(rng, (MySQLType.BLOB,))
    column = next(c.id for c in table.output_columns if c.tp == MySQLType.BLOB)
    record = random_record(rng, table)._replace(value=pack_row({column: b"\x01<\xff" * 700_000}), old_value=None)
    program = TableProgram("s", "t", table)
    encoder = encoder_of([program], EncodingOptions(CANAL_JSON, max_message_bytes=1 << 30))
    assert [m.value for m in encode_all(encoder, [record] * 3)] == [plain(encoder, record)] * 3
    small = encoder_of([program], EncodingOptions(CANAL_JSON, max_message_bytes=1000))
    with pytest.raises(MessageTooLarge, match=rf"s\.t takes \d+ bytes.*{record.key.hex()}, start_ts 1, commit_ts {record.commit_ts}"):
        encode_all(small, [record])


def test_bootstrap_messages_stand_before_rows() -> None:
    """Before a table's first row to a target, then after a number of rows or seconds."""
    rng = random.Random(8)
    programs = random_programs(rng, 2)
    now = [1_000_000]
    options = EncodingOptions(SIMPLE, simple=SimpleOptions(bootstrap_interval_s=10, bootstrap_messages=4))
    encoder = SimpleRowEncoder(programs, options, clock=lambda: now[0])

    def kinds(tables: list[int], targets: list[int]) -> list[tuple[int, str]]:
        records = [random_record(rng, programs[i].info, i) for i in tables]
        rows, _keep = row_array(records, targets)
        ends = [i for i in range(1, len(targets)) if targets[i] != targets[i - 1]]
        messages = encoder.encode(rows, np.array([0, *ends, len(rows)], np.int32)).to_list()
        assert sum(m.rows for m in messages) == len(records)
        return [(m.target, "B" if b'"type":"BOOTSTRAP"' in (m.value or b"") else "r") for m in messages]

    assert kinds([0, 0, 1, 0], [5, 5, 5, 6]) == [(5, "B"), (5, "r"), (5, "r"), (5, "B"), (5, "r"), (6, "B"), (6, "r")]
    assert kinds([0, 0, 0], [5, 5, 5]) == [(5, "r"), (5, "r"), (5, "B"), (5, "r")]
    now[0] += 10_000
    assert kinds([0], [5]) == [(5, "B"), (5, "r")]
    assert kinds([0] * 9, [5] * 9) == [(5, k) for k in "rrrBrrrrBrr"]
    first = SimpleRowEncoder(
        random_programs(rng, 1), EncodingOptions(SIMPLE, simple=SimpleOptions(bootstrap_all_partitions=False)), first_targets=[3],
        clock=lambda: 0,
    )  # fmt: skip
    rows, _keep = row_array([random_record(rng, first.programs[0].info)] * 2, [5, 6])
    messages = first.encode(rows, np.array([0, 1, 2], np.int32)).to_list()
    assert [m.target for m in messages] == [3, 5, 6]
