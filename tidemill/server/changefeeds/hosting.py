"""The changefeeds of a server and its delivery host: commands to it, its reports, what follows them in each changefeed's life.

Everything runs on one event loop. What a changefeed's life says (`life.py`) is carried out here. Files are written in threads, one after
the other for each changefeed. The host's reports come in through `_heard`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tidemill.capture.initial_load import answered, ask_backfill
from tidemill.changefeed.states import State
from tidemill.changelog.feeds import is_replay
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.storage import durable
from tidemill.config.file import ChangefeedConfig
from tidemill.errors import Fenced, MalformedMessage, TidemillError
from tidemill.server.changefeeds import capture_rules
from tidemill.server.errors import CaptureNotReady, NotOwner
from tidemill.server.feeds import Feed, FeedFiles
from tidemill.server.host.messages import command, figures_in, parse
from tidemill.server.life import HOST_LOST, Do
from tidemill.server.options import ServerOptions
from tidemill.server.processes import Processes
from tidemill.server.status import capture_status
from tidemill.server.suspects import Suspects
from tidemill.server.upstream import LogSchemas, Upstream

log = logging.getLogger(__name__)

END_WITHIN_S = 25.0
"""How long a changefeed may take to end its batch when it is removed, or resumed from elsewhere."""

RULES_WITHIN_S, RULES_POLL_S = 60.0, 0.2
"""How long the capture may take to start again with other rules, and how often the log is looked at meanwhile."""

WIDE_S = 600.0
"""For so long the capture goes on taking the tables of a changefeed that was refused."""

T = TypeVar("T")

MakeProcesses = Callable[[Callable[[], int], int], Processes]
"""Makes the processes of a term: of how many batches were delivered, and the term."""


class Hosting:
    """Keeps the changefeeds and their host."""

    def __init__(self, options: ServerOptions, upstream: Upstream, processes: MakeProcesses) -> None:
        self._options, self._upstream = options, upstream
        self._files = FeedFiles(options.data_dir, options.log)
        self._schemas = LogSchemas(options.log)
        self._asking_schemas = asyncio.Lock()
        self._feeds: dict[str, Feed] = {}
        self._leaving: dict[str, Feed] = {}
        """Removed ones, until the host has ended their batches."""
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._idle: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._batches = 0
        self._make_processes = processes
        self._processes: Processes | None = None
        self._deposed: Callable[[], None] = lambda: None
        self._resigning = asyncio.Lock()
        self._suspects = Suspects()
        self._host_up = self._captures = False
        self._rules = capture_rules.EVERYTHING
        self._kept_wide: list[tuple[float, CaptureRules]] = []
        self._creating = asyncio.Lock()
        self._started_at = time.time()
        self._liveness = 0
        self._cluster_id = ""
        self._id = ""

    async def _start_capture(self, start_ts: int | None, *more: ChangefeedConfig) -> None:
        """`more`: of a changefeed that is about to be created."""
        self._captures = True
        assert self._processes is not None
        if not self._options.own_rules:
            self._rules = await asyncio.to_thread(self._wanted_rules, *more)
            await asyncio.to_thread(self._write_rules)
        self._processes.start_capture(start_ts, self._resolved_ts, None if self._options.own_rules else self._rules_file)

    # ---- which tables are captured

    @property
    def _rules_file(self) -> Path:
        return self._options.data_dir / "capture.toml"

    def _write_rules(self) -> None:
        durable.write(self._rules_file, capture_rules.toml(self._rules).encode(), sync=False)

    async def _widen(self, config: ChangefeedConfig) -> tuple[float, CaptureRules]:
        """Let the capture take the tables of a changefeed that is to begin at a given ts at once, before all that may take a while: the
        log must not pass that ts without them. It goes on taking them for WIDE_S if the changefeed is refused, so that a request that is
        mended and sent again finds them in the log. Returns the entry of `_kept_wide`."""
        kept = time.monotonic() + WIDE_S, capture_rules.of_config(config)
        async with self._creating:
            self._kept_wide.append(kept)
            await self._capture_for()
        return kept

    async def _narrow(self) -> None:
        """Let the capture take no more what was kept for WIDE_S, and wanted by no changefeed since."""
        kept = [one for one in self._kept_wide if one[0] > time.monotonic()]
        if len(kept) < len(self._kept_wide):
            self._kept_wide = kept
            await self._capture_for()

    def _wanted_rules(self, *more: ChangefeedConfig) -> CaptureRules:
        """What the changefeeds want; and what the log has now, if it is also for changefeeds of others."""
        wanted = [capture_rules.of_config(config) for config in (*(feed.config for feed in self._feeds.values()), *more)]
        wanted += [rules for _, rules in self._kept_wide]
        if log_exists(self._options.log):
            reader = LogReader(self._options.log)
            if not wanted or any(not is_replay(name) for name in reader.feeds().keys() - self._feeds.keys()):
                wanted.append(capture_rules.newest(reader.identity))
        return capture_rules.union(wanted)

    async def _capture_for(self, *more: ChangefeedConfig) -> None:
        """Let the capture take what the changefeeds want now: it is started again if that is something else than before."""
        if self._options.own_rules or not self._captures or self._processes is None:
            return
        wanted = await asyncio.to_thread(self._wanted_rules, *more)
        if wanted == self._rules:
            return
        self._rules = wanted
        await asyncio.to_thread(self._write_rules)
        log.info("the capture starts again, for the tables %s", ", ".join(wanted.rules))
        self._processes.restart_capture()

    async def _captured(self) -> None:
        """Wait until the log has the rules that the capture was given last. Raises CaptureNotReady."""
        try:
            async with asyncio.timeout(RULES_WITHIN_S):
                while not await asyncio.to_thread(self._has_rules):
                    await asyncio.sleep(RULES_POLL_S)
        except TimeoutError:
            raise CaptureNotReady(
                f"the capture does not take the tables of this changefeed within {RULES_WITHIN_S:.0f} s",
                hint="Its log says why. Try again.",
            ) from None

    async def _backfilled(self, from_ts: int) -> str:
        """Let the capture read what the tables that it took last changed since a ts that the log has passed. Return why that is not so;
        empty: it is."""
        storage = await asyncio.to_thread(lambda: LogReader(self._options.log).storage)
        name = f"backfill-{from_ts}"
        await asyncio.to_thread(answered, storage, name)  # to an earlier request
        await asyncio.to_thread(ask_backfill, storage, name, from_ts)
        try:
            async with asyncio.timeout(RULES_WITHIN_S):
                while (answer := await asyncio.to_thread(answered, storage, name)) is None:
                    await asyncio.sleep(RULES_POLL_S)
        except TimeoutError:
            return f"the capture has not read that within {RULES_WITHIN_S:.0f} s, and goes on reading: ask again"
        return str(answer.get("error", ""))

    def _has_rules(self) -> bool:
        if not log_exists(self._options.log):
            return False
        found = capture_rules.newest(LogReader(self._options.log).identity)
        return (found.rules, found.case_sensitive) == (self._rules.rules, self._rules.case_sensitive)

    def _resolved_ts(self) -> int:
        return capture_status(self._options.data_dir / "capture").resolved_ts

    def _heard(self, line: bytes) -> None:
        try:
            self._take_in(parse(line))
        except (MalformedMessage, KeyError, TypeError, ValueError) as error:  # a host of another version
            log.error("a report of the delivery host is not understood (%s); the host is started again: %r", error, line[:200])
            self._restart_host()

    def _restart_host(self) -> None:
        if self._processes is not None:
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
        name = str(found.get("feed"))
        leaving = self._leaving.get(name)
        if leaving is not None and word == "ended" and found.get("run") == leaving.life.run:
            self._gone(leaving, found)
            return
        feed = self._feeds.get(name)
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

    def _gone(self, feed: Feed, found: Mapping[str, Any]) -> None:
        """A removed one has ended: nothing of it is written down any more."""
        feed.figures = replace(feed.figures, checkpoint_ts=found.get("checkpoint_ts", feed.checkpoint_ts))
        feed.life.stopped()
        self._idle[feed.id].set()

    def _host_lost(self, why: str, crashed: bool) -> None:
        self._host_up = False
        for feed in self._leaving.values():
            self._gone(feed, {})
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
        if self._host_up and self._processes is not None and not self._processes.tell_host(line):
            log.warning("the delivery host takes no commands; it is started again")
            self._restart_host()

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

    def _save_state(self, feed: Feed) -> None:
        self._spawn(self._write(feed.id, lambda: self._files.save_state(feed)))

    async def _must(self, work: Callable[[], T]) -> T:
        """Do something with files in a thread. Raises what it raises; NotOwner and Fenced end this server's term."""
        try:
            return await asyncio.to_thread(work)
        except (NotOwner, Fenced):
            self._deposed()
            raise

    async def _write(self, feed: str, work: Callable[[], T]) -> T | None:
        """Do something with a changefeed's files, after all that was asked for before. A failure is logged: the next write has it too."""
        async with self._writing[feed]:
            try:
                return await asyncio.to_thread(work)
            except NotOwner as error:
                log.warning("the state of changefeed %s is not this server's to change: %s", feed, error)
                self._deposed()
                return None
            except TidemillError as error:
                log.warning("the state of changefeed %s cannot be written now: %s", feed, error)
                return None

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
