"""Compiles an expression's tree for a table: finds and types columns and chooses operators once, then evaluates row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from tidemill.errors import ConfigError
from tidemill.rules.expressions.arithmetic import rounded, signed, to_decimal, unsigned
from tidemill.rules.expressions.functions import FUNCTIONS, OPERATORS, Function, date_of
from tidemill.rules.expressions.parse import parse
from tidemill.rules.expressions.tree import Call, Cast, Column, Literal, Node
from tidemill.rules.expressions.values import (
    BINARY,
    DEFAULT_COLLATION,
    Choice,
    Text,
    Value,
    decimal_of,
    integer_of,
    moment_of,
    number_of,
    parse_moment,
    parse_span,
    text_of,
)
from tidemill.rules.names import did_you_mean
from tidemill.rules.patterns import GoRegex
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo

Cells = Sequence[Cell]
Evaluate = Callable[[Cells], Value]

_TIMES = {MySQLType.DATE, MySQLType.NEWDATE, MySQLType.DATETIME, MySQLType.TIMESTAMP}
_GENERATED_DEPTH = 8
_MAX_PACKET = 64 << 20
"""Bytes of TiDB's default max_allowed_packet."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition. `columns` are the columns that it reads, in table order; `holds` takes their cells."""

    columns: tuple[ColumnInfo, ...]
    evaluate: Evaluate

    def holds(self, cells: Cells) -> bool:
        """Return whether the expression is 1, which is true for TiCDC. Raises MalformedRow if a number leaves its range."""
        found = self.evaluate(cells)
        return isinstance(found, int) and found == 1


def bind(node: Node, info: TableInfo) -> Condition:
    """Compile a tree. Raises ConfigError for a column that the table does not have."""
    wanted = _named(node, info)
    columns = tuple(c for c in info.output_columns if c.id in wanted)
    return Condition(columns, _Binder(info, {c.id: at for at, c in enumerate(columns)}).evaluate(node))


def _named(node: Node, info: TableInfo, depth: int = 0) -> set[int]:
    """Return the ids of the stored columns that a tree reads. A virtual column counts as the columns that it is computed from."""
    match node:
        case Column():
            column = find_column(node.name, info)
            return _named(_generator(column, depth), info, depth + 1) if column.is_virtual else {column.id}
        case Call():
            return {found for operand in node.operands for found in _named(operand, info, depth)}
        case Cast():
            return _named(node.operand, info, depth)
    return set()


def find_column(name: str, info: TableInfo) -> ColumnInfo:
    """Return a column by its name. Raises ConfigError with the nearest name."""
    visible = [c for c in info.public_columns if not c.hidden]
    found = next((c for c in visible if c.name.lower() == name.lower()), None)
    if found is None:
        raise ConfigError(f"there is no column {name!r}{did_you_mean(name, [c.name for c in visible])}")
    return found


def _generator(column: ColumnInfo, depth: int) -> Node:
    """Return the tree that computes a virtual column, because rows do not hold it."""
    try:
        if depth < _GENERATED_DEPTH:
            return parse(column.generated_expr)
    except ConfigError as error:
        raise ConfigError(f"column {column.name!r} is virtual, and how it is computed is not understood: {error.message}") from None
    raise ConfigError(f"column {column.name!r} is computed through too many columns")


class _Binder:
    """Compiles nodes to functions. `slots` has the index of each stored column's cell."""

    def __init__(self, info: TableInfo, slots: dict[int, int]) -> None:
        self._info, self._slots = info, slots

    def evaluate(self, node: Node, depth: int = 0) -> Evaluate:
        match node:
            case Literal():
                value = node.value
                return lambda cells: value
            case Column():
                return self._column(node, depth)
            case Cast():
                return _cast(node, self.evaluate(node.operand, depth))
            case Call("REGEXP"):
                return self._regexp(node, depth)
            case Call():
                function = OPERATORS.get(node.name) or FUNCTIONS[node.name]
                return _call(function, [self.evaluate(operand, depth) for operand in node.operands])

    def _column(self, node: Column, depth: int) -> Evaluate:
        column = find_column(node.name, self._info)
        if column.is_virtual:
            return _typed(column, self.evaluate(_generator(column, depth), depth + 1))
        slot, read = self._slots[column.id], reader(column)
        return lambda cells: None if (cell := cells[slot]) is None else read(cell)

    def _regexp(self, node: Call, depth: int) -> Evaluate:
        pattern = node.operands[1]
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, (Text, Choice)):
            raise ConfigError("REGEXP needs its pattern as a string")
        literal = pattern.value if isinstance(pattern.value, Text) else pattern.value.text
        text = literal.data.decode("utf-8", "replace")
        plain, folding = GoRegex(text), GoRegex(text, fold=True)
        operand = self.evaluate(node.operands[0], depth)

        def call(cells: Cells) -> Value:
            found = text_of(operand(cells))
            if found is None:
                return None
            compiled = folding if found.collate.endswith("_ci") else plain
            return int(compiled.found_in(found.data.decode("utf-8", "replace")))

        return call


def _call(function: Function, operands: Sequence[Evaluate]) -> Evaluate:
    call = function.call
    if len(operands) == 2:
        left, right = operands
        if function.strict:
            return lambda cells: None if (a := left(cells)) is None or (b := right(cells)) is None else call(a, b)
        return lambda cells: call(left(cells), right(cells))

    def general(cells: Cells) -> Value:
        values = [operand(cells) for operand in operands]
        return None if function.strict and None in values else call(*values)

    return general


def _cast(node: Cast, operand: Evaluate) -> Evaluate:
    def call(cells: Cells) -> Value:
        value = operand(cells)
        return None if value is None else cast(value, node)

    return call


def cast(value: Value, node: Cast) -> Value:
    """Compute CAST. It never fails: unreadable text is 0, or NULL for a time, and a number beyond the type is its limit."""
    match node.type:
        case "SIGNED":
            return signed(integer_of(value) or 0)
        case "UNSIGNED":
            return unsigned((integer_of(value) if isinstance(value, Text) else number_of(value)) or 0)
        case "DECIMAL":
            return to_decimal(decimal_of(value) or Decimal(0), node.size or 10, node.digits)
        case "DOUBLE":
            return float(number_of(value) or 0)
        case "DATE":
            return date_of(value)
        case "DATETIME":
            return moment_of(value)
    found = text_of(value)
    if found is None:
        return None
    if node.type == "BINARY":
        return _sized_bytes(found.data, node.size)
    if node.size is None:
        return found
    return Text(found.data.decode("utf-8", "surrogateescape")[: node.size].encode("utf-8", "surrogateescape"), found.collate)


def _sized_bytes(data: bytes, size: int | None) -> Value:
    """Cut bytes, or fill them with zero bytes. NULL if the result would be larger than a packet."""
    if size is None:
        return Text(data, BINARY)
    return None if size > _MAX_PACKET else Text(data[:size].ljust(size, b"\0"), BINARY)


def _typed(column: ColumnInfo, evaluate: Evaluate) -> Evaluate:
    """Cast the value of a virtual column to the column's type."""

    def call(cells: Cells) -> Value:
        value = evaluate(cells)
        if value is None:
            return None
        if column.tp == MySQLType.NEWDECIMAL:
            return rounded(decimal_of(value) or Decimal(0), max(column.decimal, 0))
        if column.tp in (MySQLType.FLOAT, MySQLType.DOUBLE):
            return float(number_of(value) or 0)
        if column.tp in _TIMES:
            return moment_of(value)
        if column.is_binary and column.tp not in _BYTES:
            return integer_of(value)
        text = text_of(value)
        return None if text is None else Text(text.data, column.collate)

    return call


_BYTES = {
    *(MySQLType.VARCHAR, MySQLType.VAR_STRING, MySQLType.STRING),
    *(MySQLType.TINY_BLOB, MySQLType.BLOB, MySQLType.MEDIUM_BLOB, MySQLType.LONG_BLOB),
}


def reader(column: ColumnInfo) -> Callable[[Cell], Value]:
    """Return the function that turns a column's cell into a value."""
    collate = column.collate or DEFAULT_COLLATION
    if column.tp == MySQLType.NEWDECIMAL:
        return lambda cell: Decimal(str(cell))
    if column.tp in _TIMES:
        return lambda cell: parse_moment(str(cell))
    if column.tp == MySQLType.DURATION:
        return lambda cell: parse_span(str(cell))
    if column.tp == MySQLType.ENUM:
        names = [Text(name.encode(), collate) for name in ("", *column.elems)]
        return lambda cell: Choice(n, names[n] if n < len(names) else names[0]) if isinstance(n := cell, int) else None
    if column.tp == MySQLType.SET:
        return lambda cell: _members(column, cell, collate) if isinstance(cell, int) else None
    return lambda cell: (
        cell
        if isinstance(cell, (int, float))
        else Text(cell, collate)
        if isinstance(cell, bytes)
        else Text(str(cell).encode(), DEFAULT_COLLATION)
    )


def _members(column: ColumnInfo, mask: int, collate: str) -> Choice:
    names = [name for i, name in enumerate(column.elems) if mask >> i & 1]
    return Choice(mask, Text(",".join(names).encode(), collate))
