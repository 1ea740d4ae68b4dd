"""ROW records → packets of protocol canal: the kernel, its buffer, and the reference for rows that it hands back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill.errors import MessageTooLarge
from tidemill.kernels.canal import layout as x
from tidemill.kernels.canal import packet_kernel as k
from tidemill.kernels.canal.program import CanalProgram
from tidemill.kernels.messages.buffer import Buffer
from tidemill.kernels.messages.row_encoder import RowEncoder, bytes_of
from tidemill.kernels.rows.layout import SCRATCH_BYTES, Outcome
from tidemill.kernels.rows.program import TableProgram, tables_of
from tidemill.kernels.rows.views import RawRecord, RowArray, raw_record
from tidemill.kernels.templates.program import table_pairs
from tidemill.protocols.canal.encode import MAX_ROWS, PACKET_ROOM, CanalTable, item_size
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.records import RECORD_OVERHEAD

_FIRST_SIZE = 4 << 20


class CanalRowEncoder(RowEncoder):
    """Up to 2048 rows a message, without keys."""

    OUTCOME = x.ST_OUTCOME

    def __init__(self, programs: Sequence[TableProgram], options: EncodingOptions | None = None) -> None:
        super().__init__(x.STATE_WORDS)
        self.programs, self.options = list(programs), options or EncodingOptions(MessageFormat.CANAL)
        self.tables = [CanalTable(p.schema, p.table, p.info, p.zone, self.options, p.json) for p in programs]
        self._compiled = [CanalProgram(program, table) for program, table in zip(self.programs, self.tables, strict=True)]
        self._tables, self._caches = table_pairs(self.programs)
        self._constants = tables_of(self.programs)
        self._words = np.array([c.words for c in self._compiled] or [np.zeros(x.TEXT_WORDS, np.int64)], np.int64)
        self._values = Buffer(_FIRST_SIZE)
        self._scratch = np.zeros(2 * SCRATCH_BYTES, np.uint8)

    def entry_of(self, record: RawRecord) -> bytes:
        """The entry of a row by the reference. Raises MalformedRow."""
        return self.tables[record.table].row(record.key, record.value, record.old_value, record.commit_ts)

    def _begin(self, groups: npt.NDArray[np.int32]) -> None:
        state = self._state
        state[x.ST_MESSAGES], state[x.ST_GROUPS] = self._messages.ctypes.data, groups.ctypes.data
        state[x.ST_READY_LEN] = -1
        state[x.ST_MAX_BYTES], state[x.ST_MAX_ROWS] = self.options.max_message_bytes, MAX_ROWS

    def _run(self, at: int, rows: RowArray) -> int:
        state = self._state
        state[x.ST_VALUES], state[x.ST_VALUES_SIZE] = self._values.address, self._values.size
        tables, words, scratch = self._tables.ctypes.data, self._words.ctypes.data, self._scratch.ctypes.data
        return int(k.canal_rows(at, len(rows), rows.ctypes.data, tables, words, self._constants, scratch, state.ctypes.data))

    def _finish(self, count: int) -> Messages:
        messages = self._messages[: int(self._state[x.ST_MESSAGE_COUNT])]
        messages["value"] += np.uint64(self._values.address)
        return Messages(messages, (self._values.array,))

    def _grow(self, rows: RowArray, at: int) -> None:
        state, words = self._state, self._words[rows[at]["table"]]
        need = 2 * int(words[x.X_FIXED]) + int(words[x.X_ROOM]) * (bytes_of(rows, at) + 2) + max(int(state[x.ST_READY_LEN]), 0) + 256
        used = int(state[x.ST_VALUES_USED])
        self._values.grow(used + need, used)

    def _by_reference(self, rows: RowArray, at: int, outcome: Outcome) -> int:
        record = raw_record(rows, at)
        entry = self.entry_of(record)
        size = RECORD_OVERHEAD + PACKET_ROOM + item_size(len(entry))
        if size > self.options.max_message_bytes:
            raise MessageTooLarge(
                f"a row of {self.programs[record.table].name} takes {size} bytes as a message, max-message-bytes is "
                f"{self.options.max_message_bytes}: key {record.key.hex()}, start_ts {record.start_ts}, commit_ts {record.commit_ts}",
                hint="raise max-message-bytes of the sink (and max.message.bytes of the topic)",
            )
        self.slow_rows += outcome is Outcome.UNKNOWN
        ready = np.frombuffer(entry, np.uint8)
        self._state[x.ST_READY], self._state[x.ST_READY_LEN] = ready.ctypes.data, len(entry)
        return self._append(rows, at)
