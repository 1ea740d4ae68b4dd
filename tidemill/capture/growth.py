"""A log that grows while it is captured: more partitions for the rows above a ts that all folders have reached and none has passed.

`tidemill log grow` leaves its wish in growth.json. The capture holds the schema stream at a ts a moment ahead, and with it all rows. When
every partition has got exactly there, it ends what it pulls, writes the new layout to log.json, and begins again with it. So no partition
ever has rows of two layouts to tell apart, and a crash at any moment leaves either layout whole. While a table is held up nothing is
held: the wish waits.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from tidemill import tso
from tidemill.capture.heads import durable_heads
from tidemill.changelog.layout import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import Storage
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.writer import LogWriter
from tidemill.errors import LogError, UpstreamUnavailable

FILE = "growth.json"
PARTITIONS, ERROR = "partitions", "error"
LOOK_EVERY = 2.0
POLL = 0.05
AHEAD_MS = 2000
"""No folder has got as far as this when it is held: a resolved ts comes from the cluster's past."""
CLOSE_MS = 10_000
"""Partitions that are further behind the present would keep the others waiting."""
HOLD_S, REST_S = 30.0, 60.0
"""So long all partitions wait for the slowest, and so long nobody tries again where that was in vain."""

_log = logging.getLogger(__name__)


class Settled(Exception):
    """Not an error: all folders are complete up to exactly `ts`, and stay there. What is pulled has to end, because the log is to grow."""

    def __init__(self, ts: int, partitions: int) -> None:
        super().__init__(f"{partitions} partitions from {ts} on")
        self.ts, self.partitions = ts, partitions


@dataclass(frozen=True, slots=True)
class Folders:
    """What growing asks of a capture. `heads`: of the schema stream and of all partitions; `hold`: none passes a ts any more, or, without
    one, all go on."""

    identity: Callable[[], LogIdentity]
    heads: Callable[[], list[int]]
    hold: Callable[[int | None], None]
    now: Callable[[], Awaitable[int]]


def ask(storage: Storage, partitions: int) -> None:
    """Leave the wish that a log had so many partitions."""
    storage.replace(FILE, json.dumps({PARTITIONS: partitions}).encode())


def refusal(storage: Storage) -> str | None:
    """Why a wish was refused."""
    data = storage.read(FILE)
    return None if data is None else json.loads(data).get(ERROR)


def wish(storage: Storage) -> int | None:
    """How many partitions are wished for; None: no more than there are."""
    data = storage.read(FILE)
    try:
        fields = json.loads(data) if data is not None else {}
        return int(fields[PARTITIONS]) if ERROR not in fields and PARTITIONS in fields else None
    except (ValueError, TypeError):
        _log.warning("%s is no wish of `tidemill log grow`; it is removed", storage.path(FILE))
        storage.delete(FILE)
        return None


def grow(writer: LogWriter, settled: Settled) -> bool:
    """Give the log its new layout: all that pulled has ended. Always True: where a folder is elsewhere after all, it is tried again."""
    found = durable_heads(LogReader(writer.storage))
    if any(head != settled.ts for head in found):
        _log.warning("the log does not grow: its folders are at %s, not all at %d", sorted(set(found)), settled.ts)
        return True
    writer.set_identity(writer.identity.grown(settled.ts, settled.partitions))
    writer.storage.delete(FILE)
    _log.info("the log has %d partitions from %s on", settled.partitions, tso.describe(settled.ts))
    return True


class Growth:
    """Sees to wishes. `text` tells what is done about one, for the status."""

    def __init__(self, storage: Storage, retry: StorageRetry, folders: Folders) -> None:
        self._storage, self._retry, self._folders = storage, retry, folders
        self.text = ""

    async def run(self) -> NoReturn:
        """For ever; raises Settled when the log may grow."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            partitions = await self._retry.in_thread(partial(wish, self._storage))
            if partitions is None or not await self._fits(partitions):
                self.text = ""
                continue
            try:
                await self._settle(partitions)
            except UpstreamUnavailable as e:
                self.text = f"to {partitions} partitions; PD is away: {e.message}"

    async def _fits(self, partitions: int) -> bool:
        identity = self._folders.identity()
        if partitions == identity.partitions:  # done, before a crash
            await self._retry.in_thread(partial(self._storage.delete, FILE))
            return False
        try:
            identity.check_growth(partitions)
        except LogError as e:
            _log.warning("the log does not grow: %s", e.message)
            answer = json.dumps({PARTITIONS: partitions, ERROR: e.message}).encode()
            await self._retry.in_thread(partial(self._storage.replace, FILE, answer))
            return False
        return True

    async def _settle(self, partitions: int) -> None:
        """Bring all folders to one ts. Raises Settled."""
        folders = self._folders
        now = await folders.now()
        behind = tso.physical_ms(now) - tso.physical_ms(min(folders.heads()))
        if behind > CLOSE_MS:
            self.text = (
                f"to {partitions} partitions, once all partitions are less than {CLOSE_MS // 1000} s behind; now {behind / 1000:.0f} s"
            )
            return
        ts = now + (AHEAD_MS << tso.LOGICAL_BITS)
        self.text = f"to {partitions} partitions, from {tso.describe(ts)} on"
        _log.info("the log grows %s", self.text)
        folders.hold(ts)
        try:
            async with asyncio.timeout(HOLD_S):
                while min(folders.heads()) < ts:
                    await asyncio.sleep(POLL)
        except TimeoutError:
            self.text = f"to {partitions} partitions; one was held up meanwhile, it is tried again"
            _log.warning("the log does not grow now: a partition has not got to %s within %.0f s", tso.describe(ts), HOLD_S)
        else:
            if max(folders.heads()) == ts:
                raise Settled(ts, partitions)
        folders.hold(None)
        await asyncio.sleep(REST_S)
