"""The columns of a DataFrame: those of the table, and what is told of each change. And which columns of a table version they are.

A column is followed by its id through renames and copies (`tidemill.tidb.schema.tracking.lineage`), as long as the table is the same;
otherwise by its name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.errors import ConfigError, SchemaError
from tidemill.events import RAW_CHANGE
from tidemill.rules.names import did_you_mean
from tidemill.spark.source.options import Kind, Options
from tidemill.tidb.columns.forms import TIMESTAMP, ColumnType, TimeAs, check_castable, column_type, is_lossless
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.schema.tracking.lineage import NEW, origin_of
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import LOGICAL_BITS

META = pa.schema(
    [
        ("_change_type", pa.string()),
        ("_commit_ts", pa.int64()),
        ("_commit_timestamp", TIMESTAMP),
        ("_start_ts", pa.int64()),
        ("_database", pa.string()),
        ("_table", pa.string()),
    ]
)
"""What is told of each change. A TSO has 63 bits until the year 3084, so long holds it."""

CHANGELOG = pa.schema([("_change_type", pa.string()), ("_commit_version", pa.int64()), ("_commit_timestamp", TIMESTAMP)])
"""What Spark's own CHANGES clause tells of each change. `_commit_version` is the commit ts under the name that Spark gives it."""

HEADS = frozenset((*META.names, *CHANGELOG.names))
"""Names that are not those of a table's columns."""

TRUNCATE = "truncate"
"""The kind of a row that stands for a DDL by which all rows go. It has no columns of the table."""

ROWS = pa.schema([*META, ("before", pa.string()), ("after", pa.string())])
"""A change of any table: its images as JSON."""

_SIGNED = {pa.uint8(): pa.int8(), pa.uint64(): pa.int64()}
RAW = pa.schema([pa.field(f.name, _SIGNED.get(f.type, f.type)) for f in RAW_CHANGE])
"""A change as the log has it. Spark has no unsigned types: `op` is a byte, the two ts are longs."""


def table_schema(version: TableVersion, options: Options) -> pa.Schema:
    """Return the columns of a DataFrame of this table. Raises ConfigError, SchemaError."""
    picked = chosen(version, options.columns)
    taken = {name.lower() for name in META.names}
    for column in picked:
        if column.name.lower() in taken:
            raise ConfigError(
                f"{options.what} has a column {column.name}, which the DataFrame has too",
                hint="Name the columns to read in the option columns, without this one.",
            )
    fields = [pa.field(column.name, column_type(column, options.time_as).arrow) for column in picked]
    return pa.schema([*fields, *META])


def chosen(version: TableVersion, names: Sequence[str]) -> list[ColumnInfo]:
    """Return the columns that are read: those of the option `columns`, else all. Raises ConfigError for one that the table lacks."""
    columns = {column.name.lower(): column for column in version.info.output_columns}
    if not names:
        return list(columns.values())
    for name in names:
        if name.lower() not in columns:
            known = [column.name for column in columns.values()]
            raise ConfigError(f"option columns: {version.schema}.{version.table} has no column {name}{did_you_mean(name, known)}")
    return [columns[name.lower()] for name in names]


def digest(schema: pa.Schema) -> int:
    """A number for the columns of a DataFrame, to see whether they are those of an earlier query."""
    return zlib.crc32("\n".join(f"{field.name} {field.type}" for field in schema).encode())


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column of the DataFrame in one table version. `column` is None where the version has none: it is null then."""

    name: str
    arrow: pa.DataType
    column: ColumnInfo | None
    type: ColumnType | None


@dataclass(frozen=True, slots=True)
class Difference:
    """How the columns of a newer version differ from the DataFrame's. Only `added` ones do not hurt those that are there."""

    added: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.others)

    def __str__(self) -> str:
        return ", ".join([*(f"column {name} was added" for name in self.added), *self.others])


class TableFrame:
    """The columns of a DataFrame of one table, as Spark was told them.

    `base`: the version whose columns they are. `schema`: the DataFrame's Arrow schema, with any columns and types that its user asked for.
    `origins`: where the table's columns come from, see `lineage.origins`; it may grow.
    """

    def __init__(self, base: TableVersion, schema: pa.Schema, time_as: TimeAs, origins: Mapping[int, int] = MappingProxyType({})) -> None:
        self.base, self.schema, self._time_as, self._origins = base, schema, time_as, origins
        known = {column.name.lower(): column for column in base.info.output_columns}
        self.fields = [field for field in schema if field.name not in HEADS]
        self._columns = {field.name: known.get(field.name.lower()) for field in self.fields}

    def columns_in(self, version: TableVersion) -> list[ReadColumn]:
        """Return where each column is in a version. Raises SchemaError for one that cannot be read as the type that it has."""
        return [self._in(version, field) for field in self.fields]

    def read_in(self, version: TableVersion) -> list[ColumnInfo]:
        """Return the columns of a version that are read, whatever types they have."""
        return [column for field in self.fields if (column := self._match(version, field.name)) is not None]

    def _in(self, version: TableVersion, field: pa.Field) -> ReadColumn:
        column = self._match(version, field.name)
        if column is None:
            return ReadColumn(field.name, field.type, None, None)
        kind = column_type(column, self._time_as)
        try:
            check_castable(field.name, kind.arrow, field.type)
        except SchemaError as error:
            where = f"{version.schema}.{version.table} as of ts {version.from_ts}"
            raise SchemaError(f"{where}: {error.message}", hint="Choose the table's columns of another ts: option schemaTs.") from None
        return ReadColumn(field.name, field.type, column, kind)

    def _match(self, version: TableVersion, name: str) -> ColumnInfo | None:
        """Return the column in a version. By its name where ids cannot tell: of another table, of a column that the DataFrame alone names,
        and of a copy of another type whose beginning is not known."""
        own, columns = self._columns[name], version.info.output_columns
        named = next((column for column in columns if column.name.lower() == name.lower()), None)
        if own is None or version.table_id != self.base.table_id:
            return named
        ids = set(origin_of(own.id, self._origins)) - {NEW}
        for column in columns:
            if not ids.isdisjoint(origin_of(column.id, self._origins)):
                return column
        if named is None or named.id in {column.id for column in self.base.info.columns} or self._is_like(own, named):
            return None
        return None if any(origin_of(column.id, self._origins)[-1] == NEW for column in (own, named)) else named

    def _is_like(self, one: ColumnInfo, other: ColumnInfo) -> bool:
        return bool(column_type(one, self._time_as).arrow == column_type(other, self._time_as).arrow)

    def difference(self, newer: TableVersion, wanted: Iterable[str] = ()) -> Difference:
        """Return how a newer version differs. `wanted`: the columns that the user named; then others may come and go."""
        others, used = [], set()
        names = {column.name.lower() for column in newer.info.output_columns}
        for field in self.fields:
            column = self._match(newer, field.name)
            if column is None:
                if self._columns[field.name] is not None:
                    others.append(f"column {field.name} was dropped")
                    if field.name.lower() in names:
                        others.append(f"another column {field.name} was added")
                continue
            used.add(column.id)
            if column.name.lower() != field.name.lower():
                others.append(f"column {field.name} was renamed to {column.name}")
            elif not is_lossless(column_type(column, self._time_as).arrow, field.type):
                others.append(f"column {field.name} became {column_type(column, self._time_as).arrow}")
        known = {column.name.lower() for column in self.base.info.output_columns}
        added = [c.name for c in newer.info.output_columns if c.id not in used and c.name.lower() not in known] if not list(wanted) else []
        return Difference(tuple(added), tuple(others))


def schema_of(options: Options, version: TableVersion | None) -> pa.Schema:
    """Return the columns of a DataFrame. `version`: of the table, where it is of one."""
    if options.kind is Kind.RAW:
        return RAW
    if options.kind is Kind.ROWS:
        return ROWS
    assert version is not None, "a table has a version"
    return table_schema(version, options)


def moments(ts: npt.NDArray[np.uint64]) -> pa.Array:
    """The moments of timestamps."""
    micro = (ts >> np.uint64(LOGICAL_BITS)).astype(np.int64) * 1000
    return pa.array(micro, pa.timestamp("us", "UTC"))
