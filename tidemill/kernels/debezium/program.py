"""The text program of Debezium's JSON. Reference: `tidemill.protocols.debezium.encode`."""

from __future__ import annotations

from tidemill.errors import TidemillError
from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.templates.layout import (
    NEW,
    NULL_FOR_NO_DATE,
    OLD,
    ON_DELETE,
    ON_INSERT,
    ON_UPDATE,
    ZERO_FOR_NO_DATE,
    TextOp,
)
from tidemill.kernels.templates.program import COMMIT_MS, COMMIT_TS, KEY_END, NOW, START_TS, ColumnText, StepWords, TextProgram
from tidemill.protocols.debezium.encode import DebeziumTable
from tidemill.protocols.debezium.text import string, text
from tidemill.protocols.debezium.values import MILLISECOND_FSP, bit_size, is_base64, null_text, value_text
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

_OPS: dict[ValueOp, TextOp | ValueOp] = {
    ValueOp.UINT: TextOp.CONNECT_SIGNED,
    ValueOp.FLOAT: TextOp.CONNECT_FLOAT,
    ValueOp.DOUBLE: TextOp.CONNECT_FLOAT,
    ValueOp.DECIMAL: TextOp.CONNECT_DECIMAL,
    ValueOp.DATE: TextOp.CONNECT_DAYS,
    ValueOp.TIMESTAMP: TextOp.CONNECT_TIMESTAMP,
    ValueOp.DURATION: TextOp.CONNECT_DURATION,
    ValueOp.JSON: TextOp.CONNECT_DOCUMENT,
}
_STRINGS = frozenset({ValueOp.TEXT, ValueOp.QUOTED, ValueOp.BLOB})
_UNQUOTED = frozenset(
    {
        ValueOp.INT, ValueOp.YEAR, TextOp.CONNECT_SIGNED, TextOp.CONNECT_FLOAT, TextOp.CONNECT_DECIMAL, TextOp.CONNECT_DAYS,
        TextOp.CONNECT_MILLISECONDS, TextOp.CONNECT_MICROSECONDS, TextOp.CONNECT_DURATION, TextOp.CONNECT_BOOLEAN,
    }
)  # fmt: skip


def value_op(column: ColumnInfo, stored: ValueOp) -> TextOp | ValueOp:
    """Return how a column's values are written."""
    match column.tp:
        case MySQLType.BIT:
            return TextOp.CONNECT_BOOLEAN if column.flen == 1 else TextOp.CONNECT_BITS
        case MySQLType.ENUM:
            return TextOp.CONNECT_ENUM
        case MySQLType.SET:
            return TextOp.CONNECT_SET
        case MySQLType.DATETIME:
            return TextOp.CONNECT_MILLISECONDS if column.decimal <= MILLISECOND_FSP else TextOp.CONNECT_MICROSECONDS
    if stored in _STRINGS:
        return TextOp.BASE64 if is_base64(column) else TextOp.CONNECT_TEXT
    return _OPS.get(stored, stored)


def column_text(program: TableProgram, table: DebeziumTable, column: ColumnInfo) -> ColumnText:
    """Return the texts of a column in an image or in the key."""
    op = value_op(column, program.ops[program.slots[column.id]])
    head = b"," + text(column.name) + b":"
    quote = b"" if op in _UNQUOTED else b'"'
    parameter: int | None = None
    if op == TextOp.CONNECT_BITS:
        parameter = bit_size(column)
    elif op in (TextOp.CONNECT_DAYS, TextOp.CONNECT_MILLISECONDS, TextOp.CONNECT_MICROSECONDS):
        parameter = ZERO_FOR_NO_DATE if column.not_null else NULL_FOR_NO_DATE
    members: tuple[bytes, ...] = ()
    if op in (TextOp.CONNECT_ENUM, TextOp.CONNECT_SET):
        members = tuple(string(elem.encode())[1:-1] for elem in column.elems)
    if op == TextOp.CONNECT_SET:
        members = (*members, b",")
    return ColumnText(
        column, op, head + quote, quote, head + null_text(column), _absent(table, column, head),
        separator=1, members=members, parameter=parameter,
    )  # fmt: skip


def _absent(table: DebeziumTable, column: ColumnInfo, head: bytes) -> bytes | None:
    """Return the text of a column that a row lacks, or None if its default cannot be read. The reference then raises the error."""
    try:
        return head + value_text(column, table.absent_cell(column))
    except TidemillError:
        return None


def compile_table(program: TableProgram, table: DebeziumTable) -> TextProgram:
    """Return the program of a table version."""
    program_text = TextProgram(program)
    handle = [column_text(program, table, column) for column in table.handle_columns]
    shown = [column_text(program, table, column) for column in table.columns]
    source, debezium = table.source, table.options.debezium
    start = [program_text.constant(source.start), START_TS] if debezium.include_start_ts else []

    def image(name: bytes, which: int) -> list[StepWords]:
        return [program_text.constant(name + b":{"), program_text.columns(which, shown), program_text.constant(b"}")]

    changes: dict[int, tuple[bytes, list[StepWords], tuple[int, ...]]] = {
        ON_INSERT: (b'"c","before":null,', image(b'"after"', NEW), (NEW,)),
        ON_DELETE: (b'"d","after":null,', image(b'"before"', OLD), (OLD,)),
        ON_UPDATE: (b'"u",', image(b'"after"', NEW), (NEW,)),
    }
    if debezium.output_old_value:
        both = [*image(b'"before"', OLD), program_text.constant(b","), *image(b'"after"', NEW)]
        changes[ON_UPDATE] = (b'"u",', both, (NEW, OLD))
    for kind, (operation, images, needed) in changes.items():
        steps = [
            program_text.constant(b'{"payload":{'),
            program_text.columns(OLD if kind == ON_DELETE else NEW, handle),
            program_text.constant(table.key_schema),
            KEY_END,
            program_text.constant(b'{"payload":{"source":' + source.head),
            COMMIT_MS,
            program_text.constant(source.middle),
            COMMIT_TS,
            *start,
            program_text.constant(source.tail),
            NOW,
            program_text.constant(b',"transaction":null,"op":' + operation),
            *images,
            program_text.constant(table.value_schema),
        ]
        program_text.kind(kind, steps, needed)
    program_text.finish()
    return program_text
