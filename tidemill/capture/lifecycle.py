"""The lifecycle of a process that works until it is told to stop or something fails."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tidemill.capture.python_gc import GcPause
from tidemill.metrics.http import PageServer
from tidemill.metrics.stalls import StallWatch

TICK_LATE = 0.75
"""A tick that would come before the last quarter of its time is the one after that."""

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run a function in a thread. A caller that is cancelled still waits for the thread to end: nothing runs on unnoticed."""
    call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise


async def tick(every: float) -> None:
    """Sleep for about `every` seconds, until a moment that is the same for all that do so: one wake-up serves them together."""
    past = asyncio.get_running_loop().time() % every
    await asyncio.sleep(every - past if past < TICK_LATE * every else 2 * every - past)


async def together(*works: Coroutine[Any, Any, None]) -> None:
    """Run all until one fails. The others are cancelled; when they have ended, the first error is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failures:
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Let SIGTERM and SIGINT stop the process, whose main thread this has to be; elsewhere nothing is done."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)


@asynccontextmanager
async def serving(pages: PageServer, addr: str | None, ended: Callable[[str, BaseException | None], None]) -> AsyncIterator[None]:
    """Serve pages while the block works; without an `addr` nothing is served.

    `ended` is told `stopped`, or `failed` and why, before they go.
    """
    try:
        if addr:
            await pages.start(addr)
        yield
        ended("stopped", None)
    except BaseException as error:
        ended("failed", error)
        raise
    finally:
        await pages.stop()


class Lifecycle:
    """One per process; it belongs to the event loop it was made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self.gc_pause = GcPause()
        """It lasts until the first `release`."""

    @property
    def is_over(self) -> bool:
        """Whether the end has begun."""
        return self._over.done()

    def stop(self) -> None:
        """End without an error."""
        if not self._over.done():
            self._over.set_result(None)

    def fail(self, error: BaseException) -> None:
        """End with this error. The first call counts."""
        if not self._over.done():
            self._over.set_exception(error)

    async def over(self) -> None:
        """Wait until `stop` or `fail` is called. Raises the error of `fail`."""
        await asyncio.shield(self._over)

    def later(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on the event loop, from another thread."""
        self._loop.call_soon_threadsafe(function, *arguments)

    async def lead(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until it ends or `stop` or `fail` is called; then cancel it. Raises the error of `fail` or `work`. Meanwhile, stalls
        of the event loop are logged."""
        with self.gc_pause, StallWatch():
            task = asyncio.ensure_future(work)
            await asyncio.wait([task, self._over], return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            [ended] = await asyncio.gather(task, return_exceptions=True)
        if self._over.done():
            self._over.result()
        if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
            raise ended
