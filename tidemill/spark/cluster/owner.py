"""The process that owns the capture of a query: `python -m tidemill.spark.cluster.owner`.

Spark's Python processes come and go with queries, so one of them starts this one, on the driver's machine. There is one for each log and
machine, which a lock shows. It

- runs a capture, and starts it again after an error that may pass;
- waits while another capture writes the log, and takes over when that one has ended;
- ends with Spark's driver, however that ends, and the capture ends with it.

In, by stdin: an `Order`, see `process.orders`. Out: the log; `error.json`, if an error ended it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill import logs
from tidemill.capture.config import CAPTURE, CaptureConfig
from tidemill.capture.lifecycle import stop_on_signals
from tidemill.changelog.ownership import LocalLock, check_free
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.storage.open import open_storage
from tidemill.errors import LogError, LogFenced, LogLocked, TidemillError, redact
from tidemill.process import orders
from tidemill.process.children import program
from tidemill.process.driver import lives
from tidemill.process.supervisor import ChildFailed, ChildProcess, Manner, Restarts, Supervisor
from tidemill.spark.cluster.place import Place

LOOK_S = 1.0
"""Seconds between two looks at the driver."""
OTHER_LOCAL_S, OTHER_REMOTE_S = 1.0, 10.0
"""Seconds between two looks at a log that another capture writes. On an object store a capture is seen by its heads, which move within
that time."""
MAKES_WAY = Manner(makes_way=frozenset({LogLocked.code, LogFenced.code}))
"""For another capture of the log."""
TAKE_S = 2.0

_log = logging.getLogger("tidemill.spark.cluster.owner")  # `__name__` is that of a program


@dataclass(frozen=True, slots=True)
class Order:
    """What is captured into which log. `folder`: the owner's. `pid`: Spark's driver."""

    capture: CaptureConfig
    folder: Path
    pid: int

    @property
    def log(self) -> str:
        return self.capture.log

    @property
    def place(self) -> Place:
        return Place(self.log, self.folder)


def resolved_of(log: str) -> int:
    """The resolved ts of a log; 0 while it cannot be read."""
    try:
        return LogReader(log).resolved_ts() if log_exists(log) else 0
    except LogError:
        return 0


def is_written(log: str, before: int) -> bool:
    """Whether another process writes a log. `before`: its resolved ts some seconds ago."""
    storage = open_storage(log)
    if not storage.local:
        return resolved_of(log) > before
    try:
        check_free(storage)
    except LogLocked:
        return True
    return False


class Owner:
    """Runs the capture until the driver is gone or `stop` is called."""

    def __init__(self, order: Order) -> None:
        self._order, self._over = order, asyncio.Event()
        self._boss: Supervisor | None = None

    def stop(self) -> None:
        self._over.set()
        if self._boss is not None:
            self._boss.stop()

    async def run(self) -> None:
        """Raises ChildFailed for an error of the capture that a restart does not fix."""
        stop_on_signals(self.stop)
        watch = asyncio.ensure_future(self._watch())
        try:
            while await self._is_free():
                self._boss = Supervisor([self._child()], until="capture")
                await self._boss.run()
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        while lives(self._order.pid):
            await asyncio.sleep(LOOK_S)
        _log.info("Spark's driver %d is gone; the capture ends", self._order.pid)
        self.stop()

    async def _is_free(self) -> bool:
        """Wait until nobody else writes the log. False: it is time to end."""
        log, told = self._order.log, False
        every = OTHER_LOCAL_S if open_storage(log).local else OTHER_REMOTE_S
        before = 0 if every == OTHER_LOCAL_S else await asyncio.to_thread(resolved_of, log)
        if before:
            await self._waited(every)
        while not self._over.is_set() and await asyncio.to_thread(is_written, log, before):
            before = await asyncio.to_thread(resolved_of, log)
            if not told:
                _log.info("another capture writes %s; this one waits until that one has ended", redact(log))
            told = True
            await self._waited(every)
        return not self._over.is_set()

    async def _waited(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    def _child(self) -> ChildProcess:
        config = replace(self._order.capture, log_file=self._order.place.journal)
        rule = Restarts("capture", lambda: resolved_of(self._order.log), MAKES_WAY)
        return ChildProcess("capture", program(CAPTURE), order=lambda: orders.begin(config), rule=rule)


def is_owned(place: Place) -> bool:
    """Whether an owner lives."""
    lock = LocalLock(str(place.lock))
    try:
        lock.take()
    except LogLocked:
        return True
    lock.release()
    return False


def _taken(place: Place) -> LocalLock | None:
    """The owner's lock; None: there is another owner. A look at the lock holds it for an instant."""
    lock, until = LocalLock(str(place.lock)), time.monotonic() + TAKE_S
    while True:
        try:
            lock.take()
            return lock
        except LogLocked:
            if time.monotonic() > until:
                return None
        time.sleep(TAKE_S / 20)


def own(order: Order) -> None:
    """Own a capture, if nobody does. An error that ends it is written down."""
    place = order.place
    lock = _taken(place)
    if lock is None:
        return
    place.error.unlink(missing_ok=True)

    async def run() -> None:
        await Owner(order).run()

    try:
        asyncio.run(run())
    except TidemillError as error:
        _log.error("%s", error)
        message = error.message.removeprefix("capture: ") if isinstance(error, ChildFailed) else str(error)
        partial = place.error.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({"code": error.code, "message": redact(message)}), encoding="utf-8")
        partial.replace(place.error)
    finally:
        lock.release()


def main() -> None:
    """Entry point."""
    order = orders.take(Order)
    logs.setup("info", order.place.journal, part="owner")
    own(order)


if __name__ == "__main__":
    main()
