"""ROW records → Debezium's messages in Avro."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tidemill.kernels.avro.encoder import AvroMessages
from tidemill.kernels.avro.rows import ST_NOW
from tidemill.kernels.debezium_avro.layout import E_FIXED
from tidemill.kernels.debezium_avro.program import DebeziumAvroProgram, envelope_words
from tidemill.kernels.debezium_avro.rows import envelope_rows
from tidemill.kernels.messages.row_encoder import bytes_of
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, RowArray
from tidemill.kernels.templates.program import table_pairs
from tidemill.protocols.options import EncodingOptions

_IMAGES = 2


class DebeziumAvroRowEncoder(AvroMessages):
    """Encodes one message for each row. `schema_ids` are those of each program's key (-1: none) and value; `clock` gives milliseconds."""

    def __init__(
        self,
        programs: Sequence[TableProgram],
        options: EncodingOptions,
        schema_ids: Sequence[tuple[int, int]],
        *,
        clock: Callable[[], int],
    ) -> None:
        super().__init__(programs, options, _IMAGES)
        self.programs = [DebeziumAvroProgram.of(program, options, ids) for program, ids in zip(programs, schema_ids, strict=True)]
        self._tables, self._caches = table_pairs(programs)
        self._envelopes = envelope_words(self.programs)
        self._clock, self._now = clock, 0

    def _message(self, record: RawRecord) -> tuple[bytes | None, bytes | None]:
        reference = self.programs[record.table].reference
        return reference.row(record.key, record.value, record.old_value, record.start_ts, record.commit_ts, self._now)

    def _begin(self, groups: npt.NDArray[np.int32]) -> None:
        super()._begin(groups)
        self._now = self._clock()
        self._state[ST_NOW] = self._now

    def _call(self, at: int, rows: RowArray) -> int:
        tables, words, scratch = self._tables.ctypes.data, self._envelopes.ctypes.data, self._scratch.ctypes.data
        return int(envelope_rows(at, len(rows), rows.ctypes.data, tables, words, self._constants, scratch, self._state.ctypes.data))

    def _room(self, rows: RowArray, at: int) -> int:
        return 2 * int(self._envelopes[rows[at]["table"], E_FIXED]) + 32 * bytes_of(rows, at)
