"""Change feeds for tests: recordings of a real TiKV, messages, and the reference of matching, row by row in plain Python."""

from __future__ import annotations

import base64
import ctypes
import functools
import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tidemill.kernels.receive.layout import COMMIT, COMMITTED, DELETE, INITIALIZED, PREWRITE, PUT, ROLLBACK
from tidemill.wire import cdcpb_pb2 as cdcpb

TIKV = Path(__file__).parents[2] / "golden" / "tikv"
UNMATCHED = "COMMIT without its PREWRITE"
RECORDINGS = TIKV / "recordings"

Row = cdcpb.Event.Row
Key = tuple[int, bytes]
Emitted = tuple[int, int, bytes, int, bytes, bytes]
"""commit_ts, start_ts, key, op, value, old_value"""


@functools.cache
def recording(name: str) -> tuple[dict[str, Any], ...]:
    """The lines of a recording; `bytes` is the message of a req or resp line."""
    with gzip.open(RECORDINGS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        if "b64" in line:
            line["bytes"] = base64.b64decode(line["b64"])
    return tuple(lines)


def recorded_messages(name: str) -> list[bytes]:
    """All ChangeDataEvents of a recording."""
    return [line["bytes"] for line in recording(name) if line["kind"] == "resp" and line.get("type") == "cdcpb.ChangeDataEvent"]


def vectors(name: str) -> list[dict[str, Any]]:
    """The objects of tests/golden/tikv/NAME.jsonl.gz."""
    with gzip.open(TIKV / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def message(region: int, request: int, rows: Iterable[Row]) -> bytes:
    """A ChangeDataEvent with one Event."""
    event = cdcpb.Event(region_id=region, request_id=request)
    event.entries.entries.extend(rows)
    return cdcpb.ChangeDataEvent(events=[event]).SerializeToString()


def resolved(ts: int, request: int, *regions: int) -> bytes:
    """A ChangeDataEvent with a batch of resolved ts."""
    return cdcpb.ChangeDataEvent(resolved_ts=cdcpb.ResolvedTs(regions=regions, ts=ts, request_id=request)).SerializeToString()


def failure(region: int, request: int, **error: Any) -> bytes:
    """A ChangeDataEvent with a region error."""
    return cdcpb.ChangeDataEvent(events=[cdcpb.Event(region_id=region, request_id=request, error=cdcpb.Error(**error))]).SerializeToString()


def committed(rows: np.ndarray[Any, Any]) -> list[Emitted]:
    """ROW records as tuples, with copies of the bytes they point to."""
    out = []
    for row in rows:
        key = int(row["key"])
        out.append(
            (
                int(row["commit_ts"]),
                int(row["start_ts"]),
                ctypes.string_at(key, int(row["key_len"])),
                int(row["op"]),
                ctypes.string_at(key + int(row["value_d"]), int(row["value_len"])),
                ctypes.string_at(key + int(row["old_d"]), int(row["old_len"])),
            )
        )
    return out


@dataclass
class Lock:
    """What is known of a transaction's change of a key."""

    op: int = 0
    value: bytes = b""
    old: bytes = b""
    generation: int = 0
    has_data: bool = False  # its PREWRITE was seen
    commit_ts: int = 0
    state: str = "open"  # waiting: its COMMIT was seen; done, rolled back

    @property
    def fake(self) -> bool:
        """The PREWRITE came without its value."""
        return self.op == PUT and not self.value

    def take(self, row: Row) -> None:
        """The data of a PREWRITE."""
        self.op, self.value, self.old, self.generation, self.has_data = row.op_type, row.value, row.old_value, row.generation, True


@dataclass
class Reference:
    """One subscription by the rules: what the `match` kernel must do. `since`: rows at or below it are not wanted."""

    checkpoint: int
    since: int = -1
    initialized: bool = False
    locks: dict[Key, Lock] = field(default_factory=dict)
    touched: list[Key] = field(default_factory=list)
    rows: list[Emitted] = field(default_factory=list)
    broken: tuple[str, int, int, bytes] | None = None  # how, and by which row: commit_ts, start_ts, key

    def __post_init__(self) -> None:
        self.resolved = self.checkpoint
        self.since = self.checkpoint if self.since < 0 else self.since

    def resolve(self, ts: int) -> None:
        """A resolved ts."""
        if self.initialized and not self.broken:
            self.resolved = max(self.resolved, ts)

    def row(self, row: Row) -> None:
        """A row of any type."""
        if self.broken is None:
            handle = {PREWRITE: self._prewrite, COMMIT: self._commit, ROLLBACK: self._rollback, COMMITTED: self._committed}
            if row.type == INITIALIZED:
                self._settle()
            elif row.type in handle:
                handle[row.type]((row.start_ts, row.key), row)
            elif row.key and not 0 < row.commit_ts <= self.since:
                self._breaks("row of a type that this version does not know", (row.start_ts, row.key), row.commit_ts)

    def _breaks(self, cause: str, key: Key, commit_ts: int) -> None:
        self.broken = cause, commit_ts, *key

    def _orphan(self, key: Key, commit_ts: int, cause: str) -> None:
        """A COMMIT of which nothing else is known."""
        if commit_ts > self.since:
            late = "commit_ts at or below the resolved ts" if commit_ts <= self.resolved else cause
            if late:
                self._breaks(late, key, commit_ts)

    def _deliver(self, key: Key, op: int, value: bytes, old: bytes, commit_ts: int) -> None:
        if commit_ts <= self.since:
            return
        if op not in (PUT, DELETE):
            self._breaks("row that is neither PUT nor DELETE", key, commit_ts)
        elif op == PUT and not value:
            self._breaks("PUT without a value", key, commit_ts)
        elif commit_ts <= self.resolved:
            self._breaks("commit_ts at or below the resolved ts", key, commit_ts)
        else:
            self.rows.append((commit_ts, *key, op, value if op == PUT else b"", old))

    def _committed(self, key: Key, row: Row) -> None:
        self._deliver(key, row.op_type, row.value, row.old_value, row.commit_ts)

    def _prewrite(self, key: Key, row: Row) -> None:
        lock = self.locks.setdefault(key, Lock())
        new = Lock()
        new.take(row)
        if lock.state in ("done", "rolled back") or (lock.has_data and (new.fake or new.generation < lock.generation)):
            return
        lock.take(row)
        if lock.state == "waiting" and not lock.fake and lock.generation == 0:
            self._deliver(key, lock.op, lock.value, lock.old, lock.commit_ts)
            lock.state = "done"

    def _commit(self, key: Key, row: Row) -> None:
        lock = self.locks.get(key)
        if lock is not None and lock.state == "rolled back":
            self._orphan(key, row.commit_ts, UNMATCHED)
        elif lock is not None and lock.state != "open":
            return
        elif self.initialized:
            self._commit_live(key, row, self.locks.pop(key, None))
        else:
            self.touched.append(key)
            lock = self.locks.setdefault(key, Lock())
            if lock.has_data and not lock.fake and lock.generation == 0:
                self._deliver(key, row.op_type or lock.op, lock.value, lock.old, row.commit_ts)
                lock.state = "done"
            else:
                lock.state, lock.commit_ts = "waiting", row.commit_ts

    def _commit_live(self, key: Key, row: Row, lock: Lock | None) -> None:
        if lock is None:
            self._orphan(key, row.commit_ts, UNMATCHED)
        elif lock.fake:
            self._orphan(key, row.commit_ts, "COMMIT of a PREWRITE that came without its value")
        else:
            self._deliver(key, row.op_type or lock.op, lock.value, lock.old, row.commit_ts)

    def _rollback(self, key: Key, row: Row) -> None:
        if self.initialized:
            self.locks.pop(key, None)
        elif key not in self.locks or self.locks[key].state == "open":
            self.locks.setdefault(key, Lock()).state = "rolled back"
            self.touched.append(key)

    def _settle(self) -> None:
        if self.initialized:
            return
        while self.touched and self.broken is None:
            key = self.touched.pop()
            lock = self.locks.pop(key)
            if lock.state == "waiting" and lock.has_data and not lock.fake:
                self._deliver(key, lock.op, lock.value, lock.old, lock.commit_ts)
            elif lock.state == "waiting":
                self._orphan(key, lock.commit_ts, "")  # its COMMITTED row came from the scan
        self.initialized = self.broken is None
