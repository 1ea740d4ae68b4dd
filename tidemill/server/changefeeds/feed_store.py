"""The changefeeds of the server that leads, by name, and when their files are written.

Files are written in threads, one write after the other for each changefeed. A write that is refused because another server leads ends this
server's term, whoever asked for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from tidemill.errors import Fenced, TidemillError
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.feeds import Feed, FeedFiles

log = logging.getLogger(__name__)

T = TypeVar("T")

SHARED = "all"
"""Orders the writes that are of no single changefeed."""


class FeedStore:
    """Belongs to the event loop."""

    def __init__(self, files: FeedFiles) -> None:
        self.files = files
        self.deposed: Callable[[], None] = lambda: None
        """Called when a write shows that another server leads."""
        self._present: dict[str, Feed] = {}
        self._leaving: dict[str, Feed] = {}
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[Any]] = set()

    # ---- which there are

    @property
    def present(self) -> Mapping[str, Feed]:
        """All but removed ones."""
        return self._present

    @property
    def leaving(self) -> Mapping[str, Feed]:
        """Removed ones, until the host has ended their batches."""
        return self._leaving

    def get(self, changefeed_id: str, namespace: str) -> Feed:
        """Return the changefeed that a request names. Raises ChangefeedNotExists, InvalidChangefeedId, InvalidKeyspace."""
        checked_name(changefeed_id, namespace)
        try:
            return self._present[changefeed_id]
        except KeyError:
            raise e.ChangefeedNotExists(f"changefeed not exists, {changefeed_id}") from None

    def check_is_free(self, name: str) -> None:
        """Raises ChangefeedAlreadyExists."""
        if name in self._present:
            raise e.ChangefeedAlreadyExists(f"changefeed already exists, {name}")
        if name in self._leaving:
            raise e.ChangefeedAlreadyExists(f"changefeed already exists, {name}", hint="It is being removed: try again in a moment.")

    def check_present(self, feed: Feed) -> None:
        """A request had to wait. Raises ChangefeedNotExists if the changefeed was removed meanwhile."""
        if self._present.get(feed.id) is not feed:
            raise e.ChangefeedNotExists(f"changefeed not exists, {feed.id}", hint="It was removed meanwhile.")

    def load(self, feeds: Iterable[Feed]) -> None:
        """Have these and no others: a term begins."""
        self._present = {feed.id: feed for feed in feeds}

    def clear(self) -> None:
        """Have none: a term is over."""
        self._present = {}

    def add(self, feed: Feed) -> None:
        self._present[feed.id] = feed

    def begin_removal(self, feed: Feed) -> None:
        self._leaving[feed.id] = self._present.pop(feed.id)

    def end_removal(self, feed: Feed) -> None:
        del self._leaving[feed.id]

    # ---- writes

    def writing(self, feed: Feed) -> asyncio.Lock:
        """The lock that orders the writes of a changefeed."""
        return self._writing[feed.id]

    def forget_writes(self, feed: Feed) -> None:
        """Nothing of it is written any more."""
        self._writing.pop(feed.id, None)

    async def commit(self, work: Callable[[], T]) -> T:
        """Do something with files in a thread. Raises what it raises; NotOwner and Fenced end this server's term."""
        try:
            return await asyncio.to_thread(work)
        except (e.NotOwner, Fenced):
            self.deposed()
            raise

    async def commit_present(self, feed: Feed, work: Callable[[], object]) -> None:
        """Write files of a changefeed after all earlier writes. Raises ChangefeedNotExists, and what `work` raises."""
        async with self._writing[feed.id]:
            self.check_present(feed)
            await self.commit(work)

    async def write(self, name: str, work: Callable[[], T]) -> T | None:
        """Do something with a changefeed's files, after all that was asked for before. A failure is logged: the next write has it too."""
        async with self._writing[name]:
            try:
                return await asyncio.to_thread(work)
            except e.NotOwner as error:
                log.warning("the state of changefeed %s is not this server's to change: %s", name, error)
                self.deposed()
                return None
            except TidemillError as error:
                log.warning("the state of changefeed %s cannot be written now: %s", name, error)
                return None

    def save_state(self, feed: Feed) -> None:
        """Let its state be written soon."""
        self._spawn(self.write(feed.id, lambda: self.files.save_state(feed)))

    async def written(self, feed: Feed) -> None:
        """Return when all that was to be written of it is written."""
        await asyncio.sleep(0)
        async with self._writing[feed.id]:
            pass

    async def flush(self) -> None:
        """Write what could not be written when storage was away."""
        await self.write(SHARED, self.files.flush)

    async def reconcile(self) -> None:
        """Let the log go on where nothing needs it any more."""
        await self.write(SHARED, lambda: self.files.reconcile(self._released))

    def _released(self) -> set[str]:
        return {feed.id for feed in [*self._present.values()] if feed.released}

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish_writes(self, within_s: float) -> None:
        """Wait for the states that are being written."""
        if self._tasks:
            await asyncio.wait({*self._tasks}, timeout=within_s)

    async def abandon_writes(self) -> None:
        """End those that are still being written."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def checked_name(changefeed_id: str, namespace: str) -> str:
    """Raises InvalidChangefeedId, InvalidKeyspace."""
    if namespace != s.DEFAULT_NAMESPACE:
        raise e.InvalidKeyspace(f"there is no namespace {namespace!r}, only {s.DEFAULT_NAMESPACE}")
    if not s.CHANGEFEED_ID.fullmatch(changefeed_id) or len(changefeed_id) > s.LONGEST_ID:
        raise e.InvalidChangefeedId(
            f"changefeed id {changefeed_id[: s.LONGEST_ID]!r} is not valid",
            hint=f"Use letters, digits and single dashes, at most {s.LONGEST_ID} characters.",
        )
    return changefeed_id
