"""Writes every version of every row that a playground's store ever had into an Arrow file. Tests compare a log with it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidemill.errors import MalformedKey
from tidemill.playground.store.mvcc import Mvcc
from tidemill.tidb.keys import parse_record_key

BATCH_ROWS = 10_000
DUMP = pa.schema([
    ("table_id", pa.int64()), ("key", pa.binary()), ("start_ts", pa.uint64()), ("commit_ts", pa.uint64()), ("value", pa.binary()),
    ("source", pa.uint64()),
])  # fmt: skip
"""A row a version, oldest first within a key, keys in order; `value` is null for a deletion, `source` is the txn_source."""


def write_dump(mvcc: Mvcc, path: str) -> int:
    """Write the file; returns the number of versions."""
    rows = 0
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, DUMP) as writer:
        for batch in _batches(mvcc):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _batches(mvcc: Mvcc) -> Iterator[pa.RecordBatch]:
    columns: list[list[object]] = [[] for _ in DUMP]
    for key, table_id, versions in _histories(mvcc):
        for commit_ts, start_ts, value in versions:
            row = (table_id, key, start_ts, commit_ts, value, mvcc.sources.get(start_ts, 0))
            for column, cell in zip(columns, row, strict=True):
                column.append(cell)
        if len(columns[0]) >= BATCH_ROWS:
            yield pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, DUMP, strict=True)], schema=DUMP)
            columns = [[] for _ in DUMP]
    yield pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, DUMP, strict=True)], schema=DUMP)


def _histories(mvcc: Mvcc) -> Iterator[tuple[bytes, int, list[tuple[int, int, bytes | None]]]]:
    """Keys of rows with all versions there ever were, oldest first."""
    stored = dict(mvcc.items(b"t", b"u"))
    collected = mvcc.collected or {}
    for key in sorted(stored.keys() | collected.keys()):
        try:
            table_id = parse_record_key(key).table_id
        except MalformedKey:
            continue
        yield key, table_id, sorted({*collected.get(key, ()), *stored.get(key, ())}, key=lambda version: version[0])
