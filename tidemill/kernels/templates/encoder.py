"""What the row encoders of the text protocols share: buffers, the kernel's calls, hand-backs to the reference, rows that are too large."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidemill.errors import MessageTooLarge, NoHandleKey
from tidemill.kernels.messages.buffer import Buffer
from tidemill.kernels.messages.compress import HASH_BYTES
from tidemill.kernels.rows.layout import SCRATCH_BYTES, Outcome
from tidemill.kernels.rows.program import TableProgram, tables_of
from tidemill.kernels.rows.views import RawRecord, RowArray, raw_record
from tidemill.kernels.templates import layout as x
from tidemill.kernels.templates import template_kernel as k
from tidemill.kernels.templates.program import TextProgram, table_pairs
from tidemill.kernels.write.tables import TABLES
from tidemill.protocols.common.claim_check import Keep
from tidemill.protocols.common.compression import compressor
from tidemill.protocols.common.messages import Messages, no_messages
from tidemill.protocols.options import Compression, EncodingOptions, LargeMessageOption
from tidemill.records import MESSAGE

_FIRST_SIZE = 4 << 20
_COMPRESSIONS = {Compression.NONE: x.UNCOMPRESSED, Compression.SNAPPY: x.AS_SNAPPY, Compression.LZ4: x.AS_LZ4}


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Texts:
    """What the kernel needs to know of a protocol besides its programs."""

    tables: npt.NDArray[np.uint8] = field(default_factory=lambda: TABLES)  # the constant tables whose short escapes JSON texts use
    quote: int = -1
    delimiter: bytes = b","
    escaped_delimiter: bytes = b"\\,"


class TextRowEncoder:
    """Encodes chunks of rows of any number of tables, one message a row, without keys. `slow_rows` counts the reference's rows.

    Not for several threads at once; the messages of a call are valid until the next one. `keep` stores large messages
    where the options say claim-check; without it the handle key stands for them.
    """

    def __init__(
        self,
        programs: Sequence[TableProgram],
        options: EncodingOptions,
        compiled: Sequence[TextProgram],
        texts: Texts,
        clock: Callable[[], int] = wall_clock_ms,
        keep: Keep | None = None,
    ) -> None:
        self.programs, self.options, self.slow_rows = list(programs), options, 0
        self._compiled, self._texts, self._clock = list(compiled), texts, clock
        self._tables, self._caches = table_pairs(self.programs)
        self._constants = tables_of(self.programs)
        self._words = np.array([c.words for c in compiled] or [np.zeros(x.TEXT_WORDS, np.int64)], np.int64)
        self._values = Buffer(_FIRST_SIZE)
        self._messages = np.empty(0, MESSAGE)
        self._scratch = np.zeros(2 * SCRATCH_BYTES, np.uint8)
        self._delimiter = np.frombuffer(texts.delimiter.ljust(32, b"\0") + texts.escaped_delimiter.ljust(64, b"\0"), np.uint8).copy()
        self._state = np.zeros(x.STATE_WORDS, np.int64)
        self._hashes = np.zeros(HASH_BYTES, np.uint8)
        self._compress = compressor(options.large_message.compression)
        self._keep = keep
        self._now = 0

    def value_of(self, record: RawRecord, now_ms: int) -> bytes:
        """The message value of a row by the reference. Raises MalformedRow."""
        raise NotImplementedError

    def stand_in(self, record: RawRecord, now_ms: int, location: str) -> bytes:
        """The message value with the handle key alone, saying where the whole is kept if `location` is not empty."""
        raise self.too_large(record, self._limit + 1)

    def too_large(self, record: RawRecord, size: int) -> MessageTooLarge:
        """The error about a message of `size` bytes, record overhead included."""
        program = self.programs[record.table]
        return MessageTooLarge(
            f"a row of {program.name} takes {size} bytes as a message, max-message-bytes is {self.options.max_message_bytes}: "
            f"key {record.key.hex()}, start_ts {record.start_ts}, commit_ts {record.commit_ts}",
            hint="raise max-message-bytes of the sink (and max.message.bytes of the topic), or set large-message-handle-option",
        )

    def encode(self, rows: RowArray, groups: npt.NDArray[np.int32]) -> Messages:
        """Messages of rows that are grouped by target; `groups` has the first row of each group, and at the end the number of rows.

        Raises MalformedRow, NoHandleKey and MessageTooLarge, all naming the row, and SinkUnavailable where claim checks cannot be stored.
        """
        count = len(rows)
        if count == 0:
            return no_messages()
        if groups[-1] != count or not rows.flags.c_contiguous or rows.dtype.itemsize != k.ROW_BYTES:
            raise ValueError(f"{count} rows, but the groups end at {groups[-1]}")
        if len(self._messages) < count:
            self._messages = np.empty(max(count, 2 * len(self._messages)), MESSAGE)
        state = self._begin()
        at = 0
        while True:
            at = self._run(at, rows)
            match state[x.ST_OUTCOME]:
                case Outcome.DONE:
                    return self._finish(count)
                case Outcome.GROW:
                    self._grow(rows, at)
                case _:
                    self.slow_rows += state[x.ST_OUTCOME] == Outcome.UNKNOWN
                    at = self._append(rows, at, self._fitting(raw_record(rows, at)))

    def _packed(self, value: bytes) -> bytes:
        return self._compress(value) if self._compress else value

    def _fitting(self, record: RawRecord) -> bytes:
        """The message value by the reference, or what stands for it where it is larger than a message may be."""
        whole = self._packed(self.value_of(record, self._now))
        size = len(whole) + x.RECORD_OVERHEAD
        if size <= self._limit:
            return whole
        if self.options.large_message.option is LargeMessageOption.NONE:
            raise self.too_large(record, size)
        if not self.programs[record.table].info.handle_key_columns:
            raise NoHandleKey(
                f"a row of {self.programs[record.table].name} takes {size} bytes as a message, and the table has no handle key that could "
                f"stand for it: key {record.key.hex()}, start_ts {record.start_ts}, commit_ts {record.commit_ts}"
            )
        location = self._keep(b"", whole) if self._keep is not None else ""
        value = self._packed(self.stand_in(record, self._now, location))
        if len(value) + x.RECORD_OVERHEAD > self._limit:
            raise self.too_large(record, len(value) + x.RECORD_OVERHEAD)
        return value

    @property
    def _limit(self) -> int:
        return self.options.max_message_bytes

    def _begin(self) -> npt.NDArray[np.int64]:
        state = self._state
        self._now = self._clock()
        state[:] = 0
        state[x.ST_MESSAGES] = self._messages.ctypes.data
        state[x.ST_READY_LEN] = -1
        state[x.ST_MAX_BYTES] = self._limit
        state[x.ST_NOW] = self._now
        state[x.ST_COMPRESSION] = _COMPRESSIONS[self.options.large_message.compression]
        state[x.ST_HASHES] = self._hashes.ctypes.data
        state[x.ST_TEXT_TABLES] = self._texts.tables.ctypes.data
        state[x.ST_QUOTE] = self._texts.quote
        state[x.ST_DELIMITER], state[x.ST_DELIMITER_LEN] = self._delimiter.ctypes.data, len(self._texts.delimiter)
        state[x.ST_ESCAPED_LEN] = len(self._texts.escaped_delimiter)
        return state

    def _run(self, at: int, rows: RowArray) -> int:
        state = self._state
        state[x.ST_VALUES], state[x.ST_VALUES_SIZE] = self._values.address, self._values.size
        tables, words, scratch = self._tables.ctypes.data, self._words.ctypes.data, self._scratch.ctypes.data
        return int(k.text_rows(at, len(rows), rows.ctypes.data, tables, words, self._constants, scratch, state.ctypes.data))

    def _finish(self, count: int) -> Messages:
        """The messages, offsets made addresses."""
        messages = self._messages[:count]
        messages["value"] += np.uint64(self._values.address)
        return Messages(messages, (self._values.array,))

    def _grow(self, rows: RowArray, at: int) -> None:
        row, state = rows[at], self._state
        in_bytes = max(int(row["value_len"]), 0) + max(int(row["old_len"]), 0) + 2 * int(row["key_len"]) + 2
        words = self._words[row["table"]]
        need = 2 * int(words[x.X_FIXED]) + int(words[x.X_ROOM]) * in_bytes + max(int(state[x.ST_READY_LEN]), 0) + 256
        if state[x.ST_COMPRESSION]:
            need *= 3
        used = int(state[x.ST_VALUES_USED])
        self._values.grow(used + need, used)

    def _append(self, rows: RowArray, at: int, value: bytes) -> int:
        """Let the kernel append a message that the reference made."""
        ready = np.frombuffer(value, np.uint8)
        state = self._state
        state[x.ST_READY], state[x.ST_READY_LEN] = ready.ctypes.data, len(value)
        while True:
            done = self._run(at, rows[: at + 1])
            if state[x.ST_OUTCOME] != Outcome.GROW:
                return done
            self._grow(rows, at)
