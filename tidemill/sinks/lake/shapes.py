"""`LakeTable`: the table of the lake that a table version becomes. Pure.

Columns keep the id that they have in TiDB, in the metadata of their Arrow fields. So a renamed column is told from a dropped one and a new
one. Columns that are not TiDB's have negative ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidemill.errors import SinkError, TidemillError
from tidemill.tidb.columns.forms import column_type
from tidemill.tidb.columns.values import TypedReader
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

COLUMN_ID = b"tidemill.column_id"
FRACTION = b"tidemill.fraction_digits"
"""Of DATETIME, TIMESTAMP and TIME, whose types do not say how many digits of a second a column has."""
_TIMES = (MySQLType.DATETIME, MySQLType.TIMESTAMP, MySQLType.DURATION)
ROW_ID = "_tidb_rowid"
"""The hidden handle of a table without a key. TiDB calls it so too."""
OP = "__tidemill_op"
"""A column of staged rows: 0 for a row that is there after the interval, 1 for one that is not."""

_HEADS = (
    ("_change_type", pa.string()),
    ("_commit_ts", pa.int64()),
    ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ("_start_ts", pa.int64()),
)
HEAD_NAMES = tuple(name for name, _ in _HEADS)
"""What a row of a change table begins with. The names are those of DataFrames of a log."""
_ROW_ID_AT = -1
_FIRST_HEAD = -2


def field(name: str, kind: pa.DataType, column_id: int) -> pa.Field:
    """Return the field of a column."""
    return pa.field(name, kind, metadata={COLUMN_ID: str(column_id).encode()})


def fraction_digits(one: pa.Field) -> int | None:
    """Return how many digits of a second a column of times has; None of other columns, and where it is not known."""
    text = (one.metadata or {}).get(FRACTION)
    return int(text) if text is not None else None


def _described(column: ColumnInfo) -> pa.Field:
    found = field(column.name, column_type(column).arrow, column.id)
    if column.tp not in _TIMES:
        return found
    return found.with_metadata({**found.metadata, FRACTION: str(max(column.decimal, 0)).encode()})


def column_id(one: pa.Field) -> int | None:
    """Return the id of a field's column, None if it has none."""
    text = (one.metadata or {}).get(COLUMN_ID)
    return int(text) if text is not None else None


@dataclass(frozen=True)
class LakeTable:
    """A table of the lake. `first`: one row with what each column holds in rows that are older than the column.

    `keys`: names of the columns that tell rows apart. `history`: it holds changes, which stay. `origins`: where columns come from whose
    beginning is known, as `lineage.origins` has it. `by_name`: what is there may be another table, so its columns are known by their names.
    """

    schema: str
    table: str
    table_id: int
    first: pa.RecordBatch
    keys: tuple[str, ...]
    history: bool = False
    origins: tuple[tuple[int, int], ...] = ()
    by_name: bool = False

    @property
    def name(self) -> tuple[str, str]:
        """Schema and table."""
        return self.schema, self.table

    @property
    def fields(self) -> pa.Schema:
        """The columns, with their ids."""
        return self.first.schema

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def is_keyless(version: TableVersion) -> bool:
    """Return whether rows of a table are told apart by their hidden handle alone."""
    return not version.info.has_usable_key


def lake_table(version: TableVersion, *, history: bool = False) -> LakeTable:
    """Return what a table version becomes. Raises SinkError for a column that cannot be there."""
    info = version.info
    fields: list[pa.Field] = []
    values: list[pa.Array] = []
    for number, (name, kind) in enumerate(_HEADS if history else ()):
        fields.append(field(name, kind, _FIRST_HEAD - number))
        values.append(pa.nulls(1, kind))
    if is_keyless(version):
        fields.append(field(ROW_ID, pa.int64(), _ROW_ID_AT))
        values.append(pa.nulls(1, pa.int64()))
    reader = TypedReader(info)
    for at, column in enumerate(info.output_columns):
        kind = column_type(column).arrow
        fields.append(_described(column))
        values.append(pa.array([_absent(reader, at)], kind) if not history else pa.nulls(1, kind))
    _check_names(version, [one.name for one in fields])
    wanted = set(info.handle_key_ids)
    keys = tuple(column.name for column in info.output_columns if column.id in wanted) or (ROW_ID,)
    first = pa.RecordBatch.from_arrays(values, schema=pa.schema(fields))
    return LakeTable(version.schema, version.table, version.table_id, first, keys, history)


def _absent(reader: TypedReader, at: int) -> object:
    try:
        return reader.absent(at)
    except TidemillError:
        return None  # no row can be older than the column


def _check_names(version: TableVersion, names: Sequence[str]) -> None:
    known = set()
    for name in names:
        if name.lower() in known or name == OP:
            raise SinkError(
                f"{version.schema}.{version.table}: a column is called {name}, which the sink itself uses",
                hint="Leave the column out with a column selector, or rename it upstream.",
            )
        known.add(name.lower())
