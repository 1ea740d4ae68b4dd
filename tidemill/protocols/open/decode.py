"""Open Protocol messages → events. Reads messages of TiCDC and Tidemill under any options.

Every length is checked before it is used, so no input makes the decoder wait, loop or use more memory than a small multiple of the message
(of `budget`, where a value is compressed). Unknown members are ignored, and codes without a name stay numbers.
The bytes show what a message does not state: compression (`common.compression`), and the dialect of early TiCDC versions, which the
protocol's document uses in its examples. There a column has no flags `f`, and VARCHAR and CHAR are base64.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from tidemill.budget import MESSAGE, Budget, OverBudget, json_nodes
from tidemill.errors import MalformedMessage
from tidemill.protocols.common.claim_check import unpack
from tidemill.protocols.common.compression import expand
from tidemill.protocols.common.gotext import unquote
from tidemill.protocols.common.jsontext import HALF, INT32, INT64, half_pair
from tidemill.protocols.open.codes import (
    FLOATS,
    INTEGERS,
    STRINGS,
    TEXT_BLOBS,
    VERSION,
    ColumnFlag,
    ColumnType,
    DdlType,
    EventType,
    named,
)
from tidemill.protocols.open.events import Column, DdlMessage, Event, ResolvedMessage, RowEvent, RowKind, Value
from tidemill.tidb.types.floats import to_float32

_WORD = 8
_MAX_DIGITS = 21  # of a number without point: doubles below 1e21 are written so
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 64) - 1
_INT_TYPES = frozenset(int(t) for t in INTEGERS)
_FLOAT_TYPES = frozenset(int(t) for t in FLOATS)
_STRING_TYPES = frozenset(int(t) for t in STRINGS)
_BASE64_TYPES = frozenset(int(t) for t in TEXT_BLOBS)
_KNOWN_TYPES = frozenset(int(t) for t in ColumnType)


class Fault(enum.Enum):
    """Who has to change something."""

    SENDER = "the sender's"  # the bytes are not Open Protocol
    READER = "the reader's"  # they may be, but this decoder does not know a feature in them


class OpenMessageError(MalformedMessage):
    """A message that cannot be decoded: the place (`part` "key" or "value", `offset`, `field`), the problem, and whose fault it is."""

    def __init__(self, part: str, offset: int, field: str, problem: str, fault: Fault = Fault.SENDER) -> None:
        self.part, self.offset, self.field, self.fault = part, offset, field, fault
        place = f"message {part}, byte {offset}" + (f", {field}" if field else "")
        super().__init__(f"{place}: {problem}", hint=f"the fault is {fault.value}")


class _Place:
    """The JSON of one event inside the key or the value, for error messages. `expanded`: it is compressed in the message."""

    __slots__ = ("data", "expanded", "offset", "part")

    def __init__(self, part: str, offset: int, data: bytes, *, expanded: bool = False) -> None:
        self.part, self.offset, self.data, self.expanded = part, offset, data, expanded

    def fail(self, field: str, problem: str, fault: Fault = Fault.SENDER, at: int = 0) -> NoReturn:
        """Raise OpenMessageError about the event. `at` is the offset in its text."""
        if self.expanded:
            raise OpenMessageError(self.part, self.offset, field, f"in the expanded text, byte {at}: {problem}", fault)
        raise OpenMessageError(self.part, self.offset + at, field, problem, fault)


Fetch = Callable[[str], bytes]
"""Reads the file of a claim check by the location that a message names: `sinks.claim_check.ClaimCheckStorage(uri).fetch`."""


def decode(key: bytes | None, value: bytes | None, *, fetch: Fetch | None = None, budget: Budget | None = None) -> list[Event]:
    """Decode a message to its events. Raises OpenMessageError.

    A row that was too large is returned as it is in the message, with `only_handle_key` or `claim_check` set. With `fetch` the whole row is
    read from the claim check's file; errors of `fetch` pass through. `budget`: what the message may take (None: MESSAGE).
    """
    key, value, budget = key or b"", value or b"", budget or Budget(MESSAGE)
    version = _word("key", key, 0, "version")
    if version != VERSION:
        raise OpenMessageError("key", 0, "version", f"it is {version}, expected {VERSION}", Fault.READER)
    heads, bodies = list(_frames("key", key, _WORD)), list(_frames("value", value, 0))
    if not heads:
        raise OpenMessageError("key", _WORD, "", "it has no event")
    members = [_object(head, budget) for head in heads]
    if not value and all(found.get("t") == EventType.RESOLVED for found in members):  # as early versions of TiCDC sent them
        bodies = [_Place("value", 0, b"") for _ in heads]
    if len(heads) != len(bodies):
        raise OpenMessageError("value", 0, "", f"it has {len(bodies)} events, the key has {len(heads)}")
    events = [_event(head, found, body, budget) for head, found, body in zip(heads, members, bodies, strict=True)]
    return events if fetch is None else [_whole(event, fetch, budget) for event in events]


def texts(key: bytes, value: bytes) -> tuple[list[str], list[str]]:
    """Return the JSON of each event in a message's key and in its value, as it stands there. Raises OpenMessageError."""
    heads, bodies = _frames("key", key, _WORD), _frames("value", value, 0)
    return [one.data.decode(errors="replace") for one in heads], [one.data.decode(errors="replace") for one in bodies]


def _expanded(body: _Place, budget: Budget) -> _Place:
    """Return the value's text, expanded if it is compressed."""
    try:
        text = expand(body.data, budget)
    except ValueError as error:
        body.fail("", str(error))
    return body if text is body.data else _Place(body.part, body.offset, text, expanded=True)


def _whole(event: Event, fetch: Fetch, budget: Budget) -> Event:
    """Replace an event that has only its handle key by the event in the claim check's file."""
    if not isinstance(event, RowEvent) or event.claim_check is None:
        return event
    kept = decode(*unpack(fetch(event.claim_check)), budget=budget)
    if len(kept) != 1 or not isinstance(kept[0], RowEvent) or _identity(kept[0]) != _identity(event):
        raise OpenMessageError("key", 0, "ccl", f"the file {event.claim_check[:200]} holds another row than this one")
    return dataclasses.replace(kept[0], claim_check=event.claim_check)


def _identity(event: RowEvent) -> tuple[object, ...]:
    return event.ts, event.schema, event.table, event.row_id, event.partition


# Frames


def _word(part: str, data: bytes, at: int, field: str) -> int:
    if len(data) - at < _WORD:
        raise OpenMessageError(part, at, field, f"{_WORD} bytes are needed, {len(data) - at} are left")
    return int.from_bytes(data[at : at + _WORD], "big")


def _frames(part: str, data: bytes, at: int) -> Iterator[_Place]:
    """Yield the length-prefixed pieces."""
    while at < len(data):
        size = _word(part, data, at, "length")
        at += _WORD
        if size > len(data) - at:
            raise OpenMessageError(part, at - _WORD, "length", f"it says {size} bytes, {len(data) - at} are left")
        yield _Place(part, at, data[at : at + size])
        at += size


# JSON


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a member twice")
    return found


def _integer(text: str) -> int | float:
    """Parse a number without a point. Minus zero is a double that looks like an integer."""
    if text == "-0":
        return -0.0
    if len(text.lstrip("-")) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_PLAIN = json.JSONDecoder(parse_constant=_no_constant)
_MINUS_ZERO = re.compile(rb"-0(?![.0-9eE])")
_DIGITS = bytes(48 if 48 <= byte < 58 else 0 for byte in range(256))
"""Translates every digit to `0` and any other byte to a zero byte."""
_TOO_MANY = b"0" * (_MAX_DIGITS + 1)


def _plain_object(data: bytes, text: str) -> dict[str, Any] | None:
    """Parse an object without a check of each member, or return None if it needs one: it may have a name twice.

    The names in the text, counted by the `":` after them, must be as many as those found. So a blank before the colon, or a name that
    ends with a backslash, gives None too.
    """
    if b'" ' in data or b'"\t' in data or b'"\n' in data or b'"\r' in data or b'\\\\":' in data:
        return None
    if _TOO_MANY in data.translate(_DIGITS) or _MINUS_ZERO.search(data) is not None:
        return None
    try:
        found = _PLAIN.decode(text)
    except (ValueError, RecursionError):
        return None
    if type(found) is not dict or _names(found) != data.count(b'":') - data.count(b'\\":'):
        return None
    return found


def _names(found: dict[str, Any]) -> int:
    """Return the number of members on all levels. It is wrong where there are lists."""
    count = len(found)
    for member in found.values():
        if type(member) is dict:
            count += _names(member)
        elif type(member) is list:
            return -1
    return count


def _object(place: _Place, budget: Budget) -> dict[str, Any]:
    try:
        budget.spend("nodes", json_nodes(place.data, budget.left("nodes")))
        text = place.data.decode()
    except UnicodeDecodeError as error:
        place.fail("", "it is not UTF-8", at=error.start)
    except OverBudget as error:
        place.fail("", error.message)
    found = _plain_object(place.data, text)
    if found is None:
        found = _looked_at(place, text)
    if (path := half_pair(place.data, found)) is not None:
        place.fail(path, HALF)
    return found


def _looked_at(place: _Place, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_pairs, parse_int=_integer, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        place.fail("", f"it is not JSON: {error.msg}", at=len(text[: error.pos].encode()))
    except (ValueError, RecursionError) as error:
        place.fail("", f"it is not JSON of an event: {error}")
    if not isinstance(found, dict):
        place.fail("", f"expected an object, found {_shown(found)}")
    return found


def _shown(value: object) -> str:
    text = json.dumps(value) if not isinstance(value, dict | list) else type(value).__name__
    return text if len(text) <= 60 else text[:60] + "…"


def _int_member(place: _Place, members: Mapping[str, Any], name: str, low: int = INT64[0], high: int = INT64[1], path: str = "") -> int:
    value = members.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        found = _shown(value) if name in members else "nothing"
        place.fail(path + name, f"expected an integer of {high.bit_length() + 1} bits, found {found}")
    return value


def _code_member(place: _Place, members: Mapping[str, Any], name: str, path: str = "") -> int:
    return _int_member(place, members, name, 0, INT32[1], path)


def _text_member(place: _Place, members: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = members.get(name, default)
    if not isinstance(value, str):
        place.fail(name, f"expected a string, found {_shown(value) if name in members else 'nothing'}")
    return value


# Events


def _event(head: _Place, members: dict[str, Any], body: _Place, budget: Budget) -> Event:
    ts = _int_member(head, members, "ts", 0)
    kind = _int_member(head, members, "t")
    body = _expanded(body, budget)
    if kind == EventType.ROW:
        return _row(head, members, ts, body, _object(body, budget))
    if kind == EventType.DDL:
        schema, table = _text_member(head, members, "scm", ""), _text_member(head, members, "tbl", "")
        ddl = _object(body, budget)
        return DdlMessage(ts, schema, table, _text_member(body, ddl, "q"), named(DdlType, _int_member(body, ddl, "t", *INT32)))
    if kind == EventType.RESOLVED:
        if body.data:
            body.fail("", f"a resolved event has no value, {len(body.data)} bytes are there")
        return ResolvedMessage(ts)
    return head.fail("t", f"event type {kind} is not known", Fault.READER)


def _row(head: _Place, members: Mapping[str, Any], ts: int, body: _Place, images: Mapping[str, Any]) -> RowEvent:
    present = {name for name in ("u", "p", "d") if images.get(name) is not None}
    if present not in ({"u"}, {"u", "p"}, {"d"}):
        body.fail("", f"expected the members u, u and p, or d; found {', '.join(sorted(present)) or 'none'}")
    kind = RowKind.DELETE if "d" in present else RowKind.UPDATE if "p" in present else RowKind.INSERT
    before = _columns(body, "d" if "d" in present else "p", images) if kind is not RowKind.INSERT else ()
    only_handle_key = members.get("ohk", False)
    if not isinstance(only_handle_key, bool):
        head.fail("ohk", f"expected true or false, found {_shown(only_handle_key)}")
    return RowEvent(
        ts=ts,
        schema=_text_member(head, members, "scm"),
        table=_text_member(head, members, "tbl"),
        row_id=_int_member(head, members, "rid") if "rid" in members else None,
        partition=_int_member(head, members, "ptn") if "ptn" in members else None,
        kind=kind,
        after=_columns(body, "u", images) if "u" in present else (),
        before=before,
        only_handle_key=only_handle_key,
        claim_check=_text_member(head, members, "ccl") if "ccl" in members else None,
    )


def _columns(body: _Place, image: str, images: Mapping[str, Any]) -> tuple[Column, ...]:
    columns = images[image]
    if not isinstance(columns, dict):
        body.fail(image, f"expected an object of columns, found {_shown(columns)}")
    return tuple([_plain_column(name, column) or _column(body, f"{image}.{name}.", name, column) for name, column in columns.items()])


_ABSENT = object()
_Kind = tuple[ColumnType | int, ColumnFlag, Callable[[Any], Value] | None]


@functools.lru_cache(maxsize=1 << 12)
def _kind(code: int, flags: int) -> _Kind:
    """Return a column's type, its flags, and the fast reader of its values, or None if there is no fast reader."""
    read: Callable[[Any], Value] | None = None
    if not 0 <= code <= INT32[1] or not 0 <= flags <= INT32[1]:
        return code, ColumnFlag(0), None
    if code in _INT_TYPES:
        read = _plain_integer
    elif code in _STRING_TYPES:
        read = _plain_quoted if flags & ColumnFlag.BINARY else _plain_text
    elif code in _KNOWN_TYPES and code not in _FLOAT_TYPES and code not in _BASE64_TYPES:
        read = _plain_string
    return named(ColumnType, code), ColumnFlag(flags), read


def _plain_integer(value: Any) -> Value:
    return value if type(value) is int and _MIN_INT <= value <= _MAX_INT else None


def _plain_text(value: Any) -> Value:
    return value.encode() if type(value) is str else None


def _plain_quoted(value: Any) -> Value:
    return value.encode() if type(value) is str and "\\" not in value else None


def _plain_string(value: Any) -> Value:
    return value if type(value) is str else None


def _plain_column(name: str, column: Any) -> Column | None:
    """Read an ordinary column quickly. Returns None for a column that `_column` has to read."""
    if type(column) is not dict:
        return None
    code, flags, handle, value = column.get("t"), column.get("f"), column.get("h", False), column.get("v", _ABSENT)
    if type(code) is not int or type(flags) is not int or (handle is not False and handle is not True):
        return None
    kind, flag, read = _kind(code, flags)
    if read is None:
        return None
    if value is not None:
        value = read(value)
        if value is None:
            return None
    return Column(name, kind, flag, handle, value)


def _column(body: _Place, path: str, name: str, column: object) -> Column:
    if not isinstance(column, dict):
        body.fail(path[:-1], f"expected an object, found {_shown(column)}")
    code = _code_member(body, column, "t", path)
    flags = _code_member(body, column, "f", path) if "f" in column else None
    handle = column.get("h", False)
    if not isinstance(handle, bool):
        body.fail(path + "h", f"expected true or false, found {_shown(handle)}")
    if "v" not in column:
        body.fail(path + "v", "the column has no value")
    try:
        value = _value(code, flags, column["v"])
    except ValueError as error:
        body.fail(path + "v", str(error))
    return Column(name, named(ColumnType, code), ColumnFlag(flags or 0), handle, value)


def _value(code: int, flags: int | None, value: Any) -> Value:
    """Return a column's value by its type. `flags` is None in the early dialect. Raises ValueError."""
    if value is None:
        return None
    if code in _INT_TYPES:
        if not isinstance(value, int) or isinstance(value, bool) or not _MIN_INT <= value <= _MAX_INT:
            raise ValueError(f"expected an integer of 64 bits, found {_shown(value)}")
        return value
    if code in _FLOAT_TYPES:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"expected a number, found {_shown(value)}")
        return to_float32(value) if code == ColumnType.FLOAT else float(value)
    if code not in _KNOWN_TYPES and isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected a string, found {_shown(value)}")
    if code in _BASE64_TYPES:
        return _base64(value)
    if code in _STRING_TYPES:
        if flags is None:
            return _base64(value)
        return unquote(value) if flags & ColumnFlag.BINARY else value.encode()
    return value


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"expected base64, found {_shown(text)}") from None
