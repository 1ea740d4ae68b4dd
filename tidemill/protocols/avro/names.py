"""Names of Avro records and fields, made from TiDB's names.

Avro allows only [A-Za-z_][A-Za-z0-9_]*. TiCDC replaces every other character by `_`, and fails when two names become the same. Here the
later column, in table order, gets the first free suffix `_2`, `_3`, …, and the schema holds its true name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

EXTENSION = ("_tidb_op", "_tidb_commit_ts", "_tidb_commit_physical_time")
"""Fields that enable-tidb-extension adds."""

CHECKSUM = ("_tidb_row_level_checksum", "_tidb_corrupted", "_tidb_checksum_version")
"""Fields that integrity-check-level = correctness adds behind them."""


def sanitize(name: str) -> str:
    """Replace each character that Avro does not allow by `_`, and put `_` before a first digit."""
    text = "".join(c if c == "_" or (c.isascii() and c.isalnum()) else "_" for c in name)
    return f"_{text}" if text[:1].isdigit() else text


def field_names(columns: Iterable[str], reserved: Iterable[str] = ()) -> list[tuple[str, str | None]]:
    """Return each column's field name, and its true name where the field name alone would mislead.

    It would for columns that share a sanitized name, or that have a `reserved` one, and so get another field name.
    """
    names = list(columns)
    plain = [sanitize(name) for name in names]
    taken = set(reserved)
    shared = Counter(plain) + Counter(taken)
    result: list[tuple[str, str | None]] = []
    for name, wanted in zip(names, plain, strict=True):
        field, number = wanted, 2
        while field in taken:
            field, number = f"{wanted}_{number}", number + 1
        taken.add(field)
        told = (shared[wanted] > 1 or field != wanted) and field != name
        result.append((field, name if told else None))
    return result
