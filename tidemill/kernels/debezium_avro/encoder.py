"""ROW records → Debezium's messages in Avro."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tidemill.kernels.avro.encoder import AvroMessages
from tidemill.kernels.avro.rows import ST_NOW
from tidemill.kernels.debezium_avro.program import DebeziumAvroProgram
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord
from tidemill.protocols.options import EncodingOptions


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
        self.programs = [DebeziumAvroProgram.of(program, options, ids) for program, ids in zip(programs, schema_ids, strict=True)]
        super().__init__(programs, options, [program.words for program in self.programs])
        self._clock, self._now = clock, 0

    def _message(self, record: RawRecord) -> tuple[bytes | None, bytes | None]:
        reference = self.programs[record.table].reference
        return reference.row(record.key, record.value, record.old_value, record.start_ts, record.commit_ts, self._now)

    def _begin(self, groups: npt.NDArray[np.int32]) -> None:
        super()._begin(groups)
        self._now = self._clock()
        self._state[ST_NOW] = self._now
