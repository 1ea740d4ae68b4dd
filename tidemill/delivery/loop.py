"""The batches of a changefeed, one after the other, in a thread of the process that delivers: the clock says where the next one ends, the
batch driver delivers it.

No offset log is needed beside the fence and the checkpoint. The fence has the interval of a batch before any of it is delivered, so a batch
that is begun again after a crash has the same interval. What is delivered is what the checkpoint says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from tidemill.delivery.batch import BatchDriver
from tidemill.delivery.clock import Clock
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.failures import Stopped
from tidemill.delivery.position import Position
from tidemill.errors import LogUnavailable
from tidemill.tso import describe

log = logging.getLogger(__name__)

FIRST_AWAY_S, LONGEST_AWAY_S = 1.0, 30.0
"""Seconds between two looks at storage that is away."""


class Heads(Protocol):
    """Waits for the log to grow."""

    def wait(self, ts: int, seconds: float) -> None:
        """Return when the log is complete up to a ts, after some seconds, or when the changefeed is to stop."""


def deliver(
    driver: BatchDriver,
    clock: Clock,
    heads: Heads,
    begin: Position,
    *,
    target_ts: int | None,
    save: Callable[[Report], None],
    on_away: Callable[[LogUnavailable], None] = lambda error: None,
) -> bool:
    """Deliver from `begin` until the target is reached (True) or the driver's stop event is set (False). `on_away`: called when the log's
    storage cannot be reached. Raises what ended a batch."""
    driver.keep_checkpoint(begin, target_ts, save)
    number, away_s = 0, 0.0
    while not driver.reached and not driver.over and not driver.stop.is_set():
        at = driver.delivered or begin
        try:
            end = clock.next(at)
        except LogUnavailable as error:
            on_away(error)
            away_s = min(LONGEST_AWAY_S, max(FIRST_AWAY_S, 2 * away_s))
            driver.stop.wait(away_s)
            continue
        away_s = 0.0
        if end == at:
            heads.wait(*clock.until_due(at))
            continue
        if not number:
            log.info("%s: the first batch since this start begins: up to %s", driver.feed, describe(end.furthest))
        try:
            driver.deliver(number, at, end)
        except Stopped:
            return driver.reached
        number += 1
    return driver.reached
