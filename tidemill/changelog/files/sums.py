"""Checksums of an Arrow file. They lie between its record batches and its footer. Arrow finds the footer from the end, and the batches by
the footer, so it ignores them.

    stretch 0 … n - 1   one record batch each; the first includes everything before it
    Arrow's end of stream
    n entries           one per stretch, see ENTRY
    n, checksum, MAGIC  see TAIL
    Arrow's footer, its length, ARROW1

The checksum in TAIL covers everything from the end of the last stretch to the end of the file, with itself as 0. So every byte of the file
is covered. All numbers are little-endian, all checksums CRC32C.

Pure: bytes in, bytes out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from crc32c import crc32c

FORMAT = 2
"""The format of a file with checksums. A file without them has format 1."""

MARK = {b"tidemill.format": b"2"}
"""In the metadata of the file's Arrow schema: a second sign that the file has checksums. A file that loses one of the signs is damaged, not
a file of format 1."""

MAGIC = b"TMSUMS2\n"
ENTRY = np.dtype([("end", "<u8"), ("checksum", "<u4"), ("rows", "<u4"), ("first_ts", "<u8"), ("last_ts", "<u8")])
"""`end`: the offset behind the stretch. `first_ts`, `last_ts`: commit_ts of the batch's first and last row; 0 without that column."""

TAIL = struct.Struct("<II8s")
_ARROW = struct.Struct("<i6s")
_ARROW_MAGIC = b"ARROW1"
END_OF_STREAM = 8  # bytes
LOOK = 1 << 16
"""This many bytes at the end are enough for most files."""


class Damaged(Exception):
    """The bytes do not match their checksums; the text says how."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stretch that was written."""

    end: int
    checksum: int
    rows: int
    first_ts: int
    last_ts: int


@dataclass(frozen=True, slots=True)
class Sums:
    """The checksums and stretches of a file, as its end lists them."""

    entries: Any  # of ENTRY

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def rows(self) -> int:
        """The rows of the whole file."""
        return int(self.entries["rows"].sum(dtype=np.int64))

    def bounds(self, stretch: int) -> tuple[int, int]:
        """Return where a stretch begins and ends in the file."""
        return int(self.entries["end"][stretch - 1]) if stretch else 0, int(self.entries["end"][stretch])

    def check(self, stretch: int, data: Any) -> None:
        """Raise Damaged if `data` is not what was written there."""
        found, wanted = crc32c(data), int(self.entries["checksum"][stretch])
        if found != wanted:
            start, end = self.bounds(stretch)
            raise Damaged(f"bytes {start} to {end} have the checksum {found:08x}, not {wanted:08x} as when they were written")


def is_marked(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Return whether a schema's metadata says that the file has checksums."""
    return metadata is not None and all(metadata.get(key) == value for key, value in MARK.items())


def extended(checksum: int, data: Any) -> int:
    """Return `checksum` extended by `data`."""
    return int(crc32c(data, checksum))


def closed(entries: Iterable[Entry], arrow_end: bytes) -> bytes:
    """Return the end of a file: `arrow_end` (what Arrow writes after the last stretch) with the entries inserted."""
    rows = np.array([(e.end, e.checksum, e.rows, e.first_ts, e.last_ts) for e in entries], ENTRY)
    footer = _footer_at(arrow_end, len(arrow_end))
    parts = arrow_end[:footer] + rows.tobytes(), arrow_end[footer:]
    checksum = crc32c(parts[1], crc32c(TAIL.pack(len(rows), 0, MAGIC), crc32c(parts[0])))
    return parts[0] + TAIL.pack(len(rows), checksum, MAGIC) + parts[1]


def wanted_bytes(tail: bytes, size: int) -> int:
    """Return how many bytes of a file's end `opened` needs. `tail`: some of them, at least `LOOK` or all."""
    footer = _footer_at(tail, size)
    at = footer - (size - len(tail)) - TAIL.size
    if at < 0:
        return min(size, size - footer + LOOK)
    n, _, magic = TAIL.unpack_from(tail, at)
    begin = footer - TAIL.size - n * ENTRY.itemsize - END_OF_STREAM if magic == MAGIC else footer
    # Without stretches, the end covers the file from its first byte on.
    return size if begin < 0 or not n else size - begin


def opened(tail: bytes, size: int) -> Sums | None:
    """Parse the end of a file of `size` bytes; None if it has no checksums. `tail`: as many bytes as `wanted_bytes` asks for. Raises
    Damaged."""
    footer, begin = _footer_at(tail, size), size - len(tail)
    at = footer - begin - TAIL.size
    if at < 0:
        return None
    n, checksum, magic = TAIL.unpack_from(tail, at)
    if magic != MAGIC:
        return None
    first = at - n * ENTRY.itemsize
    if first < 0:
        raise Damaged(f"{n} record batches do not fit into its {size} bytes")
    entries = np.frombuffer(tail, ENTRY, n, first).copy()  # who keeps them keeps no mapping
    last = int(entries["end"][-1]) if n else 0
    if n and (last + END_OF_STREAM != begin + first or (entries["end"][1:] <= entries["end"][:-1]).any()):
        raise Damaged("the ends of its record batches are not where they should be")
    whole = memoryview(tail)
    found = crc32c(whole[last - begin : at])
    found = crc32c(whole[at + TAIL.size :], crc32c(TAIL.pack(n, 0, magic), found))
    if found != checksum:
        raise Damaged(f"its end has the checksum {found:08x}, not {checksum:08x} as when it was written")
    return Sums(entries)


def _footer_at(tail: bytes, size: int) -> int:
    """Return where Arrow's footer begins in a file of `size` bytes that ends with `tail`. Raises Damaged."""
    if len(tail) < _ARROW.size:
        raise Damaged(f"it has {size} bytes only")
    length, magic = _ARROW.unpack_from(tail, len(tail) - _ARROW.size)
    footer = size - _ARROW.size - length
    if magic != _ARROW_MAGIC or length <= 0 or footer < 0:
        raise Damaged("it does not end as an Arrow file")
    return int(footer)
