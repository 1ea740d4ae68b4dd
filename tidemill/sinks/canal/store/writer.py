"""Writes a segment of the entry store: blocks into a draft, which then appears as a whole under its name."""

from __future__ import annotations

import secrets

import numpy as np

from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.sinks.canal.store.names import ENTRIES, SegmentName
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.canal.store.segment import BLOCK_BYTES, INDEX, MAGIC, Array, SegmentBuilder


class SegmentWriter:
    """Writes the entries of (from_ts, to_ts]. End it with `seal` and `publish`, or `discard`. Raises the storage's errors."""

    def __init__(self, storage: Storage, from_ts: int, to_ts: int, epoch: int, first: Position | None = None) -> None:
        """`first` as in SegmentBuilder."""
        self.name = SegmentName(from_ts, to_ts, epoch, secrets.token_hex(4))
        self._folder, _, self._file = f"{ENTRIES}/{self.name}".rpartition("/")
        self._path = storage.path(f"{self._folder}/{self._file}")
        self._storage = storage
        self._builder = SegmentBuilder(first)
        self._index: list[Array] = []
        self._data = bytearray()
        self._draft = storage.draft(self._folder)
        self._write(MAGIC)

    @property
    def entries(self) -> int:
        """How many entries are in finished blocks."""
        return self._builder.entries

    def number(self, schema: str, table: str) -> int:
        """The number of a name in the index."""
        return self._builder.name(schema, table)

    def add(self, index: Array, data: bytes | bytearray | memoryview) -> None:
        """Add entries, which lie behind each other in `data`."""
        if len(index):
            self._index.append(index)
            self._data += data
        if len(self._data) >= BLOCK_BYTES:
            self._blocks(whole=False)

    def _blocks(self, *, whole: bool) -> None:
        """Write full blocks, and with `whole` what is left too."""
        if not self._index:
            return
        index = np.concatenate(self._index) if len(self._index) > 1 else self._index[0]
        ends = np.cumsum(index["size"], dtype=np.int64)
        done, at = 0, 0
        with memoryview(self._data) as data:
            while done < len(index):
                cut = int(np.searchsorted(ends, at + BLOCK_BYTES)) + 1
                if cut > len(index) and not whole:
                    break
                cut = min(cut, len(index))
                end = int(ends[cut - 1])
                with data[at:end] as block:
                    for part in self._builder.block(index[done:cut], block):
                        self._write(part)
                done, at = cut, end
        del self._data[:at]
        self._index = [index[done:]] if done < len(index) else []

    def seal(self) -> None:
        """Write what is left and the end of the segment, to be published next."""
        self._blocks(whole=True)
        self._write(self._builder.end())
        self._draft.seal()

    def publish(self) -> None:
        """Give the segment its name, durably."""
        self._draft.publish(self._file)
        self._storage.settle(self._folder)

    def discard(self) -> None:
        """Drop it. No effect once it is published."""
        self._draft.discard()

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        with storage_errors(self._path, writing=True):
            self._draft.sink.write(data)


def index_of(entries: int) -> Array:
    """Room for the index of so many entries."""
    return np.zeros(entries, INDEX)
