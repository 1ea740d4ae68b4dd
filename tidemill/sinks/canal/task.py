"""The task half of the sink canal:// : writes the entries of a range of commit ts as a segment of the store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.kernels.canal.entry_messages import EntryMessages
from tidemill.protocols.common.messages import Messages
from tidemill.sinks.base import BatchContext, FenceCheck, Target, no_fence_check
from tidemill.sinks.canal.place import storage_of
from tidemill.sinks.canal.store.writer import SegmentWriter, index_of


class CanalTaskSink:
    """See `TaskSink`. An item's entries come in commit order, and no other item has entries of its range."""

    def __init__(self, uri: SinkUri) -> None:
        self._storage = storage_of(uri)
        self._writer: SegmentWriter | None = None
        self._check_fence: FenceCheck = no_fence_check
        self._taken = 0
        self._names: Sequence[tuple[str, str]] = ()
        self._numbers: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)

    def begin(self, ctx: BatchContext) -> None:
        self.abandon()
        self._check_fence, self._taken, self._names = ctx.check_fence, 0, ()
        self._writer = SegmentWriter(self._storage, ctx.from_ts, ctx.to_ts, ctx.epoch)

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        if not isinstance(messages, EntryMessages) or self._writer is None:
            raise SinkError("the entry store takes entries of transactions, and none before a batch begins: a bug")
        self._number(self._writer, messages.names)
        entries = messages.entries
        index = index_of(len(entries))
        for name in ("commit_ts", "size", "rows", "event"):
            index[name] = entries[name]
        index["kind"], index["name"] = entries["type"], self._numbers[entries["table"]]
        self._writer.add(index, messages.joined().data)
        self._taken += len(entries)

    def _number(self, writer: SegmentWriter, names: Sequence[tuple[str, str]]) -> None:
        """Number the names of tables; the last one, for entries without a table, is empty."""
        if not len(self._names) or names is not self._names:
            self._names = names
            self._numbers = np.array([writer.number(*name) for name in (*names, ("", ""))], np.uint32)

    def flush(self) -> int:
        if self._writer is not None:
            self._writer.seal()
            self._check_fence(now=True)
            self._writer.publish()
            self._writer = None
        return self._taken

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.discard()
            self._writer = None
