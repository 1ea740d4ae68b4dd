"""What the log keeps for the changefeeds of the server: each registers in it, from its checkpoint on."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from tidemill import tso
from tidemill.changelog import feeds as log_feeds
from tidemill.changelog.files.bounds import is_covered, saved_begin
from tidemill.changelog.reader import existing_log
from tidemill.config.file import ChangefeedConfig
from tidemill.errors import Fenced, StartTsOutOfLog, TidemillError, redact
from tidemill.server import errors as e
from tidemill.server.changefeeds.capture_control import CaptureControl
from tidemill.server.changefeeds.feed_store import FeedStore
from tidemill.server.changefeeds.tables import Tables
from tidemill.server.feeds import Feed

log = logging.getLogger(__name__)


class LogClaims:
    """Claims of changefeeds on one log."""

    def __init__(self, log: str, feeds: FeedStore, capture: CaptureControl, tables: Tables) -> None:
        self._log, self._feeds, self._capture, self._tables = log, feeds, capture, tables

    async def claim(self, feed: Feed, *more: ChangefeedConfig, at: tso.SavedTs | None = None) -> None:
        """Let the log keep what lies above its checkpoint, or above `at`; begin one there if there is none. Raises StartTsBeforeLog."""
        released, feed.released = feed.released, False
        try:
            await self._claim(feed, *more, at=at)
        except TidemillError:
            feed.released = released
            raise

    async def _claim(self, feed: Feed, *more: ChangefeedConfig, at: tso.SavedTs | None) -> None:
        epoch = await self._feeds.commit(partial(self._feeds.files.epoch, feed))
        ts = await asyncio.to_thread(self._feeds.files.saved, feed) if at is None else at
        await self.check_covers(ts)
        if not self._capture.started:
            await self._capture.start(ts, *more)
            return
        try:
            await asyncio.to_thread(register, self._log, feed.id, ts, epoch)
        except StartTsOutOfLog as error:
            raise e.StartTsBeforeLog(error.message, hint="Choose a later ts.") from error
        except Fenced:
            log.debug("changefeed %s ends a batch, and lets the log keep what it needs", feed.id)

    async def claim_again(self, feed: Feed, at: tso.SavedTs | None = None) -> None:
        """Let the log keep what a changefeed that did not run needs. One that is removed meanwhile must not hold it. Raises as `claim`,
        and ChangefeedNotExists."""
        await self.claim(feed, at=at)
        if feed.id not in self._feeds.present:
            await self.release(feed)
        self._feeds.check_present(feed)

    async def release(self, feed: Feed) -> None:
        """Let the log keep nothing for it."""
        await self._feeds.write(feed.id, lambda: log_feeds.remove(self._log, feed.id))

    async def check_covers(self, ts: int) -> None:
        """Raises StartTsBeforeLog if the log does not have what lies above `ts`, or one that begins now could not."""
        if not self._capture.started:
            await self._tables.check_history(ts)
            return
        reader = await asyncio.to_thread(existing_log, self._log)
        if reader is not None and not await asyncio.to_thread(is_covered, reader, ts):
            await self._tables.check_history(ts)
            raise e.StartTsBeforeLog(
                f"the log {redact(reader.location)} begins at {tso.describe(reader.start_ts)}, {tso.describe(ts)} is before",
                hint="Choose a later ts.",
            )


def register(location: str, name: str, ts: tso.SavedTs, epoch: int = 0) -> None:
    """Register a changefeed, unless the capture is about to make the log: then it registers when it begins. Raises StartTsOutOfLog if the
    log has passed its ts meanwhile, Fenced if a driver of a later epoch has registered it."""
    reader = existing_log(location)
    if reader is not None:
        log_feeds.register(reader.storage, name, saved_begin(reader, ts), of=log_feeds.SERVER, epoch=epoch)
