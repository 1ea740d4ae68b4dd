"""The text programs of SQL: the literals of a row's key, and those of the row. Reference: `tidemill.protocols.sql.literals`."""

from __future__ import annotations

from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.templates.layout import NEW, OLD, ON_DELETE, ON_INSERT, ON_UPDATE, SINGLE_AS_DOUBLE, TextOp
from tidemill.kernels.templates.program import ColumnText, TextProgram, absent_text
from tidemill.protocols.sql.literals import AND, NULL, SqlTable, literal
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

_PLAIN = frozenset({ValueOp.INT, ValueOp.UINT, ValueOp.YEAR, ValueOp.DECIMAL})


def _texts(program: TableProgram, column: ColumnInfo) -> tuple[int, bytes, bytes, bool]:
    """Return how a column's values are written, what stands around them, and whether they have to be escaped."""
    stored = program.ops[program.slots[column.id]]
    if column.tp == MySQLType.ENUM:
        return TextOp.ENUM, b"", b"", False  # 0 falls back to the reference
    if stored in _PLAIN:
        return stored, b"", b"", False
    if stored in (ValueOp.FLOAT, ValueOp.DOUBLE):
        return TextOp.GO_FLOAT, b"", b"", False
    if stored in (ValueOp.TEXT, ValueOp.QUOTED, ValueOp.BLOB):
        return (TextOp.HEX, b"x'", b"'", False) if column.is_binary else (TextOp.CSV_TEXT, b"'", b"'", False)
    if stored is ValueOp.JSON:
        return TextOp.CSV_DOCUMENT, b"'", b"'", True
    return stored, b"'", b"'", False


def _column(program: TableProgram, column: ColumnInfo, separator: bytes, around: tuple[str, str] = ("", "")) -> ColumnText:
    op, prefix, suffix, escape = _texts(program, column)
    before, after = separator + around[0].encode(), around[1].encode()
    return ColumnText(
        column,
        op,
        prefix=before + prefix,
        suffix=suffix + after,
        null=before + NULL + after,
        absent=absent_text(program, column, lambda cell: before + literal(column, cell) + after),
        separator=len(separator),
        members=tuple(b"%d" % number for number in range(1, len(column.elems) + 1)) if op == TextOp.ENUM else (),
        escape=escape,
        stored=SINGLE_AS_DOUBLE if column.tp == MySQLType.FLOAT else None,
    )


def key_program(program: TableProgram, table: SqlTable) -> TextProgram:
    """Return the program that writes a row's key."""
    text = TextProgram(program)
    columns = [_column(program, table.key[one.place], AND, (one.before, one.after)) for one in table.conditions]
    text.kind(ON_DELETE, [text.columns(OLD, columns)], (OLD,))
    for kind in (ON_INSERT, ON_UPDATE):
        text.kind(kind, [text.columns(NEW, columns)], (NEW,))
    text.finish()
    return text


def row_program(program: TableProgram, table: SqlTable) -> TextProgram:
    """Return the program that writes a row after its change; of a delete it writes nothing."""
    text = TextProgram(program)
    columns = [_column(program, column, b",") for column in table.columns]
    text.kind(ON_DELETE, [text.constant(b"")], (OLD,))
    for kind in (ON_INSERT, ON_UPDATE):
        text.kind(kind, [text.columns(NEW, columns)], (NEW,))
    text.finish()
    return text
