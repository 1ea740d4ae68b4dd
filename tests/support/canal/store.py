"""Blocks of an entry store made of entries in memory, and a store of them that grows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.changelog.storage.base import Storage
from tidemill.protocols.canal.codes import EntryType, EventType
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.canal.store.publish import StorePublisher
from tidemill.sinks.canal.store.segment import INDEX, MAGIC, Block, SegmentBuilder, parse_block, parse_ends
from tidemill.sinks.canal.store.writer import SegmentWriter, index_of

BEGIN, END, ROWDATA = EntryType.TRANSACTIONBEGIN, EntryType.TRANSACTIONEND, EntryType.ROWDATA


@dataclass(frozen=True, slots=True)
class Made:
    """An entry for a store."""

    commit_ts: int
    data: bytes
    kind: EntryType = ROWDATA
    name: tuple[str, str] = ("", "")
    event: int = 0
    rows: int = 0
    ddl: bool = False


def blocks_of(entries: Sequence[Made], cuts: Sequence[int] = (), first: Position | None = None) -> list[Block]:
    """The blocks of a segment, cut before these numbers."""
    builder = SegmentBuilder(first)
    data = bytearray(MAGIC)
    for low, high in zip([0, *cuts], [*cuts, len(entries)], strict=True):
        if low < high:
            index = np.zeros(high - low, INDEX)
            for at, one in enumerate(entries[low:high]):
                index[at] = (one.commit_ts, len(one.data), one.rows, builder.name(*one.name), one.event, one.kind, one.ddl)
            for part in builder.block(index, b"".join(one.data for one in entries[low:high])):
                data += part
    data += builder.end()
    ends = parse_ends(bytes(data), len(data))
    return [
        parse_block(memoryview(data)[int(place["offset"]) : int(place["offset"]) + int(place["size"])], place, ends.names)
        for place in ends.places
    ]


def plain_index(index: npt.NDArray[np.void], first: int, names: int) -> tuple[list[int], list[int]] | None:
    """Where entries begin, and their `Position.index`; None for an index that is broken. An entry after the other."""
    offsets, indexes = [0], []
    before = -1
    for one in index:
        time = int(one["commit_ts"])
        if time < before or int(one["name"]) >= names or int(one["kind"]) not in EntryType._value2member_map_:
            return None
        indexes.append(first if not indexes else indexes[-1] + 1 if time == before else 0)
        offsets.append(offsets[-1] + int(one["size"]))
        before = time
    return offsets, indexes


def plain_after(block: Block, position: Position) -> int:
    """The number of the first entry behind a position."""
    return sum(entry.position <= position for entry in block.entries(0, len(block)))


class MemoryEntries:
    """An `EntrySource` in memory."""

    def __init__(self, begins: int = 0) -> None:
        self._begins = self._head = begins
        self._blocks: list[Block] = []
        self.is_local = True

    def begins(self) -> int:
        return self._begins

    def head(self) -> int:
        return self._head

    def refresh(self) -> bool:
        return False

    def add(self, entries: Sequence[Made], head: int, cuts: Sequence[int] = ()) -> None:
        """More entries, and nothing else up to `head`."""
        if entries:
            self._blocks += blocks_of(entries, cuts)
        self._head = head

    def blocks(self, after: Position) -> Iterator[tuple[Block, int]]:
        for block in self._blocks:
            first = block.after(after)
            if first < len(block):
                yield block, first


def transaction(ts: int, rows: Sequence[Made]) -> list[Made]:
    """Rows of one commit_ts between the ends of their transaction."""
    return [Made(ts, b"begin %d" % ts, BEGIN), *rows, Made(ts, b"end %d" % ts, END)]


def transactions(*times: int, table: str = "t", size: int = 0) -> list[Made]:
    """One row in each; the rows have at least `size` bytes."""
    found: list[Made] = []
    for ts in times:
        found += transaction(ts, [Made(ts, b"row %d" % ts + b"." * size, name=("db", table), event=1, rows=1)])
    return found


def texts(*times: int) -> list[bytes]:
    """The entries of such transactions."""
    return [one.data for one in transactions(*times)]


def random_entries(rng: random.Random, count: int, begin: int = 100) -> list[Made]:
    """Transactions and DDLs, some of the same commit_ts."""
    found: list[Made] = []
    ts = begin
    for _ in range(count):
        ts += rng.choice([0, 1, 1, 3])
        if rng.random() < 0.15:
            ts += 1
            name = ("db", f"t{rng.randrange(4)}")
            found.append(Made(ts, rng.randbytes(rng.randrange(1, 60)), ROWDATA, name, int(EventType.ALTER), 0, ddl=True))
            ts += 1
        else:
            rows = [
                Made(
                    ts,
                    rng.randbytes(rng.randrange(1, 300)),
                    ROWDATA,
                    ("db", f"t{rng.randrange(4)}"),
                    rng.randrange(1, 4),
                    rng.randrange(1, 5),
                )
                for _ in range(rng.randrange(1, 5))
            ]
            found += transaction(ts, rows)
    return found


class GrowingStore:
    """A store on storage, written as a changefeed does."""

    def __init__(self, storage: Storage, begins: int = 10) -> None:
        self.storage = storage
        self.publisher = StorePublisher(storage, "feed", begins)
        self.at = self.publisher.head

    def add(self, entries: Sequence[Made], to_ts: int) -> None:
        """Publish entries, and that nothing else comes up to `to_ts`."""
        writer = SegmentWriter(self.storage, self.at, to_ts, self.publisher.epoch)
        for one in entries:
            index = index_of(1)
            index[0] = (one.commit_ts, len(one.data), one.rows, writer.number(*one.name), one.event, one.kind, one.ddl)
            writer.add(index, one.data)
        writer.seal()
        writer.publish()
        self.publisher.publish(self.at, to_ts, [writer.name])
        self.at = to_ts
