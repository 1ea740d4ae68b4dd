"""What time does to changefeeds: --gc-ttl ends, storage comes back, a suspect's turn comes, refused requests are not mended."""

from __future__ import annotations

import asyncio
import logging
import time

from tidemill import tso
from tidemill.changelog.storage.steady import SteadyClock
from tidemill.server import errors as e
from tidemill.server.changefeeds.capture_control import CaptureControl
from tidemill.server.changefeeds.feed_store import FeedStore
from tidemill.server.changefeeds.hosting import Hosting
from tidemill.server.changefeeds.log_claims import LogClaims
from tidemill.server.feeds import Feed, due

log = logging.getLogger(__name__)

RECONCILE_EVERY_S = 60.0
"""How often what is registered in the log is held against the list of changefeeds."""
CHECK_EVERY_S = 5.0
"""How often the rest is checked."""


class Upkeep:
    """One task of the server that leads."""

    def __init__(self, gc_ttl: float, feeds: FeedStore, hosting: Hosting, capture: CaptureControl, claims: LogClaims) -> None:
        self._gc_ttl, self._feeds, self._hosting, self._capture, self._claims = gc_ttl, feeds, hosting, capture, claims

    async def run(self) -> None:
        """Fail changefeeds whose --gc-ttl is over, and let the log go on where nothing needs it any more, until cancelled."""
        reconcile_at, clock = time.monotonic() + RECONCILE_EVERY_S, SteadyClock()
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            await self._feeds.flush()
            if time.monotonic() >= reconcile_at:
                reconcile_at = time.monotonic() + RECONCILE_EVERY_S
                await self._feeds.reconcile()
            self._hosting.start_suspect()
            await self._capture.narrow()
            for feed in [*self._feeds.present.values()]:
                if due(feed, self._gc_ttl, clock()):
                    await self.expire(feed)

    async def expire(self, feed: Feed) -> None:
        """Fail a changefeed, and let the log go on without it."""
        at = tso.describe(feed.checkpoint_ts)
        error = e.LogNotKept(
            f"changefeed {feed.id} stands at {at}, longer than gc-ttl ({self._gc_ttl:.0f} s): the log is no longer kept for it",
            hint="Resume it while the log still holds that ts; else with overwrite_checkpoint_ts, or create another changefeed.",
        )
        log.error("%s: %s", error.code, error)
        self._hosting.carry_out(feed, feed.life.expired(error, time.time()))
        self._feeds.save_state(feed)
        feed.released = True
        await self._claims.release(feed)
