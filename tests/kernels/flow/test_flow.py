"""Merge, split and arrange against their plain twins, over random sources; chunks over borders of batches and transactions."""

from __future__ import annotations

import ctypes
import random
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tidemill.delivery.task.chunker import Chunk, Chunker
from tidemill.delivery.task.claim import Claim
from tidemill.delivery.task.reader import Sources
from tidemill.errors import SchemaError
from tidemill.events import RAW_CHANGE
from tidemill.kernels.flow import arrange as arranging
from tidemill.kernels.flow import layout as f
from tidemill.kernels.flow import reference
from tidemill.kernels.flow.layout import Mode, TableMap
from tidemill.kernels.flow.reference import Row
from tidemill.kernels.routing import handle_hash
from tidemill.records import KIND_UPDATE, ROW

TABLES = {11: 0, 12: 1, 13: 2, 14: 3}  # physical id -> rule
DROPPED = 99
PARTITIONS = 3
SEED = 0x89ABCDEF


class FakeRouting:
    """Rule 0: fixed target 1, rows may be split. Rule 1: by ts. Rule 2: by hash. Rule 3: by the hash of the handle."""

    def __init__(self, partitions: int = PARTITIONS, mode: Mode = Mode.HANDLE) -> None:
        self.tables = TableMap(4)
        self.rules = np.zeros((4, f.RULE_WORDS), np.int64)
        self.rules[:, f.RULE_PARTS] = partitions
        self.rules[:, f.RULE_TARGET] = 1, -1, -1, -1
        self.rules[:, f.RULE_MODE] = Mode.FIXED, Mode.TS, Mode.HASH, mode
        self.rules[:, f.RULE_SEED] = SEED
        self.rules[:, f.RULE_STARTS] = handle_hash.starts("id").ctypes.data
        self.rules[:, f.RULE_DIGITS] = handle_hash.digits().ctypes.data
        self.rules[0, f.RULE_MAY_SPLIT] = 1

    @property
    def rules_address(self) -> int:
        return int(self.rules.ctypes.data)

    def resolve(self, table_id: int) -> None:
        if table_id == DROPPED:
            self.tables.set(table_id, f.DROP)
        elif table_id in TABLES:
            self.tables.set(table_id, TABLES[table_id])
        else:
            raise SchemaError(f"{table_id} is unknown")


def key_of(table_id: int, handle: int) -> bytes:
    return b"t" + (table_id + (1 << 63)).to_bytes(8, "big") + b"_r" + handle.to_bytes(8, "big")


def random_rows(rng: random.Random, transactions: int, largest: int) -> list[Row]:
    """Transactions over several tables; some share a commit ts; some rows change nothing."""
    rows = []
    commit = 1000
    for number in range(transactions):
        commit += rng.choice((0, 1, 7))
        start = commit - 500 + number % 3 + number
        size = rng.randint(1, largest) if rng.random() < 0.2 else rng.randint(1, 3)
        for handle in rng.sample(range(1000), min(size, 1000)):
            table_id = rng.choice((*TABLES, DROPPED))
            value = rng.choice((None, b"v" * rng.randint(1, 40)))
            old = rng.choice((None, b"o" * rng.randint(1, 40)))
            rows.append(Row(table_id, start, commit, key_of(table_id, handle), value, old))
    return sorted(set(rows), key=lambda r: (r.commit_ts, r.start_ts, r.key))


def write_segment(path: Path, rows: list[Row], batch_rows: int) -> str:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, RAW_CHANGE) as writer:
        for at in range(0, len(rows), batch_rows):
            part = rows[at : at + batch_rows]
            columns = [
                [r.table_id for r in part],
                [1 if r.value is not None else 2 for r in part],
                [r.start_ts for r in part],
                [r.commit_ts for r in part],
                [r.key for r in part],
                [r.value for r in part],
                [r.old_value for r in part],
            ]
            writer.write_batch(pa.record_batch([pa.array(c, t.type) for c, t in zip(columns, RAW_CHANGE, strict=True)], schema=RAW_CHANGE))
    return str(path)


def spread(rng: random.Random, rows: list[Row], folder: Path, chains: int, files: int, batch_rows: int) -> list[list[str]]:
    """Sorted chains of files that together have the rows."""
    homes = [rng.randrange(chains) for _ in rows]
    out = []
    for chain in range(chains):
        mine = [r for r, h in zip(rows, homes, strict=True) if h == chain]
        cuts = sorted(rng.randrange(len(mine) + 1) for _ in range(files - 1))
        paths = []
        for i, (a, b) in enumerate(zip([0, *cuts], [*cuts, len(mine)], strict=True)):
            paths.append(write_segment(folder / f"{chain}-{i}.arrow", mine[a:b], batch_rows))
        out.append(paths)
    return out


def seen(records: np.ndarray, table_ids: dict[int, int]) -> list[Row]:
    """Row records as Python objects, bytes copied."""

    def at(address: int, length: int) -> bytes | None:
        return None if length < 0 else ctypes.string_at(int(address), int(length))

    return [
        Row(
            int.from_bytes(ctypes.string_at(int(r["key"]) + 1, 8), "big") - (1 << 63),
            int(r["start_ts"]),
            int(r["commit_ts"]),
            at(r["key"], r["key_len"]) or b"",
            at(r["value"], r["value_len"]),
            at(r["old_value"], r["old_len"]),
            int(r["table"]),
            int(r["target"]),
            int(r["split"]),
        )
        for r in records
    ]


def is_changed(row: Row) -> bool:
    return row.table_id == 11 and row.kind == KIND_UPDATE and row.key[-1] % 2 == 0


def hash_of(row: Row) -> int:
    return row.key[-1] * 7


def target_of(row: Row) -> int:
    of_handle = SEED ^ zlib.crc32(b"id%d" % (int.from_bytes(row.key[-8:], "big") - (1 << 63)))
    return {11: 1, 12: row.commit_ts % PARTITIONS, 13: hash_of(row) % PARTITIONS, 14: of_handle % PARTITIONS}[row.table_id]


def run(chunks: Iterable[Chunk], routing: FakeRouting, owned: np.ndarray) -> dict[int, list[Row]]:
    """All chunks through split, targets and arrange; the rows of each target in the order they come."""
    out: dict[int, list[Row]] = {}
    counts = np.zeros(PARTITIONS, np.int32)
    for chunk in chunks:
        n = len(chunk.rows)
        rows = np.zeros(2 * n, ROW)
        flags = np.array([is_changed(r) for r in seen(chunk.rows, {})], np.uint8)
        m = arranging.split(n, chunk.rows.ctypes.data, flags.ctypes.data if chunk.may_split else 0, chunk.keep, rows.ctypes.data)
        hashes = np.array([hash_of(r) for r in seen(rows[:m], {})], np.uint32)
        if chunk.hashed:
            arranging.hashed_targets(m, rows.ctypes.data, routing.rules_address, hashes.ctypes.data)
        final = np.zeros(2 * n, ROW)
        scratch = [np.zeros(m + 1, np.int32) for _ in range(3)]
        groups = arranging.arrange(
            *(m, rows.ctypes.data, owned.ctypes.data, counts.ctypes.data, scratch[0].ctypes.data, scratch[1].ctypes.data),
            *(scratch[2].ctypes.data, final.ctypes.data),
        )
        assert not counts.any()
        starts = scratch[2].tolist()
        for g in range(groups):
            group = seen(final[starts[g] : starts[g + 1]], {})
            assert len({r.target for r in group}) == 1
            out.setdefault(group[0].target, []).extend(group)
    return out


def expected(rows: list[Row], from_ts: int, to_ts: int) -> dict[int, list[Row]]:
    inside = [r for r in rows if from_ts < r.commit_ts <= to_ts and r.table_id in TABLES]
    merged = reference.merge([inside])
    split = reference.split(merged, [is_changed(r) for r in merged])
    placed = [Row(*[getattr(r, n) for n in Row.__slots__[:6]], TABLES[r.table_id], target_of(r), r.split) for r in split]
    return reference.arrange(placed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("chains", "max_rows"), [(1, 16), (3, 16), (4, 7), (2, 4096), (40, 64)])
def test_flow_is_what_the_reference_says(tmp_path: Path, seed: int, chains: int, max_rows: int) -> None:
    rng = random.Random(seed * 100 + chains)
    rows = random_rows(rng, 60, largest=60)
    low = rng.choice((0, rows[len(rows) // 4].commit_ts))
    high = rng.choice((1 << 60, rows[len(rows) * 3 // 4].commit_ts))
    files = spread(rng, rows, tmp_path, chains, files=rng.randint(1, 3), batch_rows=rng.choice((3, 11, 1000)))
    routing = FakeRouting()
    owned = np.ones(PARTITIONS, np.uint8)
    chunker = Chunker(Sources(files, low, high), routing, owned, max_rows=max_rows)
    whole = expected(rows, low, high)
    assert run(chunker, routing, owned) == whole
    owned[seed % PARTITIONS] = 0
    claim = Claim(routing, owned)
    chunker = Chunker(Sources(files, low, high, claim=claim), routing, owned, max_rows=max_rows)
    assert run(chunker, routing, owned) == {target: rows for target, rows in whole.items() if owned[target]}
    assert claim.left_out > 0


def test_rows_of_targets_that_are_not_owned_are_left_out(tmp_path: Path) -> None:
    rng = random.Random(5)
    rows = random_rows(rng, 80, largest=30)
    files = spread(rng, rows, tmp_path, 2, 2, 10)
    whole = expected(rows, 0, 1 << 60)
    for target in range(PARTITIONS):
        routing, owned = FakeRouting(), np.zeros(PARTITIONS, np.uint8)
        owned[target] = 1
        assert run(Chunker(Sources(files, 0, 1 << 60), routing, owned, max_rows=20), routing, owned) == {target: whole[target]}


def test_rows_are_picked_before_they_are_merged(tmp_path: Path) -> None:
    rows = random_rows(random.Random(8), 80, largest=30)
    sources = Sources([[write_segment(tmp_path / "a", rows, len(rows))]], 0, 1 << 60)
    sources.advance(0)
    targets = [None if r.table_id == DROPPED else -1 if r.table_id == 13 else target_of(r) for r in rows]
    for bits in range(1 << PARTITIONS):
        owned = np.array([bits >> target & 1 for target in range(PARTITIONS)], np.uint8)
        claim = Claim(FakeRouting(), owned)
        wanted = reference.claim(targets, owned.tolist())
        assert claim.pick(sources.words[0], 0, len(rows)).tolist() == wanted
        assert claim.left_out == len(rows) - len(wanted)


@pytest.mark.parametrize("mode", [Mode.HANDLE, Mode.UNSIGNED_HANDLE])
def test_a_handle_is_hashed_as_its_text(tmp_path: Path, mode: Mode) -> None:
    rng, parts = random.Random(1), 1 << 20
    stored = {
        0,
        1,
        (1 << 64) - 1,
        1 << 63,
        (1 << 63) - 1,
        *(1 << bit for bit in range(64)),
        *(-(1 << bit) & ~(-1 << 64) for bit in range(63)),
    }
    stored |= {10**n + d for n in range(20) for d in (-1, 0, 1)} | {rng.getrandbits(rng.randrange(1, 65)) for _ in range(500)}
    keys = sorted(b"t" + (14 + (1 << 63)).to_bytes(8, "big") + b"_r" + (n ^ 1 << 63).to_bytes(8, "big") for n in stored)
    rows = [Row(14, 1, 10, key, b"x", None) for key in [*keys, b"t12345678_i12345678"]]
    routing, owned = FakeRouting(parts, mode), np.ones(parts, np.uint8)
    (chunk,) = Chunker(Sources([[write_segment(tmp_path / "a", sorted(rows, key=lambda r: r.key), 100)]], 0, 100), routing, owned)
    assert chunk.hashed == 1  # a key of another form is left to the reference
    for row, record in zip(sorted(rows, key=lambda r: r.key), chunk.rows, strict=True):
        number = int.from_bytes(row.key[-8:], "big") ^ 1 << 63
        if mode is Mode.HANDLE and number >> 63:
            number -= 1 << 64
        wanted = (SEED ^ zlib.crc32(b"id%d" % number)) % parts if row.key in keys else -1
        assert record["target"] == wanted


def test_a_chunk_is_bounded_in_bytes(tmp_path: Path) -> None:
    rows = [Row(11, 1, 10 + i, key_of(11, i), b"x" * 1000, None) for i in range(50)]
    routing, owned = FakeRouting(), np.ones(PARTITIONS, np.uint8)
    sources = Sources([[write_segment(tmp_path / "a", rows, 20)]], 0, 100)
    sizes = [len(c.rows) for c in Chunker(sources, routing, owned, max_bytes=5000)]
    assert sum(sizes) == 50
    assert max(sizes) <= 5


def test_an_id_that_nobody_knows_is_an_error(tmp_path: Path) -> None:
    rows = [Row(77, 1, 10, key_of(77, 1), b"x", None)]
    routing, owned = FakeRouting(), np.ones(PARTITIONS, np.uint8)
    with pytest.raises(SchemaError, match="77"):
        list(Chunker(Sources([[write_segment(tmp_path / "a", rows, 20)]], 0, 100), routing, owned))


def test_table_map_grows_and_finds() -> None:
    tables = TableMap(4)
    for table_id in range(1, 200):
        tables.set(table_id * 1024, table_id)
    assert [tables.get(t * 1024) for t in range(1, 200)] == list(range(1, 200))
    assert tables.get(5) == f.NOT_FOUND
