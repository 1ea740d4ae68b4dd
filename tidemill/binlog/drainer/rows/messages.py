"""RAW_CHANGE batches → the payloads of files and of Kafka, one for each transaction. Pure.

The kernel `tidemill.kernels.binlog.messages` writes the rows; what is around those of a transaction is put together here. Reference:
`tidemill.binlog.outputs`, which also makes the rows that the kernel does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from enum import Enum

import numpy as np

from tidemill.binlog.blocks import Array
from tidemill.binlog.drainer.rows.batching import Pieces
from tidemill.binlog.drainer.rows.reading import Rows
from tidemill.binlog.drainer.rows.views import UsedTables, described
from tidemill.binlog.messages import MutationType
from tidemill.binlog.outputs import pb, slave
from tidemill.binlog.outputs.transactions import TableChanges
from tidemill.binlog.rows import Image, RowChange, deleted_image
from tidemill.errors import MalformedBytes, MalformedRow
from tidemill.kernels.binlog import layout as L
from tidemill.kernels.binlog.messages import messages
from tidemill.kernels.messages.buffer import Buffer
from tidemill.kernels.rows.layout import SCRATCH_BYTES, Outcome, ValueOp
from tidemill.kernels.rows.program import Pool, TableProgram, tables_of
from tidemill.kernels.rows.views import RawRecord, RowArray, raw_record
from tidemill.kernels.templates.program import absent_text, table_pairs
from tidemill.tidb.codec import encode_uvarint
from tidemill.tidb.datums import Datum, DatumFlag, decode_datum
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.schema.codes import HandleKind, MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

FIRST_BYTES, KEPT_BYTES = 4 << 20, 64 << 20
"""Room for messages: at first, and as much as is kept after a large transaction."""
VALUE_ROOM = 512
"""Most bytes of a number or time, with its tags and lengths, in both images: a double has none of 330 digits here."""
ROOM, VECTOR_ROOM = 8, 16
"""Most bytes that a stored byte becomes: a character of a document; 4 bytes of a vector become up to 48."""

_KINDS = (MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW)
_DML = b"\x08\x00\x10"  # type and tag of commit_ts, of both messages
_DATA, _TABLE = b"\x1a", b"\x0a"
_BYTES = (ValueOp.TEXT, ValueOp.QUOTED, ValueOp.BLOB)


class Form(Enum):
    """Which message."""

    FILE = L.FILE
    KAFKA = L.KAFKA


def is_written_whole(info: TableInfo) -> bool:
    """Whether a batch has all that a message has of a row: of generated columns and hidden ones it does not."""
    return info.public_columns == info.output_columns and not any(column.is_generated for column in info.public_columns)


class MessageEncoding:
    """Keeps what was made of tables until it is told to forget. TIMESTAMP is text in `zone`. Not safe for threads."""

    def __init__(self, form: Form, zone: tzinfo) -> None:
        self._form, self._zone = form, zone
        self.slow_rows = 0
        """Rows that the reference made."""
        self.forget()

    def forget(self) -> None:
        """Tables have changed."""
        self._used = UsedTables()
        self._made: _Made | None = None

    def payloads(self, rows: Rows) -> Iterator[bytes]:
        """Yield the messages of transactions, in order. Raises MalformedRow."""
        made = self._made_of(self._used.take(rows.batches, rows.tables))
        raw = described(rows.batches, self._used.places)
        ends = made.encode(raw)
        yield from self._whole(made, raw, ends)
        self._end(made)

    def in_parts(self, rows: Rows, pieces: Pieces) -> tuple[int, Iterator[bytes | memoryview]]:
        """Return the size of a large transaction's message for a file, and its parts, each until the next one is asked for. Raises
        MalformedRow, also while they are made. Its rows are encoded twice: the size stands before them."""
        made = self._made_of(self._used.add(sorted(pieces.table_ids), rows.tables))
        size = sum(len(part) for part in self._parts(made, pieces))
        made.slow_rows = 0
        head = b"".join((_DML, encode_uvarint(rows.commit_ts), _DATA, encode_uvarint(size)))

        def parts() -> Iterator[bytes | memoryview]:
            yield head
            yield from self._parts(made, pieces)
            self._end(made)

        return len(head) + size, parts()

    def _parts(self, made: _Made, pieces: Pieces) -> Iterator[memoryview]:
        for batch in pieces:
            ends = made.encode(described((batch,), self._used.places))
            yield memoryview(made.out.array.data)[: int(ends[-1])]

    def _made_of(self, is_changed: bool) -> _Made:
        """Return what was made of the tables in use. `is_changed`: they have changed."""
        if is_changed or self._made is None:
            self._made = _Made(self._used.versions, self._form, self._zone)
        return self._made

    def _end(self, made: _Made) -> None:
        """Count what the reference made, and give much room back."""
        self.slow_rows += made.slow_rows
        made.slow_rows = 0
        if made.out.size > KEPT_BYTES:
            self._made = None

    def _whole(self, made: _Made, raw: RowArray, ends: Array) -> Iterator[bytes]:
        out = memoryview(made.out.array.data)
        tables = raw["table"]
        starts = np.concatenate(([0], ends))
        for begin, end in _runs(raw["commit_ts"], raw["start_ts"]):
            if self._form is Form.FILE:
                body = bytes(out[starts[begin] : starts[end]])
            else:
                body = b"".join(
                    made.table(int(tables[begin + first]), out[starts[begin + first] : starts[begin + last]])
                    for first, last in _runs(tables[begin:end])
                )
            yield b"".join((_DML, encode_uvarint(int(raw["commit_ts"][begin])), _DATA, encode_uvarint(len(body)), body))


def _runs(*columns: Array) -> Iterator[tuple[int, int]]:
    """Yield where rows with equal values begin and end."""
    if not len(columns[0]):
        return
    differ = np.zeros(len(columns[0]) - 1, bool)
    for column in columns:
        differ |= column[1:] != column[:-1]
    edges = [0, *(np.flatnonzero(differ) + 1).tolist(), len(columns[0])]
    yield from itertools.pairwise(edges)


class _Made:
    """The kernel's words for the tables in use."""

    def __init__(self, versions: Sequence[TableVersion], form: Form, zone: tzinfo) -> None:
        self._versions, self._form, self._zone = versions, form, zone
        programs = [TableProgram.of(version, zone) for version in versions]
        self._tables, self._caches = table_pairs(programs)
        self._constants = tables_of(programs)
        self._compiled = [_Text(version, program, form) for version, program in zip(versions, programs, strict=True)]
        self._programs = programs
        self._texts = np.array([one.words for one in self._compiled] or [np.zeros(L.X_WORDS, np.int64)], np.int64)
        self._around = [slave.around(version) for version in versions]
        self._scratch = np.zeros(2 * SCRATCH_BYTES, np.uint8)
        self._words = np.zeros(L.M_WORDS, np.int64)
        self._words[L.M_FORM] = form.value
        self.out = Buffer(FIRST_BYTES)
        self.slow_rows = 0

    def table(self, number: int, mutations: memoryview) -> bytes:
        """Return a Table with its mutations, with its tag."""
        before, behind = self._around[number]
        return b"".join((_TABLE, encode_uvarint(len(before) + len(mutations) + len(behind)), before, mutations, behind))

    def encode(self, rows: RowArray) -> Array:
        """Write the rows; returns where each ends in the buffer. Raises MalformedRow."""
        ends: Array = np.zeros(len(rows), np.int64)
        words = self._words
        words[L.M_OUT_USED], words[L.M_ENDS], words[L.M_READY_LEN] = 0, ends.ctypes.data, -1
        at = 0
        while True:
            words[L.M_OUT], words[L.M_OUT_SIZE] = self.out.address, self.out.size
            at = int(
                messages(
                    at, len(rows), rows.ctypes.data, self._tables.ctypes.data, self._texts.ctypes.data, self._constants,
                    self._scratch.ctypes.data, words.ctypes.data,
                )
            )  # fmt: skip
            outcome = Outcome(words[L.M_OUTCOME])
            if outcome is Outcome.DONE:
                return ends
            if outcome is Outcome.GROW:
                used = int(words[L.M_OUT_USED])
                self.out.grow(used + self._need(rows[at]), used)
                continue
            ready = np.frombuffer(self._by_reference(raw_record(rows, at)), np.uint8)
            self._ready = ready
            words[L.M_READY], words[L.M_READY_LEN] = ready.ctypes.data, len(ready)

    def _need(self, row: np.void) -> int:
        text = self._texts[row["table"]]
        stored = int(row["value_len"]) + int(row["old_len"]) + 2 * int(row["key_len"]) + 2
        return int(text[L.X_FIXED]) + int(text[L.X_ROOM]) * stored + max(0, int(self._words[L.M_READY_LEN]))

    def _by_reference(self, record: RawRecord) -> bytes:
        self.slow_rows += 1
        version = self._versions[record.table]
        try:
            row = row_change(version.info, record)
        except MalformedBytes as error:
            raise MalformedRow(f"table {version.info.name}: {error.message}") from None
        if self._form is Form.FILE:
            return pb.event(TableChanges(version, (row,)), row, self._zone)
        return slave.mutation(version, row, self._zone)


def row_change(info: TableInfo, record: RawRecord) -> RowChange:
    """Return the change that a record of a batch has. Raises MalformedBytes."""
    old = None if record.old_value is None else deleted_image(record.old_value)
    if record.value is None:
        return RowChange(MutationType.DELETE_ROW, old, None)
    if old is not None:
        return RowChange(MutationType.UPDATE, old, deleted_image(record.value))
    return RowChange(MutationType.INSERT, None, {**_in_key(info, record.key), **deleted_image(record.value)})


def _in_key(info: TableInfo, key: bytes) -> Image:
    """Return the columns that a key has whole."""
    handle = parse_record_key(key).handle
    if isinstance(handle, int):
        return {info.pk_column.id: Datum(DatumFlag.VARINT, handle)} if info.pk_column is not None else {}
    index = info.primary_index
    found: dict[int, Datum] = {}
    at = 0
    if info.handle_kind is HandleKind.COMMON and index is not None:
        for part, column in zip(index.columns, info.index_columns(index), strict=True):
            datum, at = decode_datum(handle, at)
            if part.length < 0:
                found[column.id] = datum
    return found


class _Text:
    """The X_… words of a table. The object keeps alive what they point to."""

    def __init__(self, version: TableVersion, program: TableProgram, form: Form) -> None:
        self.words = np.zeros(L.X_WORDS, np.int64)
        pool = Pool()
        fixed = 64
        for place, kind in enumerate(_KINDS):
            head = pb.event_head(version, kind) if form is Form.FILE else slave.mutation_head(kind)
            self.words[L.X_HEADS + 2 * place : L.X_HEADS + 2 * place + 2] = pool.add(head)
            fixed += len(head)
        prefixes = {column.id: before for column, before in pb.described(version)} if form is Form.FILE else {}
        rows = []
        for column in program.columns:
            row = _column(program, column, prefixes.get(column.id, b""), form, pool)
            rows.append(row)
            fixed += row[L.C_PREFIX_LEN] + 2 * (row[L.C_NULL_LEN] + max(0, row[L.C_ABSENT_LEN])) + VALUE_ROOM
        room = VECTOR_ROOM if ValueOp.VECTOR in program.ops else ROOM
        self._blocks = np.array(rows or [[0] * L.COLUMN_WORDS], np.int32).reshape(-1, L.COLUMN_WORDS), pool.array()
        columns, texts = (block.ctypes.data for block in self._blocks)
        self.words[: L.X_HEADS] = columns, len(rows), texts, fixed, room


def _column(program: TableProgram, column: ColumnInfo, prefix: bytes, form: Form, pool: Pool) -> list[int]:
    slot = program.slots[column.id]
    stored = program.ops[slot]

    def made(value: Cell) -> bytes:
        return pb.datum(column, value) if form is Form.FILE else slave.column(column, value)

    absent = absent_text(program, column, made)
    width = max(1, (column.flen + 7) // 8)
    fsp = min(max(column.decimal, 0), 6)
    is_bytes = (column.is_binary and stored in _BYTES) or stored is ValueOp.JSON or column.tp == MySQLType.BIT
    tag = 0x2A if is_bytes else 0x32
    texts = (*pool.add(prefix), *pool.add(made(None)), *(pool.add(absent) if absent is not None else (0, -1)))
    return [slot, _how(column, stored, form), stored, fsp, width, tag, *texts, 0, 0, 0, 0]


def _how(column: ColumnInfo, stored: ValueOp, form: Form) -> int:
    if column.tp == MySQLType.BIT:
        return L.HOW_BIT
    if stored in _BYTES:
        return L.HOW_BYTES
    if stored is ValueOp.INT or (stored is ValueOp.YEAR and form is Form.FILE):
        return L.HOW_SIGNED
    if stored is ValueOp.UINT:
        return L.HOW_UNSIGNED
    return L.HOW_FLOAT if stored in (ValueOp.FLOAT, ValueOp.DOUBLE) else L.HOW_TEXT
