"""The reference encoder of Avro: row cells → message key and value. The kernel writes the same bytes, and hands rows back to this code.

The value is the new image of an insert or update. A delete has a key and no value; with avro-enable-watermark, for TiCDC's own consumer,
its commit ts, as newer TiCDC has it. Bytes equal those of TiCDC's encoder, except that an ENUM 0, which TiCDC refuses, is the empty text.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from fractions import Fraction

from tidemill.errors import CorruptedRow, MalformedRow, TidemillError
from tidemill.protocols.avro import wire
from tidemill.protocols.avro.schema import Field, Form, key_fields, value_fields
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.rows import Cell, RowReader
from tidemill.tidb.rows.checksum import COLUMNS, Verdict, columns_checksum, verify_checksum
from tidemill.tidb.rows.raw import FORMAT_2, RowFlag, decode_row
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.tidb.types.members import enum_name, set_names
from tidemill.tso import physical_ms

NO_KEY = -1
"""The key's schema id of a table without a key."""


def encode_cell(field: Field, cell: Cell) -> bytes:
    """Encode a field of a record: the branch of its union, and the value. Raises MalformedRow."""
    if cell is None:
        if field.null_branch is None:
            raise MalformedRow(f"column {field.column.name} is NOT NULL, but NULL in this row")
        return wire.varint(field.null_branch)
    branch = b"" if field.null_branch is None else wire.varint(1 - field.null_branch)
    return branch + _value(field, cell)


def _value(field: Field, cell: Cell) -> bytes:
    match cell:
        case int():
            return _number(field, cell)
        case float():
            return struct.pack("<f" if field.form is Form.FLOAT else "<d", cell)
        case str():
            return wire.sized(wire.shortest(_unscaled(field, cell)) if field.form is Form.DECIMAL else cell.encode())
        case bytes():
            return wire.sized(cell)
    raise MalformedRow(f"column {field.column.name} holds {type(cell).__name__}, which no column does")


def _number(field: Field, number: int) -> bytes:
    elems = field.column.elems
    try:
        match field.form:
            case Form.INTEGER:
                return wire.varint(number)
            case Form.BIT:
                return wire.sized(wire.shortest_unsigned(number))
            case Form.ENUM:
                return wire.sized(enum_name(number, elems).encode("utf-8", "surrogateescape"))
            case Form.SET:
                return wire.sized(set_names(number, elems).encode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise MalformedRow(f"column {field.column.name}: {error}") from None
    return wire.sized(b"%d" % number)


def _unscaled(field: Field, text: str) -> int:
    """Return a DECIMAL in units of its column's last digit, rounded down where the value has more digits."""
    scaled: Fraction = Fraction(text) * 10**field.scale
    return math.floor(scaled)


NAMED_CORRUPTED = 5
"""How many of the rows with a wrong checksum are named. The others are only counted."""


def has_checksum(value: bytes) -> bool:
    """Return whether a row value says that a checksum follows it."""
    return value[0] == FORMAT_2 and bool(value[1:2] and value[1] & RowFlag.CHECKSUM)


@dataclass(frozen=True, slots=True)
class RowSum:
    """The row checksum of a message. `checksum` is None where neither image has one."""

    checksum: int | None
    corrupted: bool
    version: int


class AvroTable:
    """One table version: turns raw changes into messages. `schema_ids`: those of its key's and value's schemas in the registry.

    `corrupted_rows` counts rows with a wrong checksum that are sent anyway; `corrupted` names the first of them.
    """

    __slots__ = (
        "_json",
        "_key_reader",
        "_reader",
        "_value_places",
        "corrupted",
        "corrupted_rows",
        "info",
        "key_fields",
        "options",
        "schema",
        "schema_ids",
        "table",
        "value_fields",
    )

    def __init__(
        self,
        schema: str,
        table: str,
        info: TableInfo,
        zone: tzinfo,
        options: EncodingOptions,
        schema_ids: tuple[int, int],
        json: JsonStyle = JsonStyle.GO,
    ) -> None:
        self.schema, self.table, self.info, self.options, self.schema_ids = schema, table, info, options, schema_ids
        self.corrupted_rows, self.corrupted = 0, list[str]()
        self.key_fields, self.value_fields = key_fields(info, options), value_fields(info, options)
        place = {column.id: i for i, column in enumerate(info.output_columns)}
        self._value_places = [place[field.column.id] for field in self.value_fields]
        self._json = json
        self._reader = RowReader(info, zone, json=json)
        self._key_reader = RowReader(info, zone, [field.column for field in self.key_fields], json)

    def row(self, key: bytes, value: bytes | None, old_value: bytes | None, commit_ts: int) -> tuple[bytes | None, bytes | None]:
        """Encode the message of a change. An empty image counts as none. Raises MalformedRow naming table, key and commit_ts."""
        try:
            if not value and not old_value:
                raise MalformedRow("neither a new nor an old value")
            message_key = self.message_key(self._key_reader.read(key, value or old_value))
            if value:
                return message_key, self._message_value(key, value, old_value, commit_ts)
            return message_key, wire.deleted(commit_ts) if self.options.avro.enable_watermark else None
        except TidemillError as error:
            place = f"table {self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}"
            raise type(error)(f"{place}: {error.message}", hint=error.hint) from error

    def message_key(self, cells: Sequence[Cell]) -> bytes | None:
        """Encode the key of a message from the cells of its fields. None for a table without handle columns."""
        if not self.key_fields:
            return None
        body = b"".join(encode_cell(field, cell) for field, cell in zip(self.key_fields, cells, strict=True))
        return wire.head(self.schema_ids[0]) + body

    def _message_value(self, key: bytes, value: bytes, old_value: bytes | None, commit_ts: int) -> bytes:
        cells = self._reader.read(key, value)
        parts = [encode_cell(field, cells[place]) for field, place in zip(self.value_fields, self._value_places, strict=True)]
        if self.options.enable_tidb_extension:
            parts += [wire.sized(b"u" if old_value else b"c"), wire.varint(commit_ts), wire.varint(physical_ms(commit_ts))]
            if self.options.row_checksum:
                parts.append(self._checksum(key, value, old_value, commit_ts))
        return wire.head(self.schema_ids[1]) + b"".join(parts)

    def _checksum(self, key: bytes, value: bytes, old_value: bytes | None, commit_ts: int) -> bytes:
        found = self.row_sum(key, value, old_value)
        if found.corrupted:
            self.corrupted_rows += 1
            if len(self.corrupted) < NAMED_CORRUPTED:
                self.corrupted.append(f"{self.schema}.{self.table}, key {key.hex()}, commit_ts {commit_ts}")
        text = b"" if found.checksum is None else b"%d" % found.checksum
        return wire.sized(text) + (b"\x01" if found.corrupted else b"\x00") + wire.varint(found.version)

    def row_sum(self, key: bytes, value: bytes, old_value: bytes | None) -> RowSum:
        """Return the checksum for consumers to verify, and whether a stored checksum is wrong. Raises CorruptedRow if configured so.

        It is the sum over the message's columns, whatever the stored one covers. For a row with a wrong checksum it is the stored one.
        """
        before = verify_checksum(key, old_value, self.info) if old_value and has_checksum(old_value) else Verdict.NONE
        now = verify_checksum(key, value, self.info)
        corrupted = Verdict.DIFFERS in (before, now)
        if corrupted and self.options.corrupted_rows_fail:
            image = "new" if now is Verdict.DIFFERS else "old"
            raise CorruptedRow(
                f"the checksum of its {image} value does not fit it", hint="corruption-handle-level = warn sends and marks it"
            )
        trailer = decode_row(value).checksum
        if trailer is None:
            return RowSum(None if before is Verdict.NONE else 0, corrupted, 0)
        if now is Verdict.DIFFERS and trailer.version != COLUMNS:
            return RowSum(trailer.checksum, corrupted, trailer.version)
        return RowSum(columns_checksum(self.info, RowReader(self.info, UTC, json=self._json).read(key, value)), corrupted, trailer.version)
