"""The base of the text protocols' row encoders: buffers, the kernel's calls, fallback to the reference, rows that are too large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidemill.errors import MessageTooLarge, NoHandleKey
from tidemill.kernels.messages.buffer import Buffer
from tidemill.kernels.messages.compress import HASH_BYTES
from tidemill.kernels.messages.row_encoder import RowEncoder, bytes_of
from tidemill.kernels.rows.layout import SCRATCH_BYTES, Outcome
from tidemill.kernels.rows.program import TableProgram, tables_of
from tidemill.kernels.rows.views import RawRecord, RowArray, raw_record
from tidemill.kernels.templates import layout as x
from tidemill.kernels.templates import template_kernel as k
from tidemill.kernels.templates.program import TextProgram, table_pairs
from tidemill.kernels.write.tables import TABLES
from tidemill.protocols.common.claim_check import Keep
from tidemill.protocols.common.compression import compressor
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.options import Compression, EncodingOptions, LargeMessageOption
from tidemill.records import RECORD_OVERHEAD

_FIRST_SIZE = 4 << 20
_COMPRESSIONS = {Compression.NONE: x.UNCOMPRESSED, Compression.SNAPPY: x.AS_SNAPPY, Compression.LZ4: x.AS_LZ4}


def no_clock() -> int:
    """Return 0. For protocols whose messages do not hold the time of encoding."""
    return 0


@dataclass(frozen=True, slots=True)
class Texts:
    """The facts about a protocol that the kernel needs besides its programs."""

    tables: npt.NDArray[np.uint8] = field(default_factory=lambda: TABLES)  # the constant tables whose short escapes JSON texts use
    quote: int = -1
    delimiter: bytes = b","
    escaped_delimiter: bytes = b"\\,"


class TextRowEncoder(RowEncoder):
    """Encodes one message for each row. `keep` stores large messages if the options say claim-check."""

    OUTCOME = x.ST_OUTCOME

    def __init__(
        self,
        programs: Sequence[TableProgram],
        options: EncodingOptions,
        compiled: Sequence[TextProgram],
        texts: Texts,
        clock: Callable[[], int] = no_clock,
        keep: Keep | None = None,
    ) -> None:
        super().__init__(x.STATE_WORDS)
        self.programs, self.options = list(programs), options
        self._compiled, self._texts, self._clock = list(compiled), texts, clock
        self._tables, self._caches = table_pairs(self.programs)
        self._constants = tables_of(self.programs)
        self._words = np.array([c.words for c in compiled] or [np.zeros(x.TEXT_WORDS, np.int64)], np.int64)
        self._values = Buffer(_FIRST_SIZE)
        self._scratch = np.zeros(2 * SCRATCH_BYTES, np.uint8)
        self._delimiter = np.frombuffer(texts.delimiter.ljust(32, b"\0") + texts.escaped_delimiter.ljust(64, b"\0"), np.uint8).copy()
        self._hashes = np.zeros(HASH_BYTES, np.uint8)
        self._compress = compressor(options.large_message.compression)
        self._keep = keep
        self._now = 0

    def value_of(self, record: RawRecord, now_ms: int) -> bytes:
        """Return the message value of a row by the reference. Raises MalformedRow."""
        raise NotImplementedError

    def key_of(self, record: RawRecord) -> bytes | None:
        """Return the message key of a row by the reference. None: the protocol has no keys. Raises MalformedRow."""
        return None

    def stand_in(self, record: RawRecord, now_ms: int, location: str) -> bytes:
        """Return the message value with only the handle key, and with the claim check's `location` if it is not empty."""
        raise self.too_large(record, self._limit + 1)

    def too_large(self, record: RawRecord, size: int) -> MessageTooLarge:
        """Return the error about a message of `size` bytes, record overhead included."""
        program = self.programs[record.table]
        return MessageTooLarge(
            f"a row of {program.name} takes {size} bytes as a message, max-message-bytes is {self.options.max_message_bytes}: "
            f"key {record.key.hex()}, start_ts {record.start_ts}, commit_ts {record.commit_ts}",
            hint="raise max-message-bytes of the sink (and max.message.bytes of the topic), or set large-message-handle-option",
        )

    def _packed(self, value: bytes) -> bytes:
        return self._compress(value) if self._compress else value

    def _fitting(self, record: RawRecord) -> tuple[bytes | None, bytes]:
        """Return the message's key and value by the reference, or its replacement if it is larger than a message may be."""
        key = self.key_of(record)
        key = None if key is None else self._packed(key)
        whole = self._packed(self.value_of(record, self._now))
        size = len(key or b"") + len(whole) + RECORD_OVERHEAD
        if size <= self._limit:
            return key, whole
        if self.options.large_message.option is LargeMessageOption.NONE:
            raise self.too_large(record, size)
        if not self.programs[record.table].info.handle_key_ids:
            raise NoHandleKey(
                f"a row of {self.programs[record.table].name} takes {size} bytes as a message, and the table has no handle key that could "
                f"stand for it: key {record.key.hex()}, start_ts {record.start_ts}, commit_ts {record.commit_ts}"
            )
        location = self._keep(b"", whole) if self._keep is not None else ""
        value = self._packed(self.stand_in(record, self._now, location))
        if len(value) + RECORD_OVERHEAD > self._limit:
            raise self.too_large(record, len(value) + RECORD_OVERHEAD)
        return key, value

    @property
    def _limit(self) -> int:
        return self.options.max_message_bytes

    def _begin(self, groups: npt.NDArray[np.int32]) -> None:
        state = self._state
        self._now = self._clock()
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

    def _run(self, at: int, rows: RowArray) -> int:
        state = self._state
        state[x.ST_VALUES], state[x.ST_VALUES_SIZE] = self._values.address, self._values.size
        tables, words, scratch = self._tables.ctypes.data, self._words.ctypes.data, self._scratch.ctypes.data
        return int(k.text_rows(at, len(rows), rows.ctypes.data, tables, words, self._constants, scratch, state.ctypes.data))

    def _finish(self, count: int) -> Messages:
        messages = self._messages[:count]
        messages["value"] += np.uint64(self._values.address)
        messages["key"][messages["key_len"] >= 0] += np.uint64(self._values.address)
        return Messages(messages, (self._values.array,))

    def _grow(self, rows: RowArray, at: int) -> None:
        state, words = self._state, self._words[rows[at]["table"]]
        need = 2 * int(words[x.X_FIXED]) + int(words[x.X_ROOM]) * (bytes_of(rows, at) + 2) + max(int(state[x.ST_READY_LEN]), 0) + 256
        if state[x.ST_COMPRESSION]:
            need *= 3
        used = int(state[x.ST_VALUES_USED])
        self._values.grow(used + need, used)

    def _by_reference(self, rows: RowArray, at: int, outcome: Outcome) -> int:
        self.slow_rows += outcome is Outcome.UNKNOWN
        key, value = self._fitting(raw_record(rows, at))
        ready = np.frombuffer((key or b"") + value, np.uint8)
        self._state[x.ST_READY], self._state[x.ST_READY_LEN] = ready.ctypes.data, len(ready)
        self._state[x.ST_READY_KEY_LEN] = -1 if key is None else len(key)
        return self._append(rows, at)
