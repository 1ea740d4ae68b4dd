"""Finds the partition of a row, and the partitions to which a running partition DDL writes it as well."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.parse.ast import Expr, Value
from tidemill.playground.sql.parse.cursor import Cursor
from tidemill.playground.sql.parse.expressions import Scope, evaluate, parse_expression, text_of
from tidemill.tidb.schema.codes import PartitionType, SchemaState
from tidemill.tidb.schema.model import PartitionDefinition, PartitionInfo, TableInfo


class Router:
    """Finds the partitions of a table's rows. Bounds and expression are parsed once."""

    def __init__(self, table: TableInfo, info: Mapping[str, Any]) -> None:
        self._table = table
        self._info = table.partitioning
        self._description: Mapping[str, Any] = info["partition"] or {}
        self._pieces: dict[tuple[int, ...], _Pieces] = {}

    def targets(self, row: Mapping[str, Value]) -> list[int]:
        """Physical ids to write a row to: the partition that counts, then copies. Raises SqlError when no partition takes the row."""
        info = self._info
        if info is None:
            return [self._table.id]
        if not info.definitions:
            return [self._table.id]
        owner = self._find(info.definitions, row)
        if owner is None:
            raise SqlError(f"table {self._table.name} has no partition for the row")
        return [owner, *self._copies(info, owner, row)]

    def _copies(self, info: PartitionInfo, owner: int, row: Mapping[str, Value]) -> list[int]:
        """Return the partitions to which a reorganisation writes the row as well: before the switch the new ones, right after it the old
        ones."""
        dropping, adding = {d.id for d in info.dropping}, {d.id for d in info.adding}
        if not dropping or not adding:
            return []
        if info.ddl_state in (SchemaState.WRITE_ONLY, SchemaState.WRITE_REORG) and owner in dropping:
            copy = self._find(info.adding, row, other=True)
            if copy is None:
                raise SqlError(f"table {self._table.name} has no new partition for the row")
        elif info.ddl_state == SchemaState.DELETE_REORG and owner in adding:
            copy = self._find(info.dropping, row, other=True)
        else:
            return []
        return [] if copy is None or copy == owner else [copy]

    def _find(self, definitions: Sequence[PartitionDefinition], row: Mapping[str, Value], *, other: bool = False) -> int | None:
        """Return the partition that takes a row. `other`: the partitions are those of the other side of a running reorganisation."""
        key = tuple(d.id for d in definitions)
        pieces = self._pieces.get(key)
        if pieces is None:
            described = self._description
            prefix = "ddl_" if other and described.get("ddl_expr") is not None else ""
            columns = [c["L"] for c in described.get(f"{prefix}columns") or ()]
            kind, expr = described.get(f"{prefix}type", 0), described.get(f"{prefix}expr", "")
            pieces = self._pieces[key] = _Pieces(kind, expr, columns, definitions)
        return pieces.find(row)


class _Pieces:
    """A list of partitions with its bounds ready for comparison."""

    def __init__(self, kind: int, expr: str, columns: Sequence[str], definitions: Sequence[PartitionDefinition]) -> None:
        self._ids = [d.id for d in definitions]
        self._type = kind
        self._expr: Expr | None = parse_expression(Cursor(expr)) if expr else None
        self._columns = columns
        self._bounds = [tuple(_bound(text) for text in d.less_than) for d in definitions]
        self._members = [{tuple(_bound(text) for text in values) for values in d.in_values} for d in definitions]

    def find(self, row: Mapping[str, Value]) -> int | None:
        values = self._values(row)
        found: int | None
        match self._type:
            case PartitionType.RANGE:
                found = next((i for i, bound in enumerate(self._bounds) if _below(values, bound)), None)
            case PartitionType.LIST:
                wanted = tuple(_Bound(v) for v in values)
                found = next((i for i, members in enumerate(self._members) if wanted in members), None)
            case PartitionType.HASH:
                number = values[0]
                found = abs(int(number)) % len(self._ids) if isinstance(number, int) else 0
            case PartitionType.KEY:
                data = b"".join(b"\0" if v is None else text_of(v).encode() for v in values)
                found = zlib.crc32(data) % len(self._ids)
            case _:
                found = 0
        return None if found is None else self._ids[found]

    def _values(self, row: Mapping[str, Value]) -> list[Value]:
        if self._type == PartitionType.NONE:
            return []
        if self._expr is not None:
            return [evaluate(self._expr, Scope(row))]
        return [row[name] for name in self._columns]


class _Bound(tuple[int, object]):
    """A comparable value: NULL, then numbers, then text, then MAXVALUE."""

    def __new__(cls, value: Value, *, top: bool = False) -> _Bound:
        if top:
            return super().__new__(cls, (3, 0))
        if value is None:
            return super().__new__(cls, (0, 0))
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogateescape")
        return super().__new__(cls, (2, value) if isinstance(value, bytes) else (1, value))


def _bound(text: str) -> _Bound:
    """A bound as table descriptions write it."""
    if text.upper() == "MAXVALUE":
        return _Bound(None, top=True)
    if text.startswith('"'):
        return _Bound(text[1:-1])
    return _Bound(evaluate(parse_expression(Cursor(text)), Scope({})))


def _below(values: Sequence[Value], bound: tuple[_Bound, ...]) -> bool:
    return tuple(_Bound(v) for v in values) < bound
