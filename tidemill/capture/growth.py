"""A log whose layout changes while it is captured: more partitions, or a hot table split over several, for the rows above a ts that all
folders have reached and none has passed.

`tidemill log grow` and `tidemill log split` leave a request in growth.json. The capture holds the schema stream at a ts a moment ahead, and
with it all rows. When every partition has got exactly there, it ends what it pulls, writes the new layout to log.json, and begins again
with it. So no partition ever has rows of two layouts to tell apart, and a crash at any moment leaves either layout whole. While a table
is held up nothing is held: the request waits.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from tidemill import tso
from tidemill.capture.heads import durable_heads
from tidemill.changelog.layout import GROWTH, LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.spread import SplitTable, whole
from tidemill.changelog.storage.open import Storage
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.writer import LogWriter
from tidemill.errors import LogError, UpstreamUnavailable

ERROR = "error"
LOOK_EVERY = 2.0
POLL = 0.05
AHEAD_MS = 2000
"""No folder has got as far as this when it is held: a resolved ts comes from the cluster's past."""
CLOSE_MS = 10_000
"""Partitions that are further behind the present would keep the others waiting."""
HOLD_S, REST_S = 30.0, 60.0
"""So long all partitions wait for the slowest, and so long nobody tries again where that was in vain."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """What growth.json asks for: so many partitions, or a table over so many of them."""

    partitions: int = 0
    table: str = ""
    over: int = 0
    layouts: int = 0  # that log.json had when a split was asked for: with more of them it is done

    def __str__(self) -> str:
        return f"{self.table} over {self.over} partitions" if self.table else f"to {self.partitions} partitions"

    def is_done(self, identity: LogIdentity) -> bool:
        """Whether the log is laid out so already, by a change after the request was left."""
        if not self.table:
            return self.partitions == identity.partitions
        over = next((len(one.partitions) for one in identity.layout.split_tables if one.name.lower() == self.table.lower()), 1)
        return len(identity.layouts) > self.layouts and over == self.over

    def check(self, identity: LogIdentity) -> None:
        """Raises LogError, saying why that cannot be."""
        if self.table:
            identity.check_split(self.over)
        else:
            identity.check_growth(self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """As growth.json has it."""
        split = {"table": self.table, "over": self.over, "layouts": self.layouts}
        return {"split": split} if self.table else {"partitions": self.partitions}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Request:
        """Raises KeyError, TypeError, ValueError."""
        if "split" not in fields:
            return cls(partitions=whole(fields["partitions"]))
        split = fields["split"]
        if not split["table"] or not whole(split["over"]):
            raise ValueError("a split names a table, and one partition or more")
        return cls(table=str(split["table"]), over=whole(split["over"]), layouts=whole(split["layouts"]))


@dataclass(frozen=True, slots=True)
class Change:
    """The next layout of a log: what a request has become."""

    partitions: int = 0
    split: SplitTable | None = None
    gathered: int = 0  # id of a table that is to be in one partition again

    def of(self, identity: LogIdentity, ts: int) -> LogIdentity:
        """The log with it. Raises LogError."""
        if self.split is not None:
            return identity.spread(ts, self.split)
        return identity.gathered(ts, self.gathered) if self.gathered else identity.grown(ts, self.partitions)


class Settled(Exception):
    """Not an error: all folders are complete up to exactly `ts`, and stay there. What is pulled has to end: the layout is to change."""

    def __init__(self, ts: int, change: Change) -> None:
        super().__init__(f"another layout from {ts} on")
        self.ts, self.change = ts, change


@dataclass(frozen=True, slots=True)
class Folders:
    """What a change of the layout asks of a capture. `heads`: of the schema stream and of all partitions; `hold`: none passes a ts any
    more, or, without one, all go on; `split`: how a table by that name is to be split over so many partitions."""

    identity: Callable[[], LogIdentity]
    heads: Callable[[], list[int]]
    hold: Callable[[int | None], None]
    now: Callable[[], Awaitable[int]]
    split: Callable[[str, int], Awaitable[Change]]


def ask(storage: Storage, request: Request) -> None:
    """Leave a request. The one before, if it is still there, is replaced."""
    storage.replace(GROWTH, json.dumps(request.to_dict()).encode())


def refusal(storage: Storage) -> str | None:
    """Why a request was refused."""
    error = (_fields(storage) or {}).get(ERROR)
    return None if error is None else str(error)


def requested(storage: Storage) -> Request | None:
    """What is asked for and not refused yet."""
    if storage.read(GROWTH) is None:
        return None
    try:
        fields = _fields(storage) or {}
        return None if ERROR in fields else Request.from_dict(fields)
    except (KeyError, ValueError, TypeError):
        _log.warning("%s is removed: it does not say what `tidemill log grow` and `split` write there", storage.path(GROWTH))
        storage.delete(GROWTH)
        return None


def _fields(storage: Storage) -> dict[str, Any] | None:
    """Return what growth.json says; None if there is none, or if it is not a JSON object."""
    data = storage.read(GROWTH)
    try:
        fields = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def change_layout(writer: LogWriter, settled: Settled) -> None:
    """Give the log its new layout: all that pulled has ended. Where a folder is elsewhere after all, the request stays for another try."""
    found = durable_heads(LogReader(writer.storage))
    if any(head != settled.ts for head in found):
        _log.warning("the log keeps its layout: its folders are at %s, not all at %d", sorted(set(found)), settled.ts)
        return
    writer.set_identity(settled.change.of(writer.identity, settled.ts))
    request = requested(writer.storage)
    if request is not None and request.is_done(writer.identity):  # another one, left meanwhile, waits for its turn
        writer.storage.delete(GROWTH)
    layout = writer.identity.layout
    split = ", ".join(f"{one.name} over {list(one.partitions)}" for one in layout.split_tables)
    _log.info("the log has %d partitions from %s on%s", layout.partitions, tso.describe(settled.ts), f"; split: {split}" if split else "")


class Growth:
    """Sees to requests. `text` tells what is done about one, for the status."""

    def __init__(self, storage: Storage, retry: StorageRetry, folders: Folders) -> None:
        self._storage, self._retry, self._folders = storage, retry, folders
        self.text = ""

    async def run(self) -> NoReturn:
        """For ever; raises Settled when the layout may change."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            request = await self._retry.in_thread(partial(requested, self._storage))
            try:
                change = None if request is None else await self._change(request)
                if request is None or change is None:
                    self.text = ""
                else:
                    await self._settle(request, change)
            except UpstreamUnavailable as e:
                self.text = f"{request}; PD is away: {e.message}"

    async def _change(self, request: Request) -> Change | None:
        """What the request comes to; None: nothing is to be done. It is told where that cannot be."""
        identity = self._folders.identity()
        if request.is_done(identity):
            await self._retry.in_thread(partial(self._storage.delete, GROWTH))
            return None
        try:
            request.check(identity)
            return await self._folders.split(request.table, request.over) if request.table else Change(request.partitions)
        except LogError as e:
            _log.warning("the log keeps its layout: %s", e.message)
            answer = json.dumps({**request.to_dict(), ERROR: e.message}).encode()
            await self._retry.in_thread(partial(self._storage.replace, GROWTH, answer))
            return None

    async def _settle(self, request: Request, change: Change) -> None:
        """Bring all folders to one ts. Raises Settled."""
        folders = self._folders
        now = await folders.now()
        behind = tso.physical_ms(now) - tso.physical_ms(min(folders.heads()))
        if behind > CLOSE_MS:
            self.text = f"{request}, once all partitions are less than {CLOSE_MS // 1000} s behind; now {behind / 1000:.0f} s"
            return
        ts = now + (AHEAD_MS << tso.LOGICAL_BITS)
        self.text = f"{request}, from {tso.describe(ts)} on"
        _log.info("the layout of the log changes: %s", self.text)
        folders.hold(ts)
        try:
            async with asyncio.timeout(HOLD_S):
                while min(folders.heads()) < ts:
                    await asyncio.sleep(POLL)
        except TimeoutError:
            self.text = f"{request}; one was held up meanwhile, it is tried again"
            _log.warning("the log keeps its layout for now: a partition has not got to %s within %.0f s", tso.describe(ts), HOLD_S)
        else:
            if max(folders.heads()) == ts:
                raise Settled(ts, change)
        folders.hold(None)
        await asyncio.sleep(REST_S)
