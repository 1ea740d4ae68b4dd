"""Files of record batches: written with checksums, read with or without them (`sums` defines the format).

A batch is verified when it is read for the first time, without a copy, even of a mapped file. The end of a file has the rows and commit_ts
of its batches, so nobody reads the whole file to know them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from tidemill.changelog.files import sums
from tidemill.changelog.files.sums import Damaged, Entry, Sums
from tidemill.changelog.storage.outcomes import broken, storage_errors
from tidemill.errors import LogCorrupt, redact

_MAGIC = 8  # bytes before Arrow's first message


# ---- reading -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Known:
    """What a process has learnt of a file that never changes: opening it again reads nothing."""

    sums: Sums | None = None  # of a file that was opened and has checksums
    schema: pa.Schema | None = None
    checked: set[int] = field(default_factory=set)  # numbers of the record batches that were verified


class ArrowFile:
    """An open file; `source` is a pa.NativeFile. Not for several threads at a time.

    Raises LogCorrupt for bytes that do not match their checksums; `get_batch` also raises Arrow's own errors.
    """

    def __init__(self, source: Any, path: str, known: Known | None = None) -> None:
        """`known`: what this process has learnt of the file; more is added. Only for a mapped file."""
        self.path = path
        self._source = source
        self._known = known = Known() if known is None else known
        self._sums = known.sums
        self._arrow: Any = None
        if known.sums is not None and known.schema is not None:
            self.schema: pa.Schema = known.schema
            return
        self._sums = self._look()
        self._arrow = self._opened(source if self._sums is None else pa.BufferReader(self._tail))
        schema = self._arrow.schema
        if self._sums is None and sums.is_marked(schema.metadata):
            raise broken(path, "it was written with checksums, and they are not where they should be")
        self.schema = known.schema = schema.remove_metadata()
        known.sums = self._sums

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return int(self._source.size())

    @property
    def has_sums(self) -> bool:
        """Whether it was written with checksums."""
        return self._sums is not None

    @property
    def num_record_batches(self) -> int:
        return int(self._arrow.num_record_batches) if self._sums is None else len(self._sums)

    def count_rows(self) -> int:
        """Return the rows of all batches, without reading any."""
        if self._sums is not None:
            return self._sums.rows
        with storage_errors(self.path, content=True):
            return int(self._arrow.count_rows())

    def last_ts(self, number: int) -> int | None:
        """Return commit_ts of a batch's last row, without reading the batch; None if the file does not tell, and for a batch without
        rows."""
        if self._sums is None or not self._sums.entries["rows"][number]:
            return None
        return int(self._sums.entries["last_ts"][number])

    def count_within(self, from_ts: int, to_ts: int) -> tuple[int, int, list[int]]:
        """Return the rows of the batches that lie in (from_ts, to_ts] as a whole, about how many rows of other batches do, by their share
        of time, and the numbers of these. No batch is read. A file that does not tell has its batches among the others, with no row."""
        if self._sums is None:
            return 0, 0, list(range(self.num_record_batches))
        inside, about, others = 0, 0.0, []
        for number, (_, _, rows, first, last) in enumerate(self._sums.entries.tolist()):
            if first > from_ts and last <= to_ts:
                inside += rows
            elif rows and last > from_ts and first <= to_ts:
                others.append(number)
                about += rows * (min(last, to_ts) - max(first - 1, from_ts)) / (last - first + 1)
        return inside, math.ceil(about), others

    def get_batch(self, number: int) -> pa.RecordBatch:
        """Return a record batch; its buffers are the file's own if it is mapped."""
        if self._sums is None:
            return self._arrow.get_batch(number)
        start, end = self._sums.bounds(number)
        data = self._read(start, end)
        if number not in self._known.checked:
            try:
                self._sums.check(number, data)
            except Damaged as e:
                raise LogCorrupt(
                    f"{redact(self.path)}: record batch {number} is damaged: {e}",
                    hint="The storage returned other bytes than were written to it. `tidemill log verify` lists all damage. Restore the "
                    "file from a copy; without one, start a new log at a ts past the file's interval.",
                ) from None
            self._known.checked.add(number)
        messages = pa.BufferReader(data)
        if number == 0:  # its checksum covers the file from the first byte on
            messages.seek(_MAGIC)
            pyarrow.ipc.read_message(messages)  # the schema
        return pyarrow.ipc.read_record_batch(pyarrow.ipc.read_message(messages), self.schema)

    def read_all(self) -> pa.Table:
        """Return all batches as a table."""
        return pa.Table.from_batches([self.get_batch(i) for i in range(self.num_record_batches)], self.schema)

    def _opened(self, source: Any) -> Any:
        with storage_errors(self.path, content=True):
            return pyarrow.ipc.open_file(source)

    def _read(self, start: int, end: int) -> pa.Buffer:
        self._source.seek(start)
        return self._source.read_buffer(end - start)

    def _look(self) -> Sums | None:
        size = self.size
        self._tail = self._read(size - min(size, sums.LOOK), size)
        try:
            while (wanted := sums.wanted_bytes(self._tail, size)) > len(self._tail):
                self._tail = self._read(size - wanted, size)
            return sums.opened(self._tail, size)
        except Damaged as e:
            raise broken(self.path, e) from None


# ---- writing -------------------------------------------------------------------------------------------------------


SMALL = 1 << 14
"""Shorter writes are joined before they are checksummed and written."""
PIECE = 1 << 18
"""Longer writes are cut. A piece is still in the CPU's cache when it is copied after its checksum. And Linux takes the memory of a file's
cache in blocks as large as the write: the largest free ones are the least recently used, and a virtual machine may have to get them from
its host (measured: 1.1 to 1.8 ns a byte for writes of 4 MiB and more, 0.2 to 0.25 for shorter ones)."""


class _Sink:
    """A file for Arrow's writer that computes checksums of what passes. pyarrow closes it when it likes; the file below stays open."""

    closed = False

    def __init__(self, below: Any) -> None:
        self._below = below
        self._at = self._checksum = 0
        self._entries: list[Entry] = []
        self._small = bytearray()
        self._is_end = False

    def write(self, data: Any) -> int:
        size = len(data)
        self._at += size
        if size < SMALL or self._is_end:
            self._small += data
        else:
            self._flush()
            self._pass(data)
        return size

    def _flush(self) -> None:
        if self._small:
            self._pass(bytes(self._small))
            self._small.clear()

    def _pass(self, data: Any) -> None:
        view = memoryview(data)
        for at in range(0, len(view), PIECE):
            piece = view[at : at + PIECE]
            self._checksum = sums.extended(self._checksum, piece)
            self._below.write(piece)

    def end_batch(self, batch: pa.RecordBatch) -> None:
        """Note that what was written since the last batch is this batch."""
        self._flush()
        self._entries.append(Entry(self._at, self._checksum, batch.num_rows, *_times(batch)))
        self._checksum = 0

    def begin_end(self) -> None:
        """Note that the file's end begins here."""
        self._is_end = True

    def finish(self) -> None:
        """Write the end, with the checksums."""
        self._below.write(sums.closed(self._entries, bytes(self._small)))

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Do nothing: the file below is synced when it is sealed."""

    def close(self) -> None:
        """Do nothing, see the class."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _times(batch: pa.RecordBatch) -> tuple[int, int]:
    at = batch.schema.get_field_index("commit_ts")
    if at < 0 or not batch.num_rows:
        return 0, 0
    column = batch.column(at)
    return column[0].as_py(), column[batch.num_rows - 1].as_py()


def write(below: Any, batches: Iterable[pa.RecordBatch], schema: pa.Schema, options: Any) -> None:
    """Write the batches as an Arrow file with checksums to an open pa.NativeFile. Each is written before the next one is requested."""
    sink = _Sink(below)
    writer = pyarrow.ipc.new_file(pa.PythonFile(sink, mode="w"), schema.with_metadata(sums.MARK), options=options)
    for batch in batches:
        writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        sink.end_batch(batch)
    sink.begin_end()
    writer.close()
    sink.finish()
