"""Reads segments of the entry store by range: their ends, and single blocks. A local file is mapped."""

from __future__ import annotations

from typing import Any

from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.errors import LogCorrupt, redact
from tidemill.sinks.canal.store.names import ENTRIES
from tidemill.sinks.canal.store.segment import LOOK, TAIL, Block, Damaged, Ends, ends_size, parse_block, parse_ends


class SegmentFile:
    """An open segment. Not for several threads at a time. Raises SegmentGone, LogCorrupt, LogUnavailable."""

    def __init__(self, storage: Storage, name: str) -> None:
        """`name`: within `entries`."""
        self.path = storage.path(f"{ENTRIES}/{name}")
        self._source: Any = storage.ranges(f"{ENTRIES}/{name}")
        self._checked: set[int] = set()
        self._mapped = storage.local
        with storage_errors(self.path, content=True):
            self.size = int(self._source.size())
        self.ends: Ends = self._look()

    def block(self, number: int) -> Block:
        """A block. Its checksum is verified when it is read for the first time, or each time if the file is not mapped."""
        place = self.ends.places[number]
        offset, size = int(place["offset"]), int(place["size"])
        data = self._read(offset, offset + size)
        try:
            found = parse_block(data, place, self.ends.names, checked=self._mapped and number in self._checked)
        except Damaged as error:
            raise self._damaged(error) from None
        self._checked.add(number)
        return found

    def _look(self) -> Ends:
        wanted = min(self.size, LOOK)
        tail = self._read(self.size - wanted, self.size)
        try:
            needed = ends_size(tail[-TAIL.size :], self.size)
            if needed > wanted:
                tail = self._read(self.size - needed, self.size)
            return parse_ends(tail, self.size)
        except Damaged as error:
            raise self._damaged(error) from None

    def _read(self, start: int, end: int) -> memoryview:
        with storage_errors(self.path, content=True):
            self._source.seek(start)
            return memoryview(self._source.read_buffer(end - start))

    def _damaged(self, error: Damaged) -> LogCorrupt:
        return LogCorrupt(
            f"{redact(self.path)}: {error}",
            hint="The storage returned other bytes than were written to it. Restore the file from a copy; without one, `tidemill replay` "
            "of the change log makes the store again.",
        )
