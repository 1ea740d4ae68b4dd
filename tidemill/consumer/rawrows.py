"""Row events → TiDB's stored rows and a table description, which every encoder takes as input. Pure.

The description has what events show: names, types, flags, the key. Events do not show lengths, elements of ENUM and SET, and the digits of
a DECIMAL column whose values are all NULL. Every handle is a hidden row id, which `rid` shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidemill.consumer.tables.definitions import new_column
from tidemill.consumer.tables.shapes import Signature, signature
from tidemill.kernels.rows.views import RawRecord
from tidemill.protocols.open.codes import ColumnFlag as Shown
from tidemill.protocols.open.codes import ColumnType
from tidemill.protocols.open.events import Column, RowEvent
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.cells import Cell, Family, family
from tidemill.tidb.rows.write import pack_row, plain_from_cell, stored_bytes
from tidemill.tidb.schema.codes import ColumnFlag, PartitionType, SchemaState
from tidemill.tidb.schema.model import ColumnInfo, IndexColumn, IndexInfo, PartitionDefinition, PartitionInfo, TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tidb.types.decimals import encode_decimal
from tidemill.tidb.types.jsonbin import printed_style
from tidemill.tidb.types.jsonstyle import JsonStyle

_FLAGS = {
    Shown.PRIMARY_KEY: ColumnFlag.PRIMARY_KEY,
    Shown.UNIQUE_KEY: ColumnFlag.UNIQUE_KEY,
    Shown.MULTIPLE_KEY: ColumnFlag.MULTIPLE_KEY,
    Shown.UNSIGNED: ColumnFlag.UNSIGNED,
}
_TEMPORAL = (Family.TIME, Family.DURATION)
_PARTITION = PartitionInfo(PartitionType.RANGE, "", (), True, (), (), (), 0, (), 0)


@dataclass(slots=True)
class Shape:
    """One form of a table's rows: the description made from them, and its number among all shapes."""

    number: int
    version: TableVersion
    places: dict[str, int]  # column name → place in a row


class Shapes:
    """Descriptions of all tables seen so far."""

    def __init__(self) -> None:
        self.all: list[Shape] = []
        self._known: dict[tuple[str, str, bool, Signature], Shape] = {}
        self._digits: dict[tuple[str, str, str], int] = {}  # of seconds, by column

    def shape(self, event: RowEvent) -> Shape:
        """Return the description for an event."""
        columns = event.after or event.before
        name = event.schema, event.table
        changed = self._learn_digits(name, (*event.after, *event.before))
        key = (*name, event.partition is not None, signature(columns))
        found = self._known.get(key)
        if found is None or changed:
            found = self._known[key] = self._made(event, columns)
            self.all.append(found)
        return found

    def _learn_digits(self, name: tuple[str, str], columns: Sequence[Column]) -> bool:
        changed = False
        for column in columns:
            if isinstance(column.value, str) and ":" in column.value:
                digits = len(column.value.partition(".")[2]) if column.value[-1:].isdigit() else 0
                key = (*name, column.name)
                if digits <= 6 and self._digits.get(key, 0) != digits:
                    self._digits[key] = digits
                    changed = True
        return changed

    def _made(self, event: RowEvent, shown: Sequence[Column]) -> Shape:
        columns = tuple(self._column(event, i, column) for i, column in enumerate(shown))
        handle = tuple(IndexColumn(c.name, i, -1) for i, c in enumerate(shown) if c.handle)
        primary = all(c.flags & Shown.PRIMARY_KEY for c in shown if c.handle)
        index = IndexInfo(1, "PRIMARY" if primary else "key", handle, True, primary, SchemaState.PUBLIC, False, False, False, "", "")
        number = len(self.all)
        partitioning = _PARTITION
        if event.partition is not None:
            definition = PartitionDefinition.from_json({"id": event.partition, "name": {"O": "p", "L": "p"}})
            partitioning = replace(_PARTITION, definitions=(definition,))
        info = TableInfo(
            id=number + 1, name=event.table, charset="utf8mb4", collate="utf8mb4_bin", state=SchemaState.PUBLIC, columns=columns,
            indices=(index,) if handle else (), pk_is_handle=False, is_common_handle=False, common_handle_version=0,
            partitioning=partitioning if event.partition is not None else None, view=None, sequence=None, temp_type=0, comment="",
            update_ts=number, version=5,
        )  # fmt: skip
        version = TableVersion(event.schema, 0, info, info.physical_ids, 0)
        return Shape(number, version, {c.name: i for i, c in enumerate(columns)})

    def _column(self, event: RowEvent, place: int, column: Column) -> ColumnInfo:
        flag = 0 if column.flags & Shown.NULLABLE else ColumnFlag.NOT_NULL
        for theirs, ours in _FLAGS.items():
            flag |= ours if column.flags & theirs else 0
        made = new_column(
            column.name,
            int(column.type),
            flag=flag,
            decimal=self._digits.get((event.schema, event.table, column.name), 0),
            charset="binary" if column.flags & Shown.BINARY else "utf8mb4",
        )
        generated = bool(column.flags & Shown.GENERATED)
        return replace(made, id=place + 1, offset=place, collate="", generated_expr="?" if generated else "", generated_stored=generated)


def cells_of(shape: Shape, columns: Sequence[Column], others: Sequence[Column] = ()) -> list[Cell]:
    """Return cells in the order of the shape's columns. Columns that an image lacks are taken from the other image."""
    cells: list[Cell] = [None] * len(shape.places)
    for column in (*others, *columns):
        place = shape.places.get(column.name)
        if place is not None:
            cells[place] = column.value
    return cells


def raw_record(shape: Shape, event: RowEvent) -> RawRecord:
    """Return the change as TiDB stores it. Raises TypeError, ValueError for a value that does not fit its column."""
    after = _stored_row(shape, cells_of(shape, event.after)) if event.after else None
    before = _stored_row(shape, cells_of(shape, event.before, event.after)) if event.before else None
    physical = event.partition if event.partition is not None else shape.version.info.id
    return RawRecord(record_key(physical, event.row_id or 0), after, before, event.ts, event.ts, shape.number)


def style_of_row(event: RowEvent) -> JsonStyle:
    """Return the style in which the row's documents were printed, to print them the same way. Raises ValueError for a broken document."""
    texts = (c.value for c in (*event.after, *event.before) if c.type == ColumnType.JSON and isinstance(c.value, str))
    return JsonStyle.MYSQL if any(printed_style(text) is JsonStyle.MYSQL for text in texts) else JsonStyle.GO


def _stored_row(shape: Shape, cells: Sequence[Cell]) -> bytes:
    columns = shape.version.info.columns
    return pack_row({column.id: _stored(column, value) for column, value in zip(columns, cells, strict=True)})


def _stored(column: ColumnInfo, value: Cell) -> bytes | None:
    if value is None:
        return None
    if family(column) is Family.DECIMAL and isinstance(value, str):
        whole, _, fraction = value.lstrip("-").partition(".")
        return encode_decimal(value, max(len(whole) + len(fraction), 1), len(fraction))
    plain = plain_from_cell(column, value)
    return None if plain is None else stored_bytes(column, plain)


def targets_of(counts: Mapping[str, int]) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Return all (topic, partition)s, and the index of each topic's first."""
    targets: list[tuple[str, int]] = []
    first: dict[str, int] = {}
    for topic, count in counts.items():
        first[topic] = len(targets)
        targets += [(topic, number) for number in range(count)]
    return targets, first
