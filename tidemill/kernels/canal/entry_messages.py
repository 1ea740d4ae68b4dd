"""Entries as a task's encoder gives them to the sink, and their index and bytes as the entry store keeps them.

Reference of `gather`: `b"".join` of the entries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill.kernels.canal import entry_layout as e
from tidemill.kernels.canal.entry_encoder import CanalEntryEncoder, Entries
from tidemill.kernels.intrinsics import entry, ld64, memcpy
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RowArray
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.options import EncodingOptions
from tidemill.records import MESSAGE, ROW

_SIZE, _E_ADDRESS, _E_SIZE = e.ENTRY_SIZE, e.E_ADDRESS, e.E_SIZE


@entry(3)
def gather(n, entries, out):
    """Copy n entries behind each other to `out`. `entries`: ENTRY records. Return the end."""
    for i in range(n):
        record = entries + _SIZE * i
        size = ld64(record + _E_SIZE)
        memcpy(out, ld64(record + _E_ADDRESS), size)
        out += size
    return out


class EntryMessages(Messages):
    """Messages that are entries, a message each. `entries` is an ENTRY array, `names` has (schema, table) by its table number."""

    __slots__ = ("entries", "names")

    def __init__(self, made: Entries, names: Sequence[tuple[str, str]]) -> None:
        entries = made.table
        table = np.zeros(len(entries), MESSAGE)
        table["key_len"] = -1
        table["value"], table["value_len"] = entries["address"], entries["size"]
        table["rows"], table["commit_ts"] = entries["rows"], entries["commit_ts"]
        super().__init__(table, (made.buffer,))
        self.entries, self.names = entries, names

    def joined(self) -> npt.NDArray[np.uint8]:
        """All entries behind each other."""
        out = np.empty(self.bytes, np.uint8)
        gather(len(self.entries), self.entries.ctypes.data, out.ctypes.data)
        return out


class EntryRowEncoder:
    """Encodes the rows of one target as entries of whole transactions. See `delivery.task.encoder.WritesTransactions`."""

    def __init__(self, programs: Sequence[TableProgram], options: EncodingOptions) -> None:
        assert options.canal_server_id is not None
        self._encoder = CanalEntryEncoder(programs, options.canal_server_id, member_names=options.canal_member_names)
        self._names = [(p.schema, p.table) for p in programs]

    @property
    def slow_rows(self) -> int:
        """Rows that the reference encoded."""
        return self._encoder.slow_rows

    def encode(self, rows: RowArray, groups: npt.NDArray[np.int32]) -> EntryMessages:
        """Entries of rows in commit order. The last transaction may go on in the next call. Raises MalformedRow."""
        if len(groups) > 2:
            raise ValueError("entries have one target")
        return EntryMessages(self._encoder.encode(rows), self._names)

    def begin(self) -> None:
        """Forget a transaction that has begun."""
        self._encoder.begin()

    def carry_on(self, before: EntryRowEncoder) -> None:
        """Go on with the transaction that has begun in an encoder of fewer tables."""
        self._encoder.carry_on(before._encoder)

    def finish(self) -> EntryMessages:
        """The end of the last transaction."""
        return EntryMessages(self._encoder.encode(np.empty(0, ROW), last=True), self._names)
