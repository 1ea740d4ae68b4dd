"""The server: keeps the contract of `service.py` over the two processes and the files of the changefeeds.

Everything runs on one event loop. What a changefeed's life says (`life.py`) is carried out here: commands to the delivery host, files, the
log's list of who needs it. Files are written in threads, one after the other for each changefeed. The host's reports come in through
`_heard`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from tidemill import logs, tso
from tidemill.capture.status import CaptureStatus
from tidemill.changefeed.changes import changes, refused, with_secrets
from tidemill.changefeed.preflight import check_sink_reachable
from tidemill.changefeed.states import State
from tidemill.changelog import feeds as log_feeds
from tidemill.changelog.files.bounds import is_covered
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.storage import durable
from tidemill.changelog.storage.open import open_storage
from tidemill.config.file import ChangefeedConfig, check_config
from tidemill.config.uri import SinkUri
from tidemill.errors import ClusterMismatch, ConfigError, LogError, MalformedMessage, StartTsOutOfLog, TidemillError, redact
from tidemill.metrics.samples import Sample
from tidemill.metrics.ticdc import with_ticdc_names
from tidemill.rules.skip import parse_skip_rows
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.feeds import Feed, FeedFiles, due, time_of
from tidemill.server.host.messages import Figures, command, figures_in, parse
from tidemill.server.life import HOST_LOST, Do
from tidemill.server.processes import Processes
from tidemill.server.settings import FeedSettings
from tidemill.server.status import capture_status, feed_samples
from tidemill.server.suspects import Suspects
from tidemill.server.upstream import LogSchemas, Upstream, lists_of, physical_ids

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""How often --gc-ttl is looked at."""
END_WITHIN_S = 25.0
"""How long a changefeed may take to end its batch when it is removed, or resumed from elsewhere."""
NO_PLACES = "Each batch divides its rows among the tasks of one Spark session: tables have no node."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a server is started with. `address`: where clients reach it. `gc_ttl`: seconds."""

    log: str
    data_dir: Path
    address: str
    zone: str = "UTC"
    gc_ttl: float = 86400.0
    pd_addrs: tuple[str, ...] = ()


class Manager:
    """A `ChangefeedService`."""

    def __init__(self, options: ServerOptions, upstream: Upstream, processes: Callable[[Callable[[], int]], Processes]) -> None:
        self._options, self._upstream = options, upstream
        self._files = FeedFiles(options.data_dir, options.log)
        self._schemas = LogSchemas(options.log)
        self._asking_schemas = asyncio.Lock()
        self._feeds: dict[str, Feed] = {}
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._idle: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._batches = 0
        self._processes = processes(lambda: self._batches)
        self._suspects = Suspects()
        self._host_up = self._captures = False
        self._creating = asyncio.Lock()
        self._started_at = time.time()
        self._liveness = 0
        self._cluster_id = ""
        self._id = ""

    # ------------------------------------------------------------------ begin and end

    async def start(self) -> None:
        """Read the changefeeds, look at cluster and log, start the processes. Raises what makes a start useless."""
        self._id = await asyncio.to_thread(self._own_id)
        await asyncio.to_thread(self._files.sweep)
        self._feeds = {feed.id: feed for feed in await asyncio.to_thread(self._files.load)}
        self._cluster_id = str((await self._upstream.connect()).cluster_id)
        await asyncio.to_thread(self._check_cluster)
        self._processes.start_host(self._heard, self._host_lost)
        if await asyncio.to_thread(log_exists, self._options.log):
            self._start_capture(None)
        elif self._feeds:
            self._start_capture(min(feed.checkpoint_ts for feed in self._feeds.values()))
        else:
            log.info("the log %s begins where the first changefeed does", redact(self._options.log))
        self._spawn(self._watch())
        log.info("the server has %d changefeeds", len(self._feeds))

    def _own_id(self) -> str:
        path = self._options.data_dir / "server.json"
        found = durable.read_json(path) or {}
        if not isinstance(found.get("id"), str):
            found = {"id": str(uuid.uuid4())}
            durable.write_json(path, found)
        return str(found["id"])

    def _check_cluster(self) -> None:
        wrong = next((feed for feed in self._feeds.values() if feed.settings.cluster_id != self._cluster_id), None)
        if wrong is not None:
            raise ClusterMismatch(
                f"changefeed {wrong.id} in {self._options.data_dir} is of cluster {wrong.settings.cluster_id}, PD is of {self._cluster_id}",
                hint="Name the PD of that cluster, or another --data-dir.",
            )
        if log_exists(self._options.log):
            found = LogReader(self._options.log).identity.cluster_id
            if found != self._cluster_id:
                raise ClusterMismatch(
                    f"the log {redact(self._options.log)} is of cluster {found}, PD is of cluster {self._cluster_id}",
                    hint="Name the PD of the log's cluster, or another --log.",
                )

    def _start_capture(self, start_ts: int | None) -> None:
        self._captures = True
        self._processes.start_capture(start_ts, self._resolved_ts)

    async def stop(self) -> None:
        """Let each changefeed end its batch, and end the processes."""
        self._liveness = 2
        for timer in self._timers.values():
            timer.cancel()
        await self._processes.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._upstream.close()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------ the host

    def _heard(self, line: bytes) -> None:
        try:
            self._take_in(parse(line))
        except (MalformedMessage, KeyError, TypeError, ValueError) as error:  # a host of another version
            log.error("a report of the delivery host is not understood (%s); the host is started again: %r", error, line[:200])
            self._processes.restart_host()

    def _take_in(self, found: Mapping[str, Any]) -> None:
        word = found.get("is")
        if word == "up":
            self._host_up = True
            for one in sorted(self._feeds.values(), key=lambda feed: self._suspects.suspects(feed.id)):
                self._do(one, one.life.host_up())
            return
        if word == "progress":
            for name, figures in figures_in(found).items():
                self._progressed(self._feeds.get(name), figures)
            self._start_suspect()
            return
        feed = self._feeds.get(str(found.get("feed")))
        if feed is None or found.get("run") != feed.life.run:
            return
        if word in ("erred", "ended"):
            self._suspects.spoke(feed.id)
        if word == "erred":
            feed.life.erred(found["code"], found["message"], time.time())
        elif word == "ended":
            self._ended(feed, found)

    def _progressed(self, feed: Feed | None, figures: Any) -> None:
        if feed is None or figures.run != feed.life.run:
            return
        feed.figures = figures
        self._suspects.advanced(feed.id)
        self._batches += 1
        if feed.life.advanced(figures.moved_at):
            self._save_state(feed)

    def _ended(self, feed: Feed, found: Mapping[str, Any]) -> None:
        life = feed.life
        feed.figures = replace(feed.figures, checkpoint_ts=found.get("checkpoint_ts", feed.checkpoint_ts))
        match found["how"]:
            case "reached":
                life.reached()
                do = Do.NOTHING
            case "stopped":
                do = life.stopped()
            case _:
                do = life.failed(
                    found["code"],
                    found["message"],
                    retryable=found["retryable"],
                    now=time.time(),
                    checkpoint=feed.checkpoint_ts,
                    trouble_since=found.get("trouble_since"),
                    chance=random.random(),
                )
                log.warning("changefeed %s is in state %s: %s: %s", feed.id, life.state, found["code"], found["message"])
        self._idle[feed.id].set()
        self._save_state(feed)
        self._do(feed, do)

    def _host_lost(self, why: str, crashed: bool) -> None:
        self._host_up = False
        blamed = self._feeds.get(self._suspects.host_lost(crashed) or "")
        for feed in self._feeds.values():
            feed.life.host_lost(why, time.time())
            self._idle[feed.id].set()
        if blamed is not None:
            self._blame(blamed, why)

    def _blame(self, feed: Feed, why: str) -> None:
        """It kills the host: it waits, and the others go on without it."""
        log.warning("%s; changefeed %s was the only one that had not advanced: it waits, the others go on", why, feed.id)
        message = f"{why} while it delivered {feed.id}\n  Look at the host's last lines in the log, and at spark.log, for what it did."
        error = {"code": HOST_LOST, "message": message, "retryable": True, "trouble_since": None}
        self._ended(feed, {"how": "failed", **error})

    def _start_suspect(self) -> None:
        feed = self._feeds.get(self._suspects.next_one(time.monotonic()) or "")
        if feed is not None:
            self._begin(feed)

    def _do(self, feed: Feed, do: Do) -> None:
        self._cancel_timer(feed)
        match do:
            case Do.START:
                self._begin(feed)
            case Do.STOP:
                self._tell(command("stop", feed=feed.id))
            case Do.WAIT:
                pause = max(0.0, (feed.life.retry_at or 0.0) - time.time())
                self._timers[feed.id] = asyncio.get_running_loop().call_later(pause, self._begin, feed)
            case Do.NOTHING:
                pass

    def _begin(self, feed: Feed) -> None:
        if not self._host_up or not feed.life.wanted or feed.life.runs or self._liveness:
            return  # the host starts what is to run when it is up
        if not self._suspects.may_start(feed.id, time.monotonic()):
            return
        retries = feed.life.state in (State.WARNING, State.PENDING)
        self._suspects.started(feed.id, time.monotonic())
        self._idle[feed.id].clear()
        self._tell(command("start", feed=feed.id, run=feed.life.started(), retries=retries))

    def _tell(self, line: bytes) -> None:
        if self._host_up and not self._processes.tell_host(line):
            log.warning("the delivery host takes no commands; it is started again")
            self._processes.restart_host()

    def _cancel_timer(self, feed: Feed) -> None:
        timer = self._timers.pop(feed.id, None)
        if timer is not None:
            timer.cancel()

    async def _until_idle(self, feed: Feed) -> bool:
        """Wait until the host no longer runs it. Return whether that came in time."""
        try:
            async with asyncio.timeout(END_WITHIN_S):
                while feed.life.runs:
                    self._idle[feed.id].clear()
                    await self._idle[feed.id].wait()
        except TimeoutError:
            return False
        return True

    # ------------------------------------------------------------------ files

    def _save_state(self, feed: Feed) -> None:
        self._spawn(self._write(feed.id, lambda: self._files.save_state(feed)))

    async def _write(self, feed: str, work: Callable[[], T]) -> T | None:
        """Do something with a changefeed's files, after all that was asked for before. A failure is logged: the next write has it too."""
        async with self._writing[feed]:
            try:
                return await asyncio.to_thread(work)
            except TidemillError as error:
                log.warning("the state of changefeed %s cannot be written: %s", feed, error)
                return None

    async def _watch(self) -> None:
        """Fail changefeeds whose --gc-ttl is over."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._start_suspect()
            for feed in [*self._feeds.values()]:
                if due(feed, self._options.gc_ttl, time.time()):
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

    # ------------------------------------------------------------------ changefeeds

    async def create(self, wanted: s.NewChangefeed) -> s.CreatedChangefeed:
        name = checked_name(wanted.changefeed_id or str(uuid.uuid4()), wanted.namespace)
        self._check_upstream(wanted.upstream)
        if name in self._feeds:
            raise e.ChangefeedAlreadyExists(f"changefeed already exists, {name}")
        settings = await self._wanted(name, wanted)
        sink, config = self._checked(settings)
        await asyncio.to_thread(_meet, sink)
        tables = await self._table_lists(config, None)
        if not wanted.ignore_ineligible_tables and not config.force_replicate and tables.ineligible_tables:
            names = ", ".join(f"{t.database_name}.{t.table_name}" for t in tables.ineligible_tables[:5])
            hint = "Leave them out by a rule of the filter, or set ignore-ineligible-table or force-replicate."
            raise e.TableIneligible(f"some tables are not eligible to replicate, they have no usable key: {names}", hint=hint)
        async with self._creating:  # of two requests that came at the same time one is first
            if name in self._feeds:
                raise e.ChangefeedAlreadyExists(f"changefeed already exists, {name}")
            await self._claim_log(name, settings.start_ts)
            await asyncio.to_thread(self._files.save, settings, self._location)
            feed = self._feeds[name] = await asyncio.to_thread(self._files.made, settings)
        log.info("changefeed %s is created at %s", name, tso.describe(settings.start_ts))
        self._begin(feed)
        return s.CreatedChangefeed(self._info(feed), tables)

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
            creator_version=_version(),
            cluster_id=self._cluster_id,
            target_ts=target,
            config=dict(wanted.replica_config),
            schema_registry=wanted.schema_registry or "",
            tz=self._options.zone,
        )

    @property
    def _location(self) -> str:
        return open_storage(self._options.log).location

    def _checked(self, settings: FeedSettings) -> tuple[SinkUri, ChangefeedConfig]:
        """Raises InvalidReplicaConfig, InvalidSinkUri."""
        try:
            config = settings.checked()
            config.table_filter()
        except ConfigError as error:
            raise e.InvalidReplicaConfig(error.message, hint=error.hint) from error
        try:
            return settings.sink(self._options.data_dir), config
        except ConfigError as error:
            raise e.InvalidSinkUri(error.message, hint=error.hint) from error

    async def _claim_log(self, name: str, ts: int) -> None:
        """Let the log keep what lies above `ts`; begin one there if there is none. Raises StartTsBeforeLog."""
        if not self._captures:
            safe_point = await (await self._upstream.connect()).gc_safe_point()
            if ts < safe_point:
                raise e.StartTsBeforeLog(f"start-ts {ts} lies before the cluster's GC safe point {safe_point}")
            self._start_capture(ts)
            return
        try:
            await asyncio.to_thread(self._register, name, ts)
        except StartTsOutOfLog as error:
            raise e.StartTsBeforeLog(error.message, hint="Choose a later ts.") from error

    def _register(self, name: str, ts: int) -> None:
        if not log_exists(self._options.log):
            return  # the capture is about to make it; the changefeed registers when it begins
        reader = LogReader(self._options.log)
        if not is_covered(reader, ts):
            raise StartTsOutOfLog(
                f"the log {redact(reader.location)} begins at {tso.describe(reader.start_ts)}, {tso.describe(ts)} is before"
            )
        log_feeds.register(self._options.log, name, max(ts, reader.start_ts))

    def _check_upstream(self, names: s.UpstreamNames) -> None:
        """A request may name PD by other addresses than the server: what counts is that some are the same."""
        bare = {_bare(address) for address in names.pd_addrs}
        if bare and not bare & {_bare(address) for address in self._options.pd_addrs}:
            raise e.UpstreamMismatch(
                f"the request names PD at {', '.join(sorted(bare))}; this server follows {', '.join(self._options.pd_addrs)}",
                hint="A server follows one cluster: start another server for the other one.",
            )

    def _feed(self, changefeed_id: str, namespace: str) -> Feed:
        checked_name(changefeed_id, namespace)
        try:
            return self._feeds[changefeed_id]
        except KeyError:
            raise e.ChangefeedNotExists(f"changefeed not exists, {changefeed_id}") from None

    def _resolved_ts(self) -> int:
        return capture_status(self._options.data_dir / "capture").resolved_ts

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
        new = replace(
            old,
            sink_uri=with_secrets(old.sink_uri, change.sink_uri) if change.sink_uri else old.sink_uri,
            target_ts=old.target_ts if change.target_ts is None else change.target_ts,
            config=dict(with_secrets(old.config, change.replica_config)) if change.replica_config is not None else old.config,
            schema_registry=old.schema_registry if change.schema_registry is None else change.schema_registry,
        )
        if new.target_ts and new.target_ts <= feed.checkpoint_ts:
            raise e.TargetTsBeforeStartTs(f"target-ts {new.target_ts} does not lie after the checkpoint {feed.checkpoint_ts}")
        found = changes(self._checked(old), self._checked(new))
        never = refused(found)
        if never:
            raise e.UpdateRefused("; ".join(map(str, never)), hint="Create another changefeed for that.")
        await asyncio.to_thread(_meet, self._checked(new)[0])
        await self._write(feed.id, lambda: self._files.save(new, self._location))
        feed.settings, feed.config = new, new.checked()
        log.info("changefeed %s is updated: %s", feed.id, "; ".join(map(str, found)) or "nothing differs")
        return self._info(feed)

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
            await self._claim_log(feed.id, feed.checkpoint_ts)
        if feed.life.state is State.FINISHED and feed.settings.target_ts and feed.checkpoint_ts >= feed.settings.target_ts:
            raise e.UpdateRefused(f"changefeed {feed.id} has reached its target", hint="Update target-ts first.")
        self._do(feed, feed.life.resumed(time.time()))
        self._save_state(feed)
        await self._written(feed)
        return self._info(feed)

    async def _overwrite(self, feed: Feed, ts: int) -> None:
        now = await self._upstream.now()
        if ts > now:
            raise e.CheckpointInFuture(f"overwrite-checkpoint-ts {ts} lies in the future; the cluster's time is {now}")
        if feed.life.state is State.NORMAL:
            raise e.UpdateRefused(f"changefeed {feed.id} is normal", hint="Pause it before its checkpoint is overwritten.")
        await self._claim_log(feed.id, ts)
        if feed.life.state is not State.STOPPED:
            self._do(feed, feed.life.paused())
        if not await self._until_idle(feed):
            raise e.UpdateRefused(f"the batch of changefeed {feed.id} has not ended yet", hint="Try again in a moment.")
        async with self._writing[feed.id]:
            await asyncio.to_thread(self._files.overwrite, feed, ts)
        log.warning("the checkpoint of changefeed %s is overwritten: it is %s now", feed.id, tso.describe(ts))

    async def _skip_rows(self, feed: Feed, rows: Sequence[str]) -> None:
        try:
            parse_skip_rows(rows)
        except ConfigError as error:
            raise e.InvalidParameter(error.message, hint=error.hint) from error
        if feed.life.state is State.NORMAL:
            raise e.UpdateRefused(f"changefeed {feed.id} is normal", hint="Pause it before it is told to leave out rows.")
        if feed.life.state is not State.STOPPED:
            self._do(feed, feed.life.paused())
        if not await self._until_idle(feed):
            raise e.UpdateRefused(f"the batch of changefeed {feed.id} has not ended yet", hint="Try again in a moment.")
        settings = replace(feed.settings, skip_rows=tuple(dict.fromkeys((*feed.settings.skip_rows, *rows))))
        await self._write(feed.id, lambda: self._files.save(settings, self._location))
        feed.settings = settings
        log.warning("changefeed %s leaves out %s", feed.id, ", ".join(rows))

    async def _written(self, feed: Feed) -> None:
        """Return when all that was to be written of it is written."""
        await asyncio.sleep(0)
        async with self._writing[feed.id]:
            pass

    async def remove(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ChangefeedInfo:
        feed = self._feed(changefeed_id, namespace)
        self._do(feed, feed.life.removed())
        self._suspects.forget(feed.id)
        info = self._info(feed)
        del self._feeds[feed.id]
        if not await self._until_idle(feed):
            log.warning("the batch of changefeed %s does not end; it is cut off by the fence", feed.id)
            await self._write(feed.id, lambda: self._files.fence_off(feed))
        await self._write(feed.id, lambda: self._files.remove(feed))
        await self._write(feed.id, lambda: log_feeds.remove(self._options.log, feed.id))
        self._writing.pop(feed.id, None)
        self._idle.pop(feed.id, None)
        log.info("changefeed %s is removed; it was at %s", feed.id, tso.describe(feed.checkpoint_ts))
        return info

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

    # ------------------------------------------------------------------ tables

    async def table_lists(self, replica_config: Mapping[str, Any], start_ts: int | None = None) -> s.TableLists:
        try:
            config = check_config(replica_config)
            config.table_filter()
        except ConfigError as error:
            raise e.InvalidReplicaConfig(error.message, hint=error.hint) from error
        return await self._table_lists(config, start_ts or None)

    async def _table_lists(self, config: ChangefeedConfig, ts: int | None) -> s.TableLists:
        return lists_of(await self._newest_tables(ts), config.table_filter())

    async def _newest_tables(self, ts: int | None = None) -> Sequence[Any]:
        """The tables as of a ts, from the log; where it does not hold them, from TiKV."""
        async with self._asking_schemas:
            found = await asyncio.to_thread(self._schemas.tables, ts)
        if found is not None:
            return found
        at = ts or await self._upstream.now()
        return [*(await self._upstream.schemas(at)).snapshot(at).tables.values()]

    # ------------------------------------------------------------------ the server

    async def captures(self) -> Sequence[s.CaptureInfo]:
        return [s.CaptureInfo(self._id, True, self._options.address)]

    async def processors(self) -> Sequence[s.ProcessorInfo]:
        return [s.ProcessorInfo(s.DEFAULT_NAMESPACE, name, self._id) for name, feed in sorted(self._feeds.items()) if feed.life.wanted]

    async def processor(self, changefeed_id: str, capture_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ProcessorInfo:
        feed = self._feed(changefeed_id, namespace)
        self._check_capture(capture_id)
        (status,) = await self._task_status(feed)
        return s.ProcessorInfo(s.DEFAULT_NAMESPACE, feed.id, self._id, status.table_ids)

    def _check_capture(self, capture_id: str) -> None:
        if capture_id != self._id:
            raise e.CaptureNotExists(f"capture not exists, {capture_id}")

    async def status(self) -> s.ServerStatus:
        return s.ServerStatus(
            version=_version(),
            git_hash="",
            id=self._id,
            cluster_id=s.CLUSTER_ID,
            pid=os.getpid(),
            is_owner=True,
            liveness=self._liveness,
            upstream_id=int(self._cluster_id or 0),
            pd_addrs=self._options.pd_addrs,
            log=redact(self._options.log),
            started_at=time_of(self._started_at),
        )

    async def health(self) -> None:
        wrong = self._processes.trouble()
        if wrong is not None:
            raise e.Unhealthy(redact(wrong))

    async def resign_owner(self) -> None:
        log.info("asked to resign, but there is no other server")

    async def drain(self, capture_id: str) -> int:
        self._check_capture(capture_id)
        raise e.UpdateRefused("there is no other server that could take the changefeeds over")

    async def set_log_level(self, level: str) -> None:
        try:
            logs.set_level(level)
        except ConfigError as error:
            raise e.InvalidParameter(error.message, hint=error.hint) from error
        self._processes.set_log_level(level)

    async def set_log_redaction(self, mode: str) -> None:
        if mode.lower() not in ("off", "marker", "on", "true", "false"):
            raise e.InvalidParameter(f"redact mode {mode!r} is none of off, marker, on")

    async def debug_info(self) -> Mapping[str, Any]:
        feeds = {
            name: {"state": str(feed.life.state), "run": feed.life.run, "runs": feed.life.runs, "checkpoint_ts": feed.checkpoint_ts}
            for name, feed in sorted(self._feeds.items())
        }
        return {"processes": [dict(one) for one in self._processes.seen()], "changefeeds": feeds}

    def figures(self) -> Mapping[str, Figures]:
        return {name: feed.figures for name, feed in self._feeds.items()}

    def capture_status(self) -> CaptureStatus:
        return capture_status(self._options.data_dir / "capture")

    def processes(self) -> Sequence[Mapping[str, object]]:
        return self._processes.seen()

    def samples(self) -> Iterable[Sample]:
        yield from with_ticdc_names(feed_samples(self._feeds.values(), time.time()))
        yield from with_ticdc_names(capture_status(self._options.data_dir / "capture").samples())

    # ------------------------------------------------------------------ the upstream

    async def tso(self) -> s.Tso:
        return await self._upstream.tso()

    async def metadata(self) -> Sequence[s.EtcdEntry]:
        entries = [s.EtcdEntry(f"/tidemill/{s.CLUSTER_ID}/server", self._id)]
        for name, feed in sorted(self._feeds.items()):
            base = f"/tidemill/{s.CLUSTER_ID}/{s.DEFAULT_NAMESPACE}/changefeed"
            entries.append(s.EtcdEntry(f"{base}/info/{name}", f"{feed.life.state} {redact(feed.settings.sink_uri)}"))
            entries.append(s.EtcdEntry(f"{base}/status/{name}", str(feed.checkpoint_ts)))
        return entries

    async def resolve_lock(self, region_id: int, ts: int | None = None) -> int:
        return await self._upstream.resolve_lock(region_id, ts)

    async def delete_gc_safepoint(self) -> None:
        running = [name for name, feed in self._feeds.items() if feed.life.wanted]
        if running:
            raise e.UpdateRefused(f"changefeeds run: {', '.join(sorted(running))}", hint="Pause them first.")
        raise e.UpdateRefused(
            "the capture holds the cluster's history for its log, whatever changefeeds there are",
            hint="Stop the server: the cluster is free after --gc-ttl.",
        )


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


def _meet(sink: SinkUri) -> None:
    """Raises InvalidSinkUri with what the sink answers."""
    try:
        check_sink_reachable(sink)
    except TidemillError as error:
        raise e.InvalidSinkUri(f"{error.code}: {error.message}", hint=error.hint) from error


def _bare(address: str) -> str:
    return address.rpartition("://")[2].rstrip("/")


def _version() -> str:
    try:
        return version("tidemill")
    except PackageNotFoundError:
        return "unknown"
