"""Records of the Drainer's files and relay log: magic number, length, payload, CRC-32C of the payload."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator

import crc32c

from tidemill.errors import MalformedMessage

MAGIC = 471532804
Buffer = bytes | mmap.mmap
_HEAD = struct.Struct("<IQ")
_CRC = struct.Struct("<I")


def frame(payload: bytes) -> bytes:
    """Return the record of a payload."""
    return b"".join(framed(len(payload), (payload,)))


def framed(size: int, parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the record of a payload of `size` bytes that comes in parts."""
    yield _HEAD.pack(MAGIC, size)
    crc = 0
    for part in parts:
        crc = crc32c.crc32c(part, crc)
        yield part
    yield _CRC.pack(crc)


def payloads(data: bytes, name: str) -> Iterator[bytes]:
    """Yield the payloads of a file; a record that the file ends in is left out. Raises MalformedMessage naming file and offset."""
    at = 0
    while len(data) - at >= _HEAD.size:
        magic, length = _HEAD.unpack_from(data, at)
        if magic != MAGIC:
            raise MalformedMessage(f"{name}: no record begins at byte {at}")
        end = at + _HEAD.size + length
        if end + _CRC.size > len(data):
            return
        payload = data[at + _HEAD.size : end]
        if _CRC.unpack_from(data, end)[0] != crc32c.crc32c(payload):
            raise MalformedMessage(f"{name}: the record at byte {at} does not fit its checksum")
        yield payload
        at = end + _CRC.size


def records(data: Buffer, name: str, size: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield offset and payload of all records of a file that nobody writes any more, of its first `size` bytes. Raises MalformedMessage
    naming file and offset, also where the file ends within a record."""
    at, size = 0, len(data) if size is None else size
    while at < size:
        end = size
        if size - at >= _HEAD.size:
            magic, length = _HEAD.unpack_from(data, at)
            if magic != MAGIC:
                raise MalformedMessage(f"{name}: no record begins at byte {at}")
            end = at + _HEAD.size + length
        if end + _CRC.size > size:
            raise MalformedMessage(
                f"{name}: the file ends at byte {size}, within the record at byte {at}",
                hint="Copy the file again if it was copied while a Drainer wrote it, or cut it off at that byte.",
            )
        payload = bytes(data[at + _HEAD.size : end])
        if _CRC.unpack_from(data, end)[0] != crc32c.crc32c(payload):
            raise MalformedMessage(f"{name}: the record at byte {at} does not fit its checksum")
        yield at, payload
        at = end + _CRC.size


def whole_size(data: Buffer) -> int:
    """Return the size of the whole records at the beginning of a file, without looking at their content."""
    at = 0
    while len(data) - at >= _HEAD.size:
        magic, length = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length + _CRC.size
        if magic != MAGIC or end > len(data):
            break
        at = end
    return at
