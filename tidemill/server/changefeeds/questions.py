"""What a server answers about its changefeeds: states, counters, tables."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill import tso
from tidemill.changefeed.states import State
from tidemill.config.file import ChangefeedConfig, check_config
from tidemill.errors import ClusterMismatch, ConfigError, LogError
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.changefeeds.hosting import Hosting
from tidemill.server.feeds import Feed, time_of
from tidemill.server.upstream import lists_of, physical_ids

log = logging.getLogger(__name__)

NO_PLACES = "Each batch divides its rows among the tasks of one Spark session: tables have no node."


class Questions(Hosting):
    """Changes nothing."""

    def _feed(self, changefeed_id: str, namespace: str) -> Feed:
        checked_name(changefeed_id, namespace)
        try:
            return self._feeds[changefeed_id]
        except KeyError:
            raise e.ChangefeedNotExists(f"changefeed not exists, {changefeed_id}") from None

    def _info(self, feed: Feed, tables: tuple[s.TaskStatus, ...] = (), resolved_ts: int | None = None) -> s.ChangefeedInfo:
        resolved = self._resolved_ts() if resolved_ts is None else resolved_ts
        return feed.info(address=self._options.address, resolved_ts=resolved, gc_ttl=self._options.gc_ttl, tables=tables)

    async def changefeeds(self, *, namespace: str = s.DEFAULT_NAMESPACE, state: str | None = None) -> Sequence[s.ChangefeedInfo]:
        checked_name("x", namespace)
        if state not in (None, "all", *State):
            raise e.InvalidParameter(f"state {state!r} is none of all, {', '.join(State)}")
        resolved = self._resolved_ts()
        found = [self._info(feed, resolved_ts=resolved) for _, feed in sorted(self._feeds.items())]
        if state is None:
            return [info for info in found if info.state is not State.FINISHED]
        return [info for info in found if state in ("all", info.state) or (state == "warning" and info.state is State.PENDING)]

    async def changefeed(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ChangefeedInfo:
        feed = self._feed(changefeed_id, namespace)
        return self._info(feed, tuple(await self._task_status(feed)))

    async def _task_status(self, feed: Feed) -> list[s.TaskStatus]:
        try:
            tables = await self._newest_tables()
        except LogError as error:
            log.debug("the tables of %s are not known now: %s", feed.id, error)
            tables = []
        ids = physical_ids(tables, feed.config.table_filter(), without_key=feed.config.force_replicate)
        return [s.TaskStatus(self._id, ids)]

    async def statistics(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.Statistics:
        feed = self._feed(changefeed_id, namespace)
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
            resolved_ts=max(f.resolved_ts, self._resolved_ts()),
            now_ts=now,
            last_batch=f.last_batch,
        )

    async def synced(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.Synced:
        feed = self._feed(changefeed_id, namespace)
        now = tso.physical_ms(await self._upstream.now()) / 1000
        checkpoint = tso.physical_ms(feed.checkpoint_ts) / 1000
        resolved = tso.physical_ms(max(self._resolved_ts(), feed.checkpoint_ts)) / 1000
        rows_at = feed.figures.rows_at or self._started_at
        wanted = feed.config.synced_status
        follows, quiet = now - checkpoint < wanted.checkpoint_interval, now - rows_at > wanted.synced_check_interval
        if follows and quiet:
            said = "Data syncing is finished"
        elif follows:
            said = "The data syncing is not finished, please wait"
        elif now - resolved < wanted.checkpoint_interval:
            said = "Please check whether PD is online and TiKV Regions are all available; the sink is behind the log."
        else:
            said = "Please check whether PD is online and TiKV Regions are all available; the log is behind the cluster."
        return s.Synced(follows and quiet, time_of(checkpoint), time_of(resolved), time_of(rows_at), time_of(now), said)

    async def tables(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> Sequence[s.TaskStatus]:
        return await self._task_status(self._feed(changefeed_id, namespace))

    async def move_table(self, changefeed_id: str, table_id: int, node_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        self._no_places(changefeed_id, namespace)

    async def move_split_table(self, changefeed_id: str, table_id: int, node_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        self._no_places(changefeed_id, namespace)

    async def split_table(self, changefeed_id: str, table_id: int, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        self._no_places(changefeed_id, namespace)

    async def merge_table(self, changefeed_id: str, table_id: int, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        self._no_places(changefeed_id, namespace)

    def _no_places(self, changefeed_id: str, namespace: str) -> None:
        self._feed(changefeed_id, namespace)
        raise e.TableNotMovable(NO_PLACES)

    async def dispatcher_count(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> int:
        return sum(len(one.table_ids) for one in await self._task_status(self._feed(changefeed_id, namespace)))

    async def table_lists(self, replica_config: Mapping[str, Any], start_ts: int | None = None) -> s.TableLists:
        try:
            config = await asyncio.to_thread(check_config, replica_config)
            await asyncio.to_thread(config.table_filter)
        except ConfigError as error:
            raise e.InvalidReplicaConfig(error.message, hint=error.hint) from error
        return await self._table_lists(config, start_ts or None)

    async def _table_lists(self, config: ChangefeedConfig, ts: int | None) -> s.TableLists:
        return await asyncio.to_thread(lists_of, await self._newest_tables(ts), await asyncio.to_thread(config.table_filter))

    async def _check_history(self, ts: int) -> None:
        """Raises StartTsBeforeLog, with the GC safe point, if the cluster no longer has what follows a ts."""
        safe_point = await (await self._upstream.connect()).gc_safe_point()
        if ts < safe_point:
            raise e.StartTsBeforeLog(
                f"start-ts {tso.describe(ts)} is earlier than the cluster's GC safe point {tso.describe(safe_point)}",
                hint=f"TiDB has collected what lies before: start at {safe_point} or later.",
            )

    async def _newest_tables(self, ts: int | None = None) -> Sequence[Any]:
        """The tables as of a ts, from the log; where it does not hold them, from TiKV."""
        async with self._asking_schemas:
            found = await asyncio.to_thread(self._schemas.tables, ts)
        if found is not None:
            return found
        if ts is not None:
            await self._check_history(ts)
        at = ts or await self._upstream.now()
        try:
            schemas = await self._upstream.schemas(at)
        except ClusterMismatch:
            if ts is None:
                raise
            await self._upstream.schemas(await self._upstream.now())  # raises it too, if the cluster has none at all
            raise e.StartTsBeforeLog(
                f"at {tso.describe(ts)} the cluster had no tables: it did not exist, or TiDB has collected that",
                hint="Start at a later ts.",
            ) from None
        return [*schemas.snapshot(at).tables.values()]


def checked_name(changefeed_id: str, namespace: str) -> str:
    """Raises InvalidChangefeedId, InvalidKeyspace."""
    if namespace != s.DEFAULT_NAMESPACE:
        raise e.InvalidKeyspace(f"there is no namespace {namespace!r}, only {s.DEFAULT_NAMESPACE}")
    if not s.CHANGEFEED_ID.fullmatch(changefeed_id) or len(changefeed_id) > s.LONGEST_ID:
        raise e.InvalidChangefeedId(
            f"changefeed id {changefeed_id[: s.LONGEST_ID]!r} is not valid",
            hint=f"Use letters, digits and single dashes, at most {s.LONGEST_ID} characters.",
        )
    return changefeed_id
