"""Change logs for measuring: any number of rows of a corpus (bench/corpus.py), spread as capture would.

    python -m bench.make_log narrow LOG --rows 10000000 --partitions 4 --tables 8 --affinity table --segment-seconds 150

The corpus is repeated as often as needed; each repetition has other handles and later timestamps, its values are the same bytes.
Rows are dealt to the tables by their handle, so a transaction spans several. Timestamps follow `--rate`. The log is complete
(schema snapshot, heads), deterministic, and written by Tidemill's own writer, not synced.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.corpus import NAMES, Corpus, load
from tidemill.changelog.log_format import Affinity, LogIdentity, parse_segment, rows_folder
from tidemill.changelog.options import LogOptions
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.events import RAW_CHANGE
from tidemill.tidb.keys import SCHEMA_VERSION_KEY, db_key, table_key
from tidemill.tso import compose

SCHEMA_ID = 900_000
FIRST_TABLE_ID = 1_000_000
DATABASE = "bench"
START_TS = compose(1_790_000_000_000)
KEY_BYTES = 19  # 't' + table id + '_r' + integer handle


@dataclass(frozen=True)
class Shape:
    """What log to make."""

    corpus: str = "narrow"
    rows: int = 1_000_000
    tables: int = 1
    partitions: int = 4
    affinity: Affinity = Affinity.KEY
    segment_seconds: float = 1.0
    rate: int = 10_000  # rows a second
    compression: str = "none"
    seed: int = 1
    hot: bool = False  # the first table has half of the rows, and its even share of the rest


@dataclass(frozen=True, slots=True)
class Tile:
    """The rows that one repetition of the corpus adds to one partition, in the log's order."""

    table: np.ndarray[Any, Any]  # physical table ids
    op: np.ndarray[Any, Any]
    commit: np.ndarray[Any, Any]  # uint64, distance from the start of the repetition
    handle: np.ndarray[Any, Any]
    value: pa.Array
    old_value: pa.Array
    in_last: int  # rows of it that the last repetition has


@dataclass(frozen=True, slots=True)
class Plan:
    """The tiles of all partitions, and what a repetition moves by."""

    tiles: list[Tile]
    span: int  # of timestamps
    handles: int
    repetitions: int


def table_name(shape: Shape, i: int) -> str:
    """bench.narrow_0 and so on."""
    return f"{shape.corpus}_{i}"


def snapshot(shape: Shape, corpus: Corpus) -> dict[bytes, bytes]:
    """Meta key-values with the database `bench` and its tables."""
    named = {"O": DATABASE, "L": DATABASE}
    database = {"id": SCHEMA_ID, "db_name": named, "charset": "utf8mb4", "collate": "utf8mb4_bin", "state": 5}
    pairs = {SCHEMA_VERSION_KEY: b"1", db_key(SCHEMA_ID): json.dumps(database).encode()}
    for i in range(shape.tables):
        name = table_name(shape, i)
        own = {**corpus.table_info, "id": FIRST_TABLE_ID + i, "name": {"O": name, "L": name}}
        pairs[table_key(SCHEMA_ID, FIRST_TABLE_ID + i)] = json.dumps(own).encode()
    return pairs


def plan(shape: Shape, corpus: Corpus) -> Plan:
    """Deal the corpus to tables and partitions, sort it, and give it timestamps."""
    n = len(corpus)
    dealt = corpus.handle // 2 if shape.hot else corpus.handle
    table = np.where(shape.hot & (corpus.handle % 2 == 1), 0, dealt % shape.tables)
    commit = _timestamps(corpus.transaction, shape.rate)
    order = np.lexsort((corpus.handle, table, commit))
    part = table % shape.partitions if shape.affinity is Affinity.TABLE else dealt // shape.tables % shape.partitions
    repetitions = -(-shape.rows // n)
    in_last = shape.rows - n * (repetitions - 1)
    tiles = []
    for p in range(shape.partitions):
        places = np.flatnonzero(part[order] == p)
        own = order[places]
        take = pa.array(own)
        tiles.append(
            Tile(
                FIRST_TABLE_ID + table[own].astype(np.int64),
                corpus.op[own],
                commit[own],
                corpus.handle[own],
                corpus.value.take(take),
                corpus.old_value.take(take),
                int(np.searchsorted(places, in_last)),
            )
        )
    step = 2 * shape.tables * shape.partitions  # handles of a repetition stay in their tables and partitions
    handles = (int(corpus.handle.max()) // step + 1) * step
    span = compose(-(-n * 1000 // shape.rate) + 1)
    return Plan(tiles, span, handles, repetitions)


def _timestamps(transaction: np.ndarray[Any, Any], rate: int) -> np.ndarray[Any, Any]:
    """Commit ts of rows, from the start of the repetition on, at so many rows a second; one a transaction, each another."""
    first = np.flatnonzero(np.concatenate([[True], transaction[1:] != transaction[:-1]]))
    ms = first * 1000 // rate
    begin = np.searchsorted(ms, ms)  # first transaction of the same millisecond
    ts = (ms << 18) + 2 * (np.arange(len(first)) - begin) + 2
    sizes = np.diff(np.append(first, len(transaction)))
    return np.repeat(ts, sizes).astype(np.uint64)


def batches(made: Plan, tile: Tile, from_ts: int, to_ts: int) -> Iterator[pa.RecordBatch]:
    """Rows of one partition with from_ts < commit_ts <= to_ts."""
    first, last = (from_ts - START_TS) // made.span, (to_ts - START_TS) // made.span
    for r in range(first, min(last, made.repetitions - 1) + 1):
        base = START_TS + r * made.span
        low = int(np.searchsorted(tile.commit, np.uint64(max(from_ts - base, 0)), side="right"))
        high = int(np.searchsorted(tile.commit, np.uint64(to_ts - base), side="right"))
        if r == made.repetitions - 1:
            high = min(high, tile.in_last)
        if low < high:
            yield _batch(tile, slice(low, high), base, r * made.handles)


def _batch(tile: Tile, rows: slice, base: int, handle: int) -> pa.RecordBatch:
    n = rows.stop - rows.start
    commit = tile.commit[rows] + np.uint64(base)
    keys = np.empty((n, KEY_BYTES), np.uint8)
    keys[:, 0] = ord("t")
    keys[:, 1:9] = (tile.table[rows].astype(np.uint64) ^ np.uint64(1 << 63)).astype(">u8").view(np.uint8).reshape(n, 8)
    keys[:, 9:11] = np.frombuffer(b"_r", np.uint8)
    keys[:, 11:] = ((tile.handle[rows] + handle).astype(np.uint64) ^ np.uint64(1 << 63)).astype(">u8").view(np.uint8).reshape(n, 8)
    offsets = np.arange(n + 1, dtype=np.int32) * KEY_BYTES
    columns = [
        pa.array(tile.table[rows]),
        pa.array(tile.op[rows]),
        pa.array(commit - np.uint64(1)),
        pa.array(commit),
        pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(keys.reshape(-1))]),
        tile.value.slice(rows.start, n),
        tile.old_value.slice(rows.start, n),
    ]
    return pa.record_batch(columns, schema=RAW_CHANGE)


class LogMaker:
    """Writes a log, all at once or piece by piece; the folder must not hold one. Its rows lie between START_TS and `end`."""

    def __init__(self, location: str | Path, shape: Shape, corpora: Path | None = None, corpus: Corpus | None = None) -> None:
        """`corpus`: not the named one."""
        corpus = corpus or load(shape.corpus, corpora, shape.seed)
        self._made = plan(shape, corpus)
        self.identity = LogIdentity("bench", START_TS, shape.partitions, shape.affinity)
        self.end = START_TS + self._made.repetitions * self._made.span
        self.at = START_TS
        self._step = max(1, round(shape.segment_seconds * 1000)) << 18
        self._storage = LocalStorage(location, sync=False)
        options = LogOptions(compression=shape.compression)
        self._log = LogWriter.create(self._storage, self.identity, snapshot=snapshot(shape, corpus), options=options)

    def advance(self, to_ts: int) -> None:
        """Write the segments that begin below `to_ts`, and move the heads to the end of the last one."""
        while self.at < min(to_ts, self.end):
            from_ts, self.at = self.at, min(self.at + self._step, self.end)
            for p, tile in enumerate(self._made.tiles):
                rows = list(batches(self._made, tile, from_ts, self.at))
                if rows:
                    self._log.partition(p).publish(self.at, rows, trusted=True)
        for p in range(self.identity.partitions):
            self._log.partition(p).set_head(self.at)
        self._log.schema.set_head(self.at)

    def drop(self, to_ts: int) -> None:
        """Remove the segments that end at or below `to_ts`, which nobody needs any more."""
        for p in range(self.identity.partitions):
            folder = rows_folder(p)
            for name in self._storage.names(folder):
                found = parse_segment(name, folder)
                if found is not None and found.to_ts <= to_ts:
                    self._storage.delete(f"{folder}/{name}")

    def close(self) -> None:
        """Let the log go."""
        self._log.close()


def make_log(location: str | Path, shape: Shape, corpora: Path | None = None, corpus: Corpus | None = None) -> LogIdentity:
    """Write the log; the folder must not hold one. Its rows lie between START_TS and its resolved ts. `corpus`: not the named one."""
    with closing(LogMaker(location, shape, corpora, corpus)) as maker:
        maker.advance(maker.end)
        return maker.identity


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.make_log", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", choices=NAMES)
    parser.add_argument("log", type=Path)
    parser.add_argument("--rows", type=int, default=Shape.rows)
    parser.add_argument("--tables", type=int, default=Shape.tables)
    parser.add_argument("--partitions", type=int, default=Shape.partitions)
    parser.add_argument("--affinity", type=Affinity, choices=list(Affinity), default=Shape.affinity)
    parser.add_argument("--segment-seconds", type=float, default=Shape.segment_seconds, help="of commit time")
    parser.add_argument("--rate", type=int, default=Shape.rate, help="rows a second of commit time")
    parser.add_argument("--compression", choices=("none", "lz4", "zstd"), default="none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpora", type=Path, help="folder with recorded corpora; without it they are made up")
    given = parser.parse_args(arguments)
    shape = Shape(
        given.corpus,
        given.rows,
        given.tables,
        given.partitions,
        given.affinity,
        given.segment_seconds,
        given.rate,
        given.compression,
        given.seed,
    )
    began = time.perf_counter()
    make_log(given.log, shape, given.corpora)
    size = sum(f.stat().st_size for f in given.log.rglob("*.arrow"))
    sys.stdout.write(f"{given.log}: {shape.rows} rows, {size / 1e6:.0f} MB, {time.perf_counter() - began:.1f} s\n")


if __name__ == "__main__":
    main()
