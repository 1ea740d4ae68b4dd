"""The value log: files of records in a folder. Appends whole batches, each with one fdatasync; reads records and scans files.

One thread appends. Any thread reads, with a `LogReader` of its own. A file that ends in the middle of a record stays as it is, and a new
one is begun: what died with a machine was never answered.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemill.binlog.indexkeys import Pointer
from tidemill.binlog.messages import read_head
from tidemill.binlog.pump.faults import PumpCorrupt, PumpFailed
from tidemill.binlog.valuelog import END, HEAD, Record, Skipped, end_of, finish, record_at, scan
from tidemill.changelog.storage.durable import make_folder, sync_folder
from tidemill.errors import MalformedMessage

FILE_BYTES = 500 << 20
"""A file that is larger is finished."""

FINISH_BYTES = 50 << 10
"""At the end of the process a file that is smaller stays open."""

_NAME = re.compile(r"(\d{6,})\.vlog")
_NEAR = 1 << 20
"""Bytes that a reader takes at once."""

_log = logging.getLogger(__name__)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.vlog"


class ValueLog:
    """`sync`: batches are synced before they count as written. `file_bytes`: see FILE_BYTES."""

    def __init__(self, folder: Path, *, sync: bool = True, file_bytes: int = FILE_BYTES) -> None:
        """Open a folder, or make it. Raises OSError."""
        self.folder, self._sync, self._file_bytes = folder, sync, file_bytes
        make_folder(folder)
        self.skipped: list[str] = []
        """What was found that is not a record, for people."""
        numbers = self.files()
        self._max_ts = 0
        self._finished = False  # the file has its end, and the next one is to be begun
        self._descriptor = -1
        self.end = Pointer(numbers[-1] if numbers else 0, 0)
        """Where the next record begins. What is before it is synced, unless syncing is off."""
        if not numbers:
            self._begin(0)
        elif not self._continue(numbers[-1]):
            self._begin(numbers[-1] + 1)

    def files(self) -> list[int]:
        """The numbers of the files, in order."""
        return sorted(int(found[1]) for path in self.folder.iterdir() if (found := _NAME.fullmatch(path.name)))

    def size(self) -> int:
        """The size of all files."""
        return sum(_path(self.folder, number).stat().st_size for number in self.files())

    def _continue(self, number: int) -> bool:
        """Go on in the last file, if it is not finished and its end is whole."""
        path = _path(self.folder, number)
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(0, size - END.size))
            if end_of(file.read()) is not None:
                return False
        self.end = Pointer(number, size)
        for found in self.scan(Pointer(number, 0), self.end):
            if not isinstance(found, Skipped):
                self._max_ts = max(self._max_ts, _greatest(found[1].payload))
            elif found.offset + found.size >= size:
                return False
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        return True

    def _begin(self, number: int) -> None:
        """Begin a file, and make sure that its name stays."""
        descriptor = os.open(_path(self.folder, number), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            sync_folder(str(self.folder))
        except OSError:
            os.close(descriptor)
            raise
        self._close_file()
        self._descriptor, self._max_ts, self._finished = descriptor, 0, False
        self.end = Pointer(number, 0)

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    # writing

    def append(self, records: memoryview, max_ts: int) -> Pointer:
        """Write a batch of records, and sync it once. Return where the first one begins. `max_ts`: the greatest ts in it.

        Raises OSError: nothing was written, the log goes on. Raises PumpFailed: what is on the disk is not known, and the log is closed.
        """
        if self._descriptor < 0:
            raise PumpFailed(f"the value log {self.folder} is closed after an error")
        if self.end.offset > self._file_bytes or self._finished:
            self._finish_file()
        start = self.end
        self._write(records)
        self.end, self._max_ts = Pointer(start.file, start.offset + len(records)), max(self._max_ts, max_ts)
        return start

    def _write(self, data: bytes | memoryview) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            self._undo()
            raise
        if self._sync:
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:  # the kernel may have dropped the pages: a second sync would pass and prove nothing
                self._close_file()
                raise PumpFailed(f"{_path(self.folder, self.end.file)} could not be synced: {error}") from error

    def _undo(self) -> None:
        """Take back what a failed write left. Raises PumpFailed."""
        try:
            os.ftruncate(self._descriptor, self.end.offset)
        except OSError as error:
            self._close_file()
            raise PumpFailed(f"a failed write into {_path(self.folder, self.end.file)} could not be taken back: {error}") from error

    def _finish_file(self) -> None:
        """End the file, and begin the next."""
        if not self._finished:
            self._write(finish(self._max_ts))
            self._finished = True
        self._begin(self.end.file + 1)

    def close(self) -> None:
        """End the file if it is large enough. Raises OSError, PumpFailed."""
        try:
            if self._descriptor >= 0 and self.end.offset >= FINISH_BYTES and not self._finished:
                self._write(finish(self._max_ts))
        finally:
            self._close_file()

    # reading

    def scan(self, start: Pointer, end: Pointer) -> Iterator[tuple[int, Record] | Skipped]:
        """Yield the records between two places, each with the number of its file; what is skipped is told once."""
        for number in self.files():
            if number < start.file or number > end.file:
                continue
            path = _path(self.folder, number)
            size = path.stat().st_size if number < end.file else end.offset
            first = start.offset if number == start.file else 0
            if size <= first:
                continue
            with path.open("rb") as file, contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as data:
                yield from self._scan_file(number, data, min(size, len(data)), first)

    def _scan_file(self, number: int, data: mmap.mmap, size: int, start: int) -> Iterator[tuple[int, Record] | Skipped]:
        with memoryview(data) as view:
            for found in scan(view, size, start):
                if isinstance(found, Skipped):
                    self._tell(_path(self.folder, number), found)
                    yield found
                else:
                    yield number, found

    def _tell(self, path: Path, found: Skipped) -> None:
        text = f"{path}: {found.size} bytes at {found.offset} are skipped: {found.why}"
        if text not in self.skipped:
            self.skipped.append(text)
            _log.log(logging.INFO if found.torn else logging.ERROR, "%s", text)

    def greatest_ts(self, number: int) -> int:
        """The greatest ts of a file that is not written any more. One that broke off is read as a whole."""
        path = _path(self.folder, number)
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - END.size))
            told = end_of(file.read())
        if told is not None:
            return told
        records = (one for one in self.scan(Pointer(number, 0), Pointer(number, size)) if not isinstance(one, Skipped))
        return max((_greatest(record.payload) for _, record in records), default=0)

    def remove(self, number: int) -> None:
        """Delete a file. Raises OSError."""
        _path(self.folder, number).unlink()


def _greatest(payload: bytes) -> int:
    """The greatest ts of a binlog; 0 for a record that is none."""
    try:
        head = read_head(payload)
    except MalformedMessage:
        return 0
    return max(head.start_ts, head.commit_ts)


class LogReader:
    """Reads single records. Belongs to one thread at a time; close it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number, self._descriptor = -1, -1
        self._near, self._near_at, self._near_file = b"", 0, -1

    def payload(self, at: Pointer) -> bytes:
        """Return the payload of a record. Raises PumpCorrupt."""
        if self._near_file == at.file and self._near_at <= at.offset:
            found = record_at(self._near, at.offset - self._near_at, len(self._near))
            if isinstance(found, bytes):
                return found
        found = self._read(at)
        if isinstance(found, str):
            raise PumpCorrupt(
                f"the index names a record at {at.offset} of {_path(self._folder, at.file)}, but there {found}",
                hint="Stop Pump, remove the folder kv of its data, and start it: the index is made again from what is in the value log.",
            )
        return found

    def _read(self, at: Pointer) -> bytes | str:
        try:
            self._open(at.file)
            near = os.pread(self._descriptor, _NEAR, at.offset)
            if len(near) >= HEAD.size:
                length = HEAD.size + HEAD.unpack_from(near)[1]
                if len(near) == _NEAR and length > _NEAR:
                    size = os.fstat(self._descriptor).st_size
                    if length <= size - at.offset:  # else the head is broken, and its length may be anything
                        return record_at(os.pread(self._descriptor, length, at.offset), 0, length)
        except OSError as error:
            return f"it cannot be read: {error}"
        self._near, self._near_at, self._near_file = near, at.offset, at.file
        return record_at(near, 0, len(near))

    def read_into(self, number: int, start: int, room: Any) -> int:
        """Read bytes of a file from an offset on, as many as there is room for. Return how many there are; 0 if the file cannot be read."""
        try:
            self._open(number)
            return os.preadv(self._descriptor, [room], start)
        except OSError:
            return 0  # whoever reads the record itself tells

    def _open(self, number: int) -> None:
        if number != self._number or self._descriptor < 0:
            self.close()
            self._descriptor, self._number = os.open(_path(self._folder, number), os.O_RDONLY | os.O_CLOEXEC), number

    def close(self) -> None:
        """Let the file go."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
