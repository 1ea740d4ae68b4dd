"""ROW records → messages of the simple protocol, with bootstrap messages between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tidemill.kernels.rows.program import TableProgram, padded
from tidemill.kernels.rows.views import RawRecord, RowArray
from tidemill.kernels.simple.program import compile_table
from tidemill.kernels.templates.encoder import TextRowEncoder, Texts
from tidemill.protocols.common.claim_check import Keep
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.protocols.simple.encode import SimpleTable
from tidemill.records import MESSAGE


@dataclass(slots=True)
class _Sent:
    """The last bootstrap message of a table to a target: when, and how many rows have followed."""

    at_ms: int
    rows: int


_sent: WeakKeyDictionary[TableProgram, dict[int, _Sent]] = WeakKeyDictionary()
"""The last bootstrap messages by program. A program outlives its encoder, which is rebuilt when a table joins."""


class SimpleRowEncoder(TextRowEncoder):
    """See `TextRowEncoder`. A table's description precedes its first row to a target, and is repeated after some rows or seconds.

    `first_targets` has for each program the target of partition 0 of its topic, for bootstrap messages that go only there.
    """

    def __init__(
        self,
        programs: Sequence[TableProgram],
        options: EncodingOptions | None = None,
        first_targets: Sequence[int] = (),
        *,
        clock: Callable[[], int],
        keep: Keep | None = None,
    ) -> None:
        options = options or EncodingOptions(MessageFormat.SIMPLE)
        self.tables = [SimpleTable(p.schema, p.table, p.info, p.zone, options.simple.location, p.json) for p in programs]
        compiled = [compile_table(program, table) for program, table in zip(programs, self.tables, strict=True)]
        super().__init__(programs, options, compiled, Texts(), clock, keep)
        self._first_targets = first_targets
        simple = options.simple
        self._bootstraps = simple.bootstrap_interval_s > 0 and simple.bootstrap_messages > 0

    def value_of(self, record: RawRecord, now_ms: int) -> bytes:
        return self.tables[record.table].row(record.key, record.value, record.old_value, record.commit_ts, now_ms)

    def stand_in(self, record: RawRecord, now_ms: int, location: str) -> bytes:
        table = self.tables[record.table]
        return table.row(
            record.key, record.value, record.old_value, record.commit_ts, now_ms, large=True, location=location
        )  # fmt: skip

    def encode(self, rows: RowArray, groups: npt.NDArray[np.int32]) -> Messages:
        messages = super().encode(rows, groups)
        if not self._bootstraps or not len(rows):
            return messages
        due = self._due(rows)
        return self._with_bootstraps(messages, due) if due else messages

    def _due(self, rows: RowArray) -> list[tuple[int, int, int]]:
        """Return (row, table, target) of each bootstrap message that has to precede a row, in the order of rows."""
        tables, targets = rows["table"], rows["target"]
        starts = [0, *(np.flatnonzero((np.diff(tables) != 0) | (np.diff(targets) != 0)) + 1).tolist(), len(rows)]
        due = []
        for start, end in pairwise(starts):
            number, target = int(tables[start]), int(targets[start])
            if not self.options.simple.bootstrap_all_partitions and self._first_targets:
                target = self._first_targets[number]
            due += [(at, number, target) for at in self._count(self.programs[number], target, start, end)]
        return due

    def _count(self, program: TableProgram, target: int, start: int, end: int) -> list[int]:
        """Count rows start to end - 1 of a table. Returns the rows that its description has to precede."""
        simple = self.options.simple
        by_target = _sent.setdefault(program, {})
        sent = by_target.get(target)
        due = []
        if sent is None or self._now - sent.at_ms >= 1000 * simple.bootstrap_interval_s:
            sent = by_target[target] = _Sent(self._now, 0)
            due.append(start)
        at = start + max(simple.bootstrap_messages - sent.rows, 0)
        while at < end:
            if at > start or not due:
                due.append(at)
            sent.at_ms, sent.rows = self._now, -(at - start)
            at += simple.bootstrap_messages
        sent.rows += end - start
        return due

    def _with_bootstraps(self, messages: Messages, due: Sequence[tuple[int, int, int]]) -> Messages:
        """Return the messages with bootstrap messages inserted before the given rows."""
        values = {number: self._packed(self.tables[number].bootstrap(self._now)) for number in {number for _, number, _ in due}}
        buffers = {number: padded(value) for number, value in values.items()}
        extra = np.zeros(len(due), MESSAGE)
        for message, (row, number, target) in zip(extra, due, strict=True):
            message["target"], message["key_len"], message["commit_ts"] = target, -1, messages.table[row]["commit_ts"]
            message["value"], message["value_len"] = buffers[number].ctypes.data, len(values[number])
        table = np.insert(messages.table, [row for row, _, _ in due], extra)
        return Messages(table, (*messages.buffers, *buffers.values()))
