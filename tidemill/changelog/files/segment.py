"""The content of a segment: record batches of bounded size, in order, inside their interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from tidemill.changelog.files import arrowfile
from tidemill.changelog.log_format import MAX_BATCH_BYTES, MAX_BATCH_ROWS
from tidemill.changelog.storage.base import Draft
from tidemill.changelog.storage.outcomes import Outcome, error_of, outcome_of, storage_errors
from tidemill.errors import LogCorrupt, LogError, redact
from tidemill.events import RAW_CHANGE

COMPRESSIONS = ("none", "lz4", "zstd")
_FIXED_BYTES = 8 + 1 + 8 + 8 + 3 * 4  # of a row in the buffers, without the bytes of its key and values

Order = tuple[int, int, int, bytes]
"""commit_ts, start_ts, table_id, key: the order of rows."""


def ipc_options(compression: str) -> Any:
    """Return the Arrow writer's options for a compression. Raises LogError."""
    if compression not in COMPRESSIONS:
        raise LogError(f"{compression!r} is not a compression of segments; there are {', '.join(COMPRESSIONS)}")
    return pyarrow.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)


def same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """Return whether names and types are equal, in equal order. Nullability may differ."""
    if one.equals(other):
        return True
    try:
        return list(one.names) == list(other.names) and list(one.types) == list(other.types)
    except UnicodeDecodeError:  # names in a damaged file
        return False


def check_columns(reader: Any, wanted: pa.Schema, path: str) -> None:
    """Check that a file has the wanted columns. Raises LogCorrupt."""
    if not same_columns(reader.schema, wanted):
        raise _unreadable(path, f"it has other columns than {_columns(wanted)}")


def read_batch(reader: Any, number: int, path: str, wanted: pa.Schema = RAW_CHANGE) -> pa.RecordBatch:
    """Read and validate a record batch with the wanted columns, so that kernels may read it by address: a mapped file may be damaged.

    Every buffer is as long as its rows need, offsets ascend, and columns without nulls have none. Raises LogCorrupt; LogUnavailable if the
    storage does not answer.
    """
    batch = None
    try:
        batch = reader.get_batch(number)
        batch.validate(full=True)
    except pa.ArrowException as error:
        broken = _broken_lengths(batch, wanted) if batch is not None else ""
        why = f"{number}: the lengths of {broken} are broken" if broken else f"{number} cannot be read: {error}"
        raise _unreadable(path, f"record batch {why}") from error
    except OSError as error:
        outcome = outcome_of(error, content=True)
        if outcome is not Outcome.BROKEN:
            raise error_of(outcome, path, error) from error
        raise _unreadable(path, f"record batch {number} cannot be read: {error}") from error
    for at, name in _without_nulls(wanted):
        if nulls := batch.column(at).null_count:
            raise _unreadable(path, f"record batch {number}: {nulls} rows have no {name}")
    return batch


@lru_cache(maxsize=8)
def _without_nulls(schema: pa.Schema) -> list[tuple[int, str]]:
    """Number and name of each column that has no nulls."""
    return [(at, field.name) for at, field in enumerate(schema) if not field.nullable]


def _broken_lengths(batch: pa.RecordBatch, wanted: pa.Schema) -> str:
    """Return the name of the binary column for which a batch does not validate; "" if it is not such a column."""
    for at, field in enumerate(wanted):
        if field.type == pa.binary():
            try:
                batch.column(at).validate(full=True)
            except pa.ArrowException:
                return str(field.name)
    return ""


def _unreadable(path: str, why: str) -> LogCorrupt:
    return LogCorrupt(f"{redact(path)}: {why}", hint="`tidemill log verify` lists all damage. Restore the file from a copy.")


def numpy_of(column: pa.Array) -> np.ndarray[Any, Any]:
    """Return a fixed-width column without nulls as numpy, without a copy."""
    values: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=True)
    return values


def order_at(batch: pa.RecordBatch, row: int) -> Order:
    """Return a row's position in the order of rows."""
    return (
        batch.column("commit_ts")[row].as_py(),
        batch.column("start_ts")[row].as_py(),
        batch.column("table_id")[row].as_py(),
        batch.column("key")[row].as_py(),
    )


def first_out_of_order(batch: pa.RecordBatch) -> int | None:
    """Return the first row that is not above the one before it; None if the batch is in order without duplicates."""
    n = batch.num_rows
    if n < 2:
        return None
    undecided = np.ones(n - 1, np.bool_)
    for name in ("commit_ts", "start_ts", "table_id"):
        values = numpy_of(batch.column(name))
        before, after = values[:-1], values[1:]
        if (wrong := undecided & (before > after)).any():
            return int(np.argmax(wrong)) + 1
        undecided &= before == after
        if not undecided.any():
            return None
    keys = batch.column("key")
    at = np.flatnonzero(undecided)
    if 4 * len(at) > n:  # comparing all keys costs less than gathering some
        descending = undecided & ~pc.less(keys.slice(0, n - 1), keys.slice(1)).to_numpy(zero_copy_only=False)
        return int(np.argmax(descending)) + 1 if descending.any() else None
    descending = ~pc.less(keys.take(pa.array(at)), keys.take(pa.array(at + 1))).to_numpy(zero_copy_only=False)
    return int(at[np.argmax(descending)]) + 1 if descending.any() else None


@dataclass(slots=True)
class Inspector:
    """Checks that successive batches are RawChange rows of (from_ts, to_ts], in order.

    `where` begins the messages. `to_ts` None: the end is not known yet; check `last` afterwards. `trusted`: the maker of the batches has
    checked their order; only times and the borders of batches are checked.
    """

    where: str
    from_ts: int
    to_ts: int | None
    trusted: bool = False
    last: Order | None = None
    rows: int = 0

    def check(self, batch: pa.RecordBatch) -> None:
        """Check a batch. Raises LogError naming the first bad row."""
        if not same_columns(batch.schema, RAW_CHANGE):
            raise LogError(f"{self.where}: rows have the columns {_columns(batch.schema)}, not {_columns(RAW_CHANGE)}")
        if not batch.num_rows:
            return
        for name in ("table_id", "op", "start_ts", "commit_ts", "key"):
            if batch.column(name).null_count:
                raise LogError(f"{self.where}: {batch.column(name).null_count} rows have no {name}")
        self._check_times(batch)
        first = order_at(batch, 0)
        if self.last is not None and first <= self.last:
            raise LogError(f"{self.where}: {_row(first)} stands after {_row(self.last)}")
        wrong = None if self.trusted else first_out_of_order(batch)
        if wrong is not None:
            raise LogError(f"{self.where}: {_row(order_at(batch, wrong))} stands after {_row(order_at(batch, wrong - 1))}")
        self.last = order_at(batch, batch.num_rows - 1)
        self.rows += batch.num_rows

    def _check_times(self, batch: pa.RecordBatch) -> None:
        commit = numpy_of(batch.column("commit_ts"))
        # Compared as uint64: numpy compares uint64 with a Python int of another array through float64.
        if commit.min() <= np.uint64(self.from_ts):
            row = int(np.argmin(commit))
            raise LogError(f"{self.where}: {_row(order_at(batch, row))} is not above the interval's start {self.from_ts}")
        if self.to_ts is not None and commit.max() > np.uint64(self.to_ts):
            row = int(np.argmax(commit))
            raise LogError(f"{self.where}: {_row(order_at(batch, row))} is above the interval's end {self.to_ts}")


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


def _row(order: Order) -> str:
    commit_ts, start_ts, table_id, key = order
    return f"the row commit_ts {commit_ts}, start_ts {start_ts}, table {table_id}, key {key.hex()}"


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch's rows in their buffers."""
    return int(batch.num_rows) * _FIXED_BYTES + sum(_width(batch.column(name)) for name in ("key", "value", "old_value"))


def _offsets(column: pa.Array) -> np.ndarray[Any, Any]:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32, column.offset + len(column) + 1)[column.offset :]


def _width(column: pa.Array) -> int:
    offsets = _offsets(column)
    return int(offsets[-1]) - int(offsets[0])


def _row_ends(batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    """Return the bytes of the batch up to the end of each row."""
    ends = np.arange(1, batch.num_rows + 1, dtype=np.int64) * _FIXED_BYTES
    for name in ("key", "value", "old_value"):
        offsets = _offsets(batch.column(name)).astype(np.int64)
        ends += offsets[1:] - offsets[0]
    return ends


def bounded(batch: pa.RecordBatch, max_rows: int = MAX_BATCH_ROWS, max_bytes: int = MAX_BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the batch, or slices of it within the limits (a single row may be larger)."""
    n = batch.num_rows
    if n <= max_rows and batch_bytes(batch) <= max_bytes:
        if n:
            yield batch
        return
    ends = _row_ends(batch)
    start = 0
    while start < n:
        used = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, np.int64(used + max_bytes), side="right"))
        stop = min(max(stop, start + 1), start + max_rows)
        yield batch.slice(start, stop - start)
        start = stop


def regrouped(
    batches: Iterable[pa.RecordBatch], max_rows: int = MAX_BATCH_ROWS, max_bytes: int = MAX_BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches as large as the limits allow. The cuts depend on the rows alone."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for whole in batches:
        for batch in bounded(whole, max_rows, max_bytes):
            rest = batch
            while rest.num_rows:
                taken = _fitting(rest, max_rows - rows, max_bytes - size, must=not waiting)
                if taken:
                    piece = rest.slice(0, taken)
                    waiting.append(piece)
                    rows += taken
                    size += batch_bytes(piece)
                    rest = rest.slice(taken)
                if rest.num_rows:
                    yield _joined(waiting)
                    waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _fitting(batch: pa.RecordBatch, rows: int, size: int, *, must: bool) -> int:
    """Return how many of the first rows fit; at least one if `must`."""
    if batch.num_rows <= rows and batch_bytes(batch) <= size:
        return int(batch.num_rows)
    fit = min(int(np.searchsorted(_row_ends(batch), np.int64(max(size, 0)), side="right")), rows)
    return max(fit, 1) if must else fit


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def write_file(draft: Draft, where: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema, compression: str) -> None:
    """Write the batches as an Arrow IPC file with checksums, sealed but not published. Raises DiskLow, LogUnavailable."""
    with storage_errors(draft.place or where, writing=True):
        arrowfile.write(draft.sink, batches, schema, ipc_options(compression))
        draft.seal()
