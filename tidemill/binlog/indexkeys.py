"""Keys and values of Pump's index, a LevelDB, as TiDB-Binlog writes them. No IO.

A binlog's key is `ts:` and its ts, big-endian: start_ts of a Prewrite, commit_ts of all others. Its value says where the record is.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tidemill.errors import MalformedBytes

PREFIX = b"ts:"
GC_TS = b"!binlog!gcts"
MAX_COMMIT_TS = b"!binlog!maxCommitTS"
HANDLED = b"!binlog!handlePointer"
"""The last record that the order of commits has passed."""
INDEXED = b"!binlog!headPointer"
"""The last record whose key is in the index."""
LONG = b"!tidemill!long:"
"""Ours, and a commit_ts: a transaction that ran so long that garbage collection has to spare its Prewrite. The value is its start_ts."""

_POINTER = struct.Struct("<Iq")
POINTER_BYTES = _POINTER.size


@dataclass(frozen=True, slots=True, order=True)
class Pointer:
    """Where a record is: the number of its file, and its offset there."""

    file: int
    offset: int

    def encode(self) -> bytes:
        """Return the index's value."""
        return _POINTER.pack(self.file, self.offset)


def read_pointer(value: bytes) -> Pointer:
    """Decode a pointer. Raises MalformedBytes."""
    if len(value) != _POINTER.size:
        raise MalformedBytes(f"a pointer of the index has {len(value)} bytes, not {_POINTER.size}")
    return Pointer(*_POINTER.unpack(value))


def ts_key(ts: int) -> bytes:
    """Return the key of a binlog."""
    return PREFIX + ts.to_bytes(8, "big")


def ts_of(key: bytes) -> int:
    """Return the ts of a key of `ts_key` or `long_key`."""
    return int.from_bytes(key[-8:], "big")


def long_key(commit_ts: int) -> bytes:
    """Return the key of a long transaction."""
    return LONG + commit_ts.to_bytes(8, "big")


def number(ts: int) -> bytes:
    """Return the value of a ts."""
    return ts.to_bytes(8, "little")


def read_number(value: bytes) -> int:
    """Decode a ts. Raises MalformedBytes."""
    if len(value) != 8:
        raise MalformedBytes(f"a number of the index has {len(value)} bytes, not 8")
    return int.from_bytes(value, "little")
