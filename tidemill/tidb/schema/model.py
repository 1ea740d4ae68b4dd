"""Databases and tables as TiDB stores them in its meta range (JSON), with the members that a change feed needs.

Unknown JSON members are ignored. Absent ones take their zero value, because older TiDB versions lack many.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidemill.errors import SchemaError
from tidemill.tidb.schema.codes import ColumnFlag, HandleKind, MySQLType, PartitionType, SchemaState, mysql_type
from tidemill.tidb.schema.details import NOTHING, TableDetails, policy_of
from tidemill.tidb.schema.details import name_of as _name
from tidemill.tidb.schema.jsonvalues import flag, identifier, integer, integers, member, members, plain, text, texts

__all__ = [
    "ColumnInfo",
    "DBInfo",
    "HandleKind",
    "IndexColumn",
    "IndexInfo",
    "MySQLType",
    "PartitionDefinition",
    "PartitionInfo",
    "SchemaState",
    "TableInfo",
]

Json = Mapping[str, Any]


def _bytes(value: str | None) -> bytes | None:
    """Decode Go's []byte, which JSON holds as base64."""
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError) as error:
        raise SchemaError(f"a column's default bits are not base64: {value[:60]!r}") from error


_UNSIGNED = int(ColumnFlag.UNSIGNED)  # asked for each value: an IntFlag costs ten times as much
_NOT_NULL = int(ColumnFlag.NOT_NULL)


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column. Row values refer to it by `id`. `offset` is its place among all columns, public or not."""

    id: int
    name: str
    offset: int
    tp: MySQLType | int
    flag: int
    flen: int
    decimal: int
    charset: str
    collate: str
    elems: tuple[str, ...]
    default: Any
    default_bit: bytes | None
    default_is_expr: bool
    origin_default: Any
    origin_default_bit: bytes | None
    generated_expr: str
    generated_stored: bool
    hidden: bool
    state: int
    comment: str
    array: bool
    version: int

    @classmethod
    def from_json(cls, data: Json) -> ColumnInfo:
        """Return a member of TableInfo's `cols`."""
        kind = member(data, "type") or {}
        return cls(
            id=identifier(data, "id"),
            name=_name(data["name"]),
            offset=integer(data, "offset"),
            tp=mysql_type(identifier(kind, "Tp")),
            flag=integer(kind, "Flag"),
            flen=integer(kind, "Flen"),
            decimal=integer(kind, "Decimal"),
            charset=text(kind, "Charset"),
            collate=text(kind, "Collate"),
            elems=texts(kind, "Elems"),
            default=plain(data, "default"),
            default_bit=_bytes(data.get("default_bit")),
            default_is_expr=flag(data, "default_is_expr"),
            origin_default=plain(data, "origin_default"),
            origin_default_bit=_bytes(data.get("origin_default_bit")),
            generated_expr=text(data, "generated_expr_string"),
            generated_stored=flag(data, "generated_stored"),
            hidden=flag(data, "hidden"),
            state=integer(data, "state"),
            comment=text(data, "comment"),
            array=flag(kind, "Array"),
            version=integer(data, "version"),
        )

    @property
    def unsigned(self) -> bool:
        """UNSIGNED."""
        return self.flag & _UNSIGNED != 0

    @property
    def zerofill(self) -> bool:
        """ZEROFILL."""
        return bool(self.flag & ColumnFlag.ZEROFILL)

    @property
    def not_null(self) -> bool:
        """NOT NULL."""
        return self.flag & _NOT_NULL != 0

    @property
    def is_generated(self) -> bool:
        """Whether the column is generated, stored or virtual."""
        return self.generated_expr != ""

    @property
    def is_virtual(self) -> bool:
        """Whether the column is generated and not stored. Row values never hold such a column."""
        return self.generated_expr != "" and not self.generated_stored

    @property
    def is_binary(self) -> bool:
        """Whether the charset is binary: that of BLOB and BINARY types, and of all numbers, times, JSON and BIT."""
        return self.charset == "binary"

    @property
    def is_public(self) -> bool:
        """Whether users' statements see the column."""
        return self.state == SchemaState.PUBLIC


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """A part of an index: the column's `offset` in the table, and the `length` of the prefix, -1 for the whole column."""

    name: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """An index."""

    id: int
    name: str
    columns: tuple[IndexColumn, ...]
    unique: bool
    primary: bool
    state: int
    invisible: bool
    is_global: bool
    multi_valued: bool
    condition: str  # of a partial index
    comment: str
    distance: str = ""  # of a vector index: its metric

    @classmethod
    def from_json(cls, data: Json) -> IndexInfo:
        """Return a member of TableInfo's `index_info`."""
        parts = members(data, "idx_cols")
        return cls(
            id=identifier(data, "id"),
            name=_name(data["idx_name"]),
            columns=tuple(IndexColumn(_name(c["name"]), integer(c, "offset"), integer(c, "length", -1)) for c in parts),
            unique=flag(data, "is_unique"),
            primary=flag(data, "is_primary"),
            state=integer(data, "state"),
            invisible=flag(data, "is_invisible"),
            is_global=flag(data, "is_global"),
            multi_valued=flag(data, "mv_index"),
            condition=text(data, "condition_expr_string") or text(data, "condition"),
            comment=text(data, "comment"),
            distance=text(member(data, "vector_index") or {}, "distance_metric"),
        )

    @property
    def is_public(self) -> bool:
        """Whether users' statements use the index."""
        return self.state == SchemaState.PUBLIC


@dataclass(frozen=True, slots=True)
class PartitionDefinition:
    """One partition: `id` is its physical table id."""

    id: int
    name: str
    less_than: tuple[str, ...]
    in_values: tuple[tuple[str, ...], ...]
    comment: str = ""
    placement_policy: str = ""

    @classmethod
    def from_json(cls, data: Json) -> PartitionDefinition:
        """Return a member of the partition's `definitions`, `adding_definitions` or `dropping_definitions`."""
        return cls(
            id=identifier(data, "id"),
            name=_name(data.get("name")),
            less_than=texts(data, "less_than"),
            in_values=tuple(texts({"in_values": row}, "in_values") for row in data.get("in_values") or ()),
            comment=text(data, "comment"),
            placement_policy=policy_of(data),
        )


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """How a table is partitioned. Only rows of `definitions` are delivered; `adding` and `dropping` belong to a running DDL."""

    type: PartitionType | int
    expr: str
    columns: tuple[str, ...]
    enable: bool
    definitions: tuple[PartitionDefinition, ...]
    adding: tuple[PartitionDefinition, ...]
    dropping: tuple[PartitionDefinition, ...]
    new_table_id: int  # set while a DDL changes the partitioning, else 0
    new_partition_ids: tuple[int, ...]
    ddl_state: int

    @classmethod
    def from_json(cls, data: Json) -> PartitionInfo:
        """Read a TableInfo's `partition`."""
        kind = integer(data, "type")

        def definitions(name: str) -> tuple[PartitionDefinition, ...]:
            return tuple(PartitionDefinition.from_json(d) for d in members(data, name))

        return cls(
            type=PartitionType(kind) if kind in _PARTITION_TYPES else kind,
            expr=text(data, "expr"),
            columns=tuple(_name(c) for c in data.get("columns") or ()),
            enable=flag(data, "enable"),
            definitions=definitions("definitions"),
            adding=definitions("adding_definitions"),
            dropping=definitions("dropping_definitions"),
            new_table_id=integer(data, "new_table_id"),
            new_partition_ids=integers(data, "new_partition_ids") or integers(data, "NewPartitionIDs"),
            ddl_state=integer(data, "ddl_state"),
        )


_PARTITION_TYPES = frozenset(int(t) for t in PartitionType)


@dataclass(frozen=True)
class TableInfo:
    """A table, view or sequence at one moment.

    No slots: the column lists below are computed once and cached.
    """

    id: int
    name: str
    charset: str
    collate: str
    state: int
    columns: tuple[ColumnInfo, ...]  # all of them, by offset
    indices: tuple[IndexInfo, ...]
    pk_is_handle: bool
    is_common_handle: bool
    common_handle_version: int
    partitioning: PartitionInfo | None  # as stored, when enabled; also while PARTITION BY or REMOVE PARTITIONING runs
    view: Json | None
    sequence: Json | None
    temp_type: int
    comment: str
    update_ts: int
    version: int
    mode: int = 0  # TableMode
    details: TableDetails = NOTHING

    def __hash__(self) -> int:
        return hash((self.id, self.update_ts))

    @classmethod
    def from_json(cls, data: Json) -> TableInfo:
        """Parse a TableInfo from a `Table:` field or a DDL job. Raises SchemaError naming the table."""
        try:
            return cls._from_json(data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            where = data.get("id") if isinstance(data, Mapping) else data
            raise SchemaError(f"the description of table {where} cannot be read: {type(error).__name__} {error}") from error

    @classmethod
    def _from_json(cls, data: Json) -> TableInfo:
        columns = sorted((ColumnInfo.from_json(c) for c in members(data, "cols")), key=lambda c: c.offset)
        indices = tuple(IndexInfo.from_json(i) for i in members(data, "index_info"))
        for index in indices:
            if any(not 0 <= part.offset < len(columns) for part in index.columns):
                raise ValueError(f"index {index.name} has a column that the table does not have")
        partition = member(data, "partition")
        return cls(
            id=identifier(data, "id"),
            name=_name(data["name"]),
            charset=text(data, "charset"),
            collate=text(data, "collate"),
            state=integer(data, "state"),
            columns=tuple(columns),
            indices=indices,
            pk_is_handle=flag(data, "pk_is_handle"),
            is_common_handle=flag(data, "is_common_handle"),
            common_handle_version=integer(data, "common_handle_version"),
            partitioning=PartitionInfo.from_json(partition) if partition and flag(partition, "enable") else None,
            view=member(data, "view"),
            sequence=member(data, "sequence"),
            temp_type=integer(data, "temp_table_type"),
            comment=text(data, "comment"),
            update_ts=integer(data, "update_timestamp"),
            version=integer(data, "version"),
            mode=integer(data, "mode"),
            details=TableDetails.from_json(data),
        )

    @cached_property
    def public_columns(self) -> tuple[ColumnInfo, ...]:
        """Columns that users' statements see, and the hidden columns of expression indexes, by offset."""
        return tuple(c for c in self.columns if c.state == SchemaState.PUBLIC)

    @cached_property
    def output_columns(self) -> tuple[ColumnInfo, ...]:
        """Columns that a delivered change has: public, not hidden, not virtual."""
        return tuple(c for c in self.public_columns if not c.hidden and not c.is_virtual)

    @cached_property
    def public_indices(self) -> tuple[IndexInfo, ...]:
        """Indexes that users' statements use."""
        return tuple(i for i in self.indices if i.state == SchemaState.PUBLIC)

    @property
    def handle_kind(self) -> HandleKind:
        """What record keys of this table end with."""
        if self.pk_is_handle:
            return HandleKind.INT
        return HandleKind.COMMON if self.is_common_handle else HandleKind.HIDDEN

    @cached_property
    def primary_index(self) -> IndexInfo | None:
        """The primary key's index. It is None also where an integer primary key is the handle, which needs no index."""
        return next((i for i in self.indices if i.primary), None)

    @cached_property
    def pk_column(self) -> ColumnInfo | None:
        """The integer primary key column if it is the handle."""
        if not self.pk_is_handle:
            return None
        return next((c for c in self.columns if c.flag & ColumnFlag.PRIMARY_KEY), None)

    def index_columns(self, index: IndexInfo) -> tuple[ColumnInfo, ...]:
        """Return the columns of an index in index order."""
        return tuple(self.columns[part.offset] for part in index.columns)

    @cached_property
    def handle_key_ids(self) -> tuple[int, ...]:
        """Ids of the handle key's columns, in table order. Empty when the table has no handle key (TiCDC's rule).

        The handle key is the primary key. Without one it is the public unique index, all columns NOT NULL and not virtual, with the
        fewest columns, then the smallest id. A partial or multi-valued index is never taken: it does not cover every row.
        """
        if self.pk_column is not None:
            return (self.pk_column.id,)
        primary = next((i for i in self.public_indices if i.primary), None)
        if primary is None:
            usable = [i for i in self.public_indices if self._tells_rows_apart(i)]
            if not usable:
                return ()
            primary = min(usable, key=lambda i: (len(i.columns), i.id))
        offsets = sorted({part.offset for part in primary.columns})
        return tuple(self.columns[offset].id for offset in offsets)

    @property
    def handle_key_names(self) -> tuple[str, ...]:
        """The names of the handle key's columns, in table order."""
        return tuple(self.columns_by_id[number].name for number in self.handle_key_ids)

    def _tells_rows_apart(self, index: IndexInfo) -> bool:
        if not index.unique or index.condition or index.multi_valued:
            return False
        columns = self.index_columns(index)
        return bool(columns) and all(c.not_null and not c.is_virtual for c in columns)

    @cached_property
    def unique_key_ids(self) -> frozenset[int]:
        """Ids of all columns in the primary key or in any public unique index, nullable ones too."""
        found = {self.pk_column.id} if self.pk_column is not None else set()
        for index in self.public_indices:
            if index.unique or index.primary:
                found.update(c.id for c in self.index_columns(index))
        return frozenset(found)

    @property
    def has_usable_key(self) -> bool:
        """Whether the table has a handle key, so that it is replicated without force-replicate."""
        return bool(self.handle_key_ids)

    @property
    def partition(self) -> PartitionInfo | None:
        """How the table is partitioned. None when users see a table without partitions.

        While PARTITION BY or REMOVE PARTITIONING runs, a plain table is stored as one partition of no type.
        """
        if self.partitioning is None or self.partitioning.type == PartitionType.NONE:
            return None
        return self.partitioning

    @cached_property
    def physical_ids(self) -> tuple[int, ...]:
        """Table ids under which this table's rows are stored: those of its partitions, else its own. Views and sequences have none."""
        if not self.has_rows:
            return ()
        if self.partitioning is not None and self.partitioning.definitions:
            return tuple(d.id for d in self.partitioning.definitions)
        return (self.id,)

    @cached_property
    def transient_ids(self) -> tuple[int, ...]:
        """Physical ids that a running DDL adds or removes. Their rows are copies, or must not be delivered."""
        own = self.partitioning
        if own is None:
            return ()
        ids: Iterable[int] = (
            *(d.id for d in own.adding),
            *(d.id for d in own.dropping),
            *own.new_partition_ids,
            *([own.new_table_id] if own.new_table_id else []),
        )
        return tuple(i for i in dict.fromkeys(ids) if i not in self.physical_ids)

    @property
    def is_view(self) -> bool:
        """A view."""
        return self.view is not None

    @property
    def is_sequence(self) -> bool:
        """A sequence."""
        return self.sequence is not None

    @property
    def is_replicated_kind(self) -> bool:
        """Whether the table is neither a sequence nor a temporary table."""
        return self.sequence is None and self.temp_type == 0

    @property
    def has_rows(self) -> bool:
        """Whether the table's ids hold rows: it is a base table and not temporary."""
        return self.is_replicated_kind and self.view is None

    @cached_property
    def columns_by_id(self) -> Mapping[int, ColumnInfo]:
        """All columns by id."""
        return {c.id: c for c in self.columns}


@dataclass(frozen=True, slots=True)
class DBInfo:
    """A database."""

    id: int
    name: str
    charset: str
    collate: str
    state: int

    @classmethod
    def from_json(cls, data: Json) -> DBInfo:
        """Parse a DBInfo from a field of `DBs` or a DDL job. Raises SchemaError."""
        try:
            return cls(
                id=identifier(data, "id"),
                name=_name(data["db_name"]),
                charset=text(data, "charset"),
                collate=text(data, "collate"),
                state=integer(data, "state"),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise SchemaError(f"the description of a database cannot be read: {type(error).__name__} {error}") from error
