"""ROW records → Avro messages: the kernel's calls, its buffer, and the fallback to the reference."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill.errors import MessageTooLarge
from tidemill.kernels.avro import rows as k
from tidemill.kernels.avro.layout import A_FIXED, A_ROOM, AVRO_WORDS
from tidemill.kernels.avro.program import AvroProgram
from tidemill.kernels.messages.buffer import Buffer
from tidemill.kernels.messages.row_encoder import RowEncoder, bytes_of
from tidemill.kernels.rows.layout import SCRATCH_BYTES, Outcome
from tidemill.kernels.rows.program import TableProgram, tables_of
from tidemill.kernels.rows.views import RawRecord, RowArray, raw_record
from tidemill.kernels.templates.program import table_pairs
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.options import EncodingOptions
from tidemill.records import RECORD_OVERHEAD

_FIRST_SIZE = 4 << 20


class AvroMessages(RowEncoder):
    """Encodes one message for each row, key and value one after the other in a buffer. `words` are the programs'."""

    OUTCOME = k.ST_OUTCOME

    def __init__(self, programs: Sequence[TableProgram], options: EncodingOptions, words: Sequence[npt.NDArray[np.int64]]) -> None:
        super().__init__(k.STATE_WORDS)
        self._kept = list(programs)  # they own the memory that the words point to
        self.options = options
        self._constants = tables_of(programs)
        self._tables, self._caches = table_pairs(programs)
        self._words = np.array(words or [np.zeros(AVRO_WORDS, np.int64)], np.int64)
        self._out = Buffer(_FIRST_SIZE)
        self._scratch = np.zeros(2 * SCRATCH_BYTES, np.uint8)

    @abstractmethod
    def _message(self, record: RawRecord) -> tuple[bytes | None, bytes | None]:
        """Return key and value of a row by the reference. Raises MalformedRow."""

    def _begin(self, groups: npt.NDArray[np.int32]) -> None:
        state = self._state
        state[k.ST_MESSAGES], state[k.ST_MAX_BYTES] = self._messages.ctypes.data, self.options.max_message_bytes

    def _run(self, at: int, rows: RowArray) -> int:
        state = self._state
        state[k.ST_OUT], state[k.ST_OUT_SIZE] = self._out.address, self._out.size
        tables, words, scratch = self._tables.ctypes.data, self._words.ctypes.data, self._scratch.ctypes.data
        return int(k.avro_rows(at, len(rows), rows.ctypes.data, tables, words, self._constants, scratch, state.ctypes.data))

    def _finish(self, count: int) -> Messages:
        messages = self._messages[:count]
        messages["key"] += np.uint64(self._out.address)
        messages["value"] += np.uint64(self._out.address)
        return Messages(messages, (self._out.array,))

    def _grow(self, rows: RowArray, at: int) -> None:
        state = self._state
        ready = max(int(state[k.ST_READY_KEY_LEN]), 0) + max(int(state[k.ST_READY_VALUE_LEN]), 0)
        used, words = int(state[k.ST_OUT_USED]), self._words[rows[at]["table"]]
        room = 2 * int(words[A_FIXED]) + int(words[A_ROOM]) * bytes_of(rows, at)
        self._out.grow(used + room + ready + k.READ_AHEAD, used)

    def _by_reference(self, rows: RowArray, at: int, outcome: Outcome) -> int:
        if outcome is Outcome.TOO_LARGE:
            raise self._too_large(rows, at)
        key, value = self._message(raw_record(rows, at))
        self.slow_rows += 1
        state = self._state
        # numpy arrays, because even empty ones have an address
        ready = [np.frombuffer(part or b"", np.uint8) for part in (key, value)]
        state[k.ST_READY], state[k.ST_READY_KEY], state[k.ST_READY_VALUE] = 1, ready[0].ctypes.data, ready[1].ctypes.data
        state[k.ST_READY_KEY_LEN], state[k.ST_READY_VALUE_LEN] = len(ready[0]), len(ready[1])
        done = self._append(rows, at)
        if state[k.ST_OUTCOME] == Outcome.TOO_LARGE:
            raise self._too_large(rows, at)
        return done

    def _too_large(self, rows: RowArray, at: int) -> MessageTooLarge:
        record = raw_record(rows, at)
        key, value = self._message(record)
        size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD
        return MessageTooLarge(
            f"a row of {self._kept[record.table].name} takes {size} bytes as an Avro message, max-message-bytes is "
            f"{self.options.max_message_bytes}: key {record.key.hex()}, start_ts {record.start_ts}, commit_ts {record.commit_ts}",
            hint="raise max-message-bytes of the sink (and max.message.bytes of the topic)",
        )


class AvroRowEncoder(AvroMessages):
    """Encodes one message for each row. `schema_ids` are those of each program's key (-1: none) and value."""

    def __init__(self, programs: Sequence[TableProgram], options: EncodingOptions, schema_ids: Sequence[tuple[int, int]]) -> None:
        self.programs = [AvroProgram.of(program, options, ids) for program, ids in zip(programs, schema_ids, strict=True)]
        super().__init__(programs, options, [program.words for program in self.programs])

    def take_corrupted(self) -> tuple[int, tuple[str, ...]]:
        """Return how many rows had a wrong checksum since the last call, and names of some. All such rows fall back to the reference."""
        count, names = 0, list[str]()
        for table in (program.avro for program in self.programs):
            count += table.corrupted_rows
            names += table.corrupted
            table.corrupted_rows, table.corrupted = 0, []
        return count, tuple(names)

    def _message(self, record: RawRecord) -> tuple[bytes | None, bytes | None]:
        return self.programs[record.table].avro.row(record.key, record.value, record.old_value, record.commit_ts)
