"""Finds the updates that changed certain columns. A change of key or dispatch columns splits an update; others decide whether a filter
keeps it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidemill.kernels.routing.identity import UniqueChange
from tidemill.kernels.rows.layout import SCRATCH_BYTES
from tidemill.kernels.rows.program import TableProgram


class ColumnChange(UniqueChange):
    """`UniqueChange` for given columns: `slots` lists them for each program. Reference: `UniqueChange.changed_plain`."""

    def __init__(self, programs: Sequence[TableProgram], slots: Sequence[Sequence[int]]) -> None:
        super(UniqueChange, self).__init__(programs, slots)
        self._scratch2 = np.zeros(SCRATCH_BYTES, np.uint8)
        self._pairs = np.zeros((max([len(chosen) for chosen in slots], default=0) + 1, 3), np.int64)
