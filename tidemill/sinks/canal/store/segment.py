"""Segments of the entry store as bytes: blocks of entries, then the names and the blocks' places. Pure.

    MAGIC block… names places tail
    block    = INDEX of each entry, then the entries behind each other
    names    = JSON: [[schema, table], …]
    places   = PLACE of each block
    tail     = last commit_ts, index of its last entry, bytes of names, number of blocks, checksum of names, places and the tail so far, END

Numbers are little-endian, checksums CRC-32C. Each block has one, so a reader of a range verifies what it reads.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tidemill.kernels.canal.block_kernel import INDEX_SIZE, UNKNOWN, UNORDERED, WITH_DDLS, find_after, read_index
from tidemill.protocols.canal.codes import EntryType
from tidemill.sinks.canal.store.position import Position, StoredEntry
from tidemill.tso import MAX_TS

MAGIC = b"TMCANAL1"
END = b"TMCANEND"
BLOCK_BYTES = 256 << 10
"""A block ends with the entry with which it reaches so many bytes."""

Name = tuple[str, str]
"""(schema, table); of the ends of a transaction both are empty."""
Array = npt.NDArray[np.void]

INDEX = np.dtype([("commit_ts", "<u8"), ("size", "<u4"), ("rows", "<u4"), ("name", "<u4"), ("event", "<u2"), ("kind", "u1"), ("ddl", "u1")])
"""An entry of a block. `name`: number in the segment's names."""
assert INDEX.itemsize == INDEX_SIZE
PLACE = np.dtype(
    [
        ("offset", "<u8"), ("size", "<u8"), ("first_ts", "<u8"), ("last_ts", "<u8"), ("entries", "<u4"), ("first_index", "<u4"),
        ("checksum", "<u4"), ("unused", "<u4"),
    ]
)  # fmt: skip
"""A block in the segment. `first_index`: the first entry's `Position.index`."""
TAIL = struct.Struct("<QIIII8s")
LOOK = 16 << 10
"""This many bytes at the end are enough for most segments."""
_LAST = (1 << 63) - 1
_KINDS = {int(kind): kind for kind in EntryType}


class Damaged(Exception):
    """The bytes are not a segment, or not the one that was written. The text says how."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What the end of a segment says."""

    last: Position | None  # None: it has no entry
    names: tuple[Name, ...]
    places: Array

    @property
    def entries(self) -> int:
        """How many entries the segment has."""
        return int(self.places["entries"].sum(dtype=np.int64))


class SegmentBuilder:
    """Turns entries into the bytes of a segment, piece by piece. `first`: the position of the first entry, if others of its commit_ts stand
    in an earlier segment."""

    def __init__(self, first: Position | None = None) -> None:
        self._last = Position(first.commit_ts, first.index - 1) if first is not None else None
        self._names: dict[Name, int] = {}
        self._places: list[tuple[int, ...]] = []
        self._at = len(MAGIC)
        self.entries = 0

    def name(self, schema: str, table: str) -> int:
        """The number of a name in the index."""
        return self._names.setdefault((schema, table), len(self._names))

    def block(self, index: Array, data: bytes | bytearray | memoryview) -> list[bytes | bytearray | memoryview]:
        """The bytes of the next block: entries behind each other in `data`, described by `index`."""
        first_ts, last_ts = int(index["commit_ts"][0]), int(index["commit_ts"][-1])
        first = self._last.index + 1 if self._last is not None and self._last.commit_ts == first_ts else 0
        before = first if first_ts == last_ts else 0
        same = len(index) - int(np.searchsorted(index["commit_ts"], np.uint64(last_ts)))
        self._last = Position(last_ts, before + same - 1)
        head = index.tobytes()
        size = len(head) + len(data)
        self._places.append((self._at, size, first_ts, last_ts, len(index), first, crc32c(data, crc32c(head)), 0))
        self._at += size
        self.entries += len(index)
        return [head, data]

    def end(self) -> bytes:
        """What follows the last block."""
        names = json.dumps(list(self._names)).encode()
        places = np.array(self._places, PLACE).tobytes()
        last = self._last if self.entries and self._last is not None else Position(0, 0)
        bare = TAIL.pack(last.commit_ts, last.index, len(names), len(self._places), 0, b"")
        checksum = crc32c(bare, crc32c(places, crc32c(names)))
        return names + places + TAIL.pack(last.commit_ts, last.index, len(names), len(self._places), checksum, END)


def ends_size(tail: bytes | memoryview, size: int) -> int:
    """How many bytes of the end of a segment of `size` bytes `parse_ends` needs. `tail`: its last bytes. Raises Damaged."""
    _, _, names, blocks, _, magic = _tail(tail, size)
    wanted = names + blocks * PLACE.itemsize + TAIL.size
    if magic != END or len(MAGIC) + wanted > size:
        raise Damaged(f"its {size} bytes do not end as a segment of entries")
    return int(wanted)


def _tail(tail: bytes | memoryview, size: int) -> tuple[Any, ...]:
    if len(tail) < TAIL.size or size < len(MAGIC) + TAIL.size:
        raise Damaged(f"it has {size} bytes only")
    return TAIL.unpack_from(tail, len(tail) - TAIL.size)


def parse_ends(tail: bytes | memoryview, size: int) -> Ends:
    """Parse the end of a segment of `size` bytes. `tail`: as many bytes as `ends_size` says, or more. Raises Damaged."""
    wanted = ends_size(tail, size)
    last_ts, last_index, names_size, blocks, checksum, _ = _tail(tail, size)
    if len(tail) < wanted:
        raise ValueError(f"{wanted} bytes of its end are needed, not {len(tail)}")
    body = memoryview(tail)[len(tail) - wanted : len(tail) - TAIL.size]
    found = crc32c(TAIL.pack(last_ts, last_index, names_size, blocks, 0, b""), crc32c(body))
    if found != checksum:
        raise Damaged(f"its end has the checksum {found:08x}, not {checksum:08x} as when it was written")
    places = np.frombuffer(body[names_size:], PLACE, blocks)
    _check_places(places, size - wanted)
    return Ends(Position(last_ts, last_index) if blocks else None, _names(bytes(body[:names_size])), places)


def _names(data: bytes) -> tuple[Name, ...]:
    try:
        found = json.loads(data)
        names = tuple((schema, table) for schema, table in found)
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged(f"its names cannot be read: {error}") from None
    if not all(isinstance(part, str) for name in names for part in name):
        raise Damaged("its names are not texts")
    return names


def _check_places(places: Array, end: int) -> None:
    """Blocks follow each other, in order of commit_ts, from MAGIC to `end`."""
    starts, sizes = places["offset"], places["size"]
    ends = [len(MAGIC), *(int(a) + int(b) for a, b in zip(starts, sizes, strict=True))]
    if ends[-1] != end or any(int(a) != b for a, b in zip(starts, ends, strict=False)):
        raise Damaged("its blocks are not where they should be")
    times = np.column_stack([places["first_ts"], places["last_ts"]]).ravel()
    if (times[1:] < times[:-1]).any() or (times > np.uint64(MAX_TS)).any() or not places["entries"].all():
        raise Damaged("its blocks are not in order")
    if (places["entries"].astype(np.uint64) * INDEX.itemsize > sizes).any():
        raise Damaged("a block has more entries than bytes for them")


class Block:
    """The entries of a block, by number. `index` is an INDEX array; `data` holds the entries behind each other."""

    __slots__ = ("data", "has_ddls", "index", "indexes", "names", "offsets")

    def __init__(
        self,
        index: Array,
        indexes: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        data: memoryview,
        names: Sequence[Name],
        *,
        has_ddls: bool,
    ):
        self.index, self.indexes, self.offsets, self.data, self.names, self.has_ddls = index, indexes, offsets, data, names, has_ddls
        """indexes: `Position.index` of each entry. offsets: where each begins in `data`, and the end of the last."""

    def __len__(self) -> int:
        return len(self.index)

    def after(self, position: Position) -> int:
        """The number of the first entry behind a position."""
        ts, number = min(position.commit_ts, MAX_TS), position.index
        return int(find_after(len(self.index), self.index.ctypes.data, self.indexes.ctypes.data, ts, number))

    def until(self, ts: int) -> Block:
        """The entries up to this commit_ts."""
        end = self.after(Position(ts, _LAST))
        return Block(self.index[:end], self.indexes[:end], self.offsets[: end + 1], self.data, self.names, has_ddls=self.has_ddls)

    def entry(self, number: int) -> StoredEntry:
        """One entry. Its data is a view of the block."""
        return self.entries(number, number + 1)[0]

    def entries(self, first: int, end: int) -> list[StoredEntry]:
        """Entries first … end - 1. Their data are views of the block."""
        offsets, data, names = self.offsets[first : end + 1].tolist(), self.data, self.names
        numbers = self.indexes[first:end].tolist()
        found = []
        for at, (commit_ts, _, rows, name, event, kind, ddl) in enumerate(self.index[first:end].tolist()):
            schema, table = names[name]
            view = data[offsets[at] : offsets[at + 1]]
            found.append(StoredEntry(Position(commit_ts, numbers[at]), _KINDS[kind], schema, table, event, ddl != 0, rows, view))
        return found

    def fitting(self, first: int, size: int) -> int:
        """Behind which entry those from `first` on have at most so many bytes together."""
        return int(np.searchsorted(self.offsets, self.offsets[first] + size, "right")) - 1


def parse_block(data: Any, place: np.void, names: Sequence[Name], *, checked: bool = False) -> Block:
    """Parse a block; `data` are the bytes that its place names. `checked`: its checksum was verified before. Raises Damaged."""
    view = memoryview(data)
    count, size = int(place["entries"]), int(place["size"])
    if len(view) != size:
        raise Damaged(f"the block at {place['offset']} has {len(view)} bytes, not {size}")
    if not checked:
        found, wanted = crc32c(view), int(place["checksum"])
        if found != wanted:
            raise Damaged(f"the block at {place['offset']} has the checksum {found:08x}, not {wanted:08x} as when it was written")
    if not count or count * INDEX.itemsize > size:
        raise Damaged(f"the block at {place['offset']} has {size} bytes for {count} entries")
    index = np.frombuffer(view, INDEX, count)
    offsets, indexes = np.empty(count + 1, np.int64), np.empty(count, np.int64)
    addresses = (offsets.ctypes.data, indexes.ctypes.data)
    found = int(read_index(count, index.ctypes.data, len(names), int(place["first_index"]), *addresses))
    _check_index(found, index, int(offsets[-1]) if found >= 0 else -1, place)
    return Block(index, indexes, offsets, view[count * INDEX.itemsize :], names, has_ddls=found == WITH_DDLS)


def _check_index(found: int, index: Array, end: int, place: np.void) -> None:
    """`found`: what reading it gave. `end`: of the last entry. Raises Damaged."""
    if found == UNKNOWN:
        raise Damaged(f"the index of the block at {place['offset']} names what is not there")
    if found == UNORDERED or end != int(place["size"]) - index.nbytes:
        raise Damaged(f"the index of the block at {place['offset']} does not fit its entries")
    if index["commit_ts"][0] != place["first_ts"] or index["commit_ts"][-1] != place["last_ts"]:
        raise Damaged(f"the index of the block at {place['offset']} has other times than its place")
