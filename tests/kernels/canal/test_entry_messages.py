"""Entries as the entry store takes them: the same bytes however the rows are cut, and when an encoder of more tables takes over."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest

from tests.support.golden.text_rows import outcome
from tests.support.rows.random_programs import random_programs
from tests.support.rows.random_rows import random_record
from tidemill.errors import MalformedRow
from tidemill.kernels.canal import row_encoder
from tidemill.kernels.canal.entry_messages import EntryRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.canal.entries import Change, EntryTable, transaction_entries
from tidemill.protocols.options import EncodingOptions, MessageFormat

OPTIONS = EncodingOptions(MessageFormat.CANAL, canal_server_id=7)


def made(programs: Sequence[TableProgram], tables: int = 3) -> EntryRowEncoder:
    encoder = row_encoder(programs[:tables], OPTIONS)
    assert isinstance(encoder, EntryRowEncoder)
    return encoder


def given(encoder: EntryRowEncoder, records: list[RawRecord]) -> bytes:
    rows, _keep = row_array(records)
    messages = encoder.encode(rows, np.array([0, len(records)], np.int32))
    data = messages.joined().tobytes()
    assert data == b"".join(message.value or b"" for message in messages.to_list())
    return data


@pytest.mark.parametrize("seed", range(6))
def test_any_cut_between_transactions(seed: int) -> None:
    rng = random.Random(f"messages {seed}")
    programs = random_programs(rng, 3)
    tables = [EntryTable(p.schema, p.table, p.info, p.zone, p.json) for p in programs]
    records = [random_record(rng, programs[i % 3].info, i % 3) for i in range(60)]
    good = [r for r in records if isinstance(outcome(lambda r=r: tables[r.table].row(r.key, r.value, r.old_value, 1), MalformedRow), tuple)]
    rows = [r._replace(commit_ts=(1 << 58) + i // 5, start_ts=9 + i // 5) for i, r in enumerate(good)]
    want = b""
    for (commit, start), group in groupby(rows, key=lambda r: (r.commit_ts, r.start_ts)):
        changes = [Change(r.table, r.key, r.value, r.old_value) for r in group]
        want += b"".join(m.data for m in transaction_entries(tables, changes, server_id=7, start_ts=start, commit_ts=commit))
    encoder = made(programs)
    got, at = b"", 0
    while at < len(rows):
        end = min(len(rows), at + 5 * rng.randint(1, 3))
        got += given(encoder, rows[at:end])
        at = end
    assert got + encoder.finish().joined().tobytes() == want
    assert not len(encoder.finish())


def test_an_encoder_of_more_tables_goes_on_with_the_transaction() -> None:
    rng = random.Random("carry on")
    programs = random_programs(rng, 3)
    tables = [EntryTable(p.schema, p.table, p.info, p.zone, p.json) for p in programs]
    rows: list[RawRecord] = []
    while len(rows) < 6:
        number = len(rows) // 2
        record = random_record(rng, programs[number].info, number)._replace(commit_ts=1 << 58, start_ts=5)
        if isinstance(outcome(lambda r=record: tables[r.table].row(r.key, r.value, r.old_value, 1), MalformedRow), tuple):
            rows.append(record)
    whole, parts = made(programs), b""
    want = b"".join(given(whole, rows[i : i + 2]) for i in (0, 2, 4)) + whole.finish().joined().tobytes()
    before: EntryRowEncoder | None = None
    for number in range(3):
        encoder = made(programs, number + 1)
        if before is not None:
            encoder.carry_on(before)
        parts += given(encoder, rows[2 * number : 2 * number + 2])
        before = encoder
    assert before is not None
    assert parts + before.finish().joined().tobytes() == want
    before.encode(row_array(rows[:1])[0], np.array([0, 1], np.int32))
    before.begin()
    assert not len(before.finish())
