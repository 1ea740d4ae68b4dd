"""Logs as old as one likes: all files that capture, compaction and retention leave, most of them without the bytes of their rows.

At the defaults compaction joins neighbours until a file has 65,536 rows. Behind the last such file there are some of 32 seconds and some of
one second, and for ten minutes those that were joined already. A hollow file has its size, its checksums' table and Arrow's footer, so the
planner reads of it what it reads of any file; the rest is a hole. The files that a measurement cuts are real.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.corpus import load
from bench.make_log import START_TS, Plan, Shape, batches, plan, snapshot
from tidemill.changelog.files import arrowfile, sums
from tidemill.changelog.files.segment import ipc_options, regrouped, write_file
from tidemill.changelog.log_format import LogIdentity, SegmentName, rows_folder
from tidemill.changelog.options import DEFAULTS
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.events import RAW_CHANGE
from tidemill.tso import LOGICAL_BITS

SECOND = 1000 << LOGICAL_BITS
DAY_S, MONTH_S, MONTH_BYTES = 86_400, 30 * 86_400, 1 << 40
FAN_IN = 32  # seconds of a file that was joined once
JOINED, SINGLE = 5, 8  # files behind the last full one: joined once, not joined yet
LEFT_S = round(DEFAULTS.grace_s)
WINDOW_S = 1300
"""Seconds of real files behind the middle: more than two batches take when it catches up."""


@dataclass(frozen=True, slots=True)
class OldLog:
    """Where it lies, and what is in it. `middle`: where real files begin, in its middle; `end`: its resolved ts."""

    path: Path
    middle: int
    end: int
    files: int
    bytes: int
    rates: tuple[int, int]  # rows and bytes a second


class _Hollow:
    """Writes files of one size without their rows."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        out = pa.BufferOutputStream()
        arrowfile.write(out, [batch], RAW_CHANGE, ipc_options("none"))
        data = out.getvalue().to_pybytes()
        found = sums.opened(data, len(data))
        assert found is not None
        self.rows = batch.num_rows
        self._stretch = found.bounds(0)[1]
        cut = self._stretch + sums.END_OF_STREAM
        self._arrow_end = data[self._stretch : cut] + data[cut + sums.ENTRY.itemsize + sums.TAIL.size :]
        self.size = len(data)

    def write(self, path: Path, name: SegmentName) -> None:
        end = sums.closed([sums.Entry(self._stretch, 0, self.rows, name.from_ts + 1, name.to_ts)], self._arrow_end)
        with (path / str(name)).open("wb", buffering=0) as file:
            file.truncate(self._stretch)
            file.seek(self._stretch)
            file.write(end)


class Growing:
    """The end of the log, as a capture adds to it second by second."""

    def __init__(self, path: Path, made: Plan, writer: LogWriter, end: int) -> None:
        self.end, self._made, self._storage, self._writer = end, made, LocalStorage(path, sync=False), writer

    def publish(self, p: int, from_ts: int, to_ts: int) -> int:
        """Write a real file of a partition, and return its bytes."""
        draft = self._storage.draft(rows_folder(p))
        rows = regrouped(batches(self._made, self._made.tiles[p], from_ts, to_ts))
        write_file(draft, rows_folder(p), rows, RAW_CHANGE, "none")
        name = str(SegmentName(from_ts, to_ts))
        draft.publish(name)
        return self._storage.size(f"{rows_folder(p)}/{name}")

    def set_heads(self, ts: int) -> None:
        """The log is complete up to here."""
        for p in range(len(self._made.tiles)):
            self._writer.partition(p).set_head(ts)
        self._writer.schema.set_head(ts)
        self.end = ts

    def second(self) -> None:
        """A second passes: one file more in each partition."""
        for p in range(len(self._made.tiles)):
            self.publish(p, self.end, self.end + SECOND)
        self.set_heads(self.end + SECOND)


def make_old_log(path: Path, seconds: int, tables: int = 8, partitions: int = 4) -> tuple[OldLog, Growing]:
    """Make a log of so many seconds at the rate of a tebibyte a month, in an empty folder. Its narrow rows are those of `make_log`."""
    corpus = load("narrow")
    trial = plan(Shape("narrow", DEFAULTS.compact_rows * partitions, tables, partitions, rate=1000), corpus)
    full = next(regrouped(batches(trial, trial.tiles[0], START_TS, START_TS + trial.repetitions * trial.span)))
    hollow, small = _Hollow(full), _Hollow(full.slice(0, 250))
    rate = round(MONTH_BYTES / MONTH_S / (hollow.size / hollow.rows))
    shape = Shape("narrow", rate * (seconds + 3600), tables, partitions, rate=rate)
    made = plan(shape, corpus)
    identity = LogIdentity("bench", START_TS, partitions, shape.affinity)
    writer = LogWriter.create(LocalStorage(path, sync=False), identity, snapshot=snapshot(shape, corpus))
    growing = Growing(path, made, writer, START_TS)
    span_s = hollow.rows * partitions // rate  # of a full file
    full_files = max(2, seconds // span_s)
    real_from, real = full_files // 2, -(-WINDOW_S // span_s)
    files = size = 0
    for p in range(partitions):
        folder = path / rows_folder(p)
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(full_files):
            name = SegmentName(START_TS + i * span_s * SECOND, START_TS + (i + 1) * span_s * SECOND)
            if real_from <= i < real_from + real:
                size += growing.publish(p, name.from_ts, name.to_ts)
            else:
                hollow.write(folder, name)
                size += hollow.size
        last = START_TS + full_files * span_s * SECOND
        files += full_files + _left(folder, small, last, span_s)
        for i in range(JOINED):
            size += growing.publish(p, last + i * FAN_IN * SECOND, last + (i + 1) * FAN_IN * SECOND)
        files += JOINED
    growing.set_heads(last + JOINED * FAN_IN * SECOND)
    for _ in range(SINGLE):
        growing.second()
    middle = START_TS + real_from * span_s * SECOND
    return OldLog(path, middle, growing.end, files + SINGLE * partitions, size, (rate, MONTH_BYTES // MONTH_S)), growing


def _left(folder: Path, small: _Hollow, last: int, span_s: int) -> int:
    """Files of the last ten minutes that were joined since. `last`: the end of the last full file, which has `span_s` seconds."""
    end, begin = last + JOINED * FAN_IN * SECOND, last - span_s * SECOND
    names = {SegmentName(end - (i + 1) * SECOND, end - i * SECOND) for i in range(LEFT_S)}
    names |= {SegmentName(begin + i * FAN_IN * SECOND, begin + (i + 1) * FAN_IN * SECOND) for i in range(span_s // FAN_IN)}
    for name in names:
        small.write(folder, name)
    return len(names)
