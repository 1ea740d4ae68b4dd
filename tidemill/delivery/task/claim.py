"""Which rows of a record batch an item has to merge, if it delivers only a share of the targets."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidemill.kernels.flow import layout as f
from tidemill.kernels.flow.claim import claim
from tidemill.kernels.flow.layout import Stop, TableMap

Words = npt.NDArray[np.int64]


class Routing(Protocol):
    """The rules of tables. They are looked up by physical id when the first row of a table comes."""

    tables: TableMap

    @property
    def rules_address(self) -> int:
        """Where the rules are; changes when one is added."""

    def resolve(self, table_id: int) -> None:
        """Enter an id into `tables`. Raises SchemaError for an id that no schema describes."""


class Claim:
    """Picks the rows that may be of owned targets. `owned` has a byte for each target; `left_out` counts the others."""

    def __init__(self, routing: Routing, owned: npt.NDArray[np.uint8]) -> None:
        self._routing, self._owned = routing, owned
        self._state = np.zeros(f.ST_WORDS, np.int64)
        self.left_out = 0  # also rows of dropped ids

    def pick(self, words: Words, begin: int, end: int) -> npt.NDArray[np.int32]:
        """The numbers of those of rows begin … end - 1 of a source's batch. Raises what `Routing.resolve` does."""
        picked = np.empty(end - begin + 1, np.int32)
        places = np.array([0, begin], np.int64)
        state = self._state
        state[:] = 0
        while True:
            tables = self._routing.tables
            claim(
                *(words.ctypes.data, int(places[1]), end, tables.address, tables.mask, self._routing.rules_address),
                *(self._owned.ctypes.data, picked.ctypes.data, places.ctypes.data, state.ctypes.data),
            )
            if Stop(int(state[f.ST_REASON])) is not Stop.UNKNOWN:
                break
            self._routing.resolve(int(state[f.ST_ID]))
        count = int(places[0])
        self.left_out += end - begin - count
        return picked[:count]
