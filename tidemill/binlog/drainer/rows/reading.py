"""Binlogs in commit order → what is delivered: rows in batches, DDLs, and whole transactions where kernels do not read them.

Row by row (`tidemill.binlog.drainer.entries`, which is also the reference) are read

- tables that an event rule is about: what it leaves out are single statements, and batches have what a transaction left of a row;
- the marks of loopback control;
- for a database, tables without a key that have columns by whose text no row is found, or partitions, in which row ids may come twice;
  tables whose key has a generated column, of which binlogs do not always have the value;
- for messages, tables with generated columns;
- rows that the kernels do not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import pyarrow as pa

from tidemill.binlog.blocks import Binlogs, Room, plain_memory
from tidemill.binlog.drainer.entries import Delivery, Reading
from tidemill.binlog.drainer.rows.batching import Batched, Batcher, KnownTable, KnownTables, Stop
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry
from tidemill.changelog.spread import Layout
from tidemill.kernels.binlog.layout import H_DDL
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.codes import HandleKind
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

INLINE_BYTES = 1 << 20
"""Up to so many bytes are read on the event loop, more in a thread."""

_TOGETHER = Layout(0, 1)


class Way(Enum):
    """How the rows of a table are read."""

    LEFT_OUT = auto()
    BATCHES = auto()
    ROW_BY_ROW = auto()


@dataclass(frozen=True, slots=True)
class Rows:
    """RAW_CHANGE batches of whole transactions, in commit order. `commit_ts`: of the last one. `tables`: by table id in the batches.

    For a database the changes of a transaction are in the order of RAW_CHANGE; for messages in that of its statements. A large transaction
    comes alone, in `Pieces`, but not for Kafka.
    """

    commit_ts: int
    batches: Sequence[pa.RecordBatch]
    tables: Mapping[int, TableVersion]


Delivered = Entry | Rows


async def read_batches(batcher: Batcher, binlogs: Binlogs, at: int, tables: KnownTables, layout: Layout) -> Batched:
    """Read transactions, aside from the event loop if they are many. Raises as `Batcher.read`."""
    if int(binlogs.heads["message_len"].sum()) <= INLINE_BYTES:
        return batcher.read(binlogs, at, tables, layout)
    return await asyncio.to_thread(batcher.read, binlogs, at, tables, layout)


def is_told_apart(info: TableInfo) -> bool:
    """Whether the rows of a table can be found by what a batch has of them."""
    if info.has_usable_key:
        return not any(info.columns_by_id[number].is_generated for number in info.handle_key_ids)
    exact = all(family(column) not in (Family.JSON, Family.FLOAT) for column in info.output_columns)
    return exact and (info.handle_kind is not HandleKind.HIDDEN or len(info.physical_ids) == 1)


class BatchReading:
    """`way_of`: how the rows of a table are read, by its schema and name. `left_out`: commit ts of transactions that are not delivered.
    `row_by_row` reads what batches do not have, and DDLs. `in_batches`: whether batches have what is needed of a table. `in_order`: every
    change, in the order of the statements. `in_pieces`: a large transaction comes in `Pieces`. `room`: memory for a large transaction."""

    def __init__(
        self, schemas: Schemas, way_of: Callable[[str, str], Way], left_out: frozenset[int], row_by_row: Reading,
        in_batches: Callable[[TableInfo], bool] = is_told_apart, *, in_order: bool = False, in_pieces: bool = True,
        room: Room = plain_memory,
    ) -> None:  # fmt: skip
        self._schemas, self._way_of, self._row_by_row, self._in_batches = schemas, way_of, row_by_row, in_batches
        self._left_out = np.array(sorted(left_out), np.int64)
        self._known, self._batcher = KnownTables(), Batcher(in_order=in_order, in_pieces=in_pieces, room=room)
        self._versions: dict[int, TableVersion] = {}

    async def read(self, binlogs: Binlogs) -> Delivery[Delivered]:
        """Return what binlogs deliver, up to a DDL, or up to a transaction that is read row by row. Raises MalformedMessage, MalformedRow,
        SchemaError, UpstreamError."""
        heads = binlogs.heads
        is_ddl = heads["flags"] & H_DDL != 0
        if is_ddl[0]:
            return await self._one_by_one(binlogs.part(0, 1))
        ends = is_ddl | np.isin(heads["commit_ts"], self._left_out)
        end = int(ends.argmax()) if ends.any() else len(binlogs)
        if end == 0:
            return Delivery([], 1)
        found = await self._rows(binlogs.part(0, end))
        return found if found.count or found.is_early else await self._one_by_one(binlogs.part(0, end))

    async def _one_by_one(self, binlogs: Binlogs) -> Delivery[Delivered]:
        """What comes behind a transaction that is read row by row is mostly of the same kind, so it is read with it."""
        before = self._schemas.changes
        found = await self._row_by_row.read(binlogs)
        if self._schemas.changes != before:
            self._forget()
        return Delivery([*found.entries], found.count, found.ends_with_ddl, found.is_early)

    async def _rows(self, binlogs: Binlogs) -> Delivery[Delivered]:
        batches: list[pa.RecordBatch] = []
        early: DdlBinlog | None = None
        at, tables = 0, self._versions
        while at < len(binlogs):
            read = await read_batches(self._batcher, binlogs, at, self._known, _TOGETHER)
            batches += (batch for _, batch in read.changes)
            at, tables = read.end, self._versions
            if read.large is not None:
                found = [] if not batches else [Rows(int(binlogs.heads["commit_ts"][at - 2]), tuple(batches), tables)]
                return Delivery([*found, Rows(int(binlogs.heads["commit_ts"][at - 1]), read.large, tables)], at)
            head = binlogs.heads[at] if read.stop is not None else None
            if head is None or read.stop is Stop.REFERENCE:
                break
            if read.stop is Stop.UNKNOWN_TABLE:
                await self._learn(read.table_id, int(head["start_ts"]), int(head["commit_ts"]))
                continue
            early, is_changed = await self._early(read, int(head["start_ts"]), int(head["commit_ts"]))
            if is_changed:
                break
        rows = [Rows(int(binlogs.heads["commit_ts"][at - 1]), tuple(batches), tables)] if batches else []
        entries: list[Delivered] = [*rows, *([] if early is None else [early])]
        return Delivery(entries, at, ends_with_ddl=early is not None, is_early=early is not None)

    async def _early(self, read: Batched, start_ts: int, commit_ts: int) -> tuple[DdlBinlog | None, bool]:
        """Return the DDL to deliver before the transaction that reading stopped at, and whether a table changed."""
        before = self._schemas.changes
        early = await self._row_by_row.early(read.table_id, read.version, commit_ts)
        if self._schemas.changes != before:
            self._forget()
            return early, True
        await self._learn(read.table_id, start_ts, commit_ts)
        return None, False

    def _forget(self) -> None:
        """A DDL changed tables."""
        self._known.forget()
        self._versions = {}

    async def _learn(self, table_id: int, start_ts: int, commit_ts: int) -> None:
        version = await self._schemas.table(table_id, start_ts, commit_ts)
        way = Way.LEFT_OUT if version is None else self._way_of(*version.name)
        if version is None or way is Way.LEFT_OUT:
            self._known.add(KnownTable.left_out(table_id))
        elif way is Way.ROW_BY_ROW or not self._in_batches(version.info):
            self._known.add(KnownTable.row_by_row(table_id))
        else:
            known = KnownTable.of(table_id, version.info, self._schemas.settled(table_id))
            self._known.add(known)
            self._versions = {**self._versions, known.physical_id: version}
