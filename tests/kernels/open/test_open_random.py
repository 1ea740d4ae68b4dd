"""Kernel and reference agree on random rows of random tables, whole and broken."""

from __future__ import annotations

import json
import math
import random
import struct

import numpy as np
import pytest

from tests.support.golden.text_rows import outcome
from tests.support.rows.open_programs import ZONES, random_programs
from tests.support.rows.random_rows import TYPES, broken, random_record, random_table
from tests.support.schema.tables import column, table
from tests.support.thorough import FUZZ, few_of
from tidemill.errors import MalformedRow, MessageTooLarge
from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.routing.identity import KeyHash, unique_change
from tidemill.kernels.rows.mount import MountEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.open.batch import batches
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.types.jsonbin import encode_json, json_text
from tidemill.tidb.types.jsonstyle import JsonStyle


def groups_of(*ends: int) -> np.ndarray:
    return np.array(ends, np.int32)


def expected(programs: list[TableProgram], records: list[RawRecord]) -> list[tuple[bytes, bytes]]:
    return [programs[r.table].open.row(r.key, r.value, r.old_value, r.commit_ts) for r in records]


@pytest.mark.slow
@pytest.mark.parametrize("seed", few_of(range(8), 3))
def test_random_rows(seed: int) -> None:
    """Many tables in one call, several groups, small messages: the same messages as reference and batching rule make."""
    rng = random.Random(seed)
    for _ in range(4 * FUZZ):
        programs = random_programs(rng, 5)
        records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(5) for _ in range(120))]
        options = EncodingOptions(max_batch_size=rng.choice((1, 3, 16)), max_message_bytes=1 << 20 if rng.random() < 0.5 else 40_000)
        rows, _keep = row_array(records, [0] * 50 + [3] * 70)
        encoder = OpenRowEncoder(programs, options)
        events = expected(programs, records)
        messages = encoder.encode(rows, groups_of(0, 50, 120))
        want = [(0, *m) for m in batches(events[:50], options)] + [(3, *m) for m in batches(events[50:], options)]
        assert [(m.target, m.key, m.value, m.rows) for m in messages.to_list()] == want
        assert messages.bytes == sum(len(key) + len(value) for _, key, value, _ in want)
        assert encoder.slow_rows == 0
        last = np.cumsum([rows_of for *_, rows_of in want]) - 1
        assert messages.table["commit_ts"].tolist() == [records[i].commit_ts for i in last]
        assert len(MountEncoder(programs).encode(rows, groups_of(0, 120))) == 0
        unique, hashes = unique_change(programs), KeyHash(programs)
        assert unique.changed(rows).tolist() == [unique.changed_plain(r) for r in records]
        assert hashes.hash(rows).tolist() == [hashes.hash_plain(r) for r in records]


def test_every_type_is_in_the_kernel() -> None:
    """No whole row of any type is handed back, in no format."""
    rng = random.Random(99)
    for tp in TYPES:
        style = rng.choice(list(JsonStyle))
        programs = [TableProgram("s", "t", random_table(rng, (MySQLType(tp),)), rng.choice(ZONES), style) for _ in range(4)]
        records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(4) for _ in range(100))]
        encoder = OpenRowEncoder(programs)
        rows, _keep = row_array(records)
        got = encoder.encode(rows, groups_of(0, 100)).to_list()
        assert [(m.key, m.value, m.rows) for m in got] == batches(expected(programs, records), EncodingOptions())
        assert encoder.slow_rows == 0, tp


@pytest.mark.parametrize("style", JsonStyle)
def test_doubles_in_documents(style: JsonStyle) -> None:
    """At the limits of exponents and digits, and anywhere."""
    rng = random.Random(style.value)
    info = table([column(MySQLType.LONGLONG), column(MySQLType.JSON)], pk_is_handle=True)
    numbers = [sign * number for number in EDGES for sign in (1, -1)]
    for _ in range(1000 * FUZZ):
        digits, exponent = rng.randrange(10 ** rng.randint(1, 18)), rng.randint(-30, 25)
        numbers += [float(f"{digits}e{exponent}"), rng.uniform(-1e16, 1e16), struct.unpack("<d", rng.randbytes(8))[0]]
    numbers = [number for number in numbers if math.isfinite(number)]
    program = TableProgram("s", "t", info, json=style)
    records = [RawRecord(record_key(100, i), pack_row({2: encode_json(["\b\f", n])}), None, 1, 2, 0) for i, n in enumerate(numbers)]
    rows, _keep = row_array(records)
    encoder = OpenRowEncoder([program], EncodingOptions(max_batch_size=1))
    messages = encoder.encode(rows, groups_of(0, len(rows))).to_list()
    for number, message in zip(numbers, messages, strict=True):
        text = json.loads((message.value or b"")[8:])["u"]["c2"]["v"]
        assert text == json_text(encode_json(["\b\f", number]), style)
        assert float(json.loads(text)[1]) == number
    assert encoder.slow_rows == 0


EDGES = (
    0.0, 1.0, 0.1, 0.00012345, 1e-6, 9.99999e-7, 1e-7, 1e-14, 1e-15, 9.999999999999999e-16, 5e-324, 2.2250738585072e-308,
    1.7976931348623157e308, 2.0**49, 2.0**53, 2.0**53 + 2, 2.0**63, 2.0**64, 123456789012345680.0, 1e14, 99999999999999.98,
    999999999999999.0, 999999999999999.9, 1e15, 1.5e15, 1234567890123456.5, 9007199254740991.0, 1e16, 1e20, 1e21,
)  # fmt: skip


def test_programs_of_one_encoder_print_documents_in_one_way() -> None:
    programs = [TableProgram("s", "t", random_table(random.Random(1)), json=style) for style in JsonStyle]
    with pytest.raises(ValueError, match="print JSON documents in 2 styles"):
        OpenRowEncoder(programs)


@pytest.mark.parametrize("seed", few_of(range(4), 2))
def test_broken_rows(seed: int) -> None:
    """Bytes changed anywhere: the same messages as the reference makes, or its error; the same for routing."""
    rng = random.Random(1000 + seed)
    refused = 0
    for _ in range(10 * FUZZ):
        programs = random_programs(rng, 2)
        encoder, mount, unique, hashes = OpenRowEncoder(programs), MountEncoder(programs), unique_change(programs), KeyHash(programs)
        for _ in range(30):
            index = rng.randrange(2)
            record = broken(rng, random_record(rng, programs[index].info, index))
            rows, _keep = row_array([record])
            event = outcome(lambda: expected(programs, [record])[0], MalformedRow)  # noqa: B023
            message = outcome(lambda: encoder.encode(rows, groups_of(0, 1)).to_list()[0], MalformedRow)  # noqa: B023
            routed = outcome(lambda: (unique.changed(rows)[0], hashes.hash(rows)[0]), MalformedRow)  # noqa: B023
            mounted = outcome(lambda: len(mount.encode(rows, groups_of(0, 1))), MalformedRow)  # noqa: B023
            if isinstance(event, MalformedRow):
                refused += 1
                assert isinstance(message, MalformedRow)
                assert message.message == event.message
                assert f"key {record.key.hex()}, commit_ts {record.commit_ts}" in event.message
                continue
            assert [(message.key, message.value, 1)] == batches([event], EncodingOptions())
            assert routed == (unique.changed_plain(record), hashes.hash_plain(record))
            assert mounted == 0
    assert refused > 100


def test_rows_at_the_end_of_a_page() -> None:
    """Reads past a value stop at the page: the one behind it cannot be read."""
    import ctypes
    import mmap

    room = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(room))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(base + 2 * mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    rng = random.Random(5)
    end = base + 2 * mmap.PAGESIZE
    for _ in range(15 * FUZZ):
        program = random_programs(rng, 1)[0]
        encoder, unique, hashes = OpenRowEncoder([program]), unique_change([program]), KeyHash([program])
        for _ in range(20):
            record = random_record(rng, program.info)
            rows, _keep = row_array([record])
            for address, size in (("key", "key_len"), ("value", "value_len"), ("old_value", "old_len")):
                length = int(rows[0][size])
                if 0 < length < mmap.PAGESIZE:
                    ctypes.memmove(end - length, int(rows[0][address]), length)
                    rows[0][address] = end - length
                    (message,) = encoder.encode(rows, groups_of(0, 1)).to_list()
                    rows, _keep = row_array([record])
                    assert message == encoder.encode(rows, groups_of(0, 1)).to_list()[0]
                    rows[0][address] = end - length
                    unique.changed(rows)
                    hashes.hash(rows)
                    rows, _keep = row_array([record])
    assert libc.mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_large_values_grow_the_buffers() -> None:
    rng = random.Random(3)
    table = random_table(rng, (MySQLType.BLOB,))
    program = TableProgram("s", "t", table)
    record = random_record(rng, table)
    columns = [c.id for c in table.output_columns if c.tp == MySQLType.BLOB]
    record = record._replace(value=pack_row({columns[0]: b"\x01<\xff" * 3_000_000}), old_value=None)
    records = [record, record._replace(value=pack_row({columns[0]: b"x" * 70_000})), record]
    rows, _keep = row_array(records)
    encoder = OpenRowEncoder([program], EncodingOptions(max_message_bytes=100_000_000))
    (message,) = encoder.encode(rows, groups_of(0, 3)).to_list()
    assert [(message.key, message.value, 3)] == batches(expected([program], records), EncodingOptions(max_message_bytes=100_000_000))
    with pytest.raises(MessageTooLarge, match=rf"s\.t takes \d+ bytes.*{record.key.hex()}, start_ts 1, commit_ts {record.commit_ts}"):
        OpenRowEncoder([program], EncodingOptions(max_message_bytes=100_000)).encode(rows, groups_of(0, 3))


def test_both_images_missing_is_an_error() -> None:
    program = random_programs(random.Random(1), 1)[0]
    record = random_record(random.Random(1), program.info)._replace(value=None, old_value=None)
    rows, _keep = row_array([record])
    for encoder in (OpenRowEncoder([program]), MountEncoder([program])):
        with pytest.raises(MalformedRow, match="neither a new nor an old value"):
            encoder.encode(rows, groups_of(0, 1))
    with pytest.raises(MalformedRow, match="neither a new nor an old value"):
        KeyHash([program]).hash(rows)
