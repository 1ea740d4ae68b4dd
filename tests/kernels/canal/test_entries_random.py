"""The kernel of entries for Canal's clients and its reference agree on golden, random and broken rows, whatever the chunks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby

import pytest

from tests.support.golden import ticdc
from tests.support.golden.text_rows import golden_records, outcome
from tests.support.rows.random_programs import random_programs
from tests.support.rows.random_rows import TYPES, broken, random_record
from tests.support.thorough import FUZZ
from tidemill.errors import MalformedRow
from tidemill.kernels.canal.entry_encoder import CanalEntryEncoder
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.canal.codes import EntryType
from tidemill.protocols.canal.entries import Change, EntryTable, Made, transaction_entries
from tidemill.tidb.schema.codes import MySQLType

SERVER = 9_000_000_001


def plain(tables: Sequence[EntryTable], records: Sequence[RawRecord]) -> list[Made]:
    """What the reference makes of rows in commit order."""
    made: list[Made] = []
    for (commit_ts, start_ts), rows in groupby(records, key=lambda r: (r.commit_ts, r.start_ts)):
        changes = [Change(r.table, r.key, r.value, r.old_value) for r in rows]
        made += transaction_entries(tables, changes, server_id=SERVER, start_ts=start_ts, commit_ts=commit_ts)
    return made


def encoded(encoder: CanalEntryEncoder, records: Sequence[RawRecord], *, last: bool = True) -> list[Made]:
    rows, _keep = row_array(records)
    return encoder.encode(rows, last=last).to_list()


def in_transactions(rng: random.Random, records: Sequence[RawRecord]) -> list[RawRecord]:
    """The records in transactions of some rows each, in commit order."""
    out, ts = [], 1 << 58
    for record in records:
        if rng.random() < 0.3:
            ts += rng.randrange(1, 1 << 40)
        out.append(record._replace(commit_ts=ts, start_ts=ts - 1))
    return out


def test_golden_rows() -> None:
    ids = [line["id"] for line in ticdc.lines("canal") if line["kind"] == "row" and line["config"] == "default"]
    programs, records = golden_records(ids)
    records.sort(key=lambda r: (r.commit_ts, r.start_ts))
    encoder = CanalEntryEncoder(programs, SERVER)
    assert encoded(encoder, records) == plain(encoder.tables, records)
    assert encoder.slow_rows <= 35  # updates of rows older than a column with a default: whether it changed is for the reference


def test_random_rows() -> None:
    rng = random.Random("entries")
    for _ in range(3 * FUZZ):
        programs = random_programs(rng, 4)
        encoder = CanalEntryEncoder(programs, SERVER)
        records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(4) for _ in range(80))]
        records.sort(key=lambda r: rng.random() < 0.3 or r.table)
        good = [r for r in records if isinstance(outcome(lambda r=r: plain(encoder.tables, [r]), MalformedRow), list)]  # noqa: B023
        rows = in_transactions(rng, good)
        assert encoded(encoder, rows) == plain(encoder.tables, rows)


def test_every_type_is_in_the_kernel() -> None:
    """No whole insert or delete of any type is handed back, nor an update without absent columns."""
    rng = random.Random(98)
    for tp in TYPES:
        programs = random_programs(rng, 3, MySQLType(tp))
        records = [random_record(rng, programs[i].info, i) for i in (rng.randrange(3) for _ in range(60))]
        encoder = CanalEntryEncoder(programs, SERVER)
        good = [r for r in records if isinstance(outcome(lambda r=r: plain(encoder.tables, [r]), MalformedRow), list)]  # noqa: B023
        one_image = in_transactions(rng, [r for r in good if not (r.value and r.old_value)])
        assert encoded(encoder, one_image) == plain(encoder.tables, one_image)
        assert encoder.slow_rows == 0, tp


def test_broken_rows() -> None:
    rng = random.Random("broken entries")
    refused = 0
    for _ in range(2 * FUZZ):
        programs = random_programs(rng, 2)
        tables = CanalEntryEncoder(programs, SERVER).tables
        for _ in range(30):
            index = rng.randrange(2)
            record = broken(rng, random_record(rng, programs[index].info, index))
            want = outcome(lambda: plain(tables, [record]), MalformedRow)  # noqa: B023
            got = outcome(lambda: encoded(CanalEntryEncoder(programs, SERVER), [record]), MalformedRow)  # noqa: B023
            if isinstance(want, MalformedRow):
                refused += 1
                assert isinstance(got, MalformedRow)
                assert got.message == want.message
            else:
                assert got == want
    assert refused > 15


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_a_transaction_goes_on_over_chunks(size: int) -> None:
    """It begins and ends once, its places rise, its rows are the same; only where entries are cut differs."""
    rng = random.Random(size)
    programs = random_programs(rng, 2)
    encoder = CanalEntryEncoder(programs, SERVER)
    records = [random_record(rng, programs[i % 2].info, i % 2) for i in range(90)]
    good = [r for r in records if isinstance(outcome(lambda r=r: plain(encoder.tables, [r]), MalformedRow), list)]
    rows = [r._replace(commit_ts=(1 << 58) + (i // 30), start_ts=5) for i, r in enumerate(good)]
    made: list[Made] = []
    for at in range(0, len(rows), size):
        made += encoded(encoder, rows[at : at + size], last=False)
    made += encoded(encoder, [])
    whole = plain(encoder.tables, rows)
    marks = (EntryType.TRANSACTIONBEGIN, EntryType.TRANSACTIONEND)
    kinds = [m.type for m in made if m.type in marks]
    assert kinds == [m.type for m in whole if m.type in marks] == list(marks) * 3
    assert sum(m.rows for m in made) == len(rows)
    if size == 1:
        assert all(m.rows == 1 for m in made if m.type is EntryType.ROWDATA)
    assert encoded(encoder, []) == []


@pytest.mark.slow
def test_large_transactions_are_cut_as_the_reference_cuts_them() -> None:
    """The buffer grows many times on the way, so the kernel is called again in the middle of an entry."""
    rng = random.Random(6)
    programs = random_programs(rng, 2)
    encoder = CanalEntryEncoder(programs, SERVER)
    encoder._out = type(encoder._out)(256)
    good: list[RawRecord] = []
    while len(good) < 3:
        record = random_record(rng, programs[0].info)
        if isinstance(outcome(lambda: plain(encoder.tables, [record]), MalformedRow), list):  # noqa: B023
            good.append(record)
    rows = [good[i // 700]._replace(commit_ts=7, start_ts=5) for i in range(2100)]
    assert encoded(encoder, rows) == plain(encoder.tables, rows)
