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

from tidemill.kernels.receive.layout import COMMIT, COMMITTED, INITIALIZED, PREWRITE, PUT, ROLLBACK
from tidemill.wire import cdcpb_pb2 as cdcpb

TIKV = Path(__file__).parents[1] / "golden" / "tikv"
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
class Prewrite:
    """The data of a lock."""

    op: int
    value: bytes
    old: bytes
    generation: int

    @property
    def fake(self) -> bool:
        return self.op == PUT and not self.value


@dataclass
class Reference:
    """One subscription by the rules: what the `match` kernel must do."""

    checkpoint: int
    initialized: bool = False
    prewrites: dict[Key, Prewrite] = field(default_factory=dict)
    waiting: dict[Key, int] = field(default_factory=dict)
    ended: set[Key] = field(default_factory=set)
    rows: list[Emitted] = field(default_factory=list)

    def emit(self, key: Key, data: Prewrite, commit_ts: int) -> None:
        if commit_ts > self.checkpoint:
            self.rows.append((commit_ts, key[0], key[1], data.op, data.value if data.op == PUT else b"", data.old))

    def row(self, row: Row) -> None:
        key = (row.start_ts, row.key)
        known = self.prewrites.get(key)
        new = Prewrite(row.op_type, row.value, row.old_value, row.generation)
        if row.type == COMMITTED:
            assert not new.fake
            self.emit(key, new, row.commit_ts)
        elif row.type == PREWRITE:
            if key not in self.ended and not (known and (new.fake or new.generation < known.generation)):
                self.prewrites[key] = new
        elif row.type == COMMIT:
            if self.initialized:
                self.emit(key, self.prewrites.pop(key), row.commit_ts)
            else:
                self.waiting.setdefault(key, row.commit_ts)
        elif row.type == ROLLBACK:
            if self.initialized:
                self.prewrites.pop(key, None)
            else:
                self.ended.add(key)
        elif row.type == INITIALIZED:
            self._settle()

    def _settle(self) -> None:
        self.initialized = True
        for key, commit_ts in self.waiting.items():
            data = self.prewrites.pop(key, None)
            if data and not data.fake:
                self.emit(key, data, commit_ts)
        for key in self.ended:
            self.prewrites.pop(key, None)
        self.ended.clear()
