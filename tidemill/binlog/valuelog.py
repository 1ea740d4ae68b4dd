"""The bytes of Pump's value log, as TiDB-Binlog writes them: records, and the end of a finished file. No IO.

A record is a magic u32, the payload's length u64, the payload's CRC-32C u32, the payload; all little-endian. A finished file ends with its
greatest ts i64 and another magic u32. What was being written when a machine died is not a whole record; such bytes are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import crc32c

MAGIC = 0x823A56E8
END_MAGIC = 0x123AB922
HEAD = struct.Struct("<IQI")
END = struct.Struct("<qI")
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class Record:
    """A whole record: where it begins, and its payload."""

    offset: int
    payload: bytes

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + HEAD.size + len(self.payload)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Bytes that are not a record. `torn`: the file ends in the middle of one."""

    offset: int
    size: int
    why: str
    torn: bool


def frame(payload: bytes) -> bytes:
    """Return the record of a payload."""
    return HEAD.pack(MAGIC, len(payload), crc32c.crc32c(payload)) + payload


def finish(max_ts: int) -> bytes:
    """Return the end of a file whose greatest ts is `max_ts`."""
    return END.pack(max_ts, END_MAGIC)


def end_of(tail: bytes) -> int | None:
    """Return the greatest ts of a finished file by its last bytes; None if it is not finished."""
    if len(tail) < END.size:
        return None
    max_ts, magic = END.unpack(tail[-END.size :])
    return int(max_ts) if magic == END_MAGIC else None


def record_at(data: bytes | memoryview, at: int, size: int) -> bytes | str:
    """Return the payload of the record at `at` of the first `size` bytes, or what is wrong with it."""
    if size - at < HEAD.size:
        return "the file ends in the middle of a record's head"
    magic, length, crc = HEAD.unpack_from(data, at)
    if magic != MAGIC:
        return f"a record begins with {magic:#010x}"
    if length > size - at - HEAD.size:
        return f"the file ends in the middle of a record of {length} bytes"
    payload = bytes(data[at + HEAD.size : at + HEAD.size + length])
    found = crc32c.crc32c(payload)
    return payload if found == crc else f"the CRC-32C of a record is {found:#010x}, not {crc:#010x}"


def scan(data: bytes | memoryview, size: int, start: int = 0) -> Iterator[Record | Skipped]:
    """Yield the records in the first `size` bytes of a file from `start` on, and what is skipped.

    After a record that the file ends in, nothing is looked for: what stands in its payload could look like a record.
    """
    at = start
    while at < size:
        if size - at == END.size and end_of(bytes(data[at:size])) is not None:
            return
        found = record_at(data, at, size)
        if isinstance(found, bytes):
            record = Record(at, found)
            yield record
            at = record.end
            continue
        torn = found.startswith("the file ends")
        after = size if torn else _next_magic(data, at + 1, size)
        yield Skipped(at, after - at, found, torn)
        at = after


_STEP = 1 << 20


def _next_magic(data: bytes | memoryview, at: int, size: int) -> int:
    """The offset of the next magic from `at` on, or the end."""
    while at < size:
        part = bytes(data[at : min(at + _STEP + 3, size)])
        found = part.find(_MAGIC_BYTES)
        if found >= 0:
            return at + found
        if at + len(part) >= size:
            tail = size - END.size  # the end of a finished file is not garbage
            return tail if tail >= at and end_of(bytes(data[tail:size])) is not None else size
        at += _STEP
    return size
