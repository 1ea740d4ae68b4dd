"""ROW records -> sorted, duplicate-free Arrow batches. Pure.

Scratch and output buffers are reused: fresh memory costs more (page faults) than the copying.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.capture.tikv.receive.memory import Array, fresh
from tidemill.changelog.log_format import MAX_BATCH_BYTES, MAX_BATCH_ROWS
from tidemill.events import RAW_CHANGE
from tidemill.kernels.address import address
from tidemill.kernels.receive.seal import DIGITS, gather, order, plan

SLACK = 128  # gather writes up to 63 bytes past the end of a buffer


@dataclass(slots=True)
class Plan:
    """Row records in final order, without duplicates, cut into batches."""

    rows: Array
    order: Array  # int32
    count: int
    cuts: Array  # a row per batch: end, key bytes, value bytes, old value bytes


class Sorter:
    """Sorts and gathers rows. One per sealing thread."""

    def __init__(self, max_rows: int = MAX_BATCH_ROWS, max_bytes: int = MAX_BATCH_BYTES) -> None:
        self.max_rows, self.max_bytes = max_rows, max_bytes
        self._n = 0
        self._histogram: Array = np.empty(DIGITS, np.int32)
        self._out: dict[str, Array] = {}
        self._keys: Array
        self._order: Array
        self._stack: Array
        self._cuts: Array

    def _scratch(self, n: int) -> None:
        if n > self._n or not self._n:
            self._n = n + n // 4 + 1
            self._keys = fresh(24 * self._n).view(np.uint64)
            self._order = fresh(8 * self._n).view(np.int32).reshape(2, -1)
            self._stack = fresh(24 * (self._n // 24 + 8)).view(np.int64)
            self._cuts = fresh(32 * (self._n + 2)).view(np.int64).reshape(-1, 4)  # of its pages only those of real cuts are ever touched

    def plan(self, rows: Array, is_sorted: bool = False) -> Plan:
        """Order by (commit_ts, start_ts, key), drop duplicates, cut into batches. Valid until the next call."""
        n = len(rows)
        self._scratch(n)
        index = self._order[0]
        if is_sorted:
            index[:n] = np.arange(n, dtype=np.int32)
        else:
            self.order(rows)
        cap = n + 1  # a batch has a row at least
        count = plan(address(rows), address(index), n, self.max_rows, self.max_bytes, address(self._cuts), cap)
        return Plan(rows, index, count, self._cuts[: self._cuts[cap, 0]])

    def order(self, rows: Array) -> Array:
        """Return the permutation that orders all rows by (commit_ts, start_ts, key), as int32. Valid until the next call."""
        n = len(rows)
        self._scratch(n)
        index, other = self._order
        times, keys = self._keys[:n], self._keys[n:]
        scratch = address(keys), address(other), address(self._histogram), address(self._stack)
        order(address(rows), n, address(times), address(index), *scratch)
        found: Array = index[:n]
        return found

    def _buffer(self, name: str, size: int) -> Array:
        buffer = self._out.get(name)
        if buffer is None or len(buffer) < size + SLACK:
            buffer = self._out[name] = fresh(size + size // 4 + SLACK)
        return buffer

    def batches(self, plan: Plan) -> Iterator[pa.RecordBatch]:
        """Yield the plan's rows as Arrow. A batch is valid until the next one is asked for."""
        lo = 0
        for end, key_bytes, value_bytes, old_bytes in plan.cuts.tolist():
            yield self._gather(plan, lo, end, key_bytes, value_bytes, old_bytes)
            lo = end

    def _gather(self, plan: Plan, lo: int, end: int, key_bytes: int, value_bytes: int, old_bytes: int) -> pa.RecordBatch:
        n = end - lo
        bits = n // 8 + 1
        sizes = (8 * n, n, 8 * n, 8 * n, 4 * n + 4, key_bytes, 4 * n + 4, value_bytes, bits, 4 * n + 4, old_bytes, bits)
        buffers = [self._buffer(str(i), size) for i, size in enumerate(sizes)]
        out = np.array([address(b) for b in buffers] + [0, 0], np.int64)
        gather(address(plan.rows), address(plan.order), lo, end, address(out))
        view = [pa.py_buffer(b)[:size] for b, size in zip(buffers, sizes, strict=True)]
        no_values, no_olds = int(out[12]), int(out[13])
        binary = pa.binary()
        columns = [pa.Array.from_buffers(RAW_CHANGE.field(i).type, n, [None, view[i]], 0) for i in range(4)]
        columns += [
            pa.Array.from_buffers(binary, n, [None, view[4], view[5]], 0),
            pa.Array.from_buffers(binary, n, [view[8] if no_values else None, view[6], view[7]], no_values),
            pa.Array.from_buffers(binary, n, [view[11] if no_olds else None, view[9], view[10]], no_olds),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RAW_CHANGE)
