"""TiCDC's CSV → lines of fields, and fields typed by their columns. Bytes in, objects out.

CSV says neither its options nor its columns: the reader has to know the `[sink.csv]` section that it was written with, and the table (the
storage sink's schema files have it).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemill.errors import MalformedMessage
from tidemill.protocols.mysqlvalues import MEMBERS, Value, base_type, parse_integer, parse_value
from tidemill.protocols.open.decode import Fault
from tidemill.protocols.open.events import RowKind
from tidemill.protocols.options import BinaryEncoding, CsvOptions

__all__ = ["CsvError", "CsvLine", "CsvReader", "Fault", "RowKind"]

_KINDS = {b"I": RowKind.INSERT, b"U": RowKind.UPDATE, b"D": RowKind.DELETE}


class CsvError(MalformedMessage):
    """Bytes that are not CSV of these options: `line` from 1 on, `offset` of byte, `field`, why, and whose fault it is."""

    def __init__(self, line: int, offset: int, field: str, problem: str, fault: Fault = Fault.SENDER) -> None:
        self.line, self.offset, self.field, self.fault = line, offset, field, fault
        place = f"CSV line {line}, byte {offset}" + (f", {field}" if field else "")
        super().__init__(f"{place}: {problem}", hint=f"the fault is {fault.value}")


@dataclass(frozen=True, slots=True)
class CsvLine:
    """A line. With output-old-value an update is two: a DELETE and an INSERT, both `updated`."""

    kind: RowKind
    schema: str
    table: str
    commit_ts: int | None
    updated: bool | None
    handle: bytes | None
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field: where it stands, and its text; None: NULL."""

    offset: int
    text: bytes | None


class CsvReader:
    """Reads files or messages of one table. `columns`: (name, MySQL type) of each; without them values are bytes as they stand."""

    def __init__(self, options: CsvOptions, columns: Sequence[tuple[str, str]] | None = None) -> None:
        self._options = options
        self._delimiter, self._terminator = options.delimiter.encode(), options.terminator.encode()
        self._quote, self._null = options.quote.encode(), options.null.encode()
        self._columns = [(name, base_type(kind)) for name, kind in columns] if columns is not None else None
        self._inside = re.compile(b"(?:[^%b]|%b%b)*" % ((re.escape(self._quote),) * 3), re.DOTALL) if self._quote else None

    def decode(self, data: bytes) -> list[CsvLine]:
        """All lines. A line of field names at the head is skipped. Raises CsvError."""
        return [
            self._line(number, fields)
            for number, fields in enumerate(self._fields(data), 1)
            if number > 1 or not (fields[0].text or b"").startswith(b"ticdc-meta$")
        ]

    def _fields(self, data: bytes) -> Iterator[list[_Field]]:
        at, number = 0, 1
        while at < len(data):
            fields: list[_Field] = []
            while True:
                field, at = self._field(data, at, number)
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

    def _field(self, data: bytes, at: int, number: int) -> tuple[_Field, int]:
        if self._inside is not None and data.startswith(self._quote, at):
            start = at + len(self._quote)
            inside = self._inside.match(data, start)
            end = inside.end() if inside is not None else start
            if not data.startswith(self._quote, end):
                raise CsvError(number, at, "", "a quote is left open")
            text = data[start:end].replace(self._quote * 2, self._quote)
            return _Field(at, text), end + len(self._quote)
        end = self._bare_end(data, at)
        text = data[at:end]
        if text == self._null:
            return _Field(at, None), end
        return _Field(at, text if self._quote else _unescaped(text)), end

    def _bare_end(self, data: bytes, at: int) -> int:
        """Where a field without quotes ends. Without a quote at all, what follows a backslash belongs to it."""
        if self._quote:
            ends = [end for end in (data.find(self._delimiter, at), data.find(self._terminator, at)) if end >= 0]
            return min(ends, default=len(data))
        while at < len(data) and not data.startswith((self._delimiter, self._terminator), at):
            at += 2 if data[at] == 0x5C else 1
        return min(at, len(data))

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


def _unescaped(text: bytes) -> bytes:
    """A field without quotes: r and n behind a backslash are CR and LF, other characters themselves."""

    def char(found: re.Match[bytes]) -> bytes:
        return {b"r": b"\r", b"n": b"\n"}.get(found[1], found[1])

    return re.sub(rb"\\(.)", char, text, flags=re.DOTALL)
