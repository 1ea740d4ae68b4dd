"""Reads segments for the merge kernel: files are mapped, record batches are described to the kernel by address, nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.changelog.files.segment import check_columns, read_batch
from tidemill.changelog.log_format import SegmentName, parse_segment
from tidemill.changelog.reader import open_segment
from tidemill.delivery.task.claim import Claim
from tidemill.errors import LogCorrupt, redact
from tidemill.events import RAW_CHANGE
from tidemill.kernels.flow import layout as f

Words = npt.NDArray[np.int64]

_COLUMNS = [RAW_CHANGE.get_field_index(name) for name in ("table_id", "start_ts", "commit_ts", "key", "value", "old_value")]
_COMMIT = RAW_CHANGE.get_field_index("commit_ts")


def fixed_address(column: pa.Array) -> int:
    """The address of row 0 of an 8-byte column; 0 if it has no row."""
    return int(column.buffers()[1].address) + 8 * int(column.offset) if len(column) else 0


def binary_addresses(column: pa.Array) -> tuple[int, int, int, int]:
    """Of a binary column: address of row 0's offsets, of the bytes, of the validity bitmap (0: no nulls), and row 0's bit in it. All 0 if
    it has no row."""
    if not len(column):
        return 0, 0, 0, 0
    valid, offsets, data = column.buffers()
    bitmap = int(valid.address) if valid is not None and column.null_count else 0
    return int(offsets.address) + 4 * int(column.offset), int(data.address) if data is not None else 0, bitmap, int(column.offset)


def describe(words: Words, batch: pa.RecordBatch, begin: int, end: int, *, more: bool, base: int) -> None:
    """Fill in a source's words so that rows begin … end - 1 of the batch, which has the columns of RAW_CHANGE, are read next."""
    table_id, start_ts, commit_ts, key, value, old_value = map(batch.column, _COLUMNS)
    key_offsets, keys, _, _ = binary_addresses(key)
    value_words = binary_addresses(value)
    old_words = binary_addresses(old_value)
    words[: f.S_PICKED + 1] = (
        *(begin, end, int(more), base),
        *(fixed_address(table_id), fixed_address(start_ts), fixed_address(commit_ts)),
        *(key_offsets, keys),
        *value_words,
        *old_words,
        0,
    )


def commits(batch: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """The commit_ts column."""
    values: npt.NDArray[np.uint64] = batch.column(_COMMIT).to_numpy(zero_copy_only=True)
    return values


@dataclass(frozen=True, slots=True)
class _Place:
    """A record batch that was read: where it is, and the number of its row 0 within the source."""

    file: int
    batch: int
    base: int
    rows: int


class Source:
    """The rows of (from_ts, to_ts] in files that follow each other in time, one record batch in use.

    Rows are numbered across all batches, so that a source can be set back to one. Raises SegmentGone and LogCorrupt.
    """

    def __init__(self, paths: Sequence[str], from_ts: int, to_ts: int, words: Words, claim: Claim | None = None) -> None:
        """`claim` picks the rows that are read; None: all are."""
        self._paths, self._claim = paths, claim
        self._picked: npt.NDArray[np.int32] | None = None
        # numpy compares uint64 arrays with Python ints through float64, which moves rows at a boundary.
        self._from, self._to = np.uint64(from_ts), np.uint64(to_ts)
        self._words = words
        self._places: list[_Place] = []
        self._now = -1  # place of the batch in use
        self._ended = False
        self._reader: Any = None
        self._name: SegmentName | None = None  # of the open file
        self._file = -1
        self._next = (0, 0)
        self._looked_at: tuple[int, int, Any, Any] = (-1, -1, None, None)
        self.batch: pa.RecordBatch | None = None
        words[f.S_POS], words[f.S_END], words[f.S_MORE] = 0, 0, int(bool(paths))

    @property
    def number(self) -> int:
        """The number of the next row."""
        base, pos = int(self._words[f.S_BASE]), int(self._words[f.S_POS])
        if self._picked is None or self._ended:
            return base + pos
        return base + (int(self._picked[pos]) if pos < len(self._picked) else self._places[self._now].rows)

    def advance(self) -> None:
        """Use the next batch that has rows of the interval. If there is none, the source is at its end."""
        while True:
            if self._now + 1 < len(self._places):
                self._now += 1
            elif not self._visit():
                self._end()
                return
            if self._use(self._places[self._now]):
                return

    def set_back(self, number: int) -> None:
        """Make row `number`, which was read before, the next one."""
        now = self._now
        while self._places[self._now].base > number:
            self._now -= 1
        place = self._places[self._now]
        if now != self._now or self._ended:
            self._use(place)
        row = number - place.base
        self._words[f.S_POS] = row if self._picked is None else int(np.searchsorted(self._picked, row))

    def _end(self) -> None:
        """No row is left. From now on `number` is one past the last row."""
        last = self._places[-1] if self._places else None
        self._ended = True
        self._words[[f.S_POS, f.S_END, f.S_MORE]] = 0
        self._words[f.S_BASE] = last.base + last.rows if last else 0

    def _visit(self) -> bool:
        """Note the next batch of the files; False if there is none."""
        file, at = self._next
        while file < len(self._paths):
            self._open(file)
            if at == 0:
                at = self._first_batch()
            if at < self._reader.num_record_batches:
                last = self._places[-1] if self._places else None
                self._places.append(_Place(file, at, last.base + last.rows if last else 0, len(self._batch(at)[1])))
                self._now = len(self._places) - 1
                self._next = (file, at + 1)
                return True
            file, at = file + 1, 0
        self._next = (file, 0)
        return False

    def _open(self, file: int) -> None:
        if self._file != file:
            path = self._paths[file]
            reader = open_segment(path)
            check_columns(reader, RAW_CHANGE, path)
            self._reader, self._file = reader, file
            self._name = parse_segment(path.partition("?")[0].rpartition("/")[2])

    def _first_batch(self) -> int:
        """Number of the first batch of the open file with a row above from_ts: batches are sorted among each other."""
        low, high = 0, self._reader.num_record_batches
        while low < high:
            middle = (low + high) // 2
            last = self._last_ts(middle)
            if last is not None and last <= self._from:
                low = middle + 1
            else:
                high = middle
        return low

    def _last_ts(self, at: int) -> np.uint64 | None:
        """commit_ts of a batch's last row; None if it has no row. The batch is only read if the file's footer does not say it."""
        told = self._reader.last_ts(at)
        if told is not None:
            return np.uint64(told)
        _, found = self._batch(at)
        return found[-1] if len(found) else None

    def _batch(self, at: int) -> tuple[pa.RecordBatch, npt.NDArray[np.uint64]]:
        """A batch of the open file, and its commit_ts. The newest one is kept, so that looking at it and then using it reads it once."""
        file, number, batch, found = self._looked_at
        if (file, number) != (self._file, at):
            path = self._paths[self._file]
            batch = read_batch(self._reader, at, path)
            found = commits(batch)
            _check_interval(path, self._name, found)
            self._looked_at = self._file, at, batch, found
        return batch, found

    def _use(self, place: _Place) -> bool:
        """Describe a batch to the kernels. False if it has no row of the interval and batches with such rows may follow."""
        self._open(place.file)
        self._ended = False
        batch, found = self._batch(place.batch)
        self.batch = batch
        begin = 0 if len(found) and found[0] > self._from else int(found.searchsorted(self._from, "right"))
        end = len(found) if len(found) and found[-1] <= self._to else int(found.searchsorted(self._to, "right"))
        last = end < len(found) or (place.file == len(self._paths) - 1 and place.batch == self._reader.num_record_batches - 1)
        describe(self._words, batch, begin, end, more=not last, base=place.base)
        if self._claim is not None:
            self._picked = picked = self._claim.pick(self._words, begin, end)
            begin, end = 0, len(picked)
            self._words[[f.S_POS, f.S_END, f.S_PICKED]] = begin, end, picked.ctypes.data
        return begin < end or last


def _check_interval(path: str, name: SegmentName | None, found: npt.NDArray[np.uint64]) -> None:
    """Raises LogCorrupt if the first or the last row lies outside the interval that the file's name says."""
    if name is None or not len(found) or (int(found[0]) > name.from_ts and int(found[-1]) <= name.to_ts):
        return
    raise LogCorrupt(f"{redact(path)}: its rows reach from {found[0]} to {found[-1]}, which its name does not say")


class Sources:
    """Sorted sources side by side, with their words in one table for the kernels."""

    def __init__(
        self,
        chains: Sequence[Sequence[str]],
        from_ts: int,
        to_ts: int,
        ranges: Sequence[tuple[int, int]] = (),
        claim: Claim | None = None,
    ) -> None:
        """The rows of (from_ts, to_ts], or of each chain those of its own range; with `claim` only those that it picks."""
        self.words = np.zeros((max(1, len(chains)), f.S_WORDS), np.int64)
        self.address = int(self.words.ctypes.data)
        bounds = ranges or [(from_ts, to_ts)] * len(chains)
        self.all = [Source(paths, *bounds[i], self.words[i], claim) for i, paths in enumerate(chains)]
        self._alive: list[pa.RecordBatch | None] = []

    def __len__(self) -> int:
        return len(self.all)

    def begin_chunk(self) -> None:
        """Rows that were handed out before are not needed any more, so their batches may be freed."""
        self._alive = [source.batch for source in self.all]

    def advance(self, number: int) -> None:
        """Give a source whose batch is used up its next one. The one before stays readable until `begin_chunk`."""
        source = self.all[number]
        source.advance()
        self._alive.append(source.batch)

    def set_back(self, places: Sequence[int]) -> None:
        """Set each source back to a row number; -1 leaves it where it is."""
        for source, number in zip(self.all, places, strict=True):
            if number >= 0 and number != source.number:
                source.set_back(number)
                self._alive.append(source.batch)
