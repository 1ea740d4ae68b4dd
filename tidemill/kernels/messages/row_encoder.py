"""`RowEncoder`, the loop that drives every encode kernel: call it, give it more room, encode rows by the reference that it does not handle.

A protocol's encoder defines how to call its kernel (`_run`), how much room a row needs (`_grow`), and how the reference encodes a row
(`_by_reference`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from tidemill.kernels.rows.layout import Outcome
from tidemill.kernels.rows.views import RowArray
from tidemill.protocols.common.messages import Messages, no_messages
from tidemill.records import MESSAGE, ROW


class RowEncoder(ABC):
    """Encodes chunks of rows of any number of tables. `slow_rows` counts the rows that fell back to the reference.

    Not safe for threads. The messages of a call are valid until the next call.
    """

    OUTCOME: int
    """Index of the state word that says why a call ended."""

    def __init__(self, state_words: int) -> None:
        self.slow_rows = 0
        self._messages = np.empty(0, MESSAGE)
        self._state = np.zeros(state_words, np.int64)

    def encode(self, rows: RowArray, groups: npt.NDArray[np.int32]) -> Messages:
        """Encode rows that are grouped by target. `groups` has the first row of each group, and at the end the number of rows.

        Raises MalformedRow, NoHandleKey and MessageTooLarge, all naming the row, and SinkUnavailable where a claim check cannot be stored.
        """
        count = len(rows)
        if count == 0:
            return no_messages()
        if groups[-1] != count or not rows.flags.c_contiguous or rows.dtype.itemsize != ROW.itemsize:
            raise ValueError(f"{count} rows, but the groups end at {groups[-1]}")
        if len(self._messages) < count:
            self._messages = np.empty(max(count, 2 * len(self._messages)), MESSAGE)
        groups = np.ascontiguousarray(groups, np.int32)  # the kernel reads it until the end of this call
        self._state[:] = 0
        self._begin(groups)
        at = 0
        while True:
            at = self._run(at, rows)
            match Outcome(self._state[self.OUTCOME]):
                case Outcome.DONE:
                    return self._finish(count)
                case Outcome.GROW:
                    self._grow(rows, at)
                case outcome:
                    at = self._by_reference(rows, at, outcome)

    def _append(self, rows: RowArray, at: int) -> int:
        """Let the kernel append the ready-made message of row `at`. Returns the row after it."""
        one = rows[: at + 1]
        while True:
            done = self._run(at, one)
            if self._state[self.OUTCOME] != Outcome.GROW:
                return done
            self._grow(rows, at)

    @abstractmethod
    def _begin(self, groups: npt.NDArray[np.int32]) -> None:
        """Write the words that hold for a whole call into the state, which is zero."""

    @abstractmethod
    def _run(self, at: int, rows: RowArray) -> int:
        """Call the kernel for the rows from `at` on. Returns the row at which it stopped; the state says why."""

    @abstractmethod
    def _grow(self, rows: RowArray, at: int) -> None:
        """Make room for row `at`."""

    @abstractmethod
    def _by_reference(self, rows: RowArray, at: int, outcome: Outcome) -> int:
        """Encode row `at`, which the kernel did not handle, by the reference. Returns the row after it."""

    @abstractmethod
    def _finish(self, count: int) -> Messages:
        """Return the messages of `count` rows, with offsets turned into addresses."""


def bytes_of(rows: RowArray, at: int) -> int:
    """Return the size of a row's values, and of its key twice, once for each image."""
    row = rows[at]
    return max(int(row["value_len"]), 0) + max(int(row["old_len"]), 0) + 2 * int(row["key_len"])
