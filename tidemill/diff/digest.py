"""Sums of rows: two buckets with the same sum have, but for a coincidence of 96 bits, the same rows. Pure.

A row's digest is the SHA-256 of its key's text, `|` and its text: MySQL has no MD5() since 9.6. A sum has the number of rows, the exclusive
or of the first 64 bits of their digests, and the arithmetic sum of the next 32: a row that is there twice does not disappear from it.
Databases compute the same (`expressions`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidemill.diff.model import DiffTable

SEPARATOR = b"|"

Row = tuple[bytes, bytes]
"""The texts of a row's key and of the row."""


class Sum(NamedTuple):
    """The sum of some rows."""

    rows: int = 0
    xor: int = 0
    total: int = 0

    def __add__(self, other: object) -> Sum:
        if not isinstance(other, Sum):
            return NotImplemented
        return Sum(self.rows + other.rows, self.xor ^ other.xor, self.total + other.total)


NOTHING = Sum()
Sums = dict[tuple[int, int], Sum]
"""By table and bucket; a bucket without rows may be left out."""


def sum_of(rows: Iterable[Row]) -> Sum:
    """Return the sum of rows."""
    count = xor = total = 0
    for key, row in rows:
        digest = hashlib.sha256(key + SEPARATOR + row).digest()
        count += 1
        xor ^= int.from_bytes(digest[:8])
        total += int.from_bytes(digest[8:12])
    return Sum(count, xor, total)


def sums_of(table: DiffTable, rows: Iterable[Row]) -> Sums:
    """Return the sums of a table's rows by their buckets."""
    found: dict[int, list[Row]] = {}
    bucket_of = table.buckets.of
    if table.buckets.count == 1:
        found[0] = list(rows)
    else:
        for row in rows:
            found.setdefault(bucket_of(row[0]), []).append(row)
    return {(table.number, bucket): sum_of(rows) for bucket, rows in found.items() if rows}


def added(sums: Iterable[Mapping[tuple[int, int], Sum]]) -> Sums:
    """Return the sums of several parts together."""
    found: Sums = {}
    for one in sums:
        for place, value in one.items():
            found[place] = found.get(place, NOTHING) + value
    return found


def different(upstream: Mapping[tuple[int, int], Sum], downstream: Mapping[tuple[int, int], Sum]) -> set[tuple[int, int]]:
    """Return the tables and buckets whose sums differ."""
    return {place for place in upstream.keys() | downstream.keys() if upstream.get(place, NOTHING) != downstream.get(place, NOTHING)}
