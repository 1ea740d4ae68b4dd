"""Python views of ROW records. They are slow: for the reference, errors and tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE, ROW

RowArray = npt.NDArray[np.void]


class RawRecord(NamedTuple):
    """A ROW record with its bytes. An image is None if the row does not have it."""

    key: bytes
    value: bytes | None
    old_value: bytes | None
    start_ts: int
    commit_ts: int
    table: int


def _bytes_at(address: int, size: int) -> bytes | None:
    return ctypes.string_at(address, size) if size >= 0 else None


def raw_record(rows: RowArray, index: int) -> RawRecord:
    """Return a copy of one record's bytes."""
    row = rows[index]
    return RawRecord(
        _bytes_at(int(row["key"]), int(row["key_len"])) or b"",
        _bytes_at(int(row["value"]), int(row["value_len"])),
        _bytes_at(int(row["old_value"]), int(row["old_len"])),
        int(row["start_ts"]),
        int(row["commit_ts"]),
        int(row["table"]),
    )


def row_array(records: Sequence[RawRecord], targets: Sequence[int] | None = None) -> tuple[RowArray, object]:
    """Build ROW records from Python bytes. Returns them and the buffer that they point into; keep it. For tests and tools."""
    data = bytearray(b"\0" * 64)
    rows = np.zeros(len(records), ROW)
    offsets = []
    for record in records:
        spans = []
        for part in (record.key, record.value, record.old_value):
            spans.append((len(data), -1 if part is None else len(part)))
            data += part or b""
        offsets.append(spans)
    data += b"\0" * 64
    buffer = np.frombuffer(bytes(data), np.uint8)
    base = buffer.ctypes.data
    for i, (record, ((key, key_len), (value, value_len), (old, old_len))) in enumerate(zip(records, offsets, strict=True)):
        kind = KIND_UPDATE if value_len >= 0 and old_len >= 0 else KIND_INSERT if value_len >= 0 else KIND_DELETE
        target = targets[i] if targets is not None else 0
        rows[i] = (
            base + key, base + value, base + old, record.start_ts, record.commit_ts, key_len, value_len, old_len, record.table, target,
            kind, 0,
        )  # fmt: skip
    return rows, buffer
