"""ROW records → Open Protocol messages: the kernel's calls, its buffers, and the fallback to the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill.kernels.messages.buffer import Buffer
from tidemill.kernels.messages.compress import HASH_BYTES
from tidemill.kernels.messages.row_encoder import RowEncoder, bytes_of
from tidemill.kernels.open import open_kernel as k
from tidemill.kernels.rows.layout import SCRATCH_BYTES, T_EXTRA, T_FIXED, Outcome
from tidemill.kernels.rows.program import TableProgram, table_words, tables_of
from tidemill.kernels.rows.views import RowArray, raw_record
from tidemill.protocols.common.claim_check import Keep
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.open.encode import OpenTable
from tidemill.protocols.open.fit import Change, Fitter
from tidemill.protocols.options import Compression, EncodingOptions, LargeMessageOption

_FIRST_SIZE = 1 << 20


def mode_bits(options: EncodingOptions) -> int:
    """Return the kernel's mode bits for the options."""
    return (
        (0 if options.output_old_value else k.MODE_NO_OLD)
        | (k.MODE_UPDATED if options.only_output_updated_columns else 0)
        | (k.MODE_HANDLE_DELETES if options.delete_only_handle_key_columns else 0)
        | (k.MODE_HANDLE_LARGE if options.large_message.option is LargeMessageOption.HANDLE_KEY_ONLY else 0)
        | (k.MODE_SNAPPY if options.large_message.compression is Compression.SNAPPY else 0)
        | (k.MODE_LZ4 if options.large_message.compression is Compression.LZ4 else 0)
    )


class OpenRowEncoder(RowEncoder):
    """Encodes batched messages. `keep` stores large messages if the options say claim-check. Raises ConfigError for conflicting options."""

    OUTCOME = k.ST_OUTCOME

    def __init__(self, programs: Sequence[TableProgram], options: EncodingOptions | None = None, keep: Keep | None = None) -> None:
        super().__init__(k.STATE_WORDS)
        self.programs = list(programs)
        self.options = options or EncodingOptions()
        self._fitter = Fitter(self.options, keep)
        self._mode = mode_bits(self.options)
        self._plain: dict[int, OpenTable] = {}  # of tables with rows that the kernel leaves to it
        self._tables = table_words(self.programs)
        self._constants = tables_of(self.programs)
        self._extra = self._handle_programs()
        self._marks = np.zeros(k.MARK_BYTES * max([len(p.columns) for p in self.programs], default=0), np.uint8)
        self._hashes = np.zeros(HASH_BYTES, np.uint8)
        self._keys, self._values = Buffer(_FIRST_SIZE), Buffer(4 * _FIRST_SIZE)
        self._scratch = np.zeros(SCRATCH_BYTES, np.uint8)

    def _handle_programs(self) -> npt.NDArray[np.int64]:
        """Return for each table the program of its handle key's columns, if the options need it."""
        extra = np.zeros((max(len(self.programs), 1), k.X_WORDS), np.int64)
        if self._mode & (k.MODE_HANDLE_DELETES | k.MODE_HANDLE_LARGE):
            for words, program in zip(extra, self.programs, strict=False):
                columns = [column for column in program.open.in_name_order if program.open.is_handle(column)]
                words[: k.X_WORDS - 1] = program.open_program(columns)[:3] if columns else 0
        if self.programs:
            self._tables[:, T_EXTRA] = extra.ctypes.data + extra.strides[0] * np.arange(len(self.programs))
        return extra

    def _begin(self, groups: npt.NDArray[np.int32]) -> None:
        state = self._state
        state[k.ST_MESSAGES] = self._messages.ctypes.data
        state[k.ST_GROUPS] = groups.ctypes.data
        state[k.ST_READY_KEY_LEN] = -1
        state[k.ST_MAX_BATCH] = self.options.max_batch_size
        state[k.ST_MAX_BYTES] = self.options.max_message_bytes
        state[k.ST_MODE] = self._mode
        state[k.ST_MARKS], state[k.ST_HASHES] = self._marks.ctypes.data, self._hashes.ctypes.data

    def _run(self, at: int, rows: RowArray) -> int:
        state = self._state
        state[k.ST_KEYS], state[k.ST_KEYS_SIZE] = self._keys.address, self._keys.size
        state[k.ST_VALUES], state[k.ST_VALUES_SIZE] = self._values.address, self._values.size
        tables, scratch = self._tables.ctypes.data, self._scratch.ctypes.data
        return int(k.open_rows(at, len(rows), rows.ctypes.data, tables, self._constants, scratch, state.ctypes.data))

    def _finish(self, count: int) -> Messages:
        messages = self._messages[: int(self._state[k.ST_MESSAGE_COUNT])]
        messages["key"] += np.uint64(self._keys.address)
        messages["value"] += np.uint64(self._values.address)
        return Messages(messages, (self._keys.array, self._values.array))

    def _grow(self, rows: RowArray, at: int) -> None:
        row, state = rows[at], self._state
        names = len(self.programs[int(row["table"])].open.key_names)
        ready = max(int(state[k.ST_READY_KEY_LEN]), 0) + int(state[k.ST_READY_VALUE_LEN])
        need = 8 * int(self._tables[row["table"], T_FIXED]) + 32 * bytes_of(rows, at) + ready + 256
        used_keys, used_values = int(state[k.ST_KEYS_USED]), int(state[k.ST_VALUES_USED])
        self._keys.grow(used_keys + k.KEY_ROOM + names + ready + 256, used_keys)
        self._values.grow(used_values + need, used_values)

    def _reference(self, table: int) -> OpenTable:
        if table not in self._plain:
            p = self.programs[table]
            self._plain[table] = OpenTable(p.schema, p.table, p.info, p.zone, self.options, p.json)
        return self._plain[table]

    def _by_reference(self, rows: RowArray, at: int, outcome: Outcome) -> int:
        record = raw_record(rows, at)
        change = Change(record.key, record.value, record.old_value, record.start_ts, record.commit_ts)
        key, value = self._fitter.event(self._reference(record.table), change)
        self.slow_rows += 1
        # numpy arrays, because even empty ones have an address
        ready_key, ready_value = np.frombuffer(key, np.uint8), np.frombuffer(value, np.uint8)
        state = self._state
        state[k.ST_READY_KEY], state[k.ST_READY_KEY_LEN] = ready_key.ctypes.data, len(key)
        state[k.ST_READY_VALUE], state[k.ST_READY_VALUE_LEN] = ready_value.ctypes.data, len(value)
        return self._append(rows, at)
