"""TiCDC's CSV → lines of fields, with values typed by their columns.

CSV states neither its options nor its columns. The reader needs the `[sink.csv]` section of the writer, and the table's columns, which are
in the storage sink's schema files.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemill.errors import MalformedMessage
from tidemill.protocols.common.mysqlvalues import MEMBERS, Value, base_type, parse_integer, parse_value
from tidemill.protocols.open.decode import Fault
from tidemill.protocols.open.events import RowKind
from tidemill.protocols.options import BinaryEncoding, CsvOptions

__all__ = ["CsvError", "CsvLine", "CsvReader", "Fault", "RowKind"]

_KINDS = {b"I": RowKind.INSERT, b"U": RowKind.UPDATE, b"D": RowKind.DELETE}
_ESCAPED = {b"r": b"\r", b"n": b"\n"}


class CsvError(MalformedMessage):
    """Bytes that are not CSV under these options: `line` (from 1), `offset` in bytes, `field`, the problem, and whose fault it is."""

    def __init__(self, line: int, offset: int, field: str, problem: str, fault: Fault = Fault.SENDER) -> None:
        self.line, self.offset, self.field, self.fault = line, offset, field, fault
        place = f"CSV line {line}, byte {offset}" + (f", {field}" if field else "")
        super().__init__(f"{place}: {problem}", hint=f"the fault is {fault.value}")


@dataclass(frozen=True, slots=True)
class CsvLine:
    """A line. With output-old-value an update is two lines, a DELETE and an INSERT, both `updated`."""

    kind: RowKind
    schema: str
    table: str
    commit_ts: int | None
    updated: bool | None
    handle: bytes | None
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field: its offset and its text. None is NULL."""

    offset: int
    text: bytes | None


class _Mark:
    """The next place of a mark. The result is kept, so each byte is looked at once, however many fields ask."""

    __slots__ = ("_data", "_mark", "_next")

    def __init__(self, data: bytes, mark: bytes) -> None:
        self._data, self._mark, self._next = data, mark, -1

    def after(self, at: int) -> int:
        """Return the first place at or after `at`, or the end of the data. `at` never goes back."""
        if self._next < at:
            found = self._data.find(self._mark, at)
            self._next = found if found >= 0 else len(self._data)
        return self._next


class CsvReader:
    """Reads files or messages of one table. `columns` has (name, MySQL type) of each column; without it values stay bytes."""

    def __init__(self, options: CsvOptions, columns: Sequence[tuple[str, str]] | None = None) -> None:
        self._options = options
        self._delimiter, self._terminator = options.delimiter.encode(), options.terminator.encode()
        self._quote, self._null = options.quote.encode(), options.null.encode()
        self._columns = [(name, base_type(kind)) for name, kind in columns] if columns is not None else None

    def decode(self, data: bytes) -> list[CsvLine]:
        """Decode all lines. A first line of field names is skipped. Raises CsvError."""
        return [
            self._line(number, fields)
            for number, fields in enumerate(self._fields(data), 1)
            if number > 1 or not (fields[0].text or b"").startswith(b"ticdc-meta$")
        ]

    def _fields(self, data: bytes) -> Iterator[list[_Field]]:
        delimiter, terminator, escape = (_Mark(data, mark) for mark in (self._delimiter, self._terminator, b"\\"))
        at, number = 0, 1
        while at < len(data):
            fields: list[_Field] = []
            while True:
                if self._quote and data.startswith(self._quote, at):
                    field, at = self._quoted(data, at, number)
                elif self._quote:
                    field, at = self._bare(data, at, min(delimiter.after(at), terminator.after(at)))
                else:
                    field, at = self._bare(data, at, _escaped_end(at, delimiter, terminator, escape))
                fields.append(field)
                if data.startswith(self._terminator, at):
                    at += len(self._terminator)
                    break
                if not data.startswith(self._delimiter, at):
                    found = "it ends without a terminator" if at >= len(data) else f"expected a delimiter, found {data[at : at + 10]!r}"
                    raise CsvError(number, at, "", found)
                at += len(self._delimiter)
            yield fields
            number += 1

    def _quoted(self, data: bytes, at: int, number: int) -> tuple[_Field, int]:
        """Read a field in quotes. Returns it and its end. Two quotes inside are one."""
        quote, size = self._quote, len(self._quote)
        end = data.find(quote, at + size)
        while end >= 0 and data.startswith(quote, end + size):
            end = data.find(quote, end + 2 * size)
        if end < 0:
            raise CsvError(number, at, "", "a quote is not closed")
        return _Field(at, data[at + size : end].replace(quote * 2, quote)), end + size

    def _bare(self, data: bytes, at: int, end: int) -> tuple[_Field, int]:
        text = data[at:end]
        if text == self._null:
            return _Field(at, None), end
        return _Field(at, text if self._quote else _unescaped(text)), end

    def _line(self, number: int, fields: Sequence[_Field]) -> CsvLine:
        options = self._options
        names = ["operation", "table", "schema"]
        names += ["commit-ts"] if options.include_commit_ts else []
        names += ["is-update"] if options.output_old_value else []
        names += ["handle-key"] if options.output_handle_key else []
        if len(fields) <= len(names):
            raise CsvError(number, fields[0].offset, "", f"it has {len(fields)} fields, expected more than {len(names)}", Fault.READER)
        head = dict(zip(names, fields, strict=False))
        kind = _KINDS.get(head["operation"].text or b"")
        if kind is None:
            raise CsvError(number, head["operation"].offset, "operation", f"expected I, U or D, found {head['operation'].text!r}")
        return CsvLine(
            kind,
            self._name(number, head["schema"], "schema"),
            self._name(number, head["table"], "table"),
            self._commit_ts(number, head["commit-ts"]) if "commit-ts" in head else None,
            head["is-update"].text == b"true" if "is-update" in head else None,
            head["handle-key"].text if "handle-key" in head else None,
            self._values(number, fields[len(names) :]),
        )

    @staticmethod
    def _name(number: int, field: _Field, name: str) -> str:
        if field.text is None:
            raise CsvError(number, field.offset, name, "it is NULL")
        return field.text.decode("utf-8", "surrogateescape")

    @staticmethod
    def _commit_ts(number: int, field: _Field) -> int:
        try:
            return parse_integer((field.text or b"").decode("ascii", "replace"))
        except ValueError as error:
            raise CsvError(number, field.offset, "commit-ts", str(error)) from None

    def _values(self, number: int, fields: Sequence[_Field]) -> tuple[Value, ...]:
        if self._columns is None:
            return tuple(field.text for field in fields)
        if len(fields) != len(self._columns):
            problem = f"it has {len(fields)} columns, the table has {len(self._columns)}"
            raise CsvError(number, fields[0].offset, "", problem, Fault.READER)
        values: list[Value] = []
        for field, (name, kind) in zip(fields, self._columns, strict=True):
            try:
                values.append(self._value(kind, field.text))
            except ValueError as error:
                raise CsvError(number, field.offset, name, f"{error} (its type is {kind})") from None
        return tuple(values)

    def _value(self, kind: str, text: bytes | None) -> Value:
        if text is None:
            return None
        shown = text.decode("utf-8", "surrogateescape")
        return shown if kind in MEMBERS else parse_value(kind, shown, self._binary)

    def _binary(self, text: str) -> bytes:
        try:
            if self._options.binary_encoding is BinaryEncoding.HEX:
                return bytes.fromhex(text)
            return base64.b64decode(text.encode("utf-8", "surrogateescape"), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"expected {self._options.binary_encoding.value}, found {text[:60]!r}") from None


def _escaped_end(at: int, delimiter: _Mark, terminator: _Mark, escape: _Mark) -> int:
    """Return the end of a field in a file without quotes. A character after a backslash belongs to the field."""
    while True:
        end = min(delimiter.after(at), terminator.after(at))
        if end <= escape.after(at):
            return end
        at = escape.after(at) + 2


def _unescaped(text: bytes) -> bytes:
    """Undo the escapes of a field without quotes: \\r and \\n are CR and LF, any other character after a backslash is itself."""
    out, at = bytearray(), 0
    while (mark := text.find(b"\\", at)) >= 0:
        out += text[at:mark]
        letter = text[mark + 1 : mark + 2]
        out += _ESCAPED.get(letter, letter)
        at = mark + 2
    return bytes(out + text[at:]) if at else text
