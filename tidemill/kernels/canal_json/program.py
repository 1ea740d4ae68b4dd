"""The text program of Canal-JSON. Reference: `tidemill.protocols.canal_json.encode`."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.templates.layout import NEW, OLD, ON_DELETE, ON_INSERT, ON_UPDATE, TextOp
from tidemill.kernels.templates.program import COMMIT_MS, COMMIT_TS, NOW, ColumnText, StepWords, TextProgram, absent_text
from tidemill.protocols.canal_json.codes import MessageType
from tidemill.protocols.canal_json.encode import CanalJsonTable, java_type, promotion, sql_type, value_text
from tidemill.protocols.canal_json.text import string
from tidemill.tidb.schema.model import ColumnInfo

_OPS = {ValueOp.TEXT: TextOp.JSON_TEXT, ValueOp.QUOTED: TextOp.JSON_LATIN, ValueOp.JSON: TextOp.JSON_DOCUMENT}


def value_op(program: TableProgram, column: ColumnInfo) -> int:
    """Return how a column's values are written."""
    stored = program.ops[program.slots[column.id]]
    if stored is ValueOp.BLOB:
        return TextOp.JSON_LATIN if column.is_binary else TextOp.JSON_TEXT
    return _OPS.get(stored, stored)


def column_text(program: TableProgram, column: ColumnInfo) -> ColumnText:
    """Return the texts of a column in `data` or `old`."""
    head = b"," + string(column.name.encode()) + b":"
    return ColumnText(
        column,
        value_op(program, column),
        prefix=head + b'"',
        suffix=b'"',
        null=head + b"null",
        absent=absent_text(program, column, lambda cell: head + value_text(column, cell)),
        separator=1,
    )


def compile_table(program: TableProgram, table: CanalJsonTable) -> TextProgram:
    """Return the program of a table version."""
    text = TextProgram(program)
    for kind, message in ((ON_DELETE, MessageType.DELETE), (ON_UPDATE, MessageType.UPDATE), (ON_INSERT, MessageType.INSERT)):
        columns = table.listed(message, None)
        image = OLD if kind == ON_DELETE else NEW
        steps: list[StepWords] = [
            text.constant(table.head + message.value.encode() + b'","es":'),
            COMMIT_MS,
            text.constant(b',"ts":'),
            NOW,
        ]
        steps += _types(text, table, columns, image)
        shown = [column_text(program, column) for column in columns]
        if kind == ON_UPDATE:
            steps += [text.constant(b',"old":[{'), text.columns(OLD, shown, changed=table.only_updated), text.constant(b'}],"data":[{')]
        else:
            steps.append(text.constant(b',"old":null,"data":[{'))
        steps.append(text.columns(image, shown))
        if table.options.enable_tidb_extension:
            steps += [text.constant(b'}],"_tidb":{"commitTs":'), COMMIT_TS, text.constant(b"}}")]
        else:
            steps.append(text.constant(b"}]}"))
        text.kind(kind, steps, (image, OLD) if kind == ON_UPDATE else (image,))
    text.finish()
    return text


def _types(text: TextProgram, table: CanalJsonTable, columns: Sequence[ColumnInfo], image: int) -> list[StepWords]:
    """Return the steps of `sqlType` and `mysqlType`: one constant, except for columns whose type depends on the value."""
    steps: list[StepWords] = []
    constant = b',"sql":"","sqlType":' + (b"{" if columns else b"null")
    for i, column in enumerate(columns):
        constant += (b"," if i else b"") + string(column.name.encode()) + b":"
        higher = promotion(column)
        if higher is None:
            constant += b"%d" % java_type(column)
            continue
        texts = (b"%d" % java_type(column), b"%d" % higher[1])
        absent = absent_text(text.program, column, lambda cell, column=column: b"%d" % sql_type(column, cell))  # type: ignore[misc]
        steps += [text.constant(constant), text.promoted(image, column, higher[0], texts, absent)]
        constant = b""
    constant += (b"}" if columns else b"") + b',"mysqlType":' + table.types_text(columns)
    return [*steps, text.constant(constant)]
