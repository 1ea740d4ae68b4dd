"""What people do with changefeeds: create, update, pause, resume, remove; and what time does: --gc-ttl ends."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tidemill import tso
from tidemill.budget import REQUEST, Budget
from tidemill.changefeed.changes import changes, refused, with_secrets
from tidemill.changefeed.preflight import check_sink_reachable
from tidemill.changefeed.states import State
from tidemill.changelog import feeds as log_feeds
from tidemill.changelog.files.bounds import is_covered, saved_begin
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.storage.steady import SteadyClock
from tidemill.config.file import ChangefeedConfig
from tidemill.config.replica_config import with_own
from tidemill.config.uri import SinkUri
from tidemill.errors import ConfigError, StartTsOutOfLog, TidemillError, redact
from tidemill.rules.skip import parse_skip_rows
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.changefeeds import capture_rules
from tidemill.server.changefeeds.questions import Questions, checked_name
from tidemill.server.feeds import Feed, due
from tidemill.server.options import own_version
from tidemill.server.settings import FeedSettings

log = logging.getLogger(__name__)

RECONCILE_EVERY_S = 60.0
"""How often what is registered in the log is held against the list of changefeeds."""
LOOK_EVERY_S = 5.0
"""How often --gc-ttl is looked at."""


class Operations(Questions):
    """Changes changefeeds."""

    async def create(self, wanted: s.NewChangefeed) -> s.CreatedChangefeed:
        name = checked_name(wanted.changefeed_id or str(uuid.uuid4()), wanted.namespace)
        self._check_upstream(wanted.upstream)
        self._check_is_free(name)
        settings = await self._wanted(name, wanted)
        sink, config = await asyncio.to_thread(self._checked, settings)  # thousands of rules take a while
        wide = await self._widen(config) if wanted.start_ts else None
        await asyncio.to_thread(_meet, sink)
        tables = await self._table_lists(config, None)
        if not wanted.ignore_ineligible_tables and not config.force_replicate and tables.ineligible_tables:
            names = ", ".join(f"{t.database_name}.{t.table_name}" for t in tables.ineligible_tables[:5])
            hint = "Leave them out by a rule of the filter, or set ignore-ineligible-table or force-replicate."
            raise e.TableIneligible(f"some tables are not eligible to replicate, they have no usable key: {names}", hint=hint)
        async with self._creating:  # of two requests that came at the same time one is first
            self._check_is_free(name)
            settings = await self._with_tables(settings, config, asked=bool(wanted.start_ts))
            feed = await self._must(partial(self._files.begin, settings))  # first: it is refused where another server leads
            try:
                await self._claim_log(feed, config)
                await self._must(partial(self._files.confirm, feed))
            except TidemillError:
                await self._write(name, lambda: self._files.remove(feed))
                await self._capture_for()
                raise
            self._feeds[name] = feed
            if wide is not None:
                self._kept_wide.remove(wide)
        log.info("changefeed %s is created at %s", name, tso.describe(settings.start_ts))
        self._begin(feed)
        return s.CreatedChangefeed(self._info(feed), tables)

    def _check_is_free(self, name: str) -> None:
        if name in self._feeds:
            raise e.ChangefeedAlreadyExists(f"changefeed already exists, {name}")
        if name in self._leaving:
            raise e.ChangefeedAlreadyExists(f"changefeed already exists, {name}", hint="It is being removed: try again in a moment.")

    async def _with_tables(self, settings: FeedSettings, config: ChangefeedConfig, *, asked: bool) -> FeedSettings:
        """Let the capture take its tables too. Those that it has not taken so far are in the log from now on: there the changefeed begins,
        if the request leaves that open (not `asked`). Else the capture reads what they changed since the ts that was asked for, if the log
        had passed it. Raises StartTsBeforeLog naming what the log lacks, CaptureNotReady."""
        if not self._captures or self._options.own_rules:
            return settings
        await self._capture_for(config)
        tables = await self._newest_tables(await self._upstream.now())  # a table may be newer than what the log knows
        lacks = await asyncio.to_thread(self._lacking, settings.start_ts, config, tables)
        if not lacks:
            return settings
        await self._captured()
        taken_from = await asyncio.to_thread(self._rules_from)
        if not asked:
            return replace(settings, start_ts=max(await self._upstream.now(), taken_from))
        lacks = await asyncio.to_thread(self._lacking, settings.start_ts, config, tables)
        if not lacks:
            return settings
        await self._check_history(settings.start_ts)
        why = await self._backfilled(settings.start_ts)
        if why:
            raise e.StartTsBeforeLog(
                f"the log does not have {', '.join(lacks[:5])} from {tso.describe(settings.start_ts)} on: no changefeed wanted that "
                f"before, and it was complete up to {tso.describe(taken_from)} already; {why}",
                hint=f"It has them from {taken_from} on now: create the changefeed again, with that start-ts or a later one.",
            )
        return settings

    def _lacking(self, ts: int, config: ChangefeedConfig, tables: Sequence[Any]) -> list[str]:
        if not log_exists(self._options.log):
            return []
        return capture_rules.lacking(LogReader(self._options.log).identity, ts, config.table_filter(), tables)

    def _rules_from(self) -> int:
        return capture_rules.newest(LogReader(self._options.log).identity).from_ts

    async def _wanted(self, name: str, wanted: s.NewChangefeed) -> FeedSettings:
        """What a request asks for, with the cluster's present where it leaves the start open."""
        now = await self._upstream.now()
        start, target = wanted.start_ts or now, wanted.target_ts or 0
        if start > now:
            raise e.InvalidParameter(f"start-ts {start} lies in the future; the cluster's time is {now}")
        if target and target <= start:
            raise e.TargetTsBeforeStartTs(f"target-ts {target} does not lie after start-ts {start}")
        return FeedSettings(
            changefeed=name,
            sink_uri=wanted.sink_uri,
            start_ts=start,
            created_at=time.time(),
            creator_version=own_version(),
            cluster_id=self._cluster_id,
            target_ts=target,
            config=dict(wanted.replica_config),
            schema_registry=wanted.schema_registry or "",
            tz=self._options.zone,
        )

    def _checked(self, settings: FeedSettings) -> tuple[SinkUri, ChangefeedConfig]:
        """Raises InvalidReplicaConfig, InvalidSinkUri. What a request brings is held against a budget."""
        with Budget(REQUEST).in_force():
            return self._checked_within_budget(settings)

    def _checked_within_budget(self, settings: FeedSettings) -> tuple[SinkUri, ChangefeedConfig]:
        try:
            config = settings.checked()
            config.table_filter()
        except ConfigError as error:
            raise e.InvalidReplicaConfig(error.message, hint=error.hint) from error
        try:
            sink = settings.sink(self._options.data_dir)
            self._options.permitted.check(sink, self._options.data_dir.absolute() / "canal")
            return sink, config
        except ConfigError as error:
            raise e.InvalidSinkUri(error.message, hint=error.hint) from error

    async def _claim_log(self, feed: Feed, *more: ChangefeedConfig, at: tso.SavedTs | None = None) -> None:
        """Let the log keep what lies above its checkpoint, or above `at`; begin one there if there is none. Raises StartTsBeforeLog."""
        ts = await asyncio.to_thread(self._files.saved, feed) if at is None else at
        await self._check_log_has(ts)
        if not self._captures:
            await self._start_capture(ts, *more)
            return
        try:
            await asyncio.to_thread(self._register, feed.id, ts)
        except StartTsOutOfLog as error:
            raise e.StartTsBeforeLog(error.message, hint="Choose a later ts.") from error

    async def _check_log_has(self, ts: int) -> None:
        """Raises StartTsBeforeLog if the log does not have what lies above `ts`, or one that begins now could not."""
        if not self._captures:
            await self._check_history(ts)
            return
        reader = await asyncio.to_thread(self._reader)
        if reader is not None and not await asyncio.to_thread(is_covered, reader, ts):
            await self._check_history(ts)
            raise e.StartTsBeforeLog(
                f"the log {redact(reader.location)} begins at {tso.describe(reader.start_ts)}, {tso.describe(ts)} is before",
                hint="Choose a later ts.",
            )

    def _reader(self) -> LogReader | None:
        """The log; None: the capture is about to make it, and a changefeed registers when it begins."""
        return LogReader(self._options.log) if log_exists(self._options.log) else None

    def _register(self, name: str, ts: tso.SavedTs) -> None:
        reader = self._reader()
        if reader is not None:
            log_feeds.register(reader.storage, name, saved_begin(reader, ts), of=log_feeds.SERVER)

    def _check_upstream(self, names: s.UpstreamNames) -> None:
        """A request may name PD by other addresses than the server: what counts is that some are the same."""
        bare = {_bare(address) for address in names.pd_addrs}
        if bare and not bare & {_bare(address) for address in self._options.pd_addrs}:
            raise e.UpstreamMismatch(
                f"the request names PD at {', '.join(sorted(bare))}; this server follows {', '.join(self._options.pd_addrs)}",
                hint="A server follows one cluster: start another server for the other one.",
            )

    async def update(self, changefeed_id: str, change: s.ChangefeedUpdate, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ChangefeedInfo:
        feed = self._feed(changefeed_id, namespace)
        self._check_upstream(change.upstream)
        if feed.life.state is State.STOPPED:
            await self._until_idle(feed)  # it was paused a moment ago, and ends its batch
        if feed.life.state not in (State.STOPPED, State.FAILED) or feed.life.runs:
            raise e.UpdateRefused(
                f"can only update changefeed config when it is stopped or failed; {feed.id} is {feed.life.state}", hint="Pause it first."
            )
        old = feed.settings
        wanted = old.config if change.replica_config is None else with_secrets(old.config, change.replica_config)
        new = replace(
            old,
            sink_uri=with_secrets(old.sink_uri, change.sink_uri) if change.sink_uri else old.sink_uri,
            target_ts=old.target_ts if change.target_ts is None else change.target_ts,
            config=with_own(old.config, wanted) if change.keeps_own else dict(wanted),
            schema_registry=old.schema_registry if change.schema_registry is None else change.schema_registry,
        )
        if new.target_ts and new.target_ts <= feed.checkpoint_ts:
            raise e.TargetTsBeforeStartTs(f"target-ts {new.target_ts} does not lie after the checkpoint {feed.checkpoint_ts}")
        before, after = await asyncio.to_thread(lambda: (self._checked(old), self._checked(new)))
        found = changes(before, after)
        never = refused(found)
        if never:
            raise e.UpdateRefused("; ".join(map(str, never)), hint="Create another changefeed for that.")
        await asyncio.to_thread(_meet, after[0])
        async with self._writing[feed.id]:
            self._check_same(feed, old)
            await self._must(partial(self._files.save, feed, new))
            feed.settings, feed.config = new, after[1]
        await self._capture_for()
        log.info("changefeed %s is updated: %s", feed.id, "; ".join(map(str, found)) or "nothing differs")
        return self._info(feed)

    def _check_same(self, feed: Feed, settings: FeedSettings) -> None:
        """Checking an update takes a while. Raises UpdateRefused if the changefeed is another one by then."""
        idle = feed.life.state in (State.STOPPED, State.FAILED) and not feed.life.runs
        if self._feeds.get(feed.id) is not feed or feed.settings is not settings or not idle:
            raise e.UpdateRefused(f"changefeed {feed.id} was resumed, updated or removed meanwhile", hint="Look at it, and ask again.")

    async def pause(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        feed = self._feed(changefeed_id, namespace)
        if feed.life.state is State.FINISHED:
            raise e.UpdateRefused(f"changefeed {feed.id} is finished")
        self._do(feed, feed.life.paused())
        self._suspects.forget(feed.id)
        self._save_state(feed)
        await self._written(feed)

    async def resume(
        self,
        changefeed_id: str,
        *,
        overwrite_checkpoint_ts: int | None = None,
        skip_rows: Sequence[str] = (),
        namespace: str = s.DEFAULT_NAMESPACE,
    ) -> s.ChangefeedInfo:
        feed = self._feed(changefeed_id, namespace)
        if skip_rows:
            await self._skip_rows(feed, skip_rows)
        ts = overwrite_checkpoint_ts or 0
        if ts:
            await self._overwrite(feed, ts)
        elif feed.life.state in (State.STOPPED, State.FAILED):
            await self._claim_again(feed)
            await self._read_wider(feed)
        self._check_there(feed)
        if feed.life.state is State.FINISHED and feed.settings.target_ts and feed.checkpoint_ts >= feed.settings.target_ts:
            raise e.UpdateRefused(f"changefeed {feed.id} has reached its target", hint="Update target-ts first.")
        self._do(feed, feed.life.resumed(time.time()))
        self._save_state(feed)
        await self._written(feed)
        return self._info(feed)

    async def _read_wider(self, feed: Feed) -> None:
        """If an update has given it further tables, let the capture read what they changed since its checkpoint. Where that cannot be, the
        changefeed itself says what the log lacks."""
        if not self._captures or self._options.own_rules:
            return
        tables = await self._newest_tables(await self._upstream.now())
        if not await asyncio.to_thread(self._lacking, feed.checkpoint_ts, feed.config, tables):
            return
        await self._captured()
        if why := await self._backfilled(feed.checkpoint_ts):
            log.warning("changefeed %s goes on at %s without all its tables: %s", feed.id, tso.describe(feed.checkpoint_ts), why)

    async def _overwrite(self, feed: Feed, ts: int) -> None:
        now = await self._upstream.now()
        if ts > now:
            raise e.CheckpointInFuture(f"overwrite-checkpoint-ts {ts} lies in the future; the cluster's time is {now}")
        if feed.life.state is State.NORMAL:
            raise e.UpdateRefused(f"changefeed {feed.id} is normal", hint="Pause it before its checkpoint is overwritten.")
        await self._check_log_has(ts)
        self._check_there(feed)
        await self._come_to_rest(feed)  # from here on nothing tells the log a later checkpoint
        saved = await asyncio.to_thread(self._files.saved, feed)
        if ts < saved:  # first the log: what lies between must not go meanwhile
            await self._claim_again(feed, tso.at_most(ts, saved))
        await self._write_there(feed, partial(self._files.overwrite, feed, ts))
        if ts >= saved:  # first the checkpoint: the log is told only what is durable
            await self._claim_again(feed)
        log.warning("the checkpoint of changefeed %s is overwritten: it is %s now", feed.id, tso.describe(ts))

    async def _skip_rows(self, feed: Feed, rows: Sequence[str]) -> None:
        try:
            parse_skip_rows(rows)
        except ConfigError as error:
            raise e.InvalidParameter(error.message, hint=error.hint) from error
        if feed.life.state is State.NORMAL:
            raise e.UpdateRefused(f"changefeed {feed.id} is normal", hint="Pause it before it is told to leave out rows.")
        await self._come_to_rest(feed)
        settings = replace(feed.settings, skip_rows=tuple(dict.fromkeys((*feed.settings.skip_rows, *rows))))
        await self._write_there(feed, partial(self._files.save, feed, settings))
        feed.settings = settings
        log.warning("changefeed %s leaves out %s", feed.id, ", ".join(rows))

    async def _come_to_rest(self, feed: Feed) -> None:
        """Pause the changefeed if it is not, and wait for the end of its batch. Raises UpdateRefused."""
        if feed.life.state is not State.STOPPED:
            self._do(feed, feed.life.paused())
        if not await self._until_idle(feed):
            raise e.UpdateRefused(f"the batch of changefeed {feed.id} has not ended yet", hint="Try again in a moment.")

    async def _write_there(self, feed: Feed, write: Callable[[], object]) -> None:
        """Write files of a changefeed. Raises ChangefeedNotExists, and what `write` raises."""
        async with self._writing[feed.id]:
            self._check_there(feed)
            await self._must(write)

    def _check_there(self, feed: Feed) -> None:
        """A request had to wait. Raises ChangefeedNotExists if the changefeed was removed meanwhile."""
        if self._feeds.get(feed.id) is not feed:
            raise e.ChangefeedNotExists(f"changefeed not exists, {feed.id}", hint="It was removed meanwhile.")

    async def _claim_again(self, feed: Feed, at: tso.SavedTs | None = None) -> None:
        """Let the log keep what a changefeed that did not run needs. One that is removed meanwhile must not hold it. Raises as
        `_claim_log`, and ChangefeedNotExists."""
        await self._claim_log(feed, at=at)
        if feed.id not in self._feeds:
            await self._write(feed.id, lambda: log_feeds.remove(self._options.log, feed.id))
        self._check_there(feed)

    async def _written(self, feed: Feed) -> None:
        """Return when all that was to be written of it is written."""
        await asyncio.sleep(0)
        async with self._writing[feed.id]:
            pass

    async def remove(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ChangefeedInfo:
        feed = self._feed(changefeed_id, namespace)
        self._do(feed, feed.life.removed())
        self._suspects.forget(feed.id)
        self._leaving[feed.id] = self._feeds.pop(feed.id)
        try:
            if not await self._until_idle(feed):
                log.warning("the batch of changefeed %s does not end; it is cut off by the fence", feed.id)
                await self._write(feed.id, lambda: self._files.fence_off(feed))
            info = self._info(feed)
            await self._write(feed.id, lambda: self._files.remove(feed))
        finally:
            del self._leaving[feed.id]
        self._writing.pop(feed.id, None)
        self._idle.pop(feed.id, None)
        await self._capture_for()
        log.info("changefeed %s is removed; it was at %s", feed.id, tso.describe(feed.checkpoint_ts))
        return info

    async def _watch(self) -> None:
        """Fail changefeeds whose --gc-ttl is over, and let the log go on where nothing needs it any more."""
        next_look, clock = time.monotonic() + RECONCILE_EVERY_S, SteadyClock()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._write("all", self._files.flush)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + RECONCILE_EVERY_S
                await self._write("all", self._files.reconcile)
            self._start_suspect()
            async with self._creating:
                await self._narrow()
            for feed in [*self._feeds.values()]:
                if due(feed, self._options.gc_ttl, clock()):
                    await self._expire(feed)

    async def _expire(self, feed: Feed) -> None:
        at = tso.describe(feed.checkpoint_ts)
        error = e.LogNotKept(
            f"changefeed {feed.id} stands at {at}, longer than gc-ttl ({self._options.gc_ttl:.0f} s): the log is no longer kept for it",
            hint="Resume it while the log still holds that ts; else with overwrite_checkpoint_ts, or create another changefeed.",
        )
        log.error("%s: %s", error.code, error)
        self._do(feed, feed.life.expired(error, time.time()))
        self._save_state(feed)
        await self._write(feed.id, lambda: log_feeds.remove(self._options.log, feed.id))


def _meet(sink: SinkUri) -> None:
    """Raises InvalidSinkUri with what the sink answers."""
    try:
        check_sink_reachable(sink)
    except TidemillError as error:
        raise e.InvalidSinkUri(f"{error.code}: {error.message}", hint=error.hint) from error


def _bare(address: str) -> str:
    return address.rpartition("://")[2].rstrip("/")
