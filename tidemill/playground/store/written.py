"""Counts what was ever written into a playground's store, so that figures of a delivery can be held against it."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass

from tidemill.playground.store.mvcc import Mvcc, Version
from tidemill.playground.store.truth import META_RANGE
from tidemill.tidb import keys
from tidemill.tidb.schema.model import TableInfo

_History = dict[int, list[tuple[int, bool]]]
"""By physical table id: from which commit ts on the table has a usable key, or none."""


@dataclass(slots=True)
class Written:
    """Versions of keys, from the beginning on."""

    keys: int = 0
    row_changes: int = 0  # of users' tables with a usable key: what a changefeed sends
    without_key: int = 0  # rows of tables that have no usable key: a changefeed leaves these tables out
    others: int = 0  # schemas, indexes and TiDB's own tables


def count(mvcc: Mvcc) -> Written:
    """Count every version. What garbage collection took is missing."""
    history = _histories(mvcc)
    found = Written()
    for key, versions in mvcc.items(b"", b""):
        found.keys += len(versions)
        physical = keys.physical_table_id(key) if keys.is_record_key(key) and keys.is_of_user_table(key) else None
        if physical is None or physical not in history:
            found.others += len(versions)
            continue
        changes = history[physical]
        for commit_ts, _, _ in versions:
            at = max(0, bisect_right(changes, commit_ts, key=lambda change: change[0]) - 1)
            if changes[at][1]:
                found.row_changes += 1
            else:
                found.without_key += 1
    return found


def _histories(mvcc: Mvcc) -> _History:
    found: _History = {}
    for key, versions in mvcc.items(*META_RANGE):
        meta = keys.parse_meta_key(key)
        if meta.kind is not keys.MetaKind.HASH_FIELD or keys.schema_id_of(meta.name) is None or keys.table_id_of(meta.field) is None:
            continue
        for commit_ts, info in _tables(versions):
            for physical in info.physical_ids:
                found.setdefault(physical, []).append((commit_ts, info.has_usable_key))
    for changes in found.values():  # a partition that was exchanged has been in two tables
        changes.sort()
    return found


def _tables(versions: list[Version]) -> list[tuple[int, TableInfo]]:
    return [(commit_ts, TableInfo.from_json(json.loads(value))) for commit_ts, _, value in versions if value is not None]
