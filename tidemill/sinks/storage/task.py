"""The task half of the storage sink: appends the values of messages to the parts of their table version and date."""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, tzinfo

import numpy as np
import numpy.typing as npt

from tidemill.config.uri import SinkUri
from tidemill.kernels.deliver.batch import Writer
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.options import MessageFormat
from tidemill.sinks.base import BatchContext, Target
from tidemill.sinks.storage.open import layout_of, store_of
from tidemill.sinks.storage.parts import PartFiles, begun

Times = npt.NDArray[np.uint64]
DateOf = Callable[[int], str]


class StorageTaskSink:
    """See `TaskSink`. A CSV value already ends with its terminator; a Canal-JSON value gets it here."""

    def __init__(self, uri: SinkUri) -> None:
        assert uri.storage is not None
        self._layout = layout_of(uri)
        self._store = store_of(uri)
        self._files = PartFiles(self._store, uri.storage.file_size)
        atexit.register(self._files.close)
        self._writer = Writer()
        self._csv = uri.protocol is MessageFormat.CSV
        self._terminator = b"" if self._csv else uri.encoding.csv.terminator.encode()
        self._zone: tzinfo = UTC
        self._after = 0
        self._taken = 0

    def begin(self, ctx: BatchContext) -> None:
        self._files.begin(ctx)
        self._zone, self._taken = ctx.zone, 0
        self._after = begun(self._store, ctx)

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        self._taken += len(messages)
        table = messages.table
        if self._after and bool((table["commit_ts"] <= self._after).any()):
            messages = Messages(np.ascontiguousarray(table[table["commit_ts"] > self._after]), messages.buffers)
        for run in self._writer.values(messages, self._terminator):
            target, head = targets[run.target], _head(run.first) if self._csv else b""
            for start, end in date_runs(run.commit_ts, lambda ts: self._layout.date_of(ts, self._zone)):
                self._append(target, self._layout.date_of(int(run.commit_ts[start]), self._zone), run.data, run.ends, start, end, head)

    def _append(self, target: Target, date: str, data: memoryview, ends: npt.NDArray[np.int64], start: int, end: int, head: bytes) -> None:
        """Append messages start … end - 1 of a run, split where a part is full."""
        while start < end:
            before = int(ends[start - 1]) if start else 0
            full = before + self._files.room(target, date)
            cut = min(end, int(np.searchsorted(ends[start:end], full, "left")) + start + 1)
            self._files.append(target, date, data[before : int(ends[cut - 1])], head)
            start = cut

    def flush(self) -> int:
        self._files.publish(self._taken)
        return self._taken

    def abandon(self) -> None:
        self._files.abandon()


def _head(first: np.void) -> bytes:
    """Return the head of a file: the key of its first message, which is CSV's header line."""
    size = int(first["key_len"])
    return ctypes.string_at(int(first["key"]), size) if size > 0 else b""


def date_runs(times: Times, date_of: DateOf) -> Iterator[tuple[int, int]]:
    """Yield (from, to) of each run of times, which are in order, with one date."""
    start, size = 0, len(times)
    while start < size:
        date, low, high = date_of(int(times[start])), start + 1, size
        if date_of(int(times[-1])) == date:
            low = size
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if date_of(int(times[middle])) == date else (low, middle)
        yield start, low
        start = low
