"""The kernels that read transactions, beside their reference: recorded ones, random ones, and broken bytes."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from tests.support.binlog.blocks import block
from tests.support.binlog.drained import RecordedSchemas, history, recorded, with_fillers
from tests.support.binlog.random_transactions import random_tables, random_transactions
from tests.support.binlog.read_logs import LAYOUT, Added, Counting, GivenSchemas, Reference, added, both
from tests.support.binlog.sample_rows import EXAMPLE_A, TEST, name, number, whole
from tests.support.rows.mutation import mutated
from tests.support.rows.random_rows import maximal_varint
from tidemill.binlog.blocks import Array, plain_memory
from tidemill.binlog.drainer.rows import batching
from tidemill.binlog.drainer.rows.batching import Batcher
from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation
from tidemill.errors import DiskLow, TidemillError


def test_all_recorded_transactions_are_read_by_the_kernels_as_by_the_reference() -> None:
    jobs = history()
    binlogs = block(*with_fillers([binlog for case in recorded() for binlog in case.binlogs], jobs))
    kernels = Counting()
    found = asyncio.run(added(RecordedSchemas(jobs), binlogs, kernels))
    assert found == asyncio.run(added(RecordedSchemas(jobs), binlogs, Reference()))
    assert kernels.left == 0
    assert sum(table.num_rows for table in found[0].values()) > 300
    assert len(found[1]) > 100


def test_random_transactions_are_read_by_the_kernels_as_by_the_reference() -> None:
    rng = random.Random(1)
    rows = 0
    for _ in range(12):
        tables, kernels = random_tables(rng, 4), Counting()
        found, want = asyncio.run(both(tables, list(random_transactions(rng, tables, 40)), kernels))
        assert found == want
        assert kernels.left == 0
        rows += sum(table.num_rows for table in found[0].values())
    assert rows > 1000


def hostile(rng: random.Random, binlog: Binlog) -> Binlog:
    value = bytearray(mutated(rng, binlog.prewrite_value))
    if rng.random() < 0.5:
        at = rng.randrange(len(value) + 1)
        value[at : at + rng.randrange(3)] = maximal_varint(rng)
    return replace(binlog, prewrite_value=bytes(value[: rng.randrange(len(value) + 1)] if rng.random() < 0.1 else value))


def outcome(tables: list[object], binlog: Binlog, batcher: Batcher) -> Added | str:
    try:
        return asyncio.run(added(GivenSchemas(tables), block(binlog), batcher))  # type: ignore[arg-type]
    except TidemillError as error:
        return f"{type(error).__name__} {error.message}"


def test_broken_transactions_are_refused_as_by_the_reference() -> None:
    rng = random.Random(2)
    outcomes = set()
    for _ in range(6):
        tables = random_tables(rng, 3)
        for binlog in random_transactions(rng, tables, 25):
            broken = hostile(rng, binlog)
            found = outcome([*tables], broken, Batcher())
            assert found == outcome([*tables], broken, Reference())
            outcomes.add(found if isinstance(found, str) else "read")
    assert len(outcomes) > 20
    assert "read" in outcomes


def transaction(mutation: TableMutation, ts: int = 5) -> Binlog:
    return Binlog(BinlogType.COMMIT, ts - 1, ts, b"k", Prewritten(1, (mutation,)).encode())


def test_example_a_leaves_what_tikv_keeps() -> None:
    (changes, _), want = asyncio.run(both([TEST], [transaction(EXAMPLE_A)], Batcher()))
    assert changes == want[0]
    (table,) = changes.values()
    assert table.column("value").to_pylist() == [whole(1, b"c"), name(b"c")]


def test_what_does_not_fit_at_once_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little room for changes, for keys, and in a batch: a transaction larger than the room, and many that are smaller."""
    for constant, size in (("FIRST_STEPS", 4), ("FIRST_KEYS", 64), ("MAX_BATCH_ROWS", 7), ("KEPT_KEYS", 100)):
        monkeypatch.setattr(batching, constant, size)
    insert = MutationType.INSERT
    rows = tuple(number(n) + name(b"v" * (n % 5)) for n in range(100, 0, -1))
    large = transaction(TableMutation(50, inserted=rows, sequence=(insert,) * 100), 500)
    small = [transaction(TableMutation(50, inserted=rows[n : n + 1], sequence=(insert,)), 10 + 2 * n) for n in range(60)]
    found, want = asyncio.run(both([TEST], [*small, large], Counting()))
    assert found == want


def in_pieces(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    """Every transaction of more bytes is a large one."""
    for constant, size in (("LARGE_BYTES", left), ("PIECE_ROWS", 7), ("PIECE_BYTES", 300), ("FIRST_STEPS", 4), ("FIRST_KEYS", 64)):
        monkeypatch.setattr(batching, constant, size)


def test_large_transactions_leave_the_rows_that_others_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of several tables, one of them split: each partition has its own, in pieces and in order."""
    in_pieces(monkeypatch, 0)
    rng = random.Random(4)
    tables = random_tables(rng, 4)
    for binlog in random_transactions(rng, tables, 30):
        found, want = asyncio.run(both(tables, [binlog], Batcher(in_pieces=True)))
        assert found == want
    handles = tuple(number(n) + name(b"v" * 9) for n in range(-60, 60))
    split, other = (TableMutation(table, inserted=handles, sequence=(MutationType.INSERT,) * 120) for table in (101, 50))
    large = Binlog(BinlogType.COMMIT, 4, 5, b"k", Prewritten(1, (split, other)).encode())
    found, want = asyncio.run(both([TEST, replace(TEST, id=101)], [large], Batcher(in_pieces=True)))
    assert found == want
    assert [len(found[0][partition]) for partition in LAYOUT.split_tables[0].partitions] == [60, 60]


def test_a_disk_without_room_for_the_changes_is_told_and_a_later_try_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    in_pieces(monkeypatch, 0)
    full = True

    def room(size: int) -> Array:
        if full and size > 4096:
            raise DiskLow("no room")
        return plain_memory(size)

    rows = tuple(number(n) + name(b"v") for n in range(100))
    large = transaction(TableMutation(50, inserted=rows, sequence=(MutationType.INSERT,) * 100))
    batcher = Batcher(in_pieces=True, room=room)
    with pytest.raises(DiskLow):
        asyncio.run(both([TEST], [large], batcher))
    full = False
    found, want = asyncio.run(both([TEST], [large], batcher))
    assert found == want


def test_a_table_that_is_split_has_its_rows_where_their_handles_are() -> None:
    info = replace(TEST, id=101)
    mutation = TableMutation(101, inserted=tuple(number(n) + name(b"a") for n in (-5, 5)), sequence=(MutationType.INSERT,) * 2)
    found, want = asyncio.run(both([info], [transaction(mutation)], Counting()))
    assert found == want
    assert list(found[0]) == list(LAYOUT.split_tables[0].partitions)
