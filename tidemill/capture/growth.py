"""Changes the layout of a log while it is captured: more partitions, or a hot table split over several.

`tidemill log grow` and `tidemill log split` leave a request in growth.json. The capture then chooses a ts a moment ahead, at which the
schema stream stops, and with it all rows. Once every folder is complete up to exactly this ts, the capture ends its subscriptions, writes
the new layout to log.json, and begins again. So rows of two layouts never mix, and after a crash log.json has either the old layout or the
new one. While a table is held up, nothing is stopped: the request waits.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from tidemill import statefile, tso
from tidemill.capture.heads import durable_heads
from tidemill.capture.lifecycle import tick
from tidemill.changelog.log_format import GROWTH, SCHEMA, LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.spread import MAX_PARTITIONS, SplitTable
from tidemill.changelog.storage.flock import FolderLock
from tidemill.changelog.storage.open import Storage
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.storage.state_file import StateFile
from tidemill.changelog.writer import LogWriter
from tidemill.errors import LogCorrupt, LogError, UpstreamUnavailable, redact
from tidemill.statefile import Fields

ERROR, HINT = "error", "hint"
LOOK_EVERY = 2.0
POLL = 0.05
AHEAD_MS = 2000
"""How far ahead the chosen ts is. No folder is there yet, because a resolved ts comes from the cluster's past."""
CLOSE_MS = 10_000
"""How far behind the present a partition may be. One that is further behind would keep the others waiting."""
HOLD_S, REST_S = 30.0, 60.0
"""Seconds that all partitions wait for the slowest one; if it does not arrive, seconds until the next attempt."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """The request in growth.json: the log is to have `partitions`, or `table` is to be split over so many of them."""

    partitions: int = 0
    table: str = ""
    over: int = 0
    layouts: int = 0  # how many layouts log.json had when a split was requested

    def __post_init__(self) -> None:
        if bool(self.table) == bool(self.partitions):
            raise ValueError("a request names either a number of partitions or a table")

    def __str__(self) -> str:
        return f"{self.table} over {self.over} partitions" if self.table else f"to {self.partitions} partitions"

    def is_done(self, identity: LogIdentity) -> bool:
        """Whether the log has the requested layout. A split counts only if the layout has changed since the request."""
        if not self.table:
            return self.partitions == identity.partitions
        split = identity.layout.split_named(self.table)
        return len(identity.layouts) > self.layouts and (len(split.partitions) if split is not None else 1) == self.over

    def asks_the_same(self, other: Request) -> bool:
        """Whether both ask for the same, at whatever time."""
        return replace(self, layouts=0, table=self.table.lower()) == replace(other, layouts=0, table=other.table.lower())

    def check(self, identity: LogIdentity) -> None:
        """Raise LogError if the log cannot have this layout."""
        if self.table:
            identity.check_split(self.over)
        else:
            identity.check_growth(self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """As growth.json has it."""
        split = {"table": self.table, "over": self.over, "layouts": self.layouts}
        return {"split": split} if self.table else {"partitions": self.partitions}

    @classmethod
    def from_fields(cls, fields: Fields) -> Request:
        """Raises the error of the fields' file."""
        if "split" not in fields:
            return cls(partitions=fields.integer("partitions", 1, MAX_PARTITIONS))
        split = fields.part("split")
        if not (table := split.text("table")):
            raise split.broken("split.table is empty")
        return cls(table=table, over=split.integer("over", 1, MAX_PARTITIONS), layouts=split.integer("layouts"))


@dataclass(frozen=True, slots=True)
class Change:
    """A request, worked out: what is to change in the log's layout."""

    partitions: int = 0
    split: SplitTable | None = None
    gathered: int = 0  # id of a table that is to be in one partition again
    names: Mapping[int, str] | None = None  # of the split tables that are still there; None: of all, as log.json has them

    def of(self, identity: LogIdentity, ts: int) -> LogIdentity:
        """Return the log's identity with this change, for rows above `ts`. Split tables get their names now, and those that are gone are
        left out. Raises LogError."""
        if self.split is not None:
            changed = identity.spread(ts, self.split)
        else:
            changed = identity.gathered(ts, self.gathered) if self.gathered else identity.grown(ts, self.partitions)
        if self.names is None:
            return changed
        own = {self.split.table_id: self.split.name} if self.split is not None else {}
        return changed.with_names({**self.names, **own})


class Settled(Exception):
    """Not an error: it ends the capture's tasks. All folders are complete up to exactly `ts` and stay there, so the layout can change."""

    def __init__(self, ts: int, change: Change) -> None:
        super().__init__(f"another layout from {ts} on")
        self.ts, self.change = ts, change


@dataclass(frozen=True, slots=True)
class Folders:
    """The parts of a capture that a change of the layout needs. `heads`: those of the schema stream and of all partitions. `freeze_at(ts)`
    stops all of them at a ts; `freeze_at(None)` lets them go on. `split(name, n)` says how a table is divided over n partitions."""

    identity: Callable[[], LogIdentity]
    heads: Callable[[], list[int]]
    freeze_at: Callable[[int | None], None]
    now: Callable[[], Awaitable[int]]
    split: Callable[[str, int], Awaitable[Change]]
    names: Callable[[], Mapping[int, str]] = dict
    """The names of the log's split tables that are still there, by id."""


@dataclass(frozen=True, slots=True)
class Left:
    """What growth.json says: a request, and why the capture refuses it, if it does."""

    request: Request
    refusal: LogError | None = None


def ask(storage: Storage, request: Request) -> Request:
    """Leave a request. Returns the one that waits now: one that asks for the same may have been left before.

    Raises LogError if another one waits. One that was refused is replaced."""

    def decide(data: bytes | None) -> tuple[bytes | None, Request]:
        waiting = _waiting(data, storage)
        if waiting is None:
            return json.dumps(request.to_dict()).encode(), request
        if not waiting.asks_the_same(request):
            raise LogError(
                f"{redact(storage.location)}: another request for a layout waits for the capture: {waiting}",
                hint="Wait until it is done, or take it back with `tidemill log cancel`. Then ask again.",
            )
        return None, waiting

    return _in_one_step(storage, decide)


def cancel(storage: Storage) -> Request | None:
    """Take back the request that waits. Returns it; None if there is none."""
    waiting = _waiting(storage.read(GROWTH), storage)
    storage.delete(GROWTH)
    return waiting


def refuse(storage: Storage, request: Request, error: LogError) -> None:
    """Write down why the request cannot be done, unless it has been taken back meanwhile."""
    answer = json.dumps({**request.to_dict(), ERROR: error.message, HINT: error.hint}).encode()
    _in_one_step(storage, lambda data: (answer if _waiting(data, storage) == request else None, request))


def left(storage: Storage) -> Left | None:
    """What was asked for last, refused or not; None: nothing, or it cannot be read."""
    data = storage.read(GROWTH)
    try:
        return None if data is None else _parsed(data, storage)
    except LogCorrupt:
        return None


def refusal(storage: Storage) -> LogError | None:
    """Why a request was refused."""
    found = left(storage)
    return None if found is None else found.refusal


def requested(storage: Storage) -> Request | None:
    """What is asked for and not refused yet. What cannot be read is removed."""
    data = storage.read(GROWTH)
    try:
        found = None if data is None else _parsed(data, storage)
    except LogCorrupt as error:
        _log.warning("%s; it is removed: it does not say what `tidemill log grow` and `split` write there", error.message)
        storage.delete(GROWTH)
        return None
    return None if found is None or found.refusal is not None else found.request


def _parsed(data: bytes, storage: Storage) -> Left:
    fields = statefile.read(data, storage.path(GROWTH))
    refused = LogError(fields.text(ERROR), hint=fields.text(HINT, default="")) if ERROR in fields else None
    return Left(Request.from_fields(fields), refused)


def _waiting(data: bytes | None, storage: Storage) -> Request | None:
    """The request in growth.json that is not refused; None also for what cannot be read."""
    try:
        found = None if data is None else _parsed(data, storage)
    except LogCorrupt:
        return None
    return None if found is None or found.refusal is not None else found.request


def _in_one_step(storage: Storage, decide: Callable[[bytes | None], tuple[bytes | None, Request]]) -> Request:
    """Read growth.json, and write what `decide` makes of it (None: nothing). Nobody comes between, where the storage can prevent that."""
    asked: list[Request] = []

    def change(found: bytes | None) -> bytes | None:
        data, request = decide(found)
        asked.append(request)
        return data

    StateFile(storage, GROWTH, lock=FolderLock(storage.path(SCHEMA)) if storage.local else None).change(change)
    return asked[-1]


def change_layout(writer: LogWriter, settled: Settled) -> None:
    """Write the new layout, after all subscriptions have ended. If a folder is not at the settled ts after all, the layout stays, and the
    request waits for the next attempt."""
    found = durable_heads(LogReader(writer.storage))
    if any(head != settled.ts for head in found):
        _log.warning("the log keeps its layout: its folders are at %s, not all at %d", sorted(set(found)), settled.ts)
        return
    writer.change_identity(lambda identity: settled.change.of(identity, settled.ts))  # maintenance may still run
    request = requested(writer.storage)
    if request is not None and request.is_done(writer.identity):  # another one, left meanwhile, waits for its turn
        writer.storage.delete(GROWTH)
    layout = writer.identity.layout
    split = ", ".join(f"{one.name} over {list(one.partitions)}" for one in layout.split_tables)
    _log.info("the log has %d partitions from %s on%s", layout.partitions, tso.describe(settled.ts), f"; split: {split}" if split else "")


class Growth:
    """Carries out requests. `text` says for the status what is being done."""

    def __init__(self, storage: Storage, retry: StorageRetry, folders: Folders, freezing: asyncio.Lock) -> None:
        """`freezing`: held by whoever stops the schema stream."""
        self._storage, self._retry, self._folders, self._freezing = storage, retry, folders, freezing
        self.text = ""

    async def run(self) -> NoReturn:
        """Look for requests forever. Raises Settled when the layout can change."""
        while True:
            await tick(LOOK_EVERY)
            request = await self._retry.in_thread(partial(requested, self._storage))
            try:
                change = None if request is None else await self._change(request)
                if request is None or change is None:
                    self.text = ""
                else:
                    async with self._freezing:
                        tried = await self._settle(request, change)
                    if tried:
                        await asyncio.sleep(REST_S)
            except UpstreamUnavailable as e:
                self.text = f"{request}; PD is away: {e.message}"

    async def _change(self, request: Request) -> Change | None:
        """Return the change that the request asks for; None: it is done already, or was refused. A refusal is written into growth.json."""
        identity = self._folders.identity()
        if request.is_done(identity):
            await self._retry.in_thread(partial(self._storage.delete, GROWTH))
            return None
        try:
            request.check(identity)
            change = await self._folders.split(request.table, request.over) if request.table else Change(request.partitions)
            return replace(change, names=self._folders.names())
        except LogError as e:
            _log.warning("the log keeps its layout: %s", e.message)
            await self._retry.in_thread(partial(refuse, self._storage, request, e))
            return None

    async def _settle(self, request: Request, change: Change) -> bool:
        """Bring all folders to one ts. Raises Settled once they are there. Return whether they were held up."""
        folders = self._folders
        now = await folders.now()
        behind = tso.physical_ms(now) - tso.physical_ms(min(folders.heads()))
        if behind > CLOSE_MS:
            self.text = f"{request}, once all partitions are less than {CLOSE_MS // 1000} s behind; now {behind / 1000:.0f} s"
            return False
        ts = now + (AHEAD_MS << tso.LOGICAL_BITS)
        self.text = f"{request}, from {tso.describe(ts)} on"
        _log.info("the layout of the log changes: %s", self.text)
        folders.freeze_at(ts)
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
        folders.freeze_at(None)
        return True
