"""Binlogs in blocks, as a Pump's stream brings them."""

from __future__ import annotations

import numpy as np

from tidemill.binlog.blocks import Binlogs, read_messages
from tidemill.binlog.messages import Binlog, BinlogType
from tidemill.wire import pump_pb2


def message(payload: bytes) -> bytes:
    """A message of PullBinlogs."""
    return pump_pb2.PullBinlogResp(entity=pump_pb2.Entity(payload=payload)).SerializeToString()


def block(*binlogs: Binlog) -> Binlogs:
    """The binlogs as they are read from one read of a connection."""
    return block_of([message(one.encode()) for one in binlogs])


def block_of(messages: list[bytes]) -> Binlogs:
    """The binlogs of messages."""
    ends = np.cumsum([len(one) for one in messages], dtype=np.int64)
    return read_messages(np.frombuffer(b"".join(messages), np.uint8), ends)


def commits(*stamps: int) -> Binlogs:
    """Transactions without rows, which began one before their commit ts."""
    return block(*(Binlog(BinlogType.COMMIT, ts - 1, ts) for ts in stamps))
