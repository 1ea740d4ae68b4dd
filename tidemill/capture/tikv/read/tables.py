"""Reads tables as of one ts: plans the ranges to read, and reads the rows of one as RawChange batches."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.read.pages import PageSize
from tidemill.capture.tikv.read.snapshot import KeyLocked, Snapshot
from tidemill.capture.tikv.regions.ranges import merged
from tidemill.changelog.initial_load import Part, Plan, PlannedTable, Range
from tidemill.events import RAW_CHANGE, Op
from tidemill.kernels.load import BadAnswer, Pairs, locate_pairs
from tidemill.tidb.codec import decode_bytes
from tidemill.tidb.keys import encode_range, parse_record_key, record_range
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.wire import kvrpcpb_pb2

_T = TypeVar("_T")

PAGE = 1024
"""Pairs in one answer."""
RANGES, REGIONS = 512, 1024
"""Ranges in one question to PD, regions in its answer."""
BATCH_BYTES = 8 << 20
"""Bytes of keys and values from which on a batch is written."""
LOCK_WAIT_S = 300.0
"""How long a lock is waited for: whoever resolves it (the capture's watchdog, a client) needs time."""


async def plan_tables(pd: PdClient, ts: int, versions: Iterable[TableVersion]) -> Plan:
    """Cut each table at the borders of its regions as PD knows them now. Holes in PD's list do no harm: the ranges have none."""
    tables = []
    in_order = sorted(versions, key=lambda v: v.table_id)
    borders = await region_borders(pd, [encode_range(*record_range(id_)) for version in in_order for id_ in version.physical_ids])
    for version in in_order:
        ranges: list[Range] = []
        for physical_id in sorted(version.physical_ids):
            low, high = encode_range(*record_range(physical_id))
            inside = borders[bisect_right(borders, low) : bisect_left(borders, high)]
            ranges += _cut(*record_range(physical_id), [decode_bytes(border)[0] for border in inside])
        tables.append(PlannedTable(version.table_id, f"{version.schema}.{version.table}", tuple(ranges)))
    return Plan(ts, tuple(tables))


async def region_borders(pd: PdClient, ranges: Iterable[Range]) -> list[bytes]:
    """Return the encoded keys inside the ranges at which regions begin, in order."""
    return sorted({region.start for region in await regions_of(pd, ranges)})


async def regions_of(pd: PdClient, ranges: Iterable[Range]) -> list[Region]:
    """Return the regions of encoded ranges in key order, as PD knows them now: it may have holes. Many ranges are asked for in one
    question."""
    found: dict[bytes, Region] = {}
    left = deque(merged(ranges))
    while left:
        asked = [left.popleft() for _ in range(min(len(left), RANGES))]
        regions = await pd.scan_ranges(asked, REGIONS)
        found.update((region.start, region) for region in regions)
        if len(regions) >= REGIONS and regions[-1].end:  # cut at the limit: continue after the last region
            at = max(regions[-1].end, asked[0][0] + b"\0")
            left.extendleft(reversed([(max(start, at), end) for start, end in asked if end > at]))
    return [found[start] for start in sorted(found)]


def _cut(start: bytes, end: bytes, borders: Sequence[bytes]) -> list[Range]:
    edges = [start, *(b for b in borders if start < b < end), end]
    return list(pairwise(edges))


def tasks_at_once(parts: int, parallelism: int, most: int) -> int:
    """Return into how many tasks of Spark to divide `parts` scans so that no more than `most` run at once: one each where Spark has no more
    cores than that."""
    return max(1, parts if parallelism <= most else min(parts, most))


class RowScan(Snapshot):
    """Reads pages of pairs as columns. `resolve` is awaited with the key of a lock and the end of the scan, and the page is read again."""

    yields = True

    def __init__(
        self, pd: PdClient, ts: int, retry_s: float = LOCK_WAIT_S, resolve: Callable[[bytes, bytes], Awaitable[object]] | None = None
    ) -> None:
        super().__init__(pd, ts, retry_s)
        self._resolve = resolve

    async def pages(self, start: bytes, end: bytes, page: int = PAGE) -> AsyncIterator[Pairs]:
        """Yield the pairs of the raw range [start, end) in key order. Raises as `scan`."""
        read = self._columns if self._resolve is None else partial(self._resolved_columns, self._resolve)
        at: bytes | None = start
        size = PageSize(page)
        while at is not None and at < end:
            pairs, at = await self._page(at, end, size, read)
            size.came(len(pairs.data))
            if len(pairs):
                yield pairs

    async def _resolved_columns(
        self, resolve: Callable[[bytes, bytes], Awaitable[object]], region: Region, start: bytes, end: bytes, page: int
    ) -> tuple[Pairs, bytes | None]:
        try:
            return await self._columns(region, start, end, page)
        except KeyLocked as locked:
            await resolve(locked.key, end)
            raise  # and it is read again

    async def _columns(self, region: Region, start: bytes, end: bytes, page: int) -> tuple[Pairs, bytes | None]:
        request, behind = self._request(region, start, end, page)
        answer = await self._call(region, request, bytes)
        try:
            pairs = locate_pairs(answer, page)
        except BadAnswer:
            self._pairs(region, kvrpcpb_pb2.ScanResponse.FromString(answer))
            raise
        return pairs, pairs.key(len(pairs) - 1) + b"\0" if len(pairs) >= page else behind


def rows_of(pairs: Pairs, ts: int) -> pa.RecordBatch:
    """Return pairs of one table as RAW_CHANGE rows: puts without an old value, with commit_ts = start_ts = ts."""
    n = len(pairs)
    table_id = parse_record_key(pairs.key(0)).table_id
    stamps = pa.array(np.full(n, ts, np.uint64))
    columns = [
        pa.array(np.full(n, table_id, np.int64)),
        pa.array(np.full(n, Op.PUT, np.uint8)),
        stamps,
        stamps,
        pairs.column(0),
        pairs.column(1),
        pa.nulls(n, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW_CHANGE)


async def batches(pd: PdClient, part: Part) -> AsyncIterator[pa.RecordBatch]:
    """Yield the rows of a part in key order, some thousand per batch."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    async for pairs in RowScan(pd, part.ts, LOCK_WAIT_S).pages(part.start, part.end):
        waiting.append(rows_of(pairs, part.ts))
        size += len(pairs.data)
        if size >= BATCH_BYTES:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def drained(loop: asyncio.AbstractEventLoop, source: AsyncIterator[_T]) -> Iterator[_T]:
    """Iterate over an asynchronous source in code that is not asynchronous."""
    while True:
        try:
            yield loop.run_until_complete(anext(source))
        except StopAsyncIteration:
            return
