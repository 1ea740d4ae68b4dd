"""What `tidemill run` waits for before it starts anything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.run_status import old_processes
from tidemill.changelog.storage.retry import START_S, StorageRetry

ORPHANS_S, ORPHANS_EVERY_S = 40.0, 0.2
"""How long children of a supervisor that was killed may take to end, see `lifeline`."""

T = TypeVar("T")

log = logging.getLogger(__name__)


async def unless(over: asyncio.Event, work: Coroutine[Any, Any, Any]) -> Any:
    """What the work returns; None if a signal comes first."""
    task, ending = asyncio.ensure_future(work), asyncio.ensure_future(over.wait())
    await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if task.done():
        return task.result()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return None


async def reached(folder: FeedFolder, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` with the log and the state returns. Storage that is away is waited for; where this changefeed has never reached it, not
    without end: it may be wrong. Raises LogUnavailable."""
    is_known = any((folder.path / name).exists() for name in ("feed.json", folder.delivery.name))
    return await StorageRetry().call_async(work, None if is_known else START_S)


async def orphans_gone(folder: FeedFolder) -> bool:
    """Wait until the child processes of a supervisor that was killed have ended: they have log and changefeed until then. Were there
    any?"""
    deadline = asyncio.get_running_loop().time() + ORPHANS_S
    told = False
    while (old := old_processes(folder)) and asyncio.get_running_loop().time() < deadline:
        if not told:
            log.info("waiting for processes of the run before this one to end: %s", ", ".join(map(str, old)))
            told = True
        await asyncio.sleep(ORPHANS_EVERY_S)
    return told
