"""Dropped and truncated tables, which RECOVER TABLE and FLASHBACK TABLE bring back with their rows."""

from __future__ import annotations

import json
from dataclasses import asdict

import pyarrow as pa

from tidemill import statefile
from tidemill.errors import SinkError
from tidemill.sinks import owner
from tidemill.sinks.lake.base import Stamp, Tables
from tidemill.sinks.lake.driver.partitions import marked
from tidemill.sinks.lake.manifest import TableAt
from tidemill.sinks.lake.shapes import LakeTable
from tidemill.sinks.storage import paths
from tidemill.sinks.storage.store import Store
from tidemill.tso import physical_ms

_FOLDER = f"{paths.FOLDER}/dropped"


class DroppedTables:
    """Notes which version of a table was its last: `.tidemill/dropped/<table id>.json`."""

    def __init__(self, store: Store, tables: Tables) -> None:
        self._store, self._tables = store, tables
        self._ids: set[int] | None = None

    def note(self, at: TableAt, stamp: Stamp) -> None:
        """Note a table that is about to lose its rows. A repeated call, after the rows are gone, changes nothing."""
        name = f"{_FOLDER}/{at.table_id}.json"
        data = json.dumps({"format": 1, "ts": stamp.resolved_ts, "at": asdict(at)}).encode()

        def unless_noted(known: bytes | None) -> bytes | None:
            return data if known is None or self._parsed(name, known).integer("ts") < stamp.resolved_ts else None

        self._store.change(name, unless_noted)
        self._ids = None

    def has(self, table_id: int) -> bool:
        """Return whether a table was dropped or truncated here."""
        if self._ids is None:
            self._ids = {int(name.removesuffix(".json")) for name in self._store.names(_FOLDER)}
        return table_id in self._ids

    def restore(self, place: str, table: LakeTable, stamp: Stamp) -> None:
        """Give a table the rows that it had when it was dropped. Raises SinkError if they are not there."""
        name = f"{_FOLDER}/{table.table_id}.json"
        found = self._store.read(name)
        if found is None:
            raise SinkError(
                f"{table} comes back with its rows, and {self._store} has never had them",
                hint="Let an event filter ignore the DDL and load the table again into an empty place.",
            )
        at = TableAt.of(self._parsed(name, found).part("at"))
        batches = [*self._tables.read(at.place, at)]
        self._tables.begin(place, table, stamp)
        if batches:
            rows = marked(pa.Table.from_batches(batches), table, 0)
            self._tables.merge(place, table, rows, stamp, of_interval=False)

    def expire(self, before_ms: int) -> None:
        """Remove notes that are older than a moment: data files of that time may be gone."""
        for file in self._store.names(_FOLDER):
            name = f"{_FOLDER}/{file}"
            found = self._store.read(name)
            if found is not None and physical_ms(self._parsed(name, found).integer("ts")) < before_ms:
                self._store.delete(name)

    def _parsed(self, name: str, found: bytes) -> statefile.Fields:
        return statefile.read(found, f"{self._store}/{name}", owner.NOTE)

    def forget(self) -> None:
        """Remove all notes."""
        self._store.clear(_FOLDER)
        self._ids = None
