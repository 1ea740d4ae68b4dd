"""What a server answers about its changefeeds: states, counters, tables."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill import tso
from tidemill.changefeed.states import State
from tidemill.config.file import check_config
from tidemill.errors import ConfigError, LogError
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.changefeeds.capture_control import CaptureControl
from tidemill.server.changefeeds.feed_store import FeedStore, checked_name
from tidemill.server.changefeeds.tables import Tables
from tidemill.server.feeds import Feed, time_of
from tidemill.server.options import ServerOptions
from tidemill.server.this_server import ThisServer
from tidemill.server.upstream import Upstream, physical_ids

log = logging.getLogger(__name__)

NO_PLACES = "Each batch divides its rows among the tasks of one Spark session: tables have no node."


class Questions:
    """Changes nothing."""

    def __init__(
        self, options: ServerOptions, upstream: Upstream, server: ThisServer, feeds: FeedStore, capture: CaptureControl, tables: Tables
    ) -> None:
        self._options, self._upstream, self._server = options, upstream, server
        self._feeds, self._capture, self._tables = feeds, capture, tables

    def info(self, feed: Feed, tables: tuple[s.TaskStatus, ...] = (), resolved_ts: int | None = None) -> s.ChangefeedInfo:
        """Return what the API shows of a changefeed. `resolved_ts`: None: that of the log now."""
        resolved = self._capture.resolved_ts() if resolved_ts is None else resolved_ts
        return feed.info(address=self._options.address, resolved_ts=resolved, gc_ttl=self._options.gc_ttl, tables=tables)

    async def changefeeds(self, *, namespace: str = s.DEFAULT_NAMESPACE, state: str | None = None) -> Sequence[s.ChangefeedInfo]:
        checked_name("x", namespace)
        if state not in (None, "all", *State):
            raise e.InvalidParameter(f"state {state!r} is none of all, {', '.join(State)}")
        resolved = self._capture.resolved_ts()
        infos = [self.info(feed, resolved_ts=resolved) for _, feed in sorted(self._feeds.present.items())]
        if state is None:
            return [info for info in infos if info.state is not State.FINISHED]
        return [info for info in infos if state in ("all", info.state) or (state == "warning" and info.state is State.PENDING)]

    async def changefeed(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ChangefeedInfo:
        feed = self._feeds.get(changefeed_id, namespace)
        return self.info(feed, tuple(await self.task_status(feed)))

    async def task_status(self, feed: Feed) -> list[s.TaskStatus]:
        """Return which tables a changefeed has: this server has them all."""
        try:
            tables = await self._tables.newest()
        except LogError as error:
            log.debug("the tables of %s are not known now: %s", feed.id, error)
            tables = []
        ids = physical_ids(tables, feed.config.table_filter(), without_key=feed.config.force_replicate)
        return [s.TaskStatus(self._server.id, ids)]

    async def statistics(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.Statistics:
        feed = self._feeds.get(changefeed_id, namespace)
        f = feed.figures
        now = await self._upstream.now()
        return s.Statistics(
            at=time_of(time.time()),
            batches=f.batches,
            rows=f.rows,
            messages=f.messages,
            bytes=f.bytes,
            ddls=f.ddls,
            skipped_rows=f.skipped_rows,
            checkpoint_ts=f.checkpoint_ts,
            resolved_ts=max(f.resolved_ts, self._capture.resolved_ts()),
            now_ts=now,
            last_batch=f.last_batch,
        )

    async def synced(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.Synced:
        feed = self._feeds.get(changefeed_id, namespace)
        now = tso.physical_ms(await self._upstream.now()) / 1000
        checkpoint = tso.physical_ms(feed.checkpoint_ts) / 1000
        resolved = tso.physical_ms(max(self._capture.resolved_ts(), feed.checkpoint_ts)) / 1000
        rows_at = feed.figures.rows_at or self._server.started_at
        wanted = feed.config.synced_status
        follows, quiet = now - checkpoint < wanted.checkpoint_interval, now - rows_at > wanted.synced_check_interval
        if follows and quiet:
            info = "Data syncing is finished"
        elif follows:
            info = "The data syncing is not finished, please wait"
        elif now - resolved < wanted.checkpoint_interval:
            info = "Please check whether PD is online and TiKV Regions are all available; the sink is behind the log."
        else:
            info = "Please check whether PD is online and TiKV Regions are all available; the log is behind the cluster."
        return s.Synced(follows and quiet, time_of(checkpoint), time_of(resolved), time_of(rows_at), time_of(now), info)

    async def tables(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> Sequence[s.TaskStatus]:
        return await self.task_status(self._feeds.get(changefeed_id, namespace))

    async def move_table(self, changefeed_id: str, table_id: int, node_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        self._no_places(changefeed_id, namespace)

    async def move_split_table(self, changefeed_id: str, table_id: int, node_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        self._no_places(changefeed_id, namespace)

    async def split_table(self, changefeed_id: str, table_id: int, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        self._no_places(changefeed_id, namespace)

    async def merge_table(self, changefeed_id: str, table_id: int, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        self._no_places(changefeed_id, namespace)

    def _no_places(self, changefeed_id: str, namespace: str) -> None:
        self._feeds.get(changefeed_id, namespace)
        raise e.TableNotMovable(NO_PLACES)

    async def dispatcher_count(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> int:
        return sum(len(status.table_ids) for status in await self.task_status(self._feeds.get(changefeed_id, namespace)))

    async def table_lists(self, replica_config: Mapping[str, Any], start_ts: int | None = None) -> s.TableLists:
        try:
            config = await asyncio.to_thread(check_config, replica_config)
            await asyncio.to_thread(config.table_filter)
        except ConfigError as error:
            raise e.InvalidReplicaConfig(error.message, hint=error.hint) from error
        return await self._tables.lists(config, start_ts or None)
