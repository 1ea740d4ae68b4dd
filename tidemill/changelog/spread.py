"""How a log's rows are spread over its partitions, and from when on: `layouts` and `split_tables` of log.json. Pure.

A table is in one partition, or, where it is hot, split over several by ranges of its handles: what follows `t<table id>_r` in a key.
The same ranges count for every physical table (partition) of a logical table.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tidemill.statefile import Fields

RECORD_PREFIX = 11
"""Bytes of a record key before its handle: 't', the physical table id, '_r'."""

HandleRange = tuple[bytes, bytes]
"""Handles from the first (included) up to the second (not included); an empty end is open."""


MAX_PARTITIONS = 1 << 16
"""A folder each: more is a mistake, or a broken log.json."""


PARTITION_BY = "crc32(logical table id)"
"""How tables are assigned to partitions, as log.json names it."""


@dataclass(frozen=True, slots=True)
class SplitTable:
    """A logical table that is spread over several partitions: rows with handles below keys[0] are in partitions[0], those from keys[i - 1]
    on and below keys[i] in partitions[i]. Raises ValueError for invalid values."""

    table_id: int
    name: str  # as it was when the table was split, for people
    keys: tuple[bytes, ...]
    partitions: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.partitions) != len(self.keys) + 1 or not self.keys:
            raise ValueError(f"split table {self.table_id} has {len(self.keys)} keys and {len(self.partitions)} partitions")
        if not self.keys[0] or any(a >= b for a, b in pairwise(self.keys)):
            raise ValueError(f"the keys of split table {self.table_id} do not ascend")
        if len(set(self.partitions)) != len(self.partitions):
            raise ValueError(f"split table {self.table_id} names a partition twice")

    def ranges(self) -> list[tuple[HandleRange, int]]:
        """The ranges of handles, in order, and the partition of each."""
        edges = (b"", *self.keys, b"")
        return list(zip(pairwise(edges), self.partitions, strict=True))

    def partition_of(self, handle: bytes) -> int:
        """The partition of a row."""
        return self.partitions[bisect_right(self.keys, handle)]

    def to_dict(self) -> dict[str, Any]:
        """As log.json has it."""
        return {"table": self.table_id, "name": self.name, "keys": [key.hex() for key in self.keys], "partitions": list(self.partitions)}

    @classmethod
    def from_fields(cls, fields: Fields) -> SplitTable:
        """Raises ValueError, and the error of the fields' file."""
        keys = tuple(bytes.fromhex(key) for key in fields.texts("keys"))
        return cls(fields.integer("table"), fields.text("name"), keys, fields.integers("partitions", 0, MAX_PARTITIONS - 1))


@dataclass(frozen=True, slots=True)
class Layout:
    """From `from_ts` on rows are spread over `partitions` partitions. Each table is in one of them, except those in `split_tables`."""

    from_ts: int
    partitions: int
    split_tables: tuple[SplitTable, ...] = ()

    def __post_init__(self) -> None:
        ids = [split.table_id for split in self.split_tables]
        if len(set(ids)) != len(ids):
            raise ValueError("a layout splits a table twice")
        for split in self.split_tables:
            if max(split.partitions) >= self.partitions:
                raise ValueError(f"split table {split.table_id} is in partition {max(split.partitions)}; there are {self.partitions}")

    def split_of(self, table_id: int) -> SplitTable | None:
        """How a logical table is split; None: it is in one partition."""
        return next((split for split in self.split_tables if split.table_id == table_id), None)

    def split_named(self, name: str) -> SplitTable | None:
        """How the table by that name is split. Of several that had the name, the newest: the others were dropped or renamed."""
        named = [split for split in self.split_tables if split.name.lower() == name.lower()]
        return max(named, key=lambda split: split.table_id, default=None)

    def units(self) -> tuple[int, ...]:
        """For each partition the smallest one that it shares tables with, directly or through others; itself where it shares none."""
        found = list(range(self.partitions))
        for split in self.split_tables:
            joined = {found[p] for p in split.partitions}
            least = min(joined)
            found = [least if unit in joined else unit for unit in found]
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """As log.json has it."""
        split = {"split_tables": [one.to_dict() for one in self.split_tables]} if self.split_tables else {}
        return {"from_ts": self.from_ts, "partitions": self.partitions, **split}

    @classmethod
    def from_fields(cls, fields: Fields) -> Layout:
        """Raises ValueError, and the error of the fields' file."""
        split = tuple(SplitTable.from_fields(one) for one in fields.parts("split_tables", optional=True))
        return cls(fields.integer("from_ts"), fields.integer("partitions", 1, MAX_PARTITIONS), split)


def with_split(splits: Iterable[SplitTable], split: SplitTable) -> tuple[SplitTable, ...]:
    """The split tables of a layout in which one more is split, or one in another way."""
    return (*(one for one in splits if one.table_id != split.table_id), split)


def even_keys(borders: Sequence[bytes], regions: int, parts: int) -> tuple[bytes, ...] | None:
    """Handles that cut a table into `parts` ranges with about the same number of regions; None where there are too few borders.

    `borders`: handles at which its regions begin, sorted; one for each physical table that has it there. `regions`: of all of them.
    """
    distinct = sorted(set(borders))
    if len(distinct) < parts - 1:
        return None
    chosen: list[int] = []
    for cut in range(1, parts):
        aim = borders[max(0, min(len(borders) - 1, round(cut * regions / parts) - 1))]
        least = chosen[-1] + 1 if chosen else 0
        most = len(distinct) - (parts - cut)
        chosen.append(min(max(bisect_right(distinct, aim) - 1, least), most))
    return tuple(distinct[i] for i in chosen)


def partition_of(table_id: int, partitions: int) -> int:
    """Return the log partition of a logical table: the CRC-32 of its id (8 bytes, big-endian) modulo the number of partitions."""
    return zlib.crc32(table_id.to_bytes(8, "big", signed=True)) % partitions


def home_of(table_id: int, layout: Layout) -> int:
    """The log partition of a logical table's rows; of a table that is split, of its first ones."""
    split = layout.split_of(table_id)
    return split.partitions[0] if split is not None else partition_of(table_id, layout.partitions)
