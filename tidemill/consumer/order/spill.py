"""Runs of pending events in temporary files, which are written once and read once in order."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from tidemill.consumer.order.pending import Group, Run
from tidemill.consumer.order.progress import TopicPartition
from tidemill.errors import SinkError


class TemporaryFiles:
    """Makes runs in unnamed files, so nothing is left however the process ends."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def write(self, groups: Iterable[Group], offsets: dict[TopicPartition, int]) -> Run:
        """See `pending.Spill`. Raises SinkError when the disk is full."""
        try:
            file: BinaryIO = tempfile.TemporaryFile(dir=self._folder, prefix="tidemill-pending-")  # noqa: SIM115 - lives with its run
            for group in groups:
                pickle.dump(group, file, pickle.HIGHEST_PROTOCOL)
            file.seek(0)
        except OSError as error:
            raise SinkError(f"keeping pending rows on disk: {error}", hint="Give a folder with room by TMPDIR.") from error
        return _FileRun(file, offsets)


class _FileRun:
    """A file with one group read ahead. This process wrote it, so its content is trusted."""

    def __init__(self, file: BinaryIO, offsets: dict[TopicPartition, int]) -> None:
        self._file, self.offsets = file, offsets
        self._ahead: Group | None = None
        self.first_ts: int | None = None
        self._read()

    def _read(self) -> None:
        try:
            self._ahead = pickle.load(self._file)
        except EOFError:
            self._ahead = None
        self.first_ts = None if self._ahead is None else self._ahead[0]

    def until(self, ts: int) -> Iterator[Group]:
        while self._ahead is not None and self._ahead[0] <= ts:
            group = self._ahead
            self._read()
            yield group

    def close(self) -> None:
        self._file.close()
