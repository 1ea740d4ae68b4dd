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
from tidemill.binlog.drainer.rows import batching
from tidemill.binlog.drainer.rows.batching import Batcher
from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation
from tidemill.errors import TidemillError


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
    monkeypatch.setattr(batching._Room, "__init__", lambda room: _small(room))
    insert = MutationType.INSERT
    rows = tuple(number(n) + name(b"v" * (n % 5)) for n in range(100, 0, -1))
    large = transaction(TableMutation(50, inserted=rows, sequence=(insert,) * 100), 500)
    small = [transaction(TableMutation(50, inserted=rows[n : n + 1], sequence=(insert,)), 10 + 2 * n) for n in range(60)]
    found, want = asyncio.run(both([TEST], [*small, large], Counting()))
    assert found == want


def _small(room: batching._Room) -> None:
    room.steps, room.order = batching.np.empty(4, batching.L.STEP), batching.np.empty(8, batching.np.int64)
    room.keys = batching.np.empty(64, batching.np.uint8)


def test_a_table_that_is_split_has_its_rows_where_their_handles_are() -> None:
    info = replace(TEST, id=101)
    mutation = TableMutation(101, inserted=tuple(number(n) + name(b"a") for n in (-5, 5)), sequence=(MutationType.INSERT,) * 2)
    found, want = asyncio.run(both([info], [transaction(mutation)], Counting()))
    assert found == want
    assert list(found[0]) == list(LAYOUT.split_tables[0].partitions)
