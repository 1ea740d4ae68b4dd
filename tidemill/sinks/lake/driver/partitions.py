"""DDLs by which rows leave a table, or change places with those of another, without a change for any of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import SchemaError, SinkError
from tidemill.rules.partitions import PartitionRows
from tidemill.sinks.lake.base import Stamp, Tables
from tidemill.sinks.lake.manifest import TableAt
from tidemill.sinks.lake.net import last_of_each
from tidemill.sinks.lake.shapes import OP, LakeTable


class PartitionMoves:
    """Does them. A place is where a table lies, see `Tables`. Each may be done again."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def remove(self, place: str, table: LakeTable, gone: PartitionRows | None, stamp: Stamp) -> None:
        """Take out the rows of partitions. Raises SinkError."""
        keys = self._lying(place, table, gone, table.keys)
        if len(keys):
            others = [one for one in table.fields if one.name not in table.keys]
            columns = [*keys.columns, *(pa.nulls(len(keys), one.type) for one in others), _marks(len(keys), 1)]
            rows = pa.table(columns, [*keys.column_names, *(one.name for one in others), OP])
            self._tables.merge(place, table, rows, stamp, of_interval=False)

    def exchange(
        self, inside: tuple[TableAt, LakeTable], outside: tuple[TableAt, LakeTable], gone: PartitionRows | None, stamp: Stamp
    ) -> None:
        """Let the rows of a partition and all of another table change places. Each side: its version before, and the table.

        Both sides are read at these versions: after a crash between the two commits the tables do not show any more what goes where. Raises
        SinkError.
        """
        (at, table), (there, other) = inside, outside
        leaving = self._lying(at.place, table, gone, None, at)
        coming = _whole(self._tables.read(there.place, there))
        if len(coming) and not pc.all(_mask(table, gone, coming)).as_py():
            raise SinkError(
                f"{table} exchanges a partition with {other}, some of whose rows do not belong into it",
                hint="Let an event filter ignore the DDL, and load both tables again into an empty place.",
            )
        self._tables.merge(at.place, table, _exchanged(leaving, coming, table), stamp, of_interval=False)
        self._tables.merge(there.place, other, _exchanged(coming, leaving, other), stamp, of_interval=False)

    def _lying(
        self, place: str, table: LakeTable, gone: PartitionRows | None, columns: Sequence[str] | None, at: TableAt | None = None
    ) -> pa.Table:
        """Return the rows that lie in the partitions at a version, None for the newest. `columns`: some of their columns, None for all."""
        pieces = []
        for batch in self._tables.read(place, at):
            rows = pa.Table.from_batches([batch])
            found = rows.filter(_mask(table, gone, rows))
            if len(found):
                pieces.append(found if columns is None else found.select(list(columns)))
        return pa.concat_tables(pieces) if pieces else pa.table({})


def _mask(table: LakeTable, gone: PartitionRows | None, rows: pa.Table) -> pa.Array:
    assert gone is not None
    try:
        return gone.mask(rows)
    except SchemaError as error:
        raise SinkError(f"{table}: which rows lie in a partition cannot be told: {error.message}", hint=error.hint) from None


def _marks(count: int, op: int) -> pa.Array:
    return pa.array(np.full(count, op, np.int8))


def _whole(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    found = [*batches]
    return pa.Table.from_batches(found) if found else pa.table({})


def marked(rows: pa.Table, table: LakeTable, op: int) -> pa.Table:
    """Return rows with the table's columns and types, and OP."""
    return pa.table([*(rows[one.name].cast(one.type) for one in table.fields), _marks(len(rows), op)], [*table.fields.names, OP])


def _exchanged(gone: pa.Table, coming: pa.Table, table: LakeTable) -> pa.Table:
    """Return what takes some rows out of a table and puts others in, as rows with OP."""
    pieces = [marked(pa.Table.from_batches([table.first.slice(1)]), table, 0)]
    pieces += [marked(rows, table, op) for rows, op in ((gone, 1), (coming, 0)) if len(rows)]
    return last_of_each(pa.concat_tables(pieces), table.keys)
