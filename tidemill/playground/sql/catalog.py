"""What the playground's TiDB knows of its databases and tables: descriptions, ids, row-id allocation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.parse.ast import TableName
from tidemill.playground.sql.rows.rowcodec import RowCodec
from tidemill.tidb import keys
from tidemill.tidb.schema.model import TableInfo

Json = dict[str, Any]

ROW_ID_STEP = 30_000
"""Row ids that TiDB takes from the meta range at once."""


def compact(value: Any) -> bytes:
    """JSON as Go writes it: no blanks, no escapes of non-ASCII."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(slots=True)
class RowIds:
    """The allocator of a table's hidden row ids and auto-increment values."""

    last: int = 0
    limit: int = 0  # ids up to here are marked as taken in the meta range

    def next(self) -> int:
        """Return a new id. The caller moves `limit` if the id is above it."""
        self.last += 1
        return self.last

    def rebase(self, used: int) -> None:
        """Make sure that later ids are above `used`."""
        self.last = max(self.last, used)


@dataclass(eq=False)
class Table:
    """A table of the catalog. `info` is replaced, never changed in place, so that its views may be kept."""

    schema_id: int
    info: Json
    row_ids: RowIds = field(default_factory=RowIds)
    unique: dict[int, dict[tuple[object, ...], bytes]] = field(default_factory=dict)  # index id → values → record key
    cuts: bool = False  # a DDL that changes a column cuts the values that do not fit

    @property
    def id(self) -> int:
        """The logical id."""
        return int(self.info["id"])

    @property
    def name(self) -> str:
        """Its name as written."""
        return str(self.info["name"]["O"])

    @cached_property
    def model(self) -> TableInfo:
        """The description as the capture reads it."""
        return TableInfo.from_json(self.info)

    @cached_property
    def codec(self) -> RowCodec:
        """Writes and reads its rows."""
        return RowCodec(self.model, self.info, cuts=self.cuts)

    def replace(self, info: Json) -> None:
        """Take a new description. Unique indexes that are not the same any more are forgotten and built again when needed."""
        before = {i["id"]: i["idx_cols"] for i in self.info["index_info"] or ()}
        after = {i["id"]: i["idx_cols"] for i in info["index_info"] or ()}
        columns = [c["id"] for c in self.info["cols"] or ()] != [c["id"] for c in info["cols"] or ()]
        if columns or before != after or info["id"] != self.info["id"]:
            self.unique = {}
        self.info = info
        self.__dict__.pop("model", None)
        self.__dict__.pop("codec", None)


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a job of DROP TABLE, TRUNCATE TABLE or DROP DATABASE took away, as it was before."""

    job_id: int
    snapshot_ts: int
    schema_id: int
    schema_name: str
    tables: tuple[Table, ...]
    database: Json | None = None  # of DROP DATABASE


class Catalog:
    """Databases and tables by id and by name, with the counters of the meta range."""

    def __init__(self) -> None:
        self.schemas: dict[int, Json] = {}
        self.tables: dict[int, Table] = {}
        self.dropped: list[Dropped] = []  # what RECOVER may bring back, in the order in which it was dropped
        self.next_global_id = 111
        self.schema_version = 60
        self.jobs_done = 0

    def allocate_id(self) -> int:
        """An id for a database, table, partition or job."""
        self.next_global_id += 1
        return self.next_global_id

    # databases

    def schema_id(self, name: str) -> int:
        """The id of a database. Raises SqlError."""
        for schema_id, info in self.schemas.items():
            if info["db_name"]["L"] == name.lower():
                return schema_id
        raise SqlError(f"unknown database {name}")

    def has_schema(self, name: str) -> bool:
        """Whether a database exists."""
        return any(info["db_name"]["L"] == name.lower() for info in self.schemas.values())

    def schema_name(self, schema_id: int) -> str:
        """The name of a database as written."""
        return str(self.schemas[schema_id]["db_name"]["O"])

    def charset(self, schema_id: int) -> tuple[str, str]:
        """Charset and collation that tables of a database inherit."""
        return self.schemas[schema_id]["charset"], self.schemas[schema_id]["collate"]

    # tables

    def find(self, name: TableName, current: str) -> Table | None:
        """A table by name, in the current database if none is given; None if there is none. Raises SqlError for the database."""
        schema_id = self.schema_id(name.schema or current)
        for table in self.tables.values():
            if table.schema_id == schema_id and table.info["name"]["L"] == name.name.lower():
                return table
        return None

    def table(self, name: TableName, current: str) -> Table:
        """A table by name. Raises SqlError."""
        found = self.find(name, current)
        if found is None:
            raise SqlError(f"table {name.schema or current}.{name.name} does not exist")
        return found

    def tables_of(self, schema_id: int) -> Iterator[Table]:
        """The tables of a database."""
        return (t for t in list(self.tables.values()) if t.schema_id == schema_id)

    def qualified(self, table: Table) -> str:
        """`schema.table`."""
        return f"{self.schema_name(table.schema_id)}.{table.name}"


def table_key(schema_id: int, table_id: int) -> bytes:
    """The meta key of a table's description."""
    return keys.table_key(schema_id, table_id)


def row_id_key(schema_id: int, table_id: int) -> bytes:
    """The meta key of a table's row-id allocator."""
    return keys.meta_hash_field(keys.db_name(schema_id), b"TID:%d" % table_id)
