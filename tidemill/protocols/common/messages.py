"""Messages on their way from an encoder to a sink: a table of addresses, and the buffers that hold the bytes."""

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
    """One message as Python objects. `target`: index into the pack's (topic, partition)s; `commit_ts`: that of its last row."""

    target: int
    key: bytes | None
    value: bytes | None
    rows: int
    commit_ts: int


class Messages:
    """Messages of one chunk, in the order of delivery within each target.

    `table` is a MESSAGE array whose addresses point into `buffers`. The encoder that made it reuses the buffers at its next call:
    deliver or copy before.
    """

    __slots__ = ("buffers", "bytes", "table")

    def __init__(self, table: npt.NDArray[np.void], buffers: Sequence[object]) -> None:
        self.table = table
        self.buffers = buffers
        self.bytes = int(np.maximum(table["key_len"], 0).sum() + np.maximum(table["value_len"], 0).sum())

    def __len__(self) -> int:
        return len(self.table)

    def to_list(self) -> list[Message]:
        """Copies of all messages, for tests and small sinks."""
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
    """An empty chunk."""
    return Messages(np.empty(0, MESSAGE), ())


class ControlMessages(Protocol):
    """What a protocol says besides rows. A message is key and value; None: the protocol says nothing."""

    ddl_on_first_partition: bool
    """DDLs go to partition 0 of their topic only, else to all."""

    def ddl_message(self, event: DdlEvent) -> tuple[bytes, bytes | None] | None: ...

    def resolved_message(self, ts: int) -> tuple[bytes, bytes | None] | None: ...


@runtime_checkable
class SendsBootstrap(Protocol):
    """Control messages of a protocol that describes tables ahead of their rows."""

    sends_bootstrap: bool
    """Whether all tables are described when a delivery begins."""
    bootstrap_first_partition_only: bool

    def bootstrap(self, version: TableVersion) -> tuple[bytes | None, bytes | None]: ...
