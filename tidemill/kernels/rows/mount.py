"""An encoder that only mounts rows: for the black hole sink, and to measure the cost of mounting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill.kernels.rows.layout import SCRATCH_BYTES
from tidemill.kernels.rows.mount_kernel import mount_rows
from tidemill.kernels.rows.program import TableProgram, table_words
from tidemill.kernels.rows.views import RowArray, raw_record
from tidemill.protocols.common.messages import Messages, no_messages


class MountEncoder:
    """Has the interface of an encoder but makes no messages. `slow_rows` counts the rows that fell back to the reference."""

    def __init__(self, programs: Sequence[TableProgram]) -> None:
        self.programs = list(programs)
        self.slow_rows = 0
        self._tables = table_words(self.programs)
        self._scratch = np.zeros(SCRATCH_BYTES, np.uint8)

    def encode(self, rows: RowArray, groups: npt.NDArray[np.int32]) -> Messages:
        """Find and check all values. Raises MalformedRow naming the row."""
        at, count = 0, len(rows)
        while at < count:
            at = int(mount_rows(at, count, rows.ctypes.data, self._tables.ctypes.data, self._scratch.ctypes.data))
            if at < count:
                record = raw_record(rows, at)
                self.programs[record.table].open.row(record.key, record.value, record.old_value, record.commit_ts)
                self.slow_rows += 1
                at += 1
        return no_messages()
