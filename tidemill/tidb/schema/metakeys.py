"""The keys of TiDB's meta range that schemas depend on, and the key ranges of the change log's schema stream."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from tidemill.tidb import keys

META_TABLE_ID = 0
"""The table id of changes of meta keys."""

JOB_TABLE = "tidb_ddl_job"
HISTORY_TABLE = "tidb_ddl_history"

_JOB_LISTS = (keys.DDL_JOB_LIST, keys.DDL_JOB_ADD_INDEX_LIST)


class Subject(enum.Enum):
    """What a meta key is about."""

    DATABASE = "database"
    TABLE = "table"
    SCHEMA_VERSION = "schema version"
    BDR_ROLE = "BDR role"
    JOB = "running job"  # an item of the lists of TiDB <= 6.1
    JOB_HISTORY = "finished job"


class MetaName(NamedTuple):
    """What a meta key is about. The ids of database and table are 0 where the key has none."""

    subject: Subject
    schema_id: int = 0
    table_id: int = 0


_STRINGS = {
    keys.SCHEMA_VERSION_KEY: MetaName(Subject.SCHEMA_VERSION),
    keys.BDR_ROLE_KEY: MetaName(Subject.BDR_ROLE),
}


def name_of(key: bytes) -> MetaName | None:
    """Return what a raw meta key is about; None for a key that schemas do not depend on. Raises MalformedKey."""
    if key in _STRINGS:
        return _STRINGS[key]
    meta = keys.parse_meta_key(key)
    if meta.kind is keys.MetaKind.HASH_FIELD:
        if meta.name == keys.DBS:
            schema_id = keys.schema_id_of(meta.field)
            return None if schema_id is None else MetaName(Subject.DATABASE, schema_id)
        if meta.name == keys.DDL_JOB_HISTORY:
            return MetaName(Subject.JOB_HISTORY)
        schema_id, table_id = keys.schema_id_of(meta.name), keys.table_id_of(meta.field)
        return None if schema_id is None or table_id is None else MetaName(Subject.TABLE, schema_id, table_id)
    if meta.kind is keys.MetaKind.LIST_ITEM and meta.name in _JOB_LISTS:
        return MetaName(Subject.JOB)
    return None


def meta_filter(key: bytes) -> bool:
    """Return whether the change log keeps a meta key: of databases, tables, the schema version, the BDR role, lists of running jobs."""
    found = name_of(key)
    return found is not None and found.subject is not Subject.JOB_HISTORY


class KeyRange(NamedTuple):
    """Raw keys from `start` on, before `end`."""

    start: bytes
    end: bytes


def meta_ranges() -> tuple[KeyRange, ...]:
    """Return the parts of the meta range that hold the keys that meta_filter keeps, in key order."""
    ranges = [KeyRange(key, key + b"\0") for key in _STRINGS]
    ranges += [KeyRange(*keys.DB_HASHES_RANGE), KeyRange(*keys.meta_hash_range(keys.DBS))]
    ranges += [KeyRange(*keys.meta_list_range(name)) for name in _JOB_LISTS]
    return tuple(sorted(ranges))


def capture_ranges(job_table_ids: Iterable[int]) -> tuple[tuple[int, KeyRange], ...]:
    """Return (table id of the changes, raw range) for each range of the log's schema stream. Meta keys have table id 0."""
    jobs = tuple((table_id, KeyRange(*keys.record_range(table_id))) for table_id in sorted(job_table_ids))
    return (*((META_TABLE_ID, r) for r in meta_ranges()), *jobs)
