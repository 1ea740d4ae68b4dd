"""The reference encoder of the Open Protocol: row cells → key and value JSON; DDL and resolved messages.

The kernel writes the same bytes, hands rows back to this code, and takes the constants of its programs from it. Bytes equal those of
TiCDC's encoder under the same options. `framed` makes a message of one event.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING

from tidemill.errors import MalformedRow, NoHandleKey, TidemillError
from tidemill.protocols.common.gotext import go_quote, json_string
from tidemill.protocols.open.codes import TEXT_BLOBS, VERSION, ColumnFlag, ColumnType, EventType
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.codes import ColumnFlag as SchemaFlag
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.floats import go_float, to_float32
from tidemill.tidb.types.jsonstyle import JsonStyle

if TYPE_CHECKING:
    from tidemill.protocols.common.compression import Compress
    from tidemill.tidb.rows import Cell
    from tidemill.tidb.schema.events import DdlEvent


# Plain numbers: operators of enum's flags take most of the time of a wide table's description.
_BINARY, _HANDLE_KEY, _GENERATED = int(ColumnFlag.BINARY), int(ColumnFlag.HANDLE_KEY), int(ColumnFlag.GENERATED)
_PRIMARY_KEY, _UNIQUE_KEY, _MULTIPLE_KEY = int(ColumnFlag.PRIMARY_KEY), int(ColumnFlag.UNIQUE_KEY), int(ColumnFlag.MULTIPLE_KEY)
_NULLABLE, _UNSIGNED = int(ColumnFlag.NULLABLE), int(ColumnFlag.UNSIGNED)
_KEYS = (
    (int(SchemaFlag.PRIMARY_KEY), _PRIMARY_KEY),
    (int(SchemaFlag.UNIQUE_KEY), _UNIQUE_KEY),
    (int(SchemaFlag.MULTIPLE_KEY), _MULTIPLE_KEY),
)


def column_flags(table: TableInfo) -> dict[int, ColumnFlag]:
    """Return the protocol's flags of each column by id. An index marks all its columns, not only the first as MySQL does."""
    flags = {}
    handle = table.handle_key_ids
    for column in table.columns:
        flag = _BINARY if column.is_binary else 0
        flag |= _HANDLE_KEY if column.id in handle else 0
        flag |= _GENERATED if column.is_generated else 0
        flag |= _NULLABLE if not column.not_null else 0
        flag |= _UNSIGNED if column.unsigned else 0
        for theirs, ours in _KEYS:
            flag |= ours if column.flag & theirs else 0
        flags[column.id] = flag
    for index in table.indices:
        mark = _PRIMARY_KEY if index.primary else 0
        mark |= _UNIQUE_KEY if index.unique and not index.primary else 0
        mark |= _MULTIPLE_KEY if len(index.columns) > 1 else 0
        for column in table.index_columns(index):
            flags[column.id] |= mark
    return {column: ColumnFlag(flag) for column, flag in flags.items()}


def json_value(column: ColumnInfo, cell: Cell) -> bytes:
    """Return a column's `v`."""
    if cell is None:
        return b"null"
    if isinstance(cell, float):
        return go_float(cell, 32 if column.tp == ColumnType.FLOAT else 64).encode()
    if isinstance(cell, int):
        return b"%d" % cell
    if isinstance(cell, str):
        return json_string(cell.encode())
    if column.tp in TEXT_BLOBS:
        return b'"' + base64.b64encode(cell) + b'"'
    return json_string(go_quote(cell) if column.is_binary else cell)


def same_value(column: ColumnInfo, old: Cell, new: Cell) -> bool:
    """Return whether only-output-updated-columns leaves a column out. It compares values: minus zero equals zero, FLOAT has 32 bits."""
    if isinstance(old, float) and isinstance(new, float) and column.tp == ColumnType.FLOAT:
        return to_float32(old) == to_float32(new)
    return old == new


class OpenTable:
    """One table version: turns raw changes into events. Compiled once for many rows.

    It uses the options that choose columns: output-old-value, only-output-updated-columns and delete-only-output-handle-key-columns.
    """

    __slots__ = ("_flags", "_heads", "_names", "info", "options", "reader", "schema", "table")

    def __init__(
        self,
        schema: str,
        table: str,
        info: TableInfo,
        zone: tzinfo,
        options: EncodingOptions | None = None,
        json: JsonStyle = JsonStyle.GO,
    ) -> None:
        self.schema, self.table, self.info = schema, table, info
        self.options = options or EncodingOptions()
        self.reader = RowReader(info, zone, json=json)
        self._flags = column_flags(info)
        columns = info.output_columns
        order = sorted(range(len(columns)), key=lambda i: columns[i].name.encode())
        self._heads = [(i, columns[i], self.column_head(columns[i])) for i in order]
        self._names = b'"scm":%s,"tbl":%s' % (json_string(schema.encode()), json_string(table.encode()))

    def column_head(self, column: ColumnInfo) -> bytes:
        """Return the text before a column's value: its name, type and flags."""
        flag = self._flags[column.id]
        handle = b'"h":true,' if flag & ColumnFlag.HANDLE_KEY else b""
        return b'%s:{"t":%d,%s"f":%d,"v":' % (json_string(column.name.encode()), column.tp, handle, flag)

    @property
    def in_name_order(self) -> list[ColumnInfo]:
        """The columns in the order of a message's value."""
        return [column for _, column, _ in self._heads]

    def is_handle(self, column: ColumnInfo) -> bool:
        """Return whether a column belongs to the handle key."""
        return bool(self._flags[column.id] & ColumnFlag.HANDLE_KEY)

    @property
    def key_names(self) -> bytes:
        """The constant part of a row's key: schema and table."""
        return self._names

    def image(self, cells: Sequence[Cell], wanted: Callable[[int, ColumnInfo], bool] = lambda i, column: True) -> bytes:
        """Return one image of a row with the wanted columns (index in table order, column), or an empty text without columns."""
        parts = [head + json_value(column, cells[i]) + b"}" for i, column, head in self._heads if wanted(i, column)]
        return b"{" + b",".join(parts) + b"}" if parts else b""

    def row_key(self, key: bytes, commit_ts: int, mark: bytes = b"") -> bytes:
        """Return the key JSON of a row: `rid` is the integer handle if it is not 0, `ptn` the physical table id of a partition."""
        record = parse_record_key(key)
        parts = [b'"ts":%d' % commit_ts, self._names]
        if isinstance(record.handle, int) and record.handle:
            parts.append(b'"rid":%d' % record.handle)
        if self.info.partition is not None:
            parts.append(b'"ptn":%d' % record.table_id)
        parts.append(b'"t":%d' % EventType.ROW)
        return b"{" + b",".join(parts) + mark + b"}"

    def row_value(self, key: bytes, value: bytes | None, old_value: bytes | None, *, only_handle: bool = False) -> bytes:
        """Return the value JSON of a row with the members u, p or d for its images. Raises MalformedRow, NoHandleKey."""
        options = self.options
        only_handle = only_handle or (not value and options.delete_only_handle_key_columns)
        read = partial(self.reader.read_only, self.info.handle_key_ids) if only_handle else self.reader.read
        after = read(key, value) if value else None
        before = read(key, old_value) if old_value and (after is None or options.output_old_value) else None
        if after is None and before is None:
            raise MalformedRow("neither a new nor an old value")
        if only_handle and not self.info.handle_key_ids:
            raise NoHandleKey("the table has no handle key, so no column of this row could be sent")

        def chosen(i: int, column: ColumnInfo) -> bool:
            return not only_handle or self.is_handle(column)

        def updated(i: int, column: ColumnInfo) -> bool:
            return chosen(i, column) and not same_value(column, before[i], after[i])  # type: ignore[index]  # called for updates

        if after is None:
            assert before is not None, "one image is there"
            return b'{"d":' + self.image(before, chosen) + b"}"
        text = b'{"u":' + self.image(after, chosen)
        if before is not None:
            image = self.image(before, updated if options.only_output_updated_columns else chosen)
            text += b',"p":' + image if image else b""
        return text + b"}"

    def row(self, key: bytes, value: bytes | None, old_value: bytes | None, commit_ts: int) -> tuple[bytes, bytes]:
        """Encode a change as key and value JSON. An empty image counts as none. Raises MalformedRow, NoHandleKey."""
        with self._naming(key, commit_ts):
            return self.row_key(key, commit_ts), self.row_value(key, value, old_value)

    def stand_in(self, key: bytes, value: bytes | None, old_value: bytes | None, commit_ts: int, location: str = "") -> tuple[bytes, bytes]:
        """Return the event sent in place of one that is too large: handle columns only, marked `ohk`, or with the `location` of the claim
        check's file, marked `ccl`. Raises the errors of `row`."""
        mark = b',"ccl":' + json_string(location.encode()) if location else b',"ohk":true'
        with self._naming(key, commit_ts):
            return self.row_key(key, commit_ts, mark), self.row_value(key, value, old_value, only_handle=True)

    @contextmanager
    def _naming(self, key: bytes, commit_ts: int) -> Iterator[None]:
        try:
            yield
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            kind = NoHandleKey if isinstance(error, NoHandleKey) else MalformedRow
            raise kind(f"{place}: {error.message}", hint=error.hint) from error


def framed(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the message of one event: version and lengths are 8-byte big-endian numbers."""
    return VERSION.to_bytes(8, "big") + len(key).to_bytes(8, "big") + key, len(value).to_bytes(8, "big") + value


def ddl_message(event: DdlEvent, compress: Compress | None = None) -> tuple[bytes, bytes]:
    """Return the message of a DDL. A DDL of a schema has no `tbl`."""
    table = b',"tbl":' + json_string(event.table.encode()) if event.table else b""
    key = b'{"ts":%d,"scm":%s%s,"t":%d}' % (event.ts, json_string(event.schema.encode()), table, EventType.DDL)
    value = b'{"q":%s,"t":%d}' % (json_string(event.query.encode()), event.type)
    return framed(key, compress(value) if compress else value)


def resolved_message(ts: int) -> tuple[bytes, bytes]:
    """Return the resolved message: nothing at or below ts will follow. Its event has no value, so the message's value is a length of 0."""
    return framed(b'{"ts":%d,"t":%d}' % (ts, EventType.RESOLVED), b"")
