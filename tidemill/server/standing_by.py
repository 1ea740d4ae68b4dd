"""The two processes of a server: how each is started, and started again whenever it ends, and how it waits for its work.

A server that follows has both loaded already, with Spark where Spark runs on this machine. So when it leads they begin at once: loading
takes seconds, and on a busy machine half a minute. Until then they hold nothing: no lock, no lease, no connection to the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from tidemill.capture.config import CAPTURE as CAPTURE_MODULE
from tidemill.capture.config import CaptureConfig
from tidemill.delivery.machine.failures import JobLost
from tidemill.process import orders
from tidemill.process.children import program
from tidemill.process.supervisor import LASTING, ChildProcess, End, Restarts, Supervisor
from tidemill.server.host.messages import HostOrder, log_level

log = logging.getLogger(__name__)

CAPTURE, DELIVERY = "capture", "delivery"
HOST_MODULE = "tidemill.server.host.process"


Order = CaptureConfig | HostOrder
"""What a process of a server is started with."""
Lost = Callable[[str, bool], None]
"""Called whenever a process has ended: with the reason, and whether it crashed. One that told its error did not, unless that is the end of
Spark's Java process."""


def lasting(name: str, progress: Callable[[], int] = lambda: 0, lost: Lost = lambda why, crashed: None) -> Restarts:
    """Return the rule of both."""

    def told(end: End) -> None:
        lost(f"{name} ended: {end.why}", end.error is None or end.error[0] == JobLost.code)

    return Restarts(name, progress, LASTING, told)


class LastingProcess:
    """One process, which is started again until it is stopped. It stands by until `begin`: see `process.orders`."""

    def __init__(self, name: str, module: str, order: Order, *, writes: bool) -> None:
        """`writes`: to sinks."""
        rule = lasting(f"the {name} process that stands by")
        self.child = ChildProcess(name, program(module), order=self._line, rule=rule, heard=self._hear, writes=writes)
        self._heard: Callable[[bytes], None] = lambda line: None
        self.order = order
        """With which it is started again."""
        self._works = False
        self._supervisor = Supervisor([self.child], until="")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start it; it loads what it will use, and waits."""
        self._task = asyncio.create_task(self._supervisor.run(), name=self.child.name)

    def begin(self, order: Order, rule: Restarts, heard: Callable[[bytes], None]) -> None:
        """Let it work, by this order, now and whenever it is started again."""
        self.child.rule, self._heard = rule, heard
        self.order = order
        self._works = True
        if self._task is None:
            self.start()
        self.tell(self._line())
        self.child.wake.set()  # one that could not be loaded may be in a pause

    def set_level(self, level: str) -> None:
        """Tell it a log level, now and whenever it is started again."""
        self.order = replace(self.order, log_level=level)
        if self._works:
            self.tell(log_level(level))

    def _line(self) -> bytes:
        return orders.begin(self.order) if self._works else orders.warm(self.order)

    def tell(self, line: bytes) -> bool:
        """Write a line to its stdin. False if it did not take it."""
        process = self.child.process
        return process is not None and process.tell(line)

    def _hear(self, line: bytes) -> None:
        self._heard(line)

    async def stop(self) -> None:
        """Let it end in good order."""
        self._supervisor.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def kill(self) -> None:
        """End it at once."""
        self._supervisor.stop()
        if self.child.process is not None:
            self.child.process.kill()
        await self.stop()


class Standby:
    """The processes that stand by."""

    def __init__(self, capture: CaptureConfig, host: HostOrder) -> None:
        """What both are started with, besides what the server adds."""
        self.capture, self.host = capture, host
        self._waiting: dict[str, LastingProcess] = {}

    def begin(self) -> None:
        """Let both stand by. Nothing happens to those that do."""
        for name in {CAPTURE, DELIVERY} - self._waiting.keys():
            process = self._waiting[name] = self._made(name)
            process.start()

    def take(self, name: str) -> LastingProcess:
        """Return the one that stands by, or a new one."""
        return self._waiting.pop(name, None) or self._made(name)

    async def end(self) -> None:
        """End those that stand by. They have nothing to finish."""
        waiting, self._waiting = self._waiting, {}
        await asyncio.gather(*(process.kill() for process in waiting.values()))

    def _made(self, name: str) -> LastingProcess:
        if name == DELIVERY:
            return LastingProcess(name, HOST_MODULE, self.host, writes=True)
        return LastingProcess(name, CAPTURE_MODULE, self.capture, writes=False)
