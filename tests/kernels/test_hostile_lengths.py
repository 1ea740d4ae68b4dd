"""Lengths that no row can have: refused by name, by every kernel that reads rows. Each case runs in a process of its own."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def overlapping(columns: int, size: int) -> bytes:
    """A row of format 2 in which every other column has all the bytes of the row."""
    ids = bytes(range(2, columns + 2))
    ends = [size if i % 2 == 0 else 0 for i in range(columns)]
    ends[-1] = size
    return struct.pack("<BBHH", 0x80, 0, columns, 0) + ids + struct.pack(f"<{columns}H", *ends) + b"x" * size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "columns"),
    [
        pytest.param(bytes.fromhex("081202feffffffffffffffff01616263"), 1, id="a length near 2^63, of a column that is not the table's"),
        pytest.param(bytes.fromhex("080402feffffffffffffffff01616263"), 1, id="a length near 2^63"),
        pytest.param(overlapping(200, 60_000), 200, id="values that overlap are more bytes than the row has"),
    ],
)
def test_refused_by_all_kernels(row: bytes, columns: int) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.support.rows.read_row", str(columns)],
        cwd=ROOT, input=row.hex(), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode} in {done.stdout.split()[-1:]}: {done.stderr}"
