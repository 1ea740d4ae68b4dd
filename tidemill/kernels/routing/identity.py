"""Whether an update changed a key, and the hash of a row's columns: calls of the kernels, and their references."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tidemill.errors import MalformedRow, TidemillError
from tidemill.kernels.routing import identity_kernel as k
from tidemill.kernels.rows.changed import ASK
from tidemill.kernels.rows.layout import SCRATCH_BYTES, T_EXTRA
from tidemill.kernels.rows.program import TableProgram, table_words
from tidemill.kernels.rows.views import RawRecord, RowArray, raw_record
from tidemill.kernels.write.tables import TABLES_AT, crc_state
from tidemill.protocols.common.celltext import NULL, any_changed, cell_text, hash_cells, hash_seed
from tidemill.tidb.rows import Cell
from tidemill.tidb.schema.model import ColumnInfo


class _Columns:
    """Table words with a list of chosen columns for each table, as `identity_kernel` reads them."""

    def __init__(self, programs: Sequence[TableProgram], chosen: Sequence[Sequence[int]]) -> None:
        self.programs = list(programs)
        self.slow_rows = 0
        self._slots = [list(slots) for slots in chosen]
        self._tables = table_words(self.programs)
        extra = [self._words(program, slots) for program, slots in zip(self.programs, self._slots, strict=True)]
        self._extra = np.array([word for words in extra for word in words], np.int64)
        if extra:
            begins = np.cumsum([0, *(len(words) for words in extra[:-1])])
            self._tables[:, T_EXTRA] = self._extra.ctypes.data + self._extra.itemsize * begins
        self._scratch = np.zeros(SCRATCH_BYTES, np.uint8)

    def _words(self, program: TableProgram, slots: list[int]) -> list[int]:
        words = [len(slots), hash_seed(program.schema, program.table)]
        for slot in slots:
            column = program.columns[slot]
            name = column.name.encode()
            try:
                absent = crc_of(name + cell_text(column, program.absent_cell(column)))
            except TidemillError:
                absent = -1
            fsp = min(max(column.decimal, 0), 6)
            words += [slot, program.ops[slot], fsp, crc_state(name), crc_of(name + NULL), absent, 0, 0]
        return words

    def _cells(self, record: RawRecord, value: bytes) -> list[tuple[ColumnInfo, Cell]]:
        """Return the chosen columns of one image by the reference. Raises MalformedRow naming the row."""
        program = self.programs[record.table]
        try:
            cells = program.open.reader.read(record.key, value)
        except TidemillError as error:
            place = f"table {program.name}, key {record.key.hex()}, commit_ts {record.commit_ts}"
            raise MalformedRow(f"{place}: {error.message}", hint=error.hint) from error
        self.slow_rows += 1
        return [(program.columns[slot], cells[slot]) for slot in self._slots[record.table]]


def crc_of(data: bytes) -> int:
    """Return the CRC32-IEEE."""
    return crc_state(data) ^ 0xFFFFFFFF


class ColumnChange(_Columns):
    """Finds the updates that changed certain columns. A change of key or dispatch columns splits an update; others decide whether a filter
    keeps it."""

    def __init__(self, programs: Sequence[TableProgram], slots: Sequence[Sequence[int]]) -> None:
        """`slots` lists the columns for each program."""
        super().__init__(programs, slots)
        self._scratch2 = np.zeros(SCRATCH_BYTES, np.uint8)
        self._pairs = np.zeros((max([len(slots) for slots in self._slots], default=0) + 1, 3), np.int64)

    def changed(self, rows: RowArray) -> npt.NDArray[np.bool_]:
        """Return for each row whether it has both images and they differ in such a column. Raises MalformedRow."""
        out = np.zeros(len(rows), np.uint8)
        k.changed_rows(
            len(rows), rows.ctypes.data, self._tables.ctypes.data, TABLES_AT, self._scratch.ctypes.data, self._scratch2.ctypes.data,
            self._pairs.ctypes.data, out.ctypes.data,
        )  # fmt: skip
        for at in np.flatnonzero(out == ASK):
            out[at] = self.changed_plain(raw_record(rows, int(at)))
        return out.astype(np.bool_)

    def changed_plain(self, record: RawRecord) -> bool:
        """Return the same by the reference."""
        if not record.value or not record.old_value:
            return False
        new, old = self._cells(record, record.value), self._cells(record, record.old_value)
        return any_changed((column, before, after) for (column, after), (_, before) in zip(new, old, strict=True))


class KeyHash(_Columns):
    """Computes hashes for dispatch by columns: the XOR of the CRC32 of schema and table and of each column's name and text."""

    def __init__(self, programs: Sequence[TableProgram], columns: Sequence[Iterable[str]] | None = None) -> None:
        """`columns` has the names of the columns to hash for each program, () for none. The default is the handle key in table order.

        Raises KeyError for a column that rows do not have.
        """
        if columns is None:
            super().__init__(programs, [handle_slots(program) for program in programs])
            return
        super().__init__(programs, [[p.slot_of_name[name] for name in names] for p, names in zip(programs, columns, strict=True)])

    def hash(self, rows: RowArray) -> npt.NDArray[np.uint32]:
        """Return the hash of each row's new image, or of a delete's old image. Raises MalformedRow."""
        out = np.zeros(len(rows), np.uint32)
        at = 0
        while at < len(rows):
            at = int(
                k.hash_rows(
                    at, len(rows), rows.ctypes.data, self._tables.ctypes.data, TABLES_AT, self._scratch.ctypes.data, out.ctypes.data
                )
            )
            if at < len(rows):
                out[at] = self.hash_plain(raw_record(rows, at))
                at += 1
        return out

    def hash_plain(self, record: RawRecord) -> int:
        """Return the same by the reference."""
        program = self.programs[record.table]
        image = record.value or record.old_value
        if not image:
            place = f"table {program.name}, key {record.key.hex()}, commit_ts {record.commit_ts}"
            raise MalformedRow(f"{place}: neither a new nor an old value")
        return hash_cells(hash_seed(program.schema, program.table), self._cells(record, image))


def unique_change(programs: Sequence[TableProgram]) -> ColumnChange:
    """Return what finds the updates to split: those that change a column of the handle key or of any unique index."""
    return ColumnChange(programs, [unique_slots(program) for program in programs])


def unique_slots(program: TableProgram) -> list[int]:
    """Return the slots of the columns whose change splits an update. An integer handle never changes: it is the key."""
    wanted = program.info.unique_key_ids | set(program.info.handle_key_ids)
    own = program.info.pk_column
    return [slot for column, slot in program.slots.items() if column in wanted and (own is None or column != own.id)]


def handle_slots(program: TableProgram) -> list[int]:
    """Return the slots of the handle key's columns in table order."""
    return [program.slots[column] for column in program.info.handle_key_ids if column in program.slots]
