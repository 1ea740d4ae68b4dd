"""Messages of protocol canal → Arrow arrays, column by column, without a Python object for each row. Reference: `arrow.decode_plainly`.

It reads ordinary messages of Canal, TiCDC and Tidemill, where the values of a column have one kind of type in the whole batch. For anything
else `read` returns None for the batch, and the reference decides whether it is an error. Unlike the reference it does not check values of
columns that are not wanted, and takes the first of two columns with one name.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.kernels.decode import canal_cells as k
from tidemill.kernels.decode import canal_layout as L
from tidemill.kernels.decode.canal_parse import parse_messages
from tidemill.protocols.canal.arrow import COLUMN, decode_plainly, event_type
from tidemill.protocols.canal.codes import EventType
from tidemill.protocols.canal_json.codes import JavaType
from tidemill.protocols.common.mysqlvalues import BINARIES, INTEGERS, MEMBERS, TEXTS, base_type
from tidemill.tidb.types.floats import to_float32

Ints = npt.NDArray[np.int64]

_TYPES = pa.array(["row", "ddl", "begin", "end"])
_OPS = pa.array([None, "insert", "update", "delete"])
_DDLS = pa.array([None, *(EventType(number).name for number in range(1, 16))])
_LONGEST = (1 << 31) - 1


class _Kind(enum.IntEnum):
    """How values of a type are written."""

    TEXT = 0
    INTEGER = 1
    MEMBER = 2
    SINGLE = 3
    DOUBLE = 4
    BINARY = 5
    OTHER = 6


class _Odd(Exception):
    """The batch falls back to the reference."""


class _Found(NamedTuple):
    """Words of events and columns, events of each message, and what keeps the memory alive that texts lie in."""

    events: Ints
    cells: Ints
    counts: npt.NDArray[np.int32]
    values: pa.Array


def _kind(mysql_type: str) -> _Kind:
    base = base_type(mysql_type)
    if base in ("float", "double"):
        return _Kind.SINGLE if base == "float" else _Kind.DOUBLE
    groups = ((TEXTS, _Kind.TEXT), (INTEGERS, _Kind.INTEGER), (MEMBERS, _Kind.MEMBER), (BINARIES, _Kind.BINARY))
    return next((kind for names, kind in groups if base in names), _Kind.OTHER)


def read(
    values: pa.Array, event: pa.StructType, schema: pa.StructType | None, table: tuple[str, str] | None, *, entries: bool
) -> pa.ListArray | None:
    """Return a list of `event` for each message, or None if a message is not ordinary."""
    try:
        found = _wanted(_parsed(values, entries), table)
        return _lists(found, event, schema, values)
    except (_Odd, pa.ArrowException):
        return None


def _parsed(values: pa.Array, entries: bool) -> _Found:
    """Find events and columns: once to count them, once to write them down."""
    values = _compact(values)
    n = len(values)
    valid = np.asarray(values.is_valid()).astype(np.uint8)
    counts = np.zeros(n, np.int32)
    state = np.zeros(L.S_WORDS, np.int64)
    places = [buffer.address for buffer in values.buffers()[1:]]
    rest = (valid.ctypes.data, not entries, counts.ctypes.data, state.ctypes.data)
    if parse_messages(n, *places, *rest) < 0:
        raise _Odd
    events = np.empty((int(state[L.S_EVENTS]), L.E_WORDS), np.int64)
    cells = np.empty((int(state[L.S_CELLS]), L.C_WORDS), np.int64)
    state[L.S_EVENTS_AT], state[L.S_CELLS_AT] = events.ctypes.data, cells.ctypes.data
    if parse_messages(n, *places, *rest) < 0:
        raise _Odd
    return _Found(events, cells, counts, values)


def _compact(array: pa.Array) -> pa.Array:
    """Return the array with int32 offsets that begin at 0, and with data."""
    if array.type != pa.binary() or array.offset or array.buffers()[2] is None:
        array = pa.concat_arrays([array.cast(pa.binary()), pa.array([b""], pa.binary())])[: len(array)]
    return array


def _wanted(found: _Found, table: tuple[str, str] | None) -> _Found:
    """Leave out rows of other tables."""
    if table is None or not len(found.events):
        return found
    events = found.events
    same = pc.and_(pc.equal(_texts(events, L.E_SCHEMA), table[0]), pc.equal(_texts(events, L.E_TABLE), table[1]))
    kept = (events[:, L.E_KIND] != L.ROW) | np.asarray(same)
    if kept.all():
        return found
    widths = events[:, L.E_END] - events[:, L.E_CELLS]
    cells = np.ascontiguousarray(found.cells[np.repeat(kept, widths)])
    counts = np.bincount(events[kept, L.E_MESSAGE], minlength=len(found.counts)).astype(np.int32)
    events = np.ascontiguousarray(events[kept])
    widths = widths[kept]
    ahead = np.cumsum(widths) - widths - events[:, L.E_CELLS]
    for word in (L.E_CELLS, L.E_MIDDLE, L.E_END):
        events[:, word] += ahead
    return _Found(events, cells, counts, found.values)


def _lists(found: _Found, event: pa.StructType, schema: pa.StructType | None, values: pa.Array) -> pa.ListArray:
    events = found.events
    kind, op = events[:, L.E_KIND], events[:, L.E_OP]
    rows, ddls = kind == L.ROW, kind == L.DDL
    named = rows | ddls
    images = _typed_images(found, schema) if schema is not None else _described_images(found)
    members = {
        "type": _TYPES.take(pa.array(kind)),
        "op": _OPS.take(pa.array(np.where(rows, op, 0))),
        "es": pa.array(events[:, L.E_ES]),
        "ts": pa.array(events[:, L.E_TS], mask=~(named & (events[:, L.E_HAS_TS] == 1))),
        "schema": _texts(events, L.E_SCHEMA, named),
        "table": _texts(events, L.E_TABLE, named),
        "before": images[0],
        "after": images[1],
        "query": _texts(events, L.E_SQL, ddls),
        "ddl_type": _DDLS.take(pa.array(np.where(ddls, op, 0))),
    }
    struct = pa.StructArray.from_arrays([members[field.name] for field in event], fields=list(event))
    mask = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(_offsets(found.counts), struct, type=pa.list_(event), mask=mask)


def _offsets(counts: npt.NDArray[Any]) -> pa.Array:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if offsets[-1] > _LONGEST:
        raise _Odd
    return pa.array(offsets.astype(np.int32))


# Texts


def _texts(words: Ints, at: int, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The texts whose addresses and lengths are two of the words; null where they are not valid."""
    lengths = words[:, at + 1] if valid is None else np.where(valid, words[:, at + 1], -1)
    return _copied(words[:, at], lengths, pa.string())


def _copied(addresses: Ints, lengths: Ints, kind: pa.DataType) -> pa.Array:
    addresses, lengths = np.ascontiguousarray(addresses), np.ascontiguousarray(lengths)
    offsets = _offsets(np.maximum(lengths, 0))
    out = np.empty(offsets[-1].as_py(), np.uint8)
    k.copy_texts(len(lengths), addresses.ctypes.data, lengths.ctypes.data, out.ctypes.data)
    return pa.Array.from_buffers(kind, len(lengths), [_bitmap(lengths >= 0), offsets.buffers()[1], pa.py_buffer(out)])


def _bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


class _Values:
    """Texts of a column. `kind`: how all of them are written."""

    def __init__(self, cells: Ints, chosen: Ints | None, kind: _Kind) -> None:
        """`chosen`: which columns, -1 for none; None: all."""
        if chosen is None:
            addresses, lengths = cells[:, L.C_VALUE], cells[:, L.C_VALUE_LEN]
        elif len(cells):
            there = np.maximum(chosen, 0)
            addresses, lengths = cells[there, L.C_VALUE], np.where(chosen < 0, -1, cells[there, L.C_VALUE_LEN])
        else:
            addresses, lengths = np.zeros(len(chosen), np.int64), np.full(len(chosen), -1)
        self.addresses, self.lengths, self.kind = np.ascontiguousarray(addresses), np.ascontiguousarray(lengths), kind

    @property
    def _place(self) -> tuple[int, int, int]:
        return len(self.lengths), self.addresses.ctypes.data, self.lengths.ctypes.data

    def check(self, what: int) -> None:
        if k.check_texts(*self._place, what) < 0:
            raise _Odd

    def texts(self, kind: pa.DataType) -> pa.Array:
        return _copied(self.addresses, self.lengths, kind)

    def latin(self) -> pa.Array:
        """The bytes of a binary column."""
        total = int(np.maximum(self.lengths, 0).sum())
        if total > _LONGEST:
            raise _Odd
        offsets, out = np.zeros(len(self.lengths) + 1, np.int32), np.empty(total, np.uint8)
        size = k.copy_latin(*self._place, offsets.ctypes.data, out.ctypes.data)
        if size < 0:
            raise _Odd
        buffers = [_bitmap(self.lengths >= 0), pa.py_buffer(offsets), pa.py_buffer(out[:size])]
        return pa.Array.from_buffers(pa.binary(), len(self.lengths), buffers)

    def moments(self) -> pa.Array:
        out, valid = np.empty(len(self.lengths), np.int64), np.zeros(len(self.lengths), np.uint8)
        if k.moments(*self._place, out.ctypes.data, valid.ctypes.data) < 0:
            raise _Odd
        return pa.array(out, mask=valid == 0)

    def durations(self) -> pa.Array:
        out = np.empty(len(self.lengths), np.int64)
        if k.durations(*self._place, out.ctypes.data) < 0:
            raise _Odd
        return pa.array(out, mask=self.lengths < 0)


# Images with the types that are wanted


def _typed_images(found: _Found, schema: pa.StructType) -> list[pa.Array]:
    kinds = _kinds(found.cells)
    images = []
    for image, (first, end) in enumerate(((L.E_CELLS, L.E_MIDDLE), (L.E_MIDDLE, L.E_END))):
        columns = [_column(found, kinds, image, field) for field in schema]
        empty = found.events[:, first] == found.events[:, end]
        images.append(pa.StructArray.from_arrays(columns, fields=list(schema), mask=pa.array(empty)))
    return images


def _kinds(cells: Ints) -> Ints:
    """How the value of each column is written."""
    types, after = np.zeros((L.MOST_TYPES, 2), np.int64), np.zeros(L.MOST_TYPES, np.int64)
    ids = np.empty(len(cells), np.int64)
    count = k.type_ids(len(cells), cells.ctypes.data, types.ctypes.data, after.ctypes.data, ids.ctypes.data)
    if count < 0:
        raise _Odd
    names = _texts(types[:count], 0).to_pylist()
    kinds: Ints = np.array([int(_kind(name)) for name in names] or [0], np.int64)[ids]
    kinds[(kinds == _Kind.MEMBER) & (cells[:, L.C_SQL_TYPE] == JavaType.CHAR)] = _Kind.TEXT
    return kinds


def _column(found: _Found, kinds: Ints, image: int, field: pa.Field) -> pa.Array:
    chosen = np.empty(len(found.events), np.int64)
    name = np.frombuffer(field.name.encode() or b"\0", np.uint8)
    name_len = len(field.name.encode())
    k.find_columns(len(chosen), found.events.ctypes.data, found.cells.ctypes.data, name.ctypes.data, name_len, image, chosen.ctypes.data)
    there = np.unique(kinds[chosen[chosen >= 0]])
    if len(there) > 1:
        raise _Odd
    if not len(there):
        return pa.nulls(len(chosen), field.type)
    return _cast(_Values(found.cells, chosen, _Kind(there[0])), field.type)


def _cast(values: _Values, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _as_text(values, kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        moments = values.moments().cast(pa.timestamp("us"))
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            moments = pc.assume_timezone(moments, "UTC")
        return pc.floor_temporal(moments, unit="day").cast(kind) if pa.types.is_date(kind) else moments.cast(kind)
    if pa.types.is_duration(kind):
        return values.durations().cast(pa.duration("us")).cast(kind)
    if values.kind is _Kind.BINARY:
        raise _Odd
    if pa.types.is_floating(kind):
        return _as_float(values, kind)
    if pa.types.is_boolean(kind):
        values.check(k.CANONICAL)
        return pc.not_equal(values.texts(pa.string()), "0")
    if pa.types.is_integer(kind) and values.kind not in (_Kind.SINGLE, _Kind.DOUBLE):
        values.check(k.DIGITS)
        return values.texts(pa.string()).cast(kind)
    if pa.types.is_decimal(kind) and values.kind not in (_Kind.SINGLE, _Kind.DOUBLE):
        values.check(k.DIGITS if values.kind is _Kind.INTEGER else k.FLOAT)
        return values.texts(pa.string()).cast(kind)
    raise _Odd


def _as_text(values: _Values, kind: pa.DataType) -> pa.Array:
    match values.kind:
        case _Kind.SINGLE | _Kind.DOUBLE:
            raise _Odd
        case _Kind.BINARY:
            found = values.latin()
            return found if pa.types.is_binary(kind) else found.cast(kind)
        case _Kind.INTEGER:
            values.check(k.CANONICAL)
        case _Kind.MEMBER:
            values.check(k.MEMBER)
        case _Kind.OTHER:
            values.check(k.UTF8)
        case _Kind.TEXT if not pa.types.is_binary(kind):
            values.check(k.UTF8)
    return values.texts(kind)


def _as_float(values: _Values, kind: pa.DataType) -> pa.Array:
    values.check(k.DIGITS if values.kind is _Kind.INTEGER else k.FLOAT)
    found = values.texts(pa.string()).cast(pa.float64())
    if values.kind is _Kind.SINGLE:
        found = found.cast(pa.float32())
    if not pc.all(pc.is_finite(found)).as_py() and len(found) > found.null_count:
        raise _Odd
    return found.cast(kind)


# Images with the types that entries name


def _described_images(found: _Found) -> list[pa.Array]:
    events, cells = found.events, found.cells
    kinds = _kinds(cells)
    binary = kinds == _Kind.BINARY
    flags = cells[:, L.C_FLAGS]
    described = {
        "mysql_type": _texts(cells, L.C_TYPE),
        "sql_type": pa.array(cells[:, L.C_SQL_TYPE].astype(np.int32)),
        "key": pa.array(flags & L.KEY != 0),
        "updated": pa.array(flags & L.UPDATED != 0),
        "value": _shown(cells, kinds),
        "bytes": _Values(_without(cells, ~binary), None, _Kind.BINARY).latin(),
    }
    names = _texts(cells, L.C_NAME)
    items = pa.StructArray.from_arrays([described[field.name] for field in COLUMN], fields=list(COLUMN))
    before = np.arange(len(cells)) < np.repeat(events[:, L.E_MIDDLE], events[:, L.E_END] - events[:, L.E_CELLS])
    images = []
    for chosen, (first, end) in ((before, (L.E_CELLS, L.E_MIDDLE)), (~before, (L.E_MIDDLE, L.E_END))):
        widths, mask = events[:, end] - events[:, first], pa.array(chosen)
        kind = pa.map_(pa.string(), COLUMN)
        images.append(pa.MapArray.from_arrays(_offsets(widths), names.filter(mask), items.filter(mask), kind, mask=pa.array(widths == 0)))
    return images


def _without(cells: Ints, others: npt.NDArray[np.bool_]) -> Ints:
    """Columns whose values are NULL where they are others."""
    made = cells.copy()
    made[others, L.C_VALUE_LEN] = -1
    return made


def _shown(cells: Ints, kinds: Ints) -> pa.Array:
    """Values as text: as it is, where the reference would write the same. Floats are the only ones that it writes in another way."""
    for kind, what in ((_Kind.INTEGER, k.CANONICAL), (_Kind.MEMBER, k.MEMBER), (_Kind.TEXT, k.UTF8), (_Kind.OTHER, k.UTF8)):
        chosen = kinds == kind
        if chosen.any():
            _Values(cells[chosen], None, kind).check(what)
    texts = _Values(_without(cells, kinds == _Kind.BINARY), None, _Kind.TEXT).texts(pa.string())
    for kind in (_Kind.SINGLE, _Kind.DOUBLE):
        chosen = kinds == kind
        if chosen.any():
            texts = pc.replace_with_mask(texts, pa.array(chosen), _rewritten(_Values(cells[chosen], None, kind)))
    return texts


def _rewritten(values: _Values) -> pa.Array:
    """Floats as the reference writes them."""
    _as_float(values, pa.float64())  # raises _Odd for what is none
    single = values.kind is _Kind.SINGLE
    texts = values.texts(pa.string()).to_pylist()
    return pa.array([None if t is None else repr(to_float32(float(t)) if single else float(t)) for t in texts], pa.string())


def decode_array(
    values: pa.Array, schema: pa.StructType | None = None, *, table: tuple[str, str] | None = None, entries: bool = False
) -> pa.ListArray:
    """Return the same as `decode_plainly`, decoded by columns if all messages are ordinary.

    The arrays hold the events of each message, null for null. With `table` (schema, name) only its rows are kept. `entries`: each message
    is a single entry, not a packet.

    Raises MalformedMessage naming the message's place in the array.
    """
    found = read(values, event_type(schema), schema, table, entries=entries)
    return decode_plainly(values, schema, table=table, entries=entries) if found is None else found
