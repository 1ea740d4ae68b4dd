"""What Drainers get: batches of answers of PullBinlogs, as bytes, in commit order, each Commit joined with its Prewrite."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.binlog.http2.frames import prefixed
from tidemill.binlog.indexkeys import Pointer
from tidemill.binlog.messages import BinlogType, Head, join, read_head
from tidemill.binlog.pump.faults import PumpCorrupt
from tidemill.binlog.pump.index import Index
from tidemill.binlog.pump.log import LogReader
from tidemill.errors import MalformedMessage

BATCH_BYTES = 1 << 20
BATCH_KEYS = 4096
"""What is read at once, at most; one binlog may be larger."""

KEPT_BYTES = 4 << 20
"""Prewrites that are kept until their Commit comes."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Batch:
    """Answers, and the ts up to which they go: the next batch begins after it."""

    answers: list[bytes]
    upto: int

    @property
    def messages(self) -> bytes:
        """The answers with gRPC's prefixes."""
        return b"".join(prefixed(answer) for answer in self.answers)


@dataclass(slots=True)
class Puller:
    """Reads the binlogs of one stream. Its calls come one at a time, from any thread. Close it."""

    index: Index
    folder: Path
    lost: int = 0
    """Commits without a Prewrite: nothing could be sent of them."""
    _commits: LogReader = field(init=False)
    _prewrites: LogReader = field(init=False)
    _kept: dict[int, bytes] = field(default_factory=dict)
    _kept_bytes: int = 0

    def __post_init__(self) -> None:
        self._commits, self._prewrites = LogReader(self.folder), LogReader(self.folder)

    def close(self) -> None:
        """Let the files go."""
        self._commits.close()
        self._prewrites.close()

    def after(self, last: int, upto: int) -> Batch:
        """Return what has last < commit_ts <= upto, or the first part of it. Raises PumpCorrupt."""
        answers: list[bytes] = []
        size = 0
        for keys, (ts, at) in enumerate(self.index.between(last, upto), 1):
            payload = self._commits.payload(at)
            head = _head(payload, at)
            if head.tp is BinlogType.PREWRITE:
                self._keep(head.start_ts, payload)
            else:
                answer = self._answer(head, payload)
                if answer:
                    answers.append(answer)
                    size += len(answer)
            if size >= BATCH_BYTES or keys >= BATCH_KEYS:
                return Batch(answers, ts)
        return Batch(answers, upto)

    def _answer(self, head: Head, payload: bytes) -> bytes:
        """One answer; nothing for what Drainers do not get."""
        if head.tp is BinlogType.ROLLBACK:
            return answer_of(payload, head) if head.start_ts == head.commit_ts else b""
        prewrite = self._prewrite(head)
        if prewrite is None:
            self.lost += 1
            _log.warning("the Commit of %d at %d has no Prewrite here, and is not sent", head.start_ts, head.commit_ts)
            return b""
        return answer_of(join(payload, prewrite), head)

    def _keep(self, start_ts: int, payload: bytes) -> None:
        if len(payload) > KEPT_BYTES // 16:
            return
        if self._kept_bytes > KEPT_BYTES:
            self._kept.clear()
            self._kept_bytes = 0
        self._kept[start_ts] = payload
        self._kept_bytes += len(payload)

    def _prewrite(self, head: Head) -> bytes | None:
        kept = self._kept.pop(head.start_ts, None)
        if kept is not None:
            self._kept_bytes -= len(kept)
            return kept
        at = self.index.get(head.start_ts)
        if at is None:
            return None
        payload = self._prewrites.payload(at)
        return payload if _head(payload, at).tp is BinlogType.PREWRITE else None


def _head(payload: bytes, at: Pointer) -> Head:
    try:
        return read_head(payload)
    except MalformedMessage as error:
        raise PumpCorrupt(f"the record at {at.offset} of file {at.file} of the value log is no binlog: {error.message}") from None


def answer_of(payload: bytes, head: Head) -> bytes:
    """Return a PullBinlogResp as bytes: its entity has an empty pos, the payload, and the meta."""
    meta = b"\x08" + _varint(head.start_ts) + b"\x10" + _varint(head.commit_ts)
    entity = b"\x0a\x00\x12" + _varint(len(payload)) + payload + b"\x22" + _varint(len(meta)) + meta
    return b"\x0a" + _varint(len(entity)) + entity


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
