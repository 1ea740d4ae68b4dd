"""The capture of the server that leads: started, and given the tables that the changefeeds want.

`capture_rules.py` decides which tables those are. The capture takes them as a command while it runs, and says from when on it has them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from tidemill.capture.initial_load import answered, ask_backfill
from tidemill.capture.rule_changes import Numbered, rules_in
from tidemill.capture.status import CaptureStatus
from tidemill.changelog.feeds import is_passing
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.reader import LogReader, existing_log
from tidemill.config.file import ChangefeedConfig
from tidemill.errors import MalformedMessage
from tidemill.server.changefeeds import capture_rules
from tidemill.server.changefeeds.feed_store import FeedStore
from tidemill.server.errors import CaptureNotReady
from tidemill.server.options import ServerOptions
from tidemill.server.status import capture_status
from tidemill.server.this_server import ThisServer

log = logging.getLogger(__name__)

RULES_WITHIN_S = 60.0
"""How long the capture may take to take other tables, or to read what they changed before."""
ANSWER_POLL_S = 0.2
"""How often the log is looked at for what it has read."""

WIDE_S = 600.0
"""For so long the capture goes on taking the tables of a changefeed that was refused."""

Kept = tuple[float, CaptureRules]
"""Rules that the capture keeps without a changefeed, and until when."""


class CaptureControl:
    """The capture, and which tables it takes."""

    def __init__(self, options: ServerOptions, server: ThisServer, feeds: FeedStore) -> None:
        self._options, self._server, self._feeds = options, server, feeds
        self.creating = asyncio.Lock()
        """Held while a changefeed is created: what the others want must not change the capture's rules meanwhile."""
        self._started = False
        self._rules = capture_rules.EVERYTHING
        self._number = 0
        """Of the last command with rules."""
        self._taken: Numbered | None = None
        """What the capture has said that it takes, and from when on."""
        self._told = asyncio.Event()
        self._kept_wide: list[Kept] = []

    @property
    def started(self) -> bool:
        """False: the log begins where the first changefeed does."""
        return self._started

    @property
    def follows_changefeeds(self) -> bool:
        """Whether it runs, and takes the tables that changefeeds want; else those of --capture-config."""
        return self._started and not self._options.own_rules

    async def start(self, start_ts: int | None, *more: ChangefeedConfig) -> None:
        """`more`: of a changefeed that is about to be created."""
        self._started = True
        assert self._server.processes is not None
        if not self._options.own_rules:
            self._rules = await asyncio.to_thread(self._wanted_rules, *more)
        rules = None if self._options.own_rules else self._rules
        self._server.processes.start_capture(start_ts, self.resolved_ts, rules, self._heard)

    def ended(self) -> None:
        """The term is over, and the capture with it."""
        self._started, self._taken, self._number = False, None, 0

    def _heard(self, line: bytes) -> None:
        try:
            self._taken = rules_in(line) or self._taken
        except MalformedMessage as error:
            log.error("%s", error)
        self._told.set()

    # ---- how far it is

    def status(self) -> CaptureStatus:
        """What it last wrote about itself."""
        return capture_status(self._options.data_dir / "capture")

    def resolved_ts(self) -> int:
        return self.status().resolved_ts

    # ---- which tables it takes

    async def widen(self, config: ChangefeedConfig) -> Kept:
        """Let the capture take the tables of a changefeed that is to begin at a given ts at once, before all that may take a while: the
        log must not pass that ts without them. It goes on taking them for WIDE_S if the changefeed is refused, so that a request that is
        mended and sent again finds them in the log. Returns what `created` takes back."""
        kept = time.monotonic() + WIDE_S, capture_rules.of_config(config)
        async with self.creating:
            self._kept_wide.append(kept)
            await self.take_wanted()
        return kept

    def created(self, kept: Kept) -> None:
        """The changefeed is there, and wants by itself what was kept for it."""
        self._kept_wide.remove(kept)

    async def narrow(self) -> None:
        """Let the capture take no more what was kept for WIDE_S, and wanted by no changefeed since."""
        async with self.creating:
            kept = [(until, rules) for until, rules in self._kept_wide if until > time.monotonic()]
            if len(kept) < len(self._kept_wide):
                self._kept_wide = kept
                await self.take_wanted()

    def _wanted_rules(self, *more: ChangefeedConfig) -> CaptureRules:
        """What the changefeeds want; and what the log has now, if it is also for changefeeds of others."""
        present = self._feeds.present
        wanted = [capture_rules.of_config(config) for config in (*(feed.config for feed in present.values()), *more)]
        wanted += [rules for _, rules in self._kept_wide]
        reader = existing_log(self._options.log)
        if reader is not None and (not wanted or any(not is_passing(name) for name in reader.feeds().keys() - present.keys())):
            wanted.append(capture_rules.newest(reader.identity))
        return capture_rules.union(wanted)

    async def take_wanted(self, *more: ChangefeedConfig) -> None:
        """Let the capture take what the changefeeds want now."""
        if not self.follows_changefeeds or self._server.processes is None:
            return
        wanted = await asyncio.to_thread(self._wanted_rules, *more)
        if wanted == self._rules:
            return
        self._rules = wanted
        log.info("the capture is to take the tables %s", ", ".join(wanted.rules))
        self._number += 1
        self._server.processes.set_rules(Numbered(self._number, wanted))

    async def until_taken(self) -> int:
        """Wait until the capture has the rules that it was given last. Return the ts from which on they hold. Raises CaptureNotReady."""
        try:
            async with asyncio.timeout(RULES_WITHIN_S):
                while (taken := self._taken) is None or taken.number < self._number:
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            raise CaptureNotReady(
                f"the capture does not take the tables of this changefeed within {RULES_WITHIN_S:.0f} s",
                hint="Its log says why. Try again.",
            ) from None
        return taken.rules.from_ts

    async def lacking(self, ts: int, config: ChangefeedConfig, tables: Sequence[Any]) -> list[str]:
        """Return the names of tables that a changefeed wants from a ts on, and that the log does not have from there on. Raises
        CaptureNotReady."""
        if self._number > (self._taken.number if self._taken is not None else 0):
            await self.until_taken()  # what the log says now is about to change
        return await asyncio.to_thread(self._lacking, ts, config, tables)

    def _lacking(self, ts: int, config: ChangefeedConfig, tables: Sequence[Any]) -> list[str]:
        reader = existing_log(self._options.log)
        return [] if reader is None else capture_rules.lacking(reader.identity, ts, config.table_filter(), tables)

    async def backfill(self, from_ts: int) -> str:
        """Let the capture read what the tables that it took last changed since a ts that the log has passed. Return why that is not so;
        empty: it is."""
        storage = await asyncio.to_thread(lambda: LogReader(self._options.log).storage)
        name = f"backfill-{from_ts}"
        await asyncio.to_thread(answered, storage, name)  # to an earlier request
        await asyncio.to_thread(ask_backfill, storage, name, from_ts)
        try:
            async with asyncio.timeout(RULES_WITHIN_S):
                while (answer := await asyncio.to_thread(answered, storage, name)) is None:
                    await asyncio.sleep(ANSWER_POLL_S)
        except TimeoutError:
            return f"the capture has not read that within {RULES_WITHIN_S:.0f} s, and goes on reading: ask again"
        return str(answer.get("error", ""))
