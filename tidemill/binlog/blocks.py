"""Binlogs as Pumps send them, many at a time: what the merge orders, without their rows being read. Pure.

Reference: `tidemill.binlog.messages.read_binlog`, message by message.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tidemill.binlog.messages import Binlog, read_binlog
from tidemill.errors import MalformedMessage
from tidemill.kernels.address import address
from tidemill.kernels.binlog.heads import heads
from tidemill.kernels.binlog.layout import H_FAKE, HEAD
from tidemill.wire import pump_pb2

Array = np.ndarray[Any, Any]
Room = Callable[[int], Array]
"""Returns so many bytes of memory, with any content. Raises DiskLow where they are of a file."""


def plain_memory(size: int) -> Array:
    """Return memory of the process."""
    return np.empty(size, np.uint8)


COST = 1024
"""Bytes that a binlog takes beside its message, at most: a stream without load has a block for each."""


@dataclass(frozen=True, slots=True)
class Binlogs:
    """`heads`: HEAD records; `owners`: what owns the bytes that they point to."""

    heads: Array
    owners: tuple[object, ...] = ()

    def __len__(self) -> int:
        return len(self.heads)

    def part(self, begin: int, end: int | None = None) -> Binlogs:
        """Return some of them."""
        return Binlogs(self.heads[begin:end], self.owners)

    def binlog(self, i: int) -> Binlog:
        """Return one, all of it. Raises MalformedMessage."""
        head = self.heads[i]
        return read_binlog(ctypes.string_at(int(head["message"]), int(head["message_len"])))

    @property
    def sizes(self) -> Array:
        """Bytes that each takes."""
        return self.heads["message_len"].astype(np.int64) + COST


NONE = Binlogs(np.zeros(0, HEAD))


def joined(parts: Sequence[Binlogs]) -> Binlogs:
    """Return all binlogs of several blocks in the order of commit ts and start ts."""
    if len(parts) == 1:
        return parts[0]
    all_heads: Array = np.empty(sum(map(len, parts)), HEAD)  # np.concatenate would drop the holes of HEAD
    at = 0
    for part in parts:
        all_heads[at : at + len(part)] = part.heads
        at += len(part)
    order = np.lexsort((all_heads["start_ts"], all_heads["commit_ts"]))
    return Binlogs(all_heads[order], tuple(owner for part in parts for owner in part.owners))


def read_messages(data: Array, ends: Array) -> Binlogs:
    """Return the binlogs of PullBinlogResp messages that are concatenated in `data`; message i ends at ends[i]. Raises MalformedMessage."""
    found: Array = np.zeros(len(ends), HEAD)
    owners: list[object] = [data]
    done = 0
    while done < len(ends):
        begin = int(ends[done - 1]) if done else 0
        rest = ends[done:] - begin
        done += heads(address(data) + begin, address(rest), len(rest), address(found) + HEAD.itemsize * done)
        if done < len(ends):
            begin = int(ends[done - 1]) if done else 0
            whole = np.frombuffer(_plain(bytes(data[begin : int(ends[done])])), np.uint8)
            end = np.array([len(whole)])
            if heads(address(whole), address(end), 1, address(found) + HEAD.itemsize * done) != 1:
                raise MalformedMessage(f"a binlog of {len(whole)} bytes cannot be read")
            owners.append(whole)
            done += 1
    return Binlogs(found, tuple(owners))


def _plain(message: bytes) -> bytes:
    """Return a message that the kernel does not read as the real programs would write it. Raises MalformedMessage."""
    try:
        binlog = read_binlog(pump_pb2.PullBinlogResp.FromString(message).entity.payload)
    except DecodeError as error:
        raise MalformedMessage(f"{len(message)} bytes are not a PullBinlogResp: {error}") from None
    return pump_pb2.PullBinlogResp(entity=pump_pb2.Entity(payload=binlog.encode())).SerializeToString()


def is_fake(binlogs: Binlogs) -> Array:
    """Return which binlogs only tell a time."""
    found: Array = binlogs.heads["flags"] & H_FAKE != 0
    return found
