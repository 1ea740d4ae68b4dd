"""ROW records in commit order → entries for Canal's clients: the kernel, its buffers, and the reference for rows that it hands back."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill.kernels.canal import entry_kernel as k
from tidemill.kernels.canal import entry_layout as e
from tidemill.kernels.canal import layout as x
from tidemill.kernels.canal.entry_program import EntryProgram
from tidemill.kernels.messages.buffer import Buffer
from tidemill.kernels.messages.row_encoder import bytes_of
from tidemill.kernels.rows.layout import SCRATCH_BYTES, Outcome
from tidemill.kernels.rows.program import TableProgram, tables_of
from tidemill.kernels.rows.views import RowArray, raw_record
from tidemill.kernels.templates.program import table_pairs
from tidemill.protocols.canal.codes import EntryType
from tidemill.protocols.canal.entries import ENTRY_BYTES, ENTRY_ROWS, EntryTable, Made
from tidemill.records import ROW

_FIRST_SIZE = 4 << 20


class Entries:
    """Entries of one call, in order. `table` is an ENTRY array whose addresses point into `buffer`, which the next call uses again."""

    __slots__ = ("buffer", "table")

    def __init__(self, table: npt.NDArray[np.void], buffer: object) -> None:
        self.table, self.buffer = table, buffer

    def __len__(self) -> int:
        return len(self.table)

    def to_list(self) -> list[Made]:
        """Copies of all entries."""
        return [
            Made(EntryType(int(row["type"])), int(row["table"]), int(row["rows"]), ctypes.string_at(int(row["address"]), int(row["size"])))
            for row in self.table
        ]


class CanalEntryEncoder:
    """Writes chunks of rows as entries. `slow_rows` counts the rows that the reference had to do.

    A transaction may go on in the next chunk: its TRANSACTIONEND comes when rows of another one do, or with `last`. Not for several
    threads at once.
    """

    def __init__(self, programs: Sequence[TableProgram], server_id: int, *, member_names: bool = False) -> None:
        self.slow_rows = 0
        self.programs = list(programs)
        self.tables = [EntryTable(p.schema, p.table, p.info, p.zone, p.json, member_names=member_names) for p in programs]
        self._compiled = [EntryProgram(program, table) for program, table in zip(self.programs, self.tables, strict=True)]
        self._tables, self._caches = table_pairs(self.programs)
        self._constants = tables_of(self.programs)
        self._words = np.array([c.words for c in self._compiled] or [np.zeros(x.TEXT_WORDS, np.int64)], np.int64)
        self._out = Buffer(_FIRST_SIZE)
        self._records = np.empty(0, e.ENTRY)
        self._scratch = np.zeros(2 * SCRATCH_BYTES, np.uint8)
        self._head = np.zeros(2048 + int(self._words[:, e.X_NAMES_LEN].max()), np.uint8)
        self._state = np.zeros(e.STATE_WORDS, np.int64)
        self._state[e.ST_SERVER_ID] = server_id
        self._state[e.ST_MAX_ROWS], self._state[e.ST_MAX_BYTES] = ENTRY_ROWS, ENTRY_BYTES
        self._state[e.ST_AHEAD] = 2
        self._state[e.ST_HEAD] = self._head.ctypes.data

    def begin(self) -> None:
        """Forget a transaction that has begun."""
        self._state[e.ST_OPEN] = 0

    def carry_on(self, before: CanalEntryEncoder) -> None:
        """Go on with the transaction that has begun in another encoder."""
        open_words = [e.ST_OPEN, e.ST_COMMIT, e.ST_START, e.ST_PLACE]
        self._state[open_words] = before._state[open_words]

    def encode(self, rows: RowArray, *, last: bool = False) -> Entries:
        """The entries of rows that lie in commit order, those of a transaction behind each other. `last`: their transaction ends.

        Raises MalformedRow naming the row; the encoder is of no use after that.
        """
        count = len(rows)
        if not rows.flags.c_contiguous or rows.dtype.itemsize != ROW.itemsize:
            raise ValueError("rows are ROW records behind each other")
        if len(self._records) < 3 * count + 2:
            self._records = np.empty(2 * (3 * count + 2), e.ENTRY)
        state = self._state
        state[e.ST_OUT_USED] = state[e.ST_RECORD_COUNT] = 0
        state[e.ST_RECORDS], state[e.ST_READY_LEN], state[e.ST_TABLE] = self._records.ctypes.data, -1, -1
        closing = e.CLOSE_TRANSACTION if last else e.CLOSE_ENTRY
        at = 0
        while True:
            at = self._run(at, rows, closing)
            match Outcome(state[e.ST_OUTCOME]):
                case Outcome.DONE:
                    return self._finish()
                case Outcome.GROW:
                    self._grow(rows, at)
                case _:
                    at = self._by_reference(rows, at)
                    if at == count:
                        self._run(at, rows, closing)
                        return self._finish()

    def _finish(self) -> Entries:
        records = self._records[: int(self._state[e.ST_RECORD_COUNT])]
        records["address"] += np.uint64(self._out.address)
        return Entries(records, self._out.array)

    def _run(self, at: int, rows: RowArray, closing: int) -> int:
        state = self._state
        state[e.ST_OUT], state[e.ST_OUT_SIZE], state[e.ST_CLOSING] = self._out.address, self._out.size, closing
        tables, words, scratch = self._tables.ctypes.data, self._words.ctypes.data, self._scratch.ctypes.data
        return int(k.entry_rows(at, len(rows), rows.ctypes.data, tables, words, self._constants, scratch, state.ctypes.data))

    def _grow(self, rows: RowArray, at: int) -> None:
        state, words = self._state, self._words[rows[at]["table"]]
        heads = 8 * e.HEAD_ROOM + 2 * int(words[e.X_NAMES_LEN])
        need = 2 * int(words[x.X_FIXED]) + int(words[x.X_ROOM]) * (bytes_of(rows, at) + 2) + max(int(state[e.ST_READY_LEN]), 0) + heads
        used = int(state[e.ST_OUT_USED])
        self._out.grow(used + need, used)

    def _by_reference(self, rows: RowArray, at: int) -> int:
        record = raw_record(rows, at)
        _, made = self.tables[record.table].row(record.key, record.value, record.old_value, record.commit_ts)
        self.slow_rows += 1
        data = made.SerializeToString()
        ready = np.frombuffer(data, np.uint8)
        self._state[e.ST_READY], self._state[e.ST_READY_LEN] = ready.ctypes.data, len(data)
        one = rows[: at + 1]
        while True:
            done = self._run(at, one, e.KEEP)
            if self._state[e.ST_OUTCOME] != Outcome.GROW:
                return done
            self._grow(rows, at)
