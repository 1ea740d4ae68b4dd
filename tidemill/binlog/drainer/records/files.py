"""Files of records: the `file` form, and the relay log. A new file begins when one is full; what a crash left half written is cut off."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from tidemill.binlog.outputs.frames import frame, framed, whole_size
from tidemill.changelog.storage.durable import make_folder

FULL = 512 << 20
NAME = re.compile(r"binlog-(\d{16})-\d{14}")


def _whole_size(file: BinaryIO) -> int:
    """Return the size of a file's whole records. It may be far larger than memory."""
    try:
        with closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as data:
            return whole_size(data)
    except ValueError:  # it is empty
        return 0


class RecordFiles:
    """Appends records to `binlog-<number>-<time>` files of a folder. All methods raise OSError."""

    def __init__(self, folder: Path, full: int = FULL) -> None:
        self._folder, self._full = folder, full
        self._file: FileIO | None = None
        make_folder(folder)
        names = sorted(path.name for path in folder.iterdir() if NAME.fullmatch(path.name))
        self._number = -1
        if names:
            found = NAME.fullmatch(names[-1])
            assert found is not None
            self._number = int(found[1])
            self._continue(folder / names[-1])

    def _continue(self, path: Path) -> None:
        with path.open("rb") as file:
            whole = _whole_size(file)
        self._file = path.open("r+b", buffering=0)
        self._file.truncate(whole)
        self._file.seek(whole)

    @property
    def paths(self) -> list[Path]:
        """The files, the oldest first."""
        return sorted(path for path in self._folder.iterdir() if NAME.fullmatch(path.name))

    def append(self, *payloads: bytes) -> None:
        """Append records, those of a file at once."""
        for records in self._by_file(payloads):
            self._write(records)

    def append_in_parts(self, size: int, parts: Iterable[bytes | memoryview]) -> None:
        """Append one record, whose payload of `size` bytes comes in parts. Where that fails, nothing of it stays. Raises what `parts`
        raises."""
        if self._file is None or self._file.tell() >= self._full:
            self._next()
        assert self._file is not None
        begin = self._file.tell()
        try:
            for part in framed(size, parts):
                self._write(part)
        except BaseException:
            self._file.truncate(begin)
            self._file.seek(begin)
            raise

    def _write(self, data: bytes | memoryview) -> None:
        assert self._file is not None
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _by_file(self, payloads: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the records that go into one file, once that is open. The first record that finds a file full goes into the next one."""
        held, size = list[bytes](), self._file.tell() if self._file is not None else self._full
        for payload in payloads:
            if size >= self._full:
                if held:
                    yield b"".join(held)
                    held = []
                self._next()
                size = 0
            held.append(frame(payload))
            size += len(held[-1])
        if held:
            yield b"".join(held)

    def _next(self) -> None:
        """Begin the next file, once the present one is on the disk."""
        self.close()
        self._number += 1
        name = f"binlog-{self._number:016d}-{datetime.now():%Y%m%d%H%M%S}"
        self._file = (self._folder / name).open("xb", buffering=0)

    def sync(self) -> None:
        """Bring what was appended to the disk."""
        if self._file is not None:
            os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Sync and close."""
        self.sync()
        if self._file is not None:
            self._file.close()
            self._file = None
