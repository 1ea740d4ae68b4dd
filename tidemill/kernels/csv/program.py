"""The text program of CSV. Reference: `tidemill.protocols.csv.encode`."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.templates.layout import NEW, OLD, ON_DELETE, ON_INSERT, ON_UPDATE, TextOp
from tidemill.kernels.templates.program import COMMIT_TS, ColumnText, StepWords, TextProgram, absent_text
from tidemill.protocols.csv.encode import CsvTable, is_text
from tidemill.protocols.options import BinaryEncoding, CsvOptions
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

_NUMBERS_AND_TIMES = frozenset(b"0123456789-:. ")
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
OPERATION_AND_NAMES = 3  # fields at the head of each line
_VECTOR = frozenset(b"0123456789-.,[]")


def _needs_escape(options: CsvOptions, alphabet: frozenset[int]) -> bool:
    """Return whether texts of these characters may hold the quote or the delimiter."""
    special = options.quote or options.delimiter
    return bool(frozenset(special.encode()) & alphabet)


def _value_op(program: TableProgram, table: CsvTable, column: ColumnInfo) -> tuple[int, bool]:
    """Return how a column's values are written, and whether the result has to be escaped."""
    options = table.options
    stored = program.ops[program.slots[column.id]]
    if stored in (ValueOp.TEXT, ValueOp.QUOTED, ValueOp.BLOB):
        if not column.is_binary:
            return TextOp.CSV_TEXT, False
        op = TextOp.BASE64 if options.binary_encoding is BinaryEncoding.BASE64 else TextOp.HEX
        return op, _needs_escape(options, _BASE64)
    if stored is ValueOp.JSON:
        return TextOp.CSV_DOCUMENT, True
    if stored is ValueOp.VECTOR:
        return stored, _needs_escape(options, _VECTOR)
    if column.tp in (MySQLType.ENUM, MySQLType.SET):
        return TextOp.ENUM if column.tp == MySQLType.ENUM else TextOp.SET, False
    if stored in (ValueOp.FLOAT, ValueOp.DOUBLE):
        return TextOp.GO_FLOAT, False
    return stored, is_text(column) and _needs_escape(options, _NUMBERS_AND_TIMES)


def column_text(program: TableProgram, table: CsvTable, column: ColumnInfo) -> ColumnText:
    """Return the texts of a column's field, with the delimiter before it."""
    delimiter, csv = table.csv.delimiter, table.csv
    op, escape = _value_op(program, table, column)
    quote = csv.quote if is_text(column) else b""
    members: tuple[bytes, ...] = ()
    if op in (TextOp.ENUM, TextOp.SET):
        members = tuple(csv.inside(elem.encode()) for elem in column.elems)
    if op == TextOp.SET:
        members = (*members, csv.inside(b","))
        if not csv.quote and len(csv.delimiter) > 1:
            op, members = ValueOp.UNKNOWN, ()  # the delimiter may begin in one element and end in the next: falls back to the reference
    return ColumnText(
        column,
        op,
        prefix=delimiter + quote,
        suffix=quote,
        null=delimiter + csv.null,
        absent=absent_text(program, column, lambda cell: delimiter + table.field(column, cell)),
        members=members,
        escape=escape,
    )


def compile_table(program: TableProgram, table: CsvTable) -> TextProgram:
    """Return the program of a table version."""
    text = TextProgram(program)
    columns = [column_text(program, table, column) for column in table.columns]
    text.kind(ON_DELETE, _line(text, table, columns, b"D", OLD, update=False), (OLD,))
    text.kind(ON_INSERT, _line(text, table, columns, b"I", NEW, update=False), (NEW,))
    if table.options.output_old_value:
        both = [*_line(text, table, columns, b"D", OLD, update=True), *_line(text, table, columns, b"I", NEW, update=True)]
        text.kind(ON_UPDATE, both, (OLD, NEW))
    else:
        text.kind(ON_UPDATE, _line(text, table, columns, b"U", NEW, update=True), (NEW,))
    text.finish()
    return text


def _line(
    text: TextProgram, table: CsvTable, columns: Sequence[ColumnText], operation: bytes, image: int, *, update: bool
) -> list[StepWords]:
    """Return the steps of a line: constants, and between them the commit ts and the handle."""
    options, csv = table.options, table.csv
    fields = table.head(operation, b"", b"", update=update)
    commit_ts = OPERATION_AND_NAMES if options.include_commit_ts else -1
    handle = len(fields) - 1 if options.output_handle_key else -1
    steps: list[StepWords] = []
    constant = b""
    for i, field in enumerate(fields):
        constant += csv.delimiter if i else b""
        if i == commit_ts:
            steps += [text.constant(constant), COMMIT_TS]
            constant = b""
        elif i == handle:
            steps += [text.constant(constant + csv.quote), text.handle(image)]
            constant = csv.quote
        else:
            constant += field
    return [*steps, text.constant(constant), text.columns(image, columns), text.constant(csv.terminator)]
