"""Columns that a destination leaves out: Canal's filter.field and filter.black.field, `schema.table:a/b,schema.other:c`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from tidemill.wire import canal_entry_pb2 as pb

Columns = dict[tuple[str, str], frozenset[str]]
"""(schema, table) -> columns, all in upper case: Canal compares them so."""


class FieldsError(ValueError):
    """A list of columns that cannot be read."""


def parse_fields(text: str) -> Columns:
    """What a property says. Raises FieldsError."""
    found: Columns = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, mark, columns = item.partition(":")
        schema, dot, table = name.partition(".")
        listed = frozenset(c.strip().upper() for c in columns.split("/") if c.strip())
        if not (mark and dot and schema.strip() and table.strip() and listed):
            raise FieldsError(f"{item!r} is not SCHEMA.TABLE:COLUMN/COLUMN")
        found[schema.strip().upper(), table.strip().upper()] = listed
    return found


@dataclass(frozen=True, slots=True)
class Fields:
    """`only`: these columns of a table and no other; `without`: all but these."""

    only: Columns = field(default_factory=dict)
    without: Columns = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.only or self.without)

    def concern(self, schema: str, table: str) -> bool:
        """Whether columns of this table are left out."""
        name = schema.upper(), table.upper()
        return name in self.only or name in self.without

    def cut(self, schema: str, table: str, data: bytes | memoryview) -> bytes | memoryview:
        """An entry with rows, without the columns; one that cannot be read stays as it is. The others keep their index."""
        name = schema.upper(), table.upper()
        only, without = self.only.get(name), self.without.get(name, frozenset())
        entry, change = pb.Entry(), pb.RowChange()
        try:
            entry.ParseFromString(bytes(data))
            change.ParseFromString(entry.store_value)
        except DecodeError:
            return data
        for row in change.row_datas:
            for image in (row.before_columns, row.after_columns):
                kept = [c for c in image if _kept(c, only, without)]
                if len(kept) < len(image):
                    copies = [_copy(c) for c in kept]
                    del image[:]
                    image.extend(copies)
        entry.store_value = change.SerializeToString()
        made: bytes = entry.SerializeToString()
        return made


def _kept(column: pb.Column, only: frozenset[str] | None, without: frozenset[str]) -> bool:
    name = column.name.decode("utf-8", "replace").upper()
    return name in only if only is not None else name not in without


def _copy(column: pb.Column) -> Any:
    made = pb.Column()
    made.CopyFrom(column)
    return made
