"""Names of Avro records and fields, made from names of TiDB.

Avro allows [A-Za-z_][A-Za-z0-9_]* alone. TiCDC replaces every other character by `_` and lets two names become the same, on which it then
fails; here the later column, in table order, gets `_2`, `_3` … (the first that is free), and the schema tells its true name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

EXTENSION = ("_tidb_op", "_tidb_commit_ts", "_tidb_commit_physical_time")
"""Fields that enable-tidb-extension adds."""

CHECKSUM = ("_tidb_row_level_checksum", "_tidb_corrupted", "_tidb_checksum_version")
"""Fields that integrity-check-level = correctness adds behind them."""


def sanitize(name: str) -> str:
    """A name with each character that Avro does not allow as `_`, and `_` before a first digit."""
    text = "".join(c if c == "_" or (c.isascii() and c.isalnum()) else "_" for c in name)
    return f"_{text}" if text[:1].isdigit() else text


def field_names(columns: Iterable[str], reserved: Iterable[str] = ()) -> list[tuple[str, str | None]]:
    """For each column of a table its field's name, and its true name where the field's name alone would mislead.

    That is so for columns that share a sanitized name, or have one of the `reserved` names, and are not called by their own.
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
