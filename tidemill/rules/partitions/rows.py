"""Which rows of a table with typed columns lie in some of its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import SchemaError
from tidemill.rules.partitions.locator import Locator, Partitioning
from tidemill.tidb.names import folded
from tidemill.tidb.rows.cells import Cell, Family, family
from tidemill.tidb.schema.model import ColumnInfo, PartitionDefinition, PartitionInfo, TableInfo
from tidemill.tidb.types.times import Moment, format_datetime

_BINARY = "binary"
_BYTEWISE = "_bin"
"""Collations with this ending compare texts as their bytes."""


@dataclass(frozen=True)
class PartitionRows:
    """Finds the rows of partitions. `names`: those of the partitions, as in `partitioning`. `columns`: the table's."""

    partitioning: Partitioning
    columns: tuple[ColumnInfo, ...]
    names: frozenset[str]

    @classmethod
    def gone(cls, before: TableInfo, after: TableInfo) -> PartitionRows:
        """Return what finds the rows of the partitions that one description has and the next has not, or has under another physical id.

        Raises SchemaError if rows of them cannot be told.
        """
        assert before.partition is not None
        left = {one.id for one in _definitions(after.partition)}
        names = frozenset(one.name for one in before.partition.definitions if one.id not in left)
        found = cls(Partitioning.of(before.partition), before.output_columns, names)
        found._check()
        return found

    def _check(self) -> None:
        deciding = self._locator().columns
        for column in self.columns:
            if folded(column.name) in deciding and family(column) is Family.BYTES and not _compares_bytes(column):
                raise SchemaError(f"it is partitioned by {column.name}, whose collation {column.collate} finds different texts equal")

    def _locator(self) -> Locator:
        return Locator(self.partitioning, self.columns, UTC)

    def mask(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return for each row whether it lies in one of the partitions. `rows` has the columns under their names, with the types of
        `tidb.columns.forms` or wider ones. Raises SchemaError if a column that decides is not there.
        """
        locator = self._locator()
        there = {folded(name): name for name in rows.schema.names}
        missing = locator.columns - there.keys()
        if missing:
            raise SchemaError(f"the column {', '.join(sorted(missing))} decides, and is not there")
        deciding = [column for column in self.columns if folded(column.name) in locator.columns]
        combined = _combined([rows[there[folded(column.name)]] for column in deciding], len(rows))
        lies = [self._lies_in(locator, deciding, values) for values in combined.dictionary.to_pylist()]
        return pa.array(lies, pa.bool_()).take(combined.indices)

    def _lies_in(self, locator: Locator, deciding: Sequence[ColumnInfo], values: dict[str, object]) -> bool:
        cells = {folded(column.name): _cell(column, values[str(i)]) for i, column in enumerate(deciding)}
        return locator.find(cells) in self.names


def _definitions(info: PartitionInfo | None) -> Sequence[PartitionDefinition]:
    return info.definitions if info is not None else ()


def _compares_bytes(column: ColumnInfo) -> bool:
    return column.is_binary or column.collate == _BINARY or column.collate.endswith(_BYTEWISE)


def _combined(columns: Sequence[pa.ChunkedArray | pa.Array], count: int) -> pa.DictionaryArray:
    """Return the columns as one, whose few different values are there once each."""
    whole = [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in columns]
    places = [pc.dictionary_encode(one, null_encoding="encode") for one in whole]
    number = pa.nulls(count, pa.int64()).fill_null(0)
    for place in places:
        number = pc.add(pc.multiply(number, len(place.dictionary)), place.indices.cast(pa.int64()))
        number = pc.dictionary_encode(number).indices.cast(pa.int64())  # below the number of rows again
    found = pc.dictionary_encode(number)
    firsts = pc.index_in(found.dictionary, number)
    values = pa.StructArray.from_arrays([one.take(firsts) for one in whole], [str(i) for i in range(len(whole))])
    return pa.DictionaryArray.from_arrays(found.indices, values)


def _cell(column: ColumnInfo, value: object) -> Cell:
    """Return a typed value as the cell that it was made of."""
    match value:
        case datetime():
            moment = Moment(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
            return format_datetime(moment, max(column.decimal, 0))
        case date():
            return value.isoformat()
        case Decimal():
            return int(value) if family(column) is Family.INT else format(value, "f")
        case str():
            return value.encode("utf-8", "surrogateescape") if family(column) is Family.BYTES else value
        case None | int() | float() | bytes():
            return value
    raise SchemaError(f"a column of type {type(value).__name__} decides about partitions")
