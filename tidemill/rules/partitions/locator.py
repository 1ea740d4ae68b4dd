"""The partition of a row, by the rules of RANGE, LIST, HASH and KEY.

Neither messages nor tables of a lake say in which partition a row lies, and physical ids change without a message when partitions are
reorganised. So a DDL that empties or exchanges a partition is applied to the rows that fit the partition's definition.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

from tidemill.errors import SchemaError
from tidemill.protocols.common.celltext import cell_text
from tidemill.rules.partitions.expressions import Evaluator, Value
from tidemill.tidb.names import folded
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.rows.defaults import cell_from_text
from tidemill.tidb.schema.codes import PartitionType
from tidemill.tidb.schema.model import ColumnInfo, PartitionDefinition, PartitionInfo

MAXVALUE = "MAXVALUE"


class Method(enum.Enum):
    RANGE = "range"
    LIST = "list"
    HASH = "hash"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class Definition:
    """One partition. Bounds and values are the statement's texts."""

    name: str
    less_than: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class Partitioning:
    """PARTITION BY: an expression, or columns."""

    method: Method
    expression: str
    columns: tuple[str, ...]
    definitions: tuple[Definition, ...]

    @classmethod
    def of(cls, info: PartitionInfo) -> Partitioning:
        """Return how a table is partitioned, from its description. Raises SchemaError for a kind that has no rule here."""
        method = _METHODS.get(info.type)
        if method is None:
            raise SchemaError(f"it is partitioned by {getattr(info.type, 'name', info.type)}, for which there is no rule")
        return cls(method, info.expr, info.columns, tuple(map(_definition, info.definitions)))

    def renamed(self, old: str, new: str) -> Partitioning:
        """Return the partitioning after a column is renamed. TiDB refuses to rename a column that an expression uses."""
        columns = tuple(new if folded(c) == folded(old) else c for c in self.columns)
        return Partitioning(self.method, self.expression, columns, self.definitions)

    def without(self, names: Sequence[str], instead: Sequence[Definition] = ()) -> Partitioning:
        """Return the partitioning with some partitions replaced by others, at the place of the first."""
        gone = {folded(name) for name in names}
        at = next((i for i, d in enumerate(self.definitions) if folded(d.name) in gone), len(self.definitions))
        kept = [d for d in self.definitions if folded(d.name) not in gone]
        return self.replaced((*kept[:at], *instead, *kept[at:]))

    def replaced(self, definitions: tuple[Definition, ...]) -> Partitioning:
        """Return the partitioning with other partitions."""
        return Partitioning(self.method, self.expression, self.columns, definitions)

    def counted(self, count: int) -> Partitioning:
        """Return HASH or KEY partitioning with another number of partitions."""
        names = [d.name for d in self.definitions][:count]
        return self.replaced((*map(Definition, names), *(Definition(f"p{i}") for i in range(len(names), count))))


_METHODS: dict[int, Method] = {
    PartitionType.RANGE: Method.RANGE,
    PartitionType.LIST: Method.LIST,
    PartitionType.HASH: Method.HASH,
    PartitionType.KEY: Method.KEY,
}
_DEFAULT = ("DEFAULT",)


def _definition(stored: PartitionDefinition) -> Definition:
    return Definition(stored.name, stored.less_than, stored.in_values, is_default=_DEFAULT in stored.in_values)


class Locator:
    """Finds the partition of a row. Raises SchemaError for a partitioning that is not supported."""

    def __init__(self, partitioning: Partitioning, columns: Sequence[ColumnInfo], zone: tzinfo = UTC) -> None:
        self._method = partitioning.method
        self._definitions = partitioning.definitions
        if not self._definitions:
            raise SchemaError("the definitions of its partitions were made by TiDB and are in no message")
        by_name = {folded(column.name): column for column in columns}
        try:
            self._columns = [by_name[folded(name)] for name in partitioning.columns]
        except KeyError as error:
            raise SchemaError(f"it is partitioned by a column {error} that it does not have") from None
        self._evaluator = Evaluator(partitioning.expression, zone) if partitioning.expression else None
        self._bounds = [self._row(d.less_than) for d in self._definitions] if self._method is Method.RANGE else []
        self._members = [{self._row(v) for v in d.values if v != _DEFAULT} for d in self._definitions]
        self._default = next((d.name for d in self._definitions if d.is_default), None)

    @property
    def columns(self) -> frozenset[str]:
        """Lower-case names of the columns that decide."""
        return self._evaluator.columns if self._evaluator is not None else frozenset(folded(column.name) for column in self._columns)

    def find(self, row: Mapping[str, Cell]) -> str | None:
        """Return the name of the partition, or None if no partition takes the row. `row` has cells by lower-case column name."""
        match self._method:
            case Method.KEY:
                data = b"".join(b"\0" if row[folded(c.name)] is None else cell_text(c, row[folded(c.name)]) for c in self._columns)
                return self._definitions[zlib.crc32(data) % len(self._definitions)].name
            case Method.HASH:
                [number] = self._values(row)
                index = abs(number) % len(self._definitions) if isinstance(number, int) else 0
                return self._definitions[index].name
            case Method.RANGE:
                place = tuple(map(_ordered, self._values(row)))
                return next((d.name for d, bound in zip(self._definitions, self._bounds, strict=True) if place < bound), None)
            case Method.LIST:
                place = tuple(map(_ordered, self._values(row)))
                found = (d.name for d, members in zip(self._definitions, self._members, strict=True) if place in members)
                return next(found, self._default)

    def _values(self, row: Mapping[str, Cell]) -> list[Value]:
        if self._evaluator is not None:
            return [self._evaluator.value(row)]
        return [_comparable(row[folded(column.name)]) for column in self._columns]

    def _row(self, texts: Sequence[str]) -> tuple[_Order, ...]:
        return tuple(self._bound(i, text) for i, text in enumerate(texts))

    def _bound(self, index: int, text: str) -> _Order:
        if text.upper() == MAXVALUE:
            return (3, "")
        value = Evaluator(text, UTC).value({})
        if self._columns and value is not None:
            value = _comparable(cell_from_text(self._columns[index], str(value)))
        return _ordered(value)


_Order = tuple[int, int | float | str]


def _ordered(value: Value) -> _Order:
    """Return a sort key: NULL, then values, then MAXVALUE."""
    if value is None:
        return (0, "")
    return (1, value) if isinstance(value, int | float) else (2, value)


def _comparable(cell: Cell) -> Value:
    """Return text that compares like its bytes. Surrogates stand for bytes that are not UTF-8 and keep them distinct."""
    return cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else cell
