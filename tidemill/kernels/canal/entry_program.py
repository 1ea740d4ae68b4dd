"""What a table version's entries for Canal's clients consist of, as words that the kernel runs, made by the reference."""

from __future__ import annotations

import numpy as np

from tidemill.kernels.canal import entry_layout as e
from tidemill.kernels.canal import layout as x
from tidemill.kernels.canal.program import ColumnBytes, ColumnLists
from tidemill.kernels.rows.program import Pool, TableProgram
from tidemill.protocols.canal.codes import EventType
from tidemill.protocols.canal.entries import EntryTable
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.wire import canal_entry_pb2 as pb


class EntryProgram:
    """The program of one table version. `words` are read by the kernel; the object keeps alive what they point to."""

    def __init__(self, program: TableProgram, table: EntryTable) -> None:
        self.words = np.zeros(x.TEXT_WORDS, np.int64)
        pool = Pool()
        lists = ColumnLists(program, pool, four_digits=True)
        plain = lists.add([_bytes(table, column, updated=False) for column in table.columns], compared=True)
        updated = lists.add([_bytes(table, column, updated=True) for column in table.columns])
        for kind, event, images, after, changed in (
            (x.ON_DELETE, EventType.DELETE, 1 << x.OLD, plain, -1),
            (x.ON_UPDATE, EventType.UPDATE, 1 << x.OLD | 1 << x.NEW, plain, updated),
            (x.ON_INSERT, EventType.INSERT, 1 << x.NEW, updated, -1),
        ):
            change = pb.RowChange(table_id=table.info.id, event_type=event, is_ddl=False).SerializeToString()
            self.words[8 * kind : 8 * kind + 7] = (images, plain, after, changed, event, *pool.add(change))
        self.words[e.X_COUNT] = len(table.columns)
        names = pb.Header(schema_name=table.schema.encode(), table_name=table.table.encode()).SerializeToString()
        self.words[e.X_NAMES : e.X_NAMES_LEN + 1] = pool.add(names)
        self.words[x.X_FIXED], self.words[x.X_ROOM] = lists.fixed, lists.room
        self._blocks = (lists.array(), pool.array())
        self.words[x.X_COLUMNS], self.words[x.X_POOL] = (block.ctypes.data for block in self._blocks)


def _bytes(table: EntryTable, column: ColumnInfo, *, updated: bool) -> ColumnBytes:
    members = tuple(elem.encode() for elem in column.elems) if table.by_name(column) else ()
    return ColumnBytes(column, lambda cell: table.column(column, cell, updated=updated), empty=True, members=members)
