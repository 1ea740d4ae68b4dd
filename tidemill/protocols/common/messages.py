"""Messages between encoder and sink: a table of addresses, and the buffers that hold the bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tidemill.records import MESSAGE
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.versions import TableVersion


class Message(NamedTuple):
    """One message as Python objects. `target` is an index into the pack's (topic, partition)s, `commit_ts` that of its last row."""

    target: int
    key: bytes | None
    value: bytes | None
    rows: int
    commit_ts: int


class Messages:
    """Messages of one chunk, in the order of delivery within each target.

    `table` is a MESSAGE array whose addresses point into `buffers`. The encoder reuses the buffers at its next call, so deliver or
    copy the messages before.
    """

    __slots__ = ("buffers", "bytes", "table")

    def __init__(self, table: npt.NDArray[np.void], buffers: Sequence[object]) -> None:
        self.table = table
        self.buffers = buffers
        self.bytes = int(np.maximum(table["key_len"], 0).sum() + np.maximum(table["value_len"], 0).sum())

    def __len__(self) -> int:
        return len(self.table)

    def to_list(self) -> list[Message]:
        """Copy all messages. For tests and small sinks."""
        return [
            Message(
                int(row["target"]),
                ctypes.string_at(int(row["key"]), int(row["key_len"])) if row["key_len"] >= 0 else None,
                ctypes.string_at(int(row["value"]), int(row["value_len"])) if row["value_len"] >= 0 else None,
                int(row["rows"]),
                int(row["commit_ts"]),
            )
            for row in self.table
        ]


def no_messages() -> Messages:
    """Return an empty chunk."""
    return Messages(np.empty(0, MESSAGE), ())


KeyValue = tuple[bytes | None, bytes | None]
"""Key and value of a message. Either may be missing."""


class ControlMessages(Protocol):
    """A protocol's messages besides rows. None: the protocol has no such message."""

    ddl_on_first_partition: bool
    """Whether DDLs go only to partition 0 of their topic. Else they go to all partitions."""

    def ddl_message(self, event: DdlEvent) -> KeyValue | None: ...

    def resolved_message(self, ts: int) -> KeyValue | None: ...


@runtime_checkable
class SendsBootstrap(Protocol):
    """Control messages of a protocol that describes tables before their rows."""

    sends_bootstrap: bool
    """Whether all tables are described when delivery begins."""
    bootstrap_first_partition_only: bool

    def bootstrap(self, version: TableVersion) -> KeyValue: ...
