"""What people do with changefeeds: create, update, pause, resume, remove."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tidemill import tso
from tidemill.budget import REQUEST, Budget
from tidemill.changefeed.changes import changes, refused, with_secrets
from tidemill.changefeed.preflight import check_sink_reachable
from tidemill.changefeed.states import State
from tidemill.config.file import ChangefeedConfig
from tidemill.config.replica_config import with_own
from tidemill.config.uri import SinkUri
from tidemill.errors import ConfigError, TidemillError
from tidemill.rules.skip import parse_skip_rows
from tidemill.rules.unmatched import unmatched
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.changefeeds.capture_control import CaptureControl
from tidemill.server.changefeeds.feed_store import FeedStore, checked_name
from tidemill.server.changefeeds.hosting import Hosting
from tidemill.server.changefeeds.log_claims import LogClaims
from tidemill.server.changefeeds.questions import Questions
from tidemill.server.changefeeds.tables import Tables
from tidemill.server.feeds import Feed
from tidemill.server.options import ServerOptions, own_version
from tidemill.server.settings import FeedSettings
from tidemill.server.this_server import ThisServer
from tidemill.server.upstream import Upstream

log = logging.getLogger(__name__)


class Operations:
    """Changes changefeeds."""

    def __init__(
        self,
        options: ServerOptions,
        upstream: Upstream,
        server: ThisServer,
        feeds: FeedStore,
        hosting: Hosting,
        capture: CaptureControl,
        tables: Tables,
        claims: LogClaims,
        questions: Questions,
    ) -> None:
        self._options, self._upstream, self._server = options, upstream, server
        self._feeds, self._hosting, self._capture = feeds, hosting, capture
        self._tables, self._claims, self._questions = tables, claims, questions

    async def create(self, wanted: s.NewChangefeed) -> s.CreatedChangefeed:
        name = checked_name(wanted.changefeed_id or str(uuid.uuid4()), wanted.namespace)
        self._check_upstream(wanted.upstream)
        self._feeds.check_is_free(name)
        settings = await self._settings(name, wanted)
        sink, config = await asyncio.to_thread(checked, settings, self._options)  # thousands of rules take a while
        wide = await self._capture.widen(config) if wanted.start_ts else None
        await asyncio.to_thread(_check_sink_answers, sink)
        tables = await self._tables.lists(config, None)
        if not wanted.ignore_ineligible_tables and not config.force_replicate and tables.ineligible_tables:
            names = ", ".join(f"{t.database_name}.{t.table_name}" for t in tables.ineligible_tables[:5])
            hint = "Leave them out by a rule of the filter, or set ignore-ineligible-table or force-replicate."
            raise e.TableIneligible(f"some tables are not eligible to replicate, they have no usable key: {names}", hint=hint)
        async with self._capture.creating:  # of two requests that came at the same time one is first
            self._feeds.check_is_free(name)
            settings = await self._with_tables(settings, config, asked=bool(wanted.start_ts))
            feed = await self._feeds.commit(partial(self._feeds.files.begin, settings))  # first: it is refused where another server leads
            try:
                await self._claims.claim(feed, config)
                await self._feeds.commit(partial(self._feeds.files.confirm, feed))
            except TidemillError:
                await self._feeds.write(name, lambda: self._feeds.files.remove(feed))
                await self._capture.take_wanted()
                raise
            feed.warned = tuple(await asyncio.to_thread(_unmatched, config, tables))
            self._feeds.add(feed)
            if wide is not None:
                self._capture.created(wide)
        log.info("changefeed %s is created at %s", name, tso.describe(settings.start_ts))
        for warning in feed.warned:
            log.warning("changefeed %s: %s", name, warning)
        self._hosting.begin(feed)
        return s.CreatedChangefeed(self._questions.info(feed), tables)

    async def _with_tables(self, settings: FeedSettings, config: ChangefeedConfig, *, asked: bool) -> FeedSettings:
        """Let the capture take its tables too. Those that it has not taken so far are in the log from now on: there the changefeed begins,
        if the request leaves that open (not `asked`). Else the capture reads what they changed since the ts that was asked for, if the log
        had passed it. Raises StartTsBeforeLog naming what the log lacks, CaptureNotReady."""
        if not self._capture.follows_changefeeds:
            return settings
        await self._capture.take_wanted(config)
        tables = await self._tables.now()  # a table may be newer than what the log knows
        lacks = await self._capture.lacking(settings.start_ts, config, tables)
        if not lacks:
            return settings
        taken_from = await self._capture.until_taken()
        if not asked:
            return replace(settings, start_ts=max(await self._upstream.now(), taken_from))
        lacks = await self._capture.lacking(settings.start_ts, config, tables)
        if not lacks:
            return settings
        await self._tables.check_history(settings.start_ts)
        why = await self._capture.backfill(settings.start_ts)
        if why:
            raise e.StartTsBeforeLog(
                f"the log does not have {', '.join(lacks[:5])} from {tso.describe(settings.start_ts)} on: no changefeed wanted that "
                f"before, and it was complete up to {tso.describe(taken_from)} already; {why}",
                hint=f"It has them from {taken_from} on now: create the changefeed again, with that start-ts or a later one.",
            )
        return settings

    async def _settings(self, name: str, wanted: s.NewChangefeed) -> FeedSettings:
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
            cluster_id=self._server.cluster_id,
            target_ts=target,
            config=dict(wanted.replica_config),
            schema_registry=wanted.schema_registry or "",
            tz=self._options.zone,
        )

    def _check_upstream(self, names: s.UpstreamNames) -> None:
        """A request may name PD by other addresses than the server: what counts is that some are the same."""
        bare = {_bare(address) for address in names.pd_addrs}
        if bare and not bare & {_bare(address) for address in self._options.pd_addrs}:
            raise e.UpstreamMismatch(
                f"the request names PD at {', '.join(sorted(bare))}; this server follows {', '.join(self._options.pd_addrs)}",
                hint="A server follows one cluster: start another server for the other one.",
            )

    async def update(self, changefeed_id: str, change: s.ChangefeedUpdate, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ChangefeedInfo:
        feed = self._feeds.get(changefeed_id, namespace)
        self._check_upstream(change.upstream)
        if feed.life.state is State.STOPPED:
            await self._hosting.until_idle(feed)  # it was paused a moment ago, and ends its batch
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
        before, after = await asyncio.to_thread(lambda: (checked(old, self._options), checked(new, self._options)))
        differences = changes(before, after)
        forbidden = refused(differences)
        if forbidden:
            raise e.UpdateRefused("; ".join(map(str, forbidden)), hint="Create another changefeed for that.")
        await asyncio.to_thread(_check_sink_answers, after[0])
        async with self._feeds.writing(feed):
            self._check_same(feed, old)
            await self._feeds.commit(partial(self._feeds.files.save, feed, new))
            feed.settings, feed.config = new, after[1]
        await self._capture.take_wanted()
        log.info("changefeed %s is updated: %s", feed.id, "; ".join(map(str, differences)) or "nothing differs")
        return self._questions.info(feed)

    def _check_same(self, feed: Feed, settings: FeedSettings) -> None:
        """Checking an update takes a while. Raises UpdateRefused if the changefeed is another one by then."""
        idle = feed.life.state in (State.STOPPED, State.FAILED) and not feed.life.runs
        if self._feeds.present.get(feed.id) is not feed or feed.settings is not settings or not idle:
            raise e.UpdateRefused(f"changefeed {feed.id} was resumed, updated or removed meanwhile", hint="Look at it, and ask again.")

    async def pause(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        feed = self._feeds.get(changefeed_id, namespace)
        if feed.life.state is State.FINISHED:
            raise e.UpdateRefused(f"changefeed {feed.id} is finished")
        self._hosting.carry_out(feed, feed.life.paused())
        self._hosting.clear_suspicion(feed)
        self._feeds.save_state(feed)
        await self._feeds.written(feed)

    async def resume(
        self,
        changefeed_id: str,
        *,
        overwrite_checkpoint_ts: int | None = None,
        skip_rows: Sequence[str] = (),
        namespace: str = s.DEFAULT_NAMESPACE,
    ) -> s.ChangefeedInfo:
        feed = self._feeds.get(changefeed_id, namespace)
        if skip_rows:
            await self._skip_rows(feed, skip_rows)
        ts = overwrite_checkpoint_ts or 0
        if ts:
            await self._overwrite(feed, ts)
        elif feed.life.state in (State.STOPPED, State.FAILED):
            await self._claims.claim_again(feed)
            await self._read_wider(feed)
        self._feeds.check_present(feed)
        if feed.life.state is State.FINISHED and feed.settings.target_ts and feed.checkpoint_ts >= feed.settings.target_ts:
            raise e.UpdateRefused(f"changefeed {feed.id} has reached its target", hint="Update target-ts first.")
        self._hosting.carry_out(feed, feed.life.resumed(time.time()))
        self._feeds.save_state(feed)
        await self._feeds.written(feed)
        return self._questions.info(feed)

    async def _read_wider(self, feed: Feed) -> None:
        """If an update has given it further tables, let the capture read what they changed since its checkpoint. Where that cannot be, the
        changefeed itself says what the log lacks."""
        if not self._capture.follows_changefeeds:
            return
        tables = await self._tables.now()
        if not await self._capture.lacking(feed.checkpoint_ts, feed.config, tables):
            return
        await self._capture.until_taken()
        if why := await self._capture.backfill(feed.checkpoint_ts):
            log.warning("changefeed %s goes on at %s without all its tables: %s", feed.id, tso.describe(feed.checkpoint_ts), why)

    async def _overwrite(self, feed: Feed, ts: int) -> None:
        now = await self._upstream.now()
        if ts > now:
            raise e.CheckpointInFuture(f"overwrite-checkpoint-ts {ts} lies in the future; the cluster's time is {now}")
        if feed.life.state is State.NORMAL:
            raise e.UpdateRefused(f"changefeed {feed.id} is normal", hint="Pause it before its checkpoint is overwritten.")
        await self._claims.check_covers(ts)
        self._feeds.check_present(feed)
        await self._come_to_rest(feed)
        # From here on nothing tells the log a later checkpoint, nor does a start that has read one.
        await self._feeds.commit_present(feed, partial(self._feeds.files.fence_off, feed))
        saved = await asyncio.to_thread(self._feeds.files.saved, feed)
        if ts < saved:  # first the log: what lies between must not go meanwhile
            await self._claims.claim_again(feed, tso.at_most(ts, saved))
        await self._feeds.commit_present(feed, partial(self._feeds.files.overwrite, feed, ts))
        if ts >= saved:  # first the checkpoint: the log is told only what is durable
            await self._claims.claim_again(feed)
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
        await self._feeds.commit_present(feed, partial(self._feeds.files.save, feed, settings))
        feed.settings = settings
        log.warning("changefeed %s leaves out %s", feed.id, ", ".join(rows))

    async def _come_to_rest(self, feed: Feed) -> None:
        """Pause the changefeed if it is not, and wait for the end of its batch. Raises UpdateRefused."""
        if feed.life.state is not State.STOPPED:
            self._hosting.carry_out(feed, feed.life.paused())
        if not await self._hosting.until_idle(feed):
            raise e.UpdateRefused(f"the batch of changefeed {feed.id} has not ended yet", hint="Try again in a moment.")

    async def remove(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ChangefeedInfo:
        feed = self._feeds.get(changefeed_id, namespace)
        self._hosting.carry_out(feed, feed.life.removed())
        self._hosting.clear_suspicion(feed)
        self._feeds.begin_removal(feed)
        try:
            if not await self._hosting.until_idle(feed):
                log.warning("the batch of changefeed %s does not end; it is cut off by the fence", feed.id)
                await self._feeds.write(feed.id, lambda: self._feeds.files.fence_off(feed))
            info = self._questions.info(feed)
            await self._feeds.write(feed.id, lambda: self._feeds.files.remove(feed))
        finally:
            self._feeds.end_removal(feed)
        self._feeds.forget_writes(feed)
        self._hosting.forget(feed)
        await self._capture.take_wanted()
        log.info("changefeed %s is removed; it was at %s", feed.id, tso.describe(feed.checkpoint_ts))
        return info


def _unmatched(config: ChangefeedConfig, tables: s.TableLists) -> list[str]:
    names = [(table.database_name, table.table_name) for table in tables.all_tables]
    return unmatched(config.filter.rules, names, case_sensitive=config.case_sensitive)


def _check_sink_answers(sink: SinkUri) -> None:
    """Raises InvalidSinkUri with what the sink answers, or, if it does not answer now, the error for that."""
    try:
        check_sink_reachable(sink)
    except TidemillError as error:
        kind = e.sink_away(sink.scheme, error) if error.retryable else e.InvalidSinkUri
        raise kind(error.message, hint=error.hint) from error


def _bare(address: str) -> str:
    return address.rpartition("://")[2].rstrip("/")


def checked(settings: FeedSettings, options: ServerOptions) -> tuple[SinkUri, ChangefeedConfig]:
    """Raises InvalidReplicaConfig, InvalidSinkUri. What a request brings is held against a budget."""
    with Budget(REQUEST).in_force():
        return _parsed(settings, options)


def _parsed(settings: FeedSettings, options: ServerOptions) -> tuple[SinkUri, ChangefeedConfig]:
    try:
        config = settings.checked()
        config.table_filter()
    except ConfigError as error:
        raise e.InvalidReplicaConfig(error.message, hint=error.hint) from error
    try:
        sink = settings.sink(options.data_dir)
        options.permitted.check(sink, options.data_dir.absolute() / "canal")
        return sink, config
    except ConfigError as error:
        raise e.InvalidSinkUri(error.message, hint=error.hint) from error
