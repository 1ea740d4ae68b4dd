"""What Drainers get: batches of answers of PullBinlogs, as bytes, in commit order, each Commit joined with its Prewrite."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidemill.binlog.http2.frames import PREFIX, prefixed
from tidemill.binlog.indexkeys import Pointer, read_pointer, ts_of
from tidemill.binlog.messages import BinlogType, Head, join, read_head
from tidemill.binlog.pump.faults import PumpCorrupt
from tidemill.binlog.pump.index import Index
from tidemill.binlog.pump.log import LogReader
from tidemill.binlog.valuelog import HEAD
from tidemill.errors import MalformedMessage
from tidemill.kernels.address import address
from tidemill.kernels.pump import layout as L
from tidemill.kernels.pump.pull import pull
from tidemill.tidb.codec import encode_uvarint

BATCH_BYTES = 1 << 20
BATCH_KEYS = 8192
"""What is read at once, at most; one binlog may be larger."""

KEPT_BYTES = 4 << 20
"""Prewrites that are kept until their Commit comes."""

WINDOW = 4 << 20
BACK = 1 << 20
"""Bytes of a file that are read at once, and how many of these lie before the record that was looked for: records of one time lie near each
other, but not in the order of their ts."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Batch:
    """Answers with gRPC's prefixes, back to back, and the ts up to which they go: the next batch begins after it."""

    messages: memoryview
    count: int
    upto: int

    @property
    def answers(self) -> list[bytes]:
        """The answers, one by one."""
        found, at = [], 0
        while at < len(self.messages):
            size = int.from_bytes(self.messages[at + 1 : at + PREFIX], "big")
            found.append(bytes(self.messages[at + PREFIX : at + PREFIX + size]))
            at += PREFIX + size
        return found


class Puller:
    """Reads the binlogs of one stream. Its calls come one at a time, from any thread. Close it. `plain`: without the kernel."""

    def __init__(self, index: Index, folder: Path, *, plain: bool = False) -> None:
        self._index, self._plain = index, plain
        self.lost = 0
        """Commits without a Prewrite: nothing could be sent of them."""
        self._commits, self._prewrites = LogReader(folder), LogReader(folder)
        self._window: Any = np.empty(WINDOW, np.uint8)
        self._table: Any = np.zeros(3 * L.KEPT_SLOTS, np.int64)
        self._room: Any = np.empty(KEPT_BYTES, np.uint8)
        self._scratch: Any = np.empty(64, np.uint8)
        self._state: Any = np.zeros(L.U_WORDS, np.int64)
        self._state[[L.W_DATA, L.W_FILE, L.K_TABLE, L.K_ROOM, L.K_CAP]] = (
            address(self._window), -1, address(self._table), address(self._room), KEPT_BYTES,
        )  # fmt: skip

    def close(self) -> None:
        """Let the files go."""
        self._commits.close()
        self._prewrites.close()

    def after(self, last: int, upto: int) -> Batch:
        """Return what has last < commit_ts <= upto, or the first part of it. Raises PumpCorrupt."""
        keys, pointers = self._index.pointers(last, upto, BATCH_KEYS)
        out = self._output(BATCH_BYTES)
        at = 0
        while at < len(keys):
            outcome = L.BY_REFERENCE
            if not self._plain:
                at, outcome = self._kernel(pointers, at, len(keys))
            if outcome == L.DONE:
                continue
            if outcome == L.OUT_FULL:
                if self._state[L.O_COUNT]:
                    return self._batch(out, ts_of(keys[at - 1]))
                out = self._output(int(self._state[L.U_NEED]))
                continue
            place = read_pointer(pointers[L.POINTER_BYTES * at : L.POINTER_BYTES * (at + 1)])
            if outcome == L.NO_WINDOW and self._look(place):
                continue
            answer = prefixed(found) if (found := self.answer(place)) else b""
            if len(answer) > int(self._state[L.O_CAP] - self._state[L.O_SIZE]):
                if self._state[L.O_COUNT]:
                    return self._batch(out, ts_of(keys[at - 1]))
                out = self._output(len(answer))
            if answer:
                size = int(self._state[L.O_SIZE])
                out[size : size + len(answer)] = np.frombuffer(answer, np.uint8)
                self._state[L.O_SIZE] += len(answer)
                self._state[L.O_COUNT] += 1
            at += 1
        return self._batch(out, upto if len(keys) < BATCH_KEYS else ts_of(keys[-1]))

    def _output(self, size: int) -> Any:
        out = np.empty(size, np.uint8)
        self._state[[L.O_DATA, L.O_CAP, L.O_SIZE, L.O_COUNT]] = address(out), size, 0, 0
        return out

    def _batch(self, out: Any, upto: int) -> Batch:
        return Batch(memoryview(out)[: int(self._state[L.O_SIZE])], int(self._state[L.O_COUNT]), upto)

    def _kernel(self, pointers: bytes, at: int, end: int) -> tuple[int, int]:
        base = address(np.frombuffer(pointers, np.uint8)) + L.POINTER_BYTES * at
        at += pull(L.TABLES, address(self._state), base, end - at, address(self._scratch))
        return at, int(self._state[L.U_OUTCOME])

    def _look(self, at: Pointer) -> bool:
        """Move the window to a record. Return whether the record lies in it; the reference tells why it cannot be read."""
        start = max(0, at.offset - BACK)
        size = self._commits.read_into(at.file, start, self._window)
        self._state[[L.W_FILE, L.W_START, L.W_SIZE]] = at.file, start, size
        place = at.offset - start
        if size - place < HEAD.size:
            return False
        length = HEAD.unpack_from(self._window, place)[1]
        return bool(length <= size - place - HEAD.size)

    # the reference

    def answer(self, at: Pointer) -> bytes:
        """The answer that a record gives; nothing for what Drainers do not get. Raises PumpCorrupt."""
        payload = self._commits.payload(at)
        head = _head(payload, at)
        if head.tp is BinlogType.PREWRITE:
            return b""
        if head.tp is BinlogType.ROLLBACK:
            return answer_of(payload, head) if head.start_ts == head.commit_ts else b""
        prewrite = self._prewrite(head)
        if prewrite is None:
            self.lost += 1
            _log.warning("the Commit of %d at %d has no Prewrite here, and is not sent", head.start_ts, head.commit_ts)
            return b""
        return answer_of(join(payload, prewrite), head)

    def _prewrite(self, head: Head) -> bytes | None:
        at = self._index.get(head.start_ts)
        if at is None:
            return None
        payload = self._prewrites.payload(at)
        return payload if _head(payload, at).tp is BinlogType.PREWRITE else None


def _head(payload: bytes, at: Pointer) -> Head:
    try:
        return read_head(payload)
    except MalformedMessage as error:
        raise PumpCorrupt(f"the record at {at.offset} of file {at.file} of the value log is not a binlog: {error.message}") from None


def answer_of(payload: bytes, head: Head) -> bytes:
    """Return a PullBinlogResp as bytes: its entity has an empty pos, the payload, and the meta."""
    meta = b"\x08" + encode_uvarint(head.start_ts) + b"\x10" + encode_uvarint(head.commit_ts)
    entity = b"\x0a\x00\x12" + encode_uvarint(len(payload)) + payload + b"\x22" + encode_uvarint(len(meta)) + meta
    return b"\x0a" + encode_uvarint(len(entity)) + entity
