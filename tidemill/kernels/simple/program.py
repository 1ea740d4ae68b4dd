"""The text program of the simple protocol. Reference: `tidemill.protocols.simple.encode`."""

from __future__ import annotations

from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.templates.layout import NEW, OLD, ON_DELETE, ON_INSERT, ON_UPDATE, TextOp
from tidemill.kernels.templates.program import COMMIT_TS, NOW, TABLE_ID, ColumnText, StepWords, TextProgram, absent_text
from tidemill.protocols.simple.encode import SimpleTable, around, is_base64, value_text
from tidemill.protocols.simple.schema import text as json_text
from tidemill.tidb.schema.model import ColumnInfo

_STRINGS = frozenset({ValueOp.TEXT, ValueOp.QUOTED, ValueOp.BLOB})
_KINDS = ((ON_DELETE, b"DELETE", (OLD,)), (ON_UPDATE, b"UPDATE", (NEW, OLD)), (ON_INSERT, b"INSERT", (NEW,)))


def column_text(program: TableProgram, column: ColumnInfo, location: str) -> ColumnText:
    """Return the texts of a column in `data` or `old`."""
    stored = program.ops[program.slots[column.id]]
    op: int = TextOp.JSON_DOCUMENT if stored is ValueOp.JSON else stored
    if stored in _STRINGS:
        op = TextOp.BASE64 if is_base64(column) else TextOp.JSON_TEXT
    head = b"," + json_text(column.name) + b":"
    before, after = around(column, location)
    return ColumnText(
        column,
        op,
        prefix=head + before,
        suffix=after,
        null=head + b"null",
        absent=absent_text(program, column, lambda cell: head + value_text(column, cell, location)),
        separator=1,
    )


def compile_table(program: TableProgram, table: SimpleTable) -> TextProgram:
    """Return the program of a table version."""
    text = TextProgram(program)
    columns = [column_text(program, column, table.location) for column in table.columns]
    for kind, word, images in _KINDS:
        steps: list[StepWords] = [
            *(text.constant(table.head), TABLE_ID),
            *(text.constant(b',"type":"' + word + b'","commitTs":'), COMMIT_TS),
            *(text.constant(b',"buildTs":'), NOW),
        ]
        head = table.version
        for image in images:
            steps += [text.constant(head + (b',"data":{' if image == NEW else b',"old":{')), text.columns(image, columns)]
            head = b"}"
        text.kind(kind, [*steps, text.constant(b"}}")], images)
    text.finish()
    return text
