"""The databases and tables at the newest known ts, and the changes that meta keys and finished jobs make to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tidemill.errors import SchemaError
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.schema.codes import SchemaState
from tidemill.tidb.schema.metakeys import HISTORY_TABLE, JOB_TABLE, MetaName, Subject
from tidemill.tidb.schema.model import DBInfo, Json, TableInfo
from tidemill.tidb.schema.tracking.versions import Change, TableVersion
from tidemill.tidb.schema.tracking.view import public_view

_JOB_META = "job_meta"
_SHARED_TABLES = 512
"""So many descriptions of tables, the newest ones, are read once: several histories of one cluster share them."""


@dataclass(frozen=True, slots=True)
class JobSource:
    """A table of DDL jobs: its id and the id of the column with the job's JSON."""

    table_id: int
    column_id: int


@dataclass(slots=True)
class Edits:
    """The changes of one transaction to the schema, before they are compared with the catalog."""

    databases: dict[int, DBInfo | None] = field(default_factory=dict)  # None: dropped
    removed: set[tuple[int, int]] = field(default_factory=set)  # (schema id, table id)
    tables: dict[int, tuple[int, TableInfo]] = field(default_factory=dict)  # table id -> schema id, description

    def __bool__(self) -> bool:
        return bool(self.databases or self.removed or self.tables)


class Catalog:
    """The newest state. Of system databases it holds only the tables of DDL jobs."""

    def __init__(self) -> None:
        self.databases: dict[int, DBInfo] = {}
        self.tables: dict[int, TableVersion] = {}
        self.schema_version = 0
        self.bdr_role = ""
        self.job_table: JobSource | None = None
        self.history_table: JobSource | None = None

    def read(self, name: MetaName, value: bytes | None, edits: Edits) -> None:
        """Add one changed meta key (None: deleted) to the edits. Keys that concern no table take effect at once."""
        match name.subject:
            case Subject.DATABASE:
                edits.databases[name.schema_id] = DBInfo.from_json(_object(value, name)) if value is not None else None
            case Subject.TABLE:
                if value is None:
                    edits.removed.add((name.schema_id, name.table_id))
                elif self.is_system(name.schema_id, edits):
                    self._find_job_tables(value)
                else:
                    edits.tables[name.table_id] = name.schema_id, _table(value, name)
            case Subject.SCHEMA_VERSION:
                self.schema_version = max(self.schema_version, _number(value)) if value else self.schema_version
            case Subject.BDR_ROLE:
                self.bdr_role = value.decode("utf-8", "replace") if value else ""

    def is_system(self, schema_id: int, edits: Edits | None = None) -> bool:
        """Return whether this is a system database, now or after the edits."""
        database = (edits.databases.get(schema_id) if edits is not None else None) or self.databases.get(schema_id)
        return database is not None and is_system_schema(database.name)

    def _find_job_tables(self, value: bytes) -> None:
        if JOB_TABLE.encode() not in value and HISTORY_TABLE.encode() not in value:
            return
        info = TableInfo.from_json(json.loads(value.decode("utf-8", "replace")))
        column = next((c.id for c in info.columns if c.name.lower() == _JOB_META), None)
        if column is None:
            return
        if info.name.lower() == JOB_TABLE:
            self.job_table = JobSource(info.id, column)
        elif info.name.lower() == HISTORY_TABLE:
            self.history_table = JobSource(info.id, column)

    def apply(self, edits: Edits, ts: int) -> tuple[Change, ...]:
        """Apply the edits. Returns the tables whose public view changed, by logical id. Raises SchemaError."""
        for schema_id, database in edits.databases.items():
            if database is not None:
                self.databases[schema_id] = database
        changes = []
        for table_id in sorted({*edits.tables, *(table for _, table in edits.removed), *self._orphans(edits)}):
            before = self.tables.get(table_id)
            after = self._next(table_id, before, edits, ts)
            if after is not before:
                changes.append(Change(before, after))
        for schema_id, database in edits.databases.items():
            if database is None:
                self.databases.pop(schema_id, None)
        for change in changes:
            if change.after is not None:
                self.tables[change.after.table_id] = change.after
            elif change.before is not None:
                del self.tables[change.before.table_id]
        return tuple(changes)

    def load(self, edits: Edits, ts: int) -> None:
        """Take the edits as the first state, including tables that are being dropped. Raises SchemaError."""
        self.databases = {schema_id: database for schema_id, database in edits.databases.items() if database is not None}
        for table_id, (schema_id, info) in edits.tables.items():
            self.tables[table_id] = TableVersion(self._database(schema_id, info).name, schema_id, info, info.physical_ids, ts)

    def _database(self, schema_id: int, info: TableInfo) -> DBInfo:
        database = self.databases.get(schema_id)
        if database is None:
            raise SchemaError(f"table {info.id} ({info.name}) belongs to database {schema_id}, which is not known")
        return database

    def _orphans(self, edits: Edits) -> Iterable[int]:
        """Yield the tables of databases that are dropped."""
        dropped = {schema_id for schema_id, database in edits.databases.items() if database is None}
        return [table_id for table_id, version in self.tables.items() if version.schema_id in dropped] if dropped else ()

    def _next(self, table_id: int, before: TableVersion | None, edits: Edits, ts: int) -> TableVersion | None:
        """Return the version after the edits, or `before` itself when users see no difference."""
        if table_id not in edits.tables:
            if before is None:
                return None
            dropped = before.schema_id in edits.databases and edits.databases[before.schema_id] is None
            return None if dropped or (before.schema_id, table_id) in edits.removed else before
        schema_id, info = edits.tables[table_id]
        if before is None and info.state != SchemaState.PUBLIC:
            return None  # still being created
        database = self._database(schema_id, info)
        if before is not None and before.schema_id == schema_id and _same(before, database.name, info):
            return before
        return TableVersion(database.name, schema_id, info, info.physical_ids, ts)


def _same(before: TableVersion, schema: str, info: TableInfo) -> bool:
    return public_view(before.schema, before.info) == public_view(schema, info)


def _number(text: bytes) -> int:
    if not text.isdigit():
        raise SchemaError(f"the schema version is not a number: {text[:40]!r}")
    return int(text)


@lru_cache(_SHARED_TABLES)
def _table(value: bytes, name: MetaName) -> TableInfo:
    return TableInfo.from_json(_object(value, name))


def _object(value: bytes, name: MetaName) -> Json:
    try:
        data = json.loads(value.decode("utf-8", "replace"))
    except ValueError as error:
        raise SchemaError(f"the description of {_describe(name)} is not JSON: {error}") from error
    if not isinstance(data, Mapping):
        raise SchemaError(f"the description of {_describe(name)} is not a JSON object")
    return data


def _describe(name: MetaName) -> str:
    return f"database {name.schema_id}" if name.subject is Subject.DATABASE else f"table {name.table_id} of database {name.schema_id}"
