"""Where a Drainer delivers: how its binlogs are read, and where what they hold is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from tidemill.binlog.blocks import Binlogs
from tidemill.binlog.drainer.catching_up import catch_up, catch_up_without_pumps
from tidemill.binlog.drainer.entries import Delivery, Reading
from tidemill.binlog.drainer.outlets import open_outlet
from tidemill.binlog.drainer.picking.picking import Picking, Tables
from tidemill.binlog.drainer.rows.messages import is_written_whole
from tidemill.binlog.drainer.rows.reading import BatchReading, Delivered, Way
from tidemill.binlog.drainer.rows.spill import Spill
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.drainer.settings import DATABASES, DrainerSettings
from tidemill.binlog.registry.client import Registry
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.delivery.zone import parse_zone

SAVE_S = 3.0

E = TypeVar("E")
"""What is made of a binlog."""
E_co = TypeVar("E_co", covariant=True)
E_in = TypeVar("E_in", contravariant=True)

Waits = Callable[[str | None], None]
"""Is told what is waited for; None: nothing any more."""


class Reads(Protocol[E_co]):
    """Makes entries of binlogs, which come in commit order."""

    async def read(self, binlogs: Binlogs) -> Delivery[E_co]:
        """Return what binlogs deliver, at least of the first one, at most up to a DDL. Raises MalformedMessage, MalformedRow, SchemaError,
        UpstreamError."""


class Outlet(Protocol[E_in]):
    """Takes entries, in order. Its calls come one at a time, from any thread, and may block.

    `is_behind`: what a `write` took is downstream when the next one returns, or `flush`.
    """

    @property
    def is_behind(self) -> bool: ...

    def write(self, entries: Sequence[E_in]) -> None:
        """Take entries. Raises SinkError, LogError, OSError."""

    def flush(self) -> None:
        """Return when all that was taken is kept downstream. Raises SinkError, OSError."""

    def close(self) -> None:
        """Let go of the downstream."""

    def load(self) -> Position | None:
        """Return how far everything is delivered; None at the first start. Raises ConfigError, SinkError."""

    def save(self, position: Position) -> None:
        """Keep how far everything is delivered. Raises SinkError, LogError, OSError."""


class Destination(Protocol[E]):
    """`save_s`: seconds after which the position is saved, at most, while binlogs come. `name`: what it is, in a word."""

    @property
    def name(self) -> str: ...

    @property
    def save_s(self) -> float: ...

    async def without_upstream(self) -> None:
        """Do what can be done where PD cannot be reached. Raises ConfigError, SinkError, MalformedMessage, OSError."""

    async def open(self, pd: PdClient) -> Outlet[E]:
        """Raises ConfigError, SinkError, LogError, UpstreamError, OSError."""

    async def schemas(self, pd: PdClient, ts: int, version: int, waits: Waits) -> Schemas:
        """Return the tables as of `ts`; `version`: of the DDLs that are delivered; 0: unknown. Raises UpstreamError, SchemaError."""

    def reading(self, schemas: Schemas) -> Reads[E]:
        """Return the reader of binlogs."""


class Forms:
    """The forms of TiDB-Binlog's Drainer: one outlet for each dest-db-type."""

    save_s = SAVE_S

    def __init__(self, settings: DrainerSettings) -> None:
        self._settings = settings
        self.name = settings.db_type

    async def without_upstream(self) -> None:
        """Apply the relay log."""
        await asyncio.to_thread(catch_up, self._settings, None, parse_zone(None))

    async def open(self, pd: PdClient) -> Outlet[Delivered]:
        """Apply the relay log if Pumps cannot be reached, then open the outlet of the settings."""
        await catch_up_without_pumps(self._settings, pd.cluster_id, Registry(pd), parse_zone(None))
        return await asyncio.to_thread(open_outlet, self._settings, pd.cluster_id, parse_zone(None))

    async def schemas(self, pd: PdClient, ts: int, version: int, waits: Waits) -> Schemas:
        """Read the schemas from TiKV."""
        return await Schemas.at(pd, ts, waits, version)

    def reading(self, schemas: Schemas) -> Reads[Delivered]:
        """Read rows by the versions of their tables, without what is filtered: in batches where they can be."""
        settings = self._settings
        tables, left_out = Tables(settings), frozenset(settings.ignore_txn_commit_ts)
        row_by_row = Reading(schemas, tables, left_out)
        if not takes_batches(settings):
            return row_by_row
        picking, room = Picking(settings), Spill(Path(settings.data_dir))

        def way_of(schema: str, table: str) -> Way:
            if not tables.takes(schema, table):
                return Way.LEFT_OUT
            return Way.ROW_BY_ROW if picking.looks_at_rows(schema, table) else Way.BATCHES

        if settings.db_type in DATABASES:
            return BatchReading(schemas, way_of, left_out, row_by_row, room=room)
        in_pieces = settings.db_type == "file"
        return BatchReading(schemas, way_of, left_out, row_by_row, is_written_whole, in_order=True, in_pieces=in_pieces, room=room)


_READ_OTHERWISE = ("sql_mode", "names", "character_set", "collation")
"""Session variables that may change what quoted text means."""


def takes_batches(settings: DrainerSettings) -> bool:
    """Whether rows may come in batches. A relay log has whole transactions, row by row. Text for a database is quoted, with escapes."""
    if settings.db_type not in DATABASES:
        return True
    if settings.relay_dir:
        return False
    set_too = any(name.lower().startswith(_READ_OTHERWISE) for name, _ in settings.to.params)
    return not set_too and "NO_BACKSLASH_ESCAPES" not in settings.sql_mode.upper()
