"""Small logs, rows and receivers for tests of what a capture receives."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path

from tests.support.capture.captures import Change, partition_changes
from tests.support.capture.eventfeeds import Row, message
from tidemill.capture.tikv.receive.ingest import Event, Options, Receiver
from tidemill.capture.tikv.receive.seal_spans import SealTraces
from tidemill.capture.tikv.sort.partition import PartitionLog
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.writer import LogWriter
from tidemill.kernels.receive.layout import COMMIT, INITIALIZED, PREWRITE, PUT

INIT = Row(type=INITIALIZED)
START = 10


def prewrite(key: bytes, start: int, value: bytes) -> Row:
    return Row(type=PREWRITE, op_type=PUT, key=key, start_ts=start, value=value)


def commit(key: bytes, start: int, commit_ts: int) -> Row:
    return Row(type=COMMIT, op_type=PUT, key=key, start_ts=start, commit_ts=commit_ts)


def key(i: int) -> bytes:
    return b"t" + (i % 3 + (1 << 63)).to_bytes(8, "big") + b"_r" + i.to_bytes(8, "big")


def log_of(folder: Path) -> tuple[LogWriter, PartitionLog]:
    identity = LogIdentity(cluster_id="1", start_ts=10, partitions=1)
    writer = LogWriter.create(folder / "log", identity, snapshot={})
    scratch = folder / "scratch"
    scratch.mkdir()
    return writer, PartitionLog(writer.partition(0), scratch, slice_rows=8192)


def two_pieces(folder: Path, options: Options, traced: SealTraces | None = None) -> tuple[LogWriter, Receiver, list[int]]:
    """A receiver of two partitions, each with a sub-range whose scan is complete; and the partitions as they are sealed."""
    writer = LogWriter.create(folder / "log", LogIdentity(cluster_id="1", start_ts=10, partitions=2), snapshot={})
    scratch = folder / "scratch"
    scratch.mkdir()
    sealed: list[int] = []
    logs = [PartitionLog(writer.partition(p), scratch) for p in range(2)]
    receiver = Receiver(logs, scratch, lambda events: None, lambda p, done: sealed.append(p), options=options, traced=traced)
    for sub_range in (0, 1):
        receiver.place(sub_range, 10, sub_range)
        receiver.subscribe(sub_range, 0, sub_range + 1, 7, 10, b"", b"", sub_range)
        receiver.step([0], [message(sub_range + 1, 7, [INIT])])
    return writer, receiver, sealed


def stored(folder: Path, partition: int) -> list[tuple[int, bytes]]:
    reader = LogReader(folder / "log")
    found: list[tuple[int, bytes]] = []
    for interval in reader.chain(partition, 10, reader.head(partition)):
        for path in interval.parts:
            table = reader.open_segment(path).read_all()
            found += zip(table["commit_ts"].to_pylist(), table["key"].to_pylist(), strict=True)
    return found


class Bench:
    """A receiver of one partition, one step at a time; sub-range 1 is subscribed as region 1, request 7."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder, self.events = folder, list[Event]()
        identity = LogIdentity(cluster_id="1", start_ts=START, partitions=1)
        self.writer = LogWriter.create(folder / "log", identity, snapshot={})
        self.log = PartitionLog(self.writer.partition(0), folder)
        self.receiver = Receiver([self.log], folder, self.events.extend, options=options)
        self.receiver._next_seal = float("inf")
        self.receiver.open_stream(0, True)
        self.receiver.place(1, START, 0)
        self.receiver.subscribe(1, 0, 1, 7, START, b"", b"", 0)

    def step(self, *messages: bytes) -> None:
        self.receiver.step([0] * len(messages), list(messages))

    def spill(self) -> None:
        """Wait until what is on its way to disk is there."""
        wait(self.receiver.prewrites.futures())
        self.step()

    def seal(self) -> int:
        self.receiver._seal(force=True)
        self.receiver._finish_seals(wait=True)
        return self.log.head

    def rows(self) -> list[Change]:
        return partition_changes(LogReader(self.folder / "log"), 0, START, self.log.head)

    def close(self) -> None:
        self.receiver.workers.shutdown()
        self.writer.close()
