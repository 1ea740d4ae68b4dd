"""Where a Drainer delivers: how its binlogs are read, and where what they hold is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from tidemill.binlog.blocks import Binlogs
from tidemill.binlog.drainer.catching_up import catch_up, catch_up_without_pumps
from tidemill.binlog.drainer.entries import Delivery, Reading
from tidemill.binlog.drainer.outlets import open_outlet
from tidemill.binlog.drainer.picking.picking import Tables
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.outputs.transactions import Entry
from tidemill.binlog.registry.client import Registry
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.delivery.zone import parse_zone

SAVE_S = 3.0

E = TypeVar("E")
"""What is made of a binlog."""

Waits = Callable[[str | None], None]
"""Is told what is waited for; None: nothing any more."""


class Reads(Protocol[E]):
    """Makes entries of binlogs, which come in commit order."""

    async def read(self, binlogs: Binlogs) -> Delivery[E]:
        """Return what binlogs deliver, at least of the first one, at most up to a DDL. Raises MalformedMessage, MalformedRow, SchemaError,
        UpstreamError."""


class Outlet(Protocol[E]):
    """Takes entries, in order. Its calls come one at a time, from any thread, and may block."""

    def write(self, entries: list[E]) -> None:
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
    """`save_s`: seconds after which the position is saved, at most, while binlogs come."""

    @property
    def save_s(self) -> float: ...

    async def without_upstream(self) -> None:
        """Do what can be done where PD cannot be reached. Raises ConfigError, SinkError, MalformedMessage, OSError."""

    async def open(self, pd: PdClient) -> Outlet[E]:
        """Raises ConfigError, SinkError, LogError, UpstreamError, OSError."""

    async def schemas(self, pd: PdClient, ts: int, waits: Waits) -> Schemas:
        """Return the tables as of `ts`. Raises UpstreamError, SchemaError."""

    def reading(self, schemas: Schemas) -> Reads[E]:
        """Return the reader of binlogs."""


class Forms:
    """The forms of TiDB-Binlog's Drainer: one outlet for each dest-db-type."""

    save_s = SAVE_S

    def __init__(self, settings: DrainerSettings) -> None:
        self._settings = settings

    async def without_upstream(self) -> None:
        """Apply the relay log."""
        await asyncio.to_thread(catch_up, self._settings, None, parse_zone(None))

    async def open(self, pd: PdClient) -> Outlet[Entry]:
        """Apply the relay log if Pumps cannot be reached, then open the outlet of the settings."""
        await catch_up_without_pumps(self._settings, pd.cluster_id, Registry(pd), parse_zone(None))
        return await asyncio.to_thread(open_outlet, self._settings, pd.cluster_id, parse_zone(None))

    async def schemas(self, pd: PdClient, ts: int, waits: Waits) -> Schemas:
        """Read the schemas from TiKV."""
        return await Schemas.at(pd, ts, waits)

    def reading(self, schemas: Schemas) -> Reads[Entry]:
        """Read rows by the versions of their tables, without what is filtered."""
        return Reading(schemas, Tables(self._settings), frozenset(self._settings.ignore_txn_commit_ts))
