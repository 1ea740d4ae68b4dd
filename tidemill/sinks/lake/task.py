"""The task half: stages what the interval leaves of each row, as files of Arrow for the driver."""

from __future__ import annotations

import atexit
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.protocols.common.messages import Messages
from tidemill.sinks.base import BatchContext, Target
from tidemill.sinks.lake.net import last_of_each
from tidemill.sinks.lake.open import store_of
from tidemill.sinks.lake.rows import TypedBatch, TypedRows
from tidemill.sinks.lake.shapes import OP
from tidemill.sinks.storage.parts import PartFiles, begun

STAGED_ROWS = 262_144
"""Rows of one table after which a file is staged."""
_ANY_SIZE = 1 << 62


class LakeTaskSink:
    """See `TaskSink`."""

    def __init__(self, uri: SinkUri) -> None:
        self._store = store_of(uri)
        self._files = PartFiles(self._store, _ANY_SIZE)
        atexit.register(self._files.close)
        self._waiting: dict[Target, list[TypedBatch]] = {}
        self._taken = self._staged = self._after = 0

    def begin(self, ctx: BatchContext) -> None:
        self._files.begin(ctx)
        self._waiting.clear()
        self._taken = self._staged = 0
        self._after = begun(self._store, ctx)

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        """Take a chunk. Raises SinkError."""
        if not isinstance(messages, TypedRows):
            raise SinkError("the rows did not come as columns: a bug")
        self._taken += len(messages)
        for batch in messages.batches:
            target = targets[batch.target]
            rows = self._waiting.setdefault(target, [])
            rows.append(batch)
            if sum(len(one.rows) for one in rows) >= STAGED_ROWS:
                self._stage(target)

    def _stage(self, target: Target) -> None:
        batches = self._waiting.pop(target)
        rows = pa.concat_tables([batch.rows for batch in batches])
        if OP in rows.column_names:
            keys = batches[0].keys
            for key in keys:
                if rows[key].null_count:
                    raise _no_key(target[0], key, rows)
            rows = last_of_each(rows, keys)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(rows)
        self._staged += 1
        self._files.append(target, str(self._staged), memoryview(sink.getvalue()))

    def flush(self) -> int:
        """Stage the rest. Returns the number of changes since `begin`."""
        for target in [*self._waiting]:
            self._stage(target)
        self._files.publish(self._taken)
        return self._taken

    def abandon(self) -> None:
        self._waiting.clear()
        self._files.abandon()


def _no_key(topic: str, key: str, rows: pa.Table) -> SinkError:
    first = rows.filter(pc.is_null(rows[key])).slice(0, 1).drop_columns([OP]).to_pylist()[0]
    shown = ", ".join(f"{name} = {value!r}"[:60] for name, value in list(first.items())[:5])
    return SinkError(
        f"{topic.partition('@')[0]}: a row's key column {key} has a value that the lake's type cannot have (a date outside the calendar): "
        f"the row with {shown}",
        hint="Change the row upstream, or leave the table out with a filter rule.",
    )
