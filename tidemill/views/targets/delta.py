"""`delta:///ROOT`: the view is the table views.<name> of a lake, as `tidemill.sinks.lake` writes lakes.

A change is one commit of the table, then a manifest, then the head. The commit has the resolved ts as Delta's application transaction, so
that one that is made again after a crash is recognised.
"""

from __future__ import annotations

import pyarrow as pa

from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.sinks import owner
from tidemill.sinks.lake.base import Stamp
from tidemill.sinks.lake.manifest import FOLDER, Head, Manifest, read_head, write_head, write_manifest
from tidemill.sinks.lake.open import store_of, tables_of
from tidemill.sinks.lake.shapes import OP, LakeTable, field
from tidemill.views.shape import Shape
from tidemill.views.targets.base import split

SCHEMA = "views"
_MARK = "delta, view"


class DeltaTarget:
    """See `Target`."""

    def __init__(self, uri: SinkUri, name: str, feed: str, shape: Shape) -> None:
        assert uri.lake is not None
        self._store = store_of(uri)
        self._tables = tables_of(uri, self._store)
        self._feed, self._shape, self._compact_every = feed, shape, uri.lake.compact_every
        self._place = self._tables.place(SCHEMA, name)
        fields = pa.schema([field(one.name, one.type, -1 - i) for i, one in enumerate(shape.schema)])
        first = pa.RecordBatch.from_arrays([pa.nulls(1, one.type) for one in fields], schema=fields)
        self._table = LakeTable(SCHEMA, name, 1, first, shape.keys)
        self._commits = 0

    def create(self) -> None:
        text = self._store.read(owner.TABLES_NOTE)
        if not owner.check(text, str(self._store), self._feed, _MARK):
            self._store.create(owner.TABLES_NOTE, owner.note(self._feed, _MARK))

    def delivered(self) -> int:
        self.create()
        return read_head(self._store).resolved_ts

    def deliver(self, changes: pa.Table, to_ts: int) -> None:
        head = read_head(self._store)
        if head.resolved_ts >= to_ts:
            return
        stamp = Stamp(self._feed, to_ts, 1, _unfenced)
        self._tables.shape(self._place, self._table, stamp)
        if self._tables.delivered(self._place, self._feed) < to_ts:
            self._tables.merge(self._place, self._table, self._rows(changes), stamp)
        self._commits += 1
        if self._compact_every and self._commits >= self._compact_every:
            self._commits = 0
            self._tables.compact(self._place, stamp)
        at = self._tables.version(SCHEMA, self._table.table, self._table.table_id, self._place)
        write_manifest(self._store, Manifest(to_ts, 1, self._feed, {at.name: at}))
        write_head(self._store, Head(to_ts, to_ts, 1))

    def _rows(self, changes: pa.Table) -> pa.Table:
        comes, _, goes = split(changes, self._shape)
        schema = self._table.fields
        parts = [
            pa.table(
                [*rows.cast(pa.schema([(one.name, one.type) for one in schema])).columns, pa.repeat(pa.scalar(op, pa.int8()), len(rows))],
                [*schema.names, OP],
            )
            for rows, op in ((comes, 0), (goes, 1))
        ]
        return pa.concat_tables(parts)

    def resolved(self, ts: int) -> None:
        head = read_head(self._store)
        if head.manifest and ts > head.resolved_ts:
            write_head(self._store, Head(ts, head.manifest, head.epoch))

    def drop(self) -> None:
        text = self._store.read(owner.TABLES_NOTE)
        if text is not None:
            owner.check(text, str(self._store), self._feed, _MARK)
        self._tables.clear(self._place)
        self._store.clear(FOLDER)
        self._store.delete(owner.TABLES_NOTE)

    def close(self) -> None:
        return


def _unfenced(*, now: bool = False) -> None:
    """A view has one state, which one process at a time opens; the table's versions refuse another."""


__all__ = ["DeltaTarget", "SinkError"]
