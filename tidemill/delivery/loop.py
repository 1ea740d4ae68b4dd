"""The batches of a changefeed, one after the other, in a thread of the process that delivers: the clock says where the next one ends, the
batch driver delivers it.

No offset log is needed beside the fence and the checkpoint. The fence has the interval of a batch before any of it is delivered, so a batch
that is begun again after a crash has the same interval. What is delivered is what the checkpoint says.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidemill.delivery.batch import BatchDriver, Save
from tidemill.delivery.clock import Clock
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.failures import Stopped
from tidemill.delivery.position import SavedPosition
from tidemill.errors import LogUnavailable
from tidemill.tso import describe

log = logging.getLogger(__name__)

FIRST_AWAY_S, LONGEST_AWAY_S = 1.0, 30.0
"""Seconds between two looks at storage that is away."""
PASSED_S = 30.0
"""For how long empty intervals are passed over without a batch: so old may the durable checkpoint be while nothing happens."""


class Heads(Protocol):
    """Waits for the log to grow."""

    def wait(self, ts: int, seconds: float) -> None:
        """Return when the log is complete up to a ts, after some seconds, or when the changefeed is to stop."""


@dataclass(frozen=True, slots=True)
class Passing:
    """What is done about empty intervals. Their resolved events are sent, their end is in memory only."""

    on_pass: Callable[[Report], None] = lambda report: None
    """Called for each."""
    keep_every_s: float = float("inf")
    """After so many seconds their end is made durable."""


def deliver(
    driver: BatchDriver,
    clock: Clock,
    heads: Heads,
    begin: SavedPosition,
    *,
    target_ts: int | None,
    save: Save,
    passing: Passing = Passing(),
    on_away: Callable[[LogUnavailable], None] = lambda error: None,
    check: Callable[[], None] = lambda: None,
) -> bool:
    """Deliver from `begin` until the target is reached (True) or the driver's stop event is set (False). `on_away`: called when the log's
    storage cannot be reached. `check`: called between batches, and when a batch cannot run at all because Spark did not start; raises what
    ends the delivery. Raises what ended a batch."""
    driver.keep_checkpoint(begin, target_ts, save)
    try:
        _deliver(driver, clock, heads, begin, passing, on_away, check)
    except Stopped:
        if not driver.reached and not driver.stop.is_set():
            check()
        return driver.reached
    driver.keep()
    return driver.reached


def _deliver(
    driver: BatchDriver,
    clock: Clock,
    heads: Heads,
    begin: SavedPosition,
    passing: Passing,
    on_away: Callable[[LogUnavailable], None],
    check: Callable[[], None],
) -> None:
    number, away_s = 0, 0.0
    batch_at = kept_at = float("-inf")  # when the last batch ended, when its end or that of passed intervals was made durable
    while not driver.reached and not driver.over and not driver.stop.is_set():
        check()
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
        may_pass = time.monotonic() - batch_at < PASSED_S and not clock.stops_for_sink
        report = driver.pass_over(number, at, end) if may_pass else None
        if report is None:
            driver.deliver(number, at, end)
            batch_at = kept_at = time.monotonic()
        else:
            passing.on_pass(report)
            if time.monotonic() - kept_at >= passing.keep_every_s:
                driver.keep()
                kept_at = time.monotonic()
        number += 1
