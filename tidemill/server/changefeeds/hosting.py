"""The delivery host of the server that leads: commands to it, its reports, what follows them in each changefeed's life.

Everything runs on one event loop. What a changefeed's life says (`life.py`) is carried out here.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill.changefeed.states import State
from tidemill.errors import MalformedMessage
from tidemill.process.orders import to_plain
from tidemill.server.changefeeds.feed_store import FeedStore
from tidemill.server.feeds import Feed
from tidemill.server.host.messages import Figures, command, figures_in, parse
from tidemill.server.life import HOST_LOST, Do
from tidemill.server.suspects import Suspects
from tidemill.server.this_server import ALIVE, ThisServer

log = logging.getLogger(__name__)

END_WITHIN_S = 25.0
"""How long a changefeed may take to end its batch when it is removed, or resumed from elsewhere."""


class Hosting:
    """Lets the host run what the changefeeds' lives say."""

    def __init__(self, server: ThisServer, feeds: FeedStore) -> None:
        self._server, self._feeds = server, feeds
        self._up = False
        self._idle: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._suspects = Suspects()
        self.batches = 0
        """How many reports came of a checkpoint that moved."""

    def start(self) -> None:
        """Start the host of this term."""
        assert self._server.processes is not None
        self._server.processes.start_host(self._on_report, self._on_host_lost)

    def ended(self) -> None:
        """The term is over, and the host with it."""
        self._up = False
        self.cancel_retries()

    def cancel_retries(self) -> None:
        """Start nothing again that waits."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # ---- what the rest of the server asks for

    def carry_out(self, feed: Feed, action: Do) -> None:
        """Do what the life of a changefeed says."""
        self._cancel_retry(feed)
        match action:
            case Do.START:
                self.begin(feed)
            case Do.STOP:
                self._send(command("stop", feed=feed.id))
            case Do.WAIT:
                pause = max(0.0, (feed.life.retry_at or 0.0) - time.time())
                self._timers[feed.id] = asyncio.get_running_loop().call_later(pause, self.begin, feed)
            case Do.NOTHING:
                pass

    def begin(self, feed: Feed) -> None:
        """Let the host run it, if it is to run and does not."""
        if not self._up or not feed.life.wanted or feed.life.runs or self._server.liveness != ALIVE:
            return  # the host starts what is to run when it is up
        if not self._suspects.may_start(feed.id, time.monotonic()):
            return
        retries = feed.life.state in (State.WARNING, State.PENDING)
        self._suspects.started(feed.id, time.monotonic())
        self._idle[feed.id].clear()
        self._send(command("start", feed=feed.id, run=feed.life.started(), retries=retries, settings=to_plain(feed.settings)))

    def start_suspect(self) -> None:
        """Let the host run a changefeed that may have killed it, if that disturbs no other one now."""
        feed = self._feeds.present.get(self._suspects.next_one(time.monotonic()) or "")
        if feed is not None:
            self.begin(feed)

    async def until_idle(self, feed: Feed) -> bool:
        """Wait until the host no longer runs it. Return whether that came in time."""
        try:
            async with asyncio.timeout(END_WITHIN_S):
                while feed.life.runs:
                    self._idle[feed.id].clear()
                    await self._idle[feed.id].wait()
        except TimeoutError:
            return False
        return True

    def clear_suspicion(self, feed: Feed) -> None:
        """It is paused or removed: what it did to the host counts no more."""
        self._suspects.forget(feed.id)

    def forget(self, feed: Feed) -> None:
        """It is removed, and idle."""
        self._idle.pop(feed.id, None)

    # ---- what the host says

    def _on_report(self, line: bytes) -> None:
        try:
            self._apply(parse(line))
        except (MalformedMessage, KeyError, TypeError, ValueError) as error:  # a host of another version
            log.error("a report of the delivery host is not understood (%s); the host is started again: %r", error, line[:200])
            self._restart_host()

    def _restart_host(self) -> None:
        if self._server.processes is not None:
            self._server.processes.restart_host()

    def _apply(self, report: Mapping[str, Any]) -> None:
        kind = report.get("is")
        if kind == "up":
            self._up = True
            for feed in sorted(self._feeds.present.values(), key=lambda feed: self._suspects.suspects(feed.id)):
                self.carry_out(feed, feed.life.host_up())
            return
        if kind == "progress":
            for name, figures in figures_in(report).items():
                self._progressed(self._feeds.present.get(name), figures)
            self.start_suspect()
            return
        name = str(report.get("feed"))
        leaving = self._feeds.leaving.get(name)
        if leaving is not None and kind == "ended" and report.get("run") == leaving.life.run:
            self._removed_ended(leaving, report)
            return
        current = self._feeds.present.get(name)
        if current is None or report.get("run") != current.life.run:
            return
        if kind in ("erred", "ended"):
            self._suspects.spoke(current.id)
        if kind == "erred":
            current.life.erred(report["code"], report["message"], time.time())
        elif kind == "ended":
            self._ended(current, report)

    def _progressed(self, feed: Feed | None, figures: Figures) -> None:
        if feed is None or figures.run != feed.life.run:
            return
        feed.figures = figures
        self._suspects.advanced(feed.id)
        self.batches += 1
        if feed.life.advanced(figures.moved_at):
            self._feeds.save_state(feed)

    def _ended(self, feed: Feed, report: Mapping[str, Any]) -> None:
        life, before = feed.life, feed.checkpoint_ts
        feed.figures = replace(feed.figures, checkpoint_ts=report.get("checkpoint_ts", before))
        if feed.checkpoint_ts > before:
            life.advanced(time.time())  # errors that came after it are in this report
        match report["how"]:
            case "reached":
                life.reached()
                action = Do.NOTHING
            case "stopped":
                action = life.stopped()
            case _:
                action = life.failed(
                    report["code"],
                    report["message"],
                    retryable=report["retryable"],
                    now=time.time(),
                    checkpoint=feed.checkpoint_ts,
                    trouble_since=report.get("trouble_since"),
                    chance=random.random(),
                )
                log.warning("changefeed %s is in state %s: %s: %s", feed.id, life.state, report["code"], report["message"])
        self._idle[feed.id].set()
        self._feeds.save_state(feed)
        self.carry_out(feed, action)

    def _removed_ended(self, feed: Feed, report: Mapping[str, Any]) -> None:
        """A removed one has ended: nothing of it is written down any more."""
        feed.figures = replace(feed.figures, checkpoint_ts=report.get("checkpoint_ts", feed.checkpoint_ts))
        feed.life.stopped()
        self._idle[feed.id].set()

    def _on_host_lost(self, why: str, crashed: bool) -> None:
        self._up = False
        for feed in self._feeds.leaving.values():
            self._removed_ended(feed, {})
        blamed = self._feeds.present.get(self._suspects.host_lost(crashed) or "")
        for feed in self._feeds.present.values():
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

    # ---- commands to it

    def _send(self, line: bytes) -> None:
        if self._up and self._server.processes is not None and not self._server.processes.tell_host(line):
            log.warning("the delivery host takes no commands; it is started again")
            self._restart_host()

    def _cancel_retry(self, feed: Feed) -> None:
        timer = self._timers.pop(feed.id, None)
        if timer is not None:
            timer.cancel()
