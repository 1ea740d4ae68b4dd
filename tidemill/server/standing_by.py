"""The two processes of a server: how each is started, and started again whenever it ends, and how it waits for its work.

A server that follows has both loaded already, with Spark where Spark runs on this machine. So when it leads they begin at once: loading
takes seconds, and on a busy machine half a minute. Until then they hold nothing: no lock, no lease, no connection to the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemill.changefeed.runner_options import LOG_VARIABLE
from tidemill.delivery.machine.failures import JobLost
from tidemill.errors import EXIT_FATAL
from tidemill.process import standby
from tidemill.process.children import program, python
from tidemill.process.supervisor import LONGEST_PAUSE_S, Answer, ChildProcess, End, Supervisor, Then, pause_after
from tidemill.server.host.messages import log_level

log = logging.getLogger(__name__)

CAPTURE, DELIVERY = "capture", "delivery"


@dataclass(frozen=True, slots=True)
class Commands:
    """What the processes are started with, besides what the server adds. `common`: for both."""

    pd: str
    log: str
    data_dir: Path
    capture: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    """For both."""

    @property
    def capture_folder(self) -> Path:
        return self.data_dir / "capture"


Lost = Callable[[str, bool], None]
"""Called whenever a process has ended: with the reason, and whether it crashed. One that told its error did not, unless that is the end of
Spark's Java process."""


class Lasting:
    """The rule of both: start it again, after pauses that grow while it gets nowhere. `progress` returns a number that grows as it
    advances."""

    def __init__(self, name: str, progress: Callable[[], int], lost: Lost) -> None:
        self._name, self._progress, self._lost = name, progress, lost
        self._at, self._ends = progress(), 0

    def environment(self) -> Mapping[str, str]:
        return {}

    def ended(self, end: End) -> Answer:
        at = self._progress()
        self._ends = 1 if at > self._at else self._ends + 1
        self._at = at
        pause = LONGEST_PAUSE_S if end.status == EXIT_FATAL else pause_after(self._ends)
        why = f"{end.error[0]}: {end.error[1]}" if end.error is not None else end.why
        log.warning("the %s ended and starts again in %.0f s: %s", self._name, pause, why)
        self._lost(f"the {self._name} ended: {why}", end.error is None or end.error[0] == JobLost.code)
        return Answer(Then.AGAIN, pause)

    def note(self) -> None:
        pass

    def resumed(self) -> bool:
        return False


class LastingProcess:
    """One process, which is started again until it is stopped. It waits for `begin`: see `process.standby`."""

    def __init__(self, name: str, argv: Sequence[str], secrets: Mapping[str, str], *, heard: bool) -> None:
        """`heard`: what it writes to stdout is for the server."""
        rule = Lasting(f"{name} process that stands by", lambda: 0, lambda why, crashed: None)
        take = self._hear if heard else None
        self.child = ChildProcess(name, argv, secrets={**secrets, standby.STANDBY: "1"}, rule=rule, heard=take, writes=heard)
        self._heard: Callable[[bytes], None] = lambda line: None
        self._more: tuple[str, ...] | None = None
        self._level = ""
        self._warms = False
        self._told: int | None = None
        """The process id that knows what it has to do."""
        self._supervisor = Supervisor([self.child], until="", on_change=self._tell_all)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start it; it waits."""
        self._task = asyncio.create_task(self._supervisor.run(), name=self.child.name)

    def warm(self) -> None:
        """Let it load what it will use."""
        self._warms = True

    def begin(self, more: Sequence[str], rule: Lasting, heard: Callable[[bytes], None]) -> None:
        """Let it work, with more arguments, now and whenever it is started again."""
        self._more, self.child.rule, self._heard = (*more,), rule, heard
        self._told = None
        self._tell_all()
        self.child.wake.set()  # one that could not be loaded may be in a pause

    def set_level(self, level: str) -> None:
        """Tell it a log level, now and whenever it is started again. Empty: that of its command line."""
        self._level = level
        if self._more is not None and level:
            self.tell(log_level(level))

    def tell(self, line: bytes) -> bool:
        """Write a line to its stdin. False if it did not take it."""
        process = self.child.process
        return process is not None and process.tell(line)

    def _tell_all(self) -> None:
        process = self.child.process
        if process is None or self._told == process.pid:
            return
        if self._more is not None:
            level = ("--log-level", self._level) if self._level else ()
            told = process.tell(standby.begin([*self._more, *level]))
        elif self._warms:
            told = process.tell(standby.warm())
        else:
            return
        if told:
            self._told = process.pid

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

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._waiting: dict[str, LastingProcess] = {}

    def begin(self) -> None:
        """Let both stand by. Nothing happens to those that do."""
        for name in {CAPTURE, DELIVERY} - self._waiting.keys():
            process = self._waiting[name] = self._made(name)
            process.warm()
            process.start()

    def take(self, name: str) -> LastingProcess:
        """Return the one that stands by, or a new one."""
        process = self._waiting.pop(name, None)
        if process is None:
            process = self._made(name)
            process.start()
        return process

    async def end(self) -> None:
        """End those that stand by. They have nothing to finish."""
        waiting, self._waiting = self._waiting, {}
        await asyncio.gather(*(process.kill() for process in waiting.values()))

    def _made(self, name: str) -> LastingProcess:
        c = self._commands
        if name == DELIVERY:
            argv = program("tidemill.server.host.process", "--data-dir", str(c.data_dir), *c.host, *c.common)
        else:
            argv = python("tidemill.cli.main", "capture", "--pd", c.pd, "--data-dir", str(c.capture_folder), *c.capture, *c.common)
        return LastingProcess(name, argv, {LOG_VARIABLE: c.log}, heard=name == DELIVERY)
