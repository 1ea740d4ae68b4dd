"""The two processes of a server: the capture, and the delivery host. Each is started again whenever it ends: the server stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidemill.changefeed.runner import LOG_VARIABLE
from tidemill.delivery.machine.failures import JobLost
from tidemill.errors import EXIT_FATAL
from tidemill.process.children import python
from tidemill.process.supervisor import LONGEST_PAUSE_S, Answer, ChildProcess, End, Supervisor, Then, pause_after
from tidemill.server.host.messages import log_level

log = logging.getLogger(__name__)


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


class Processes(Protocol):
    """What the server asks of its processes. Tests have their own."""

    def start_host(self, heard: Callable[[bytes], None], lost: Lost) -> None: ...

    def start_capture(self, start_ts: int | None, progress: Callable[[], int], rules: Path | None) -> None:
        """`rules`: a --capture-config file; None: none of the server's."""

    def restart_capture(self) -> None:
        """Let it end: it is started again, and reads the rules again."""

    def tell_host(self, line: bytes) -> bool:
        """False if it did not take the line."""

    def restart_host(self) -> None:
        """End it: it is started again."""

    def set_log_level(self, level: str) -> None:
        """Tell both, now and whenever one is started again."""

    def trouble(self) -> str | None:
        """What is wrong with them; None: nothing."""

    def seen(self) -> Sequence[Mapping[str, object]]:
        """For /debug/info."""

    async def stop(self) -> None:
        """Let them end in good order."""

    async def kill(self) -> None:
        """End them at once."""


class OwnProcesses:
    """Real ones."""

    def __init__(self, commands: Commands, delivered: Callable[[], int], term: int) -> None:
        """`delivered`: grows as changefeeds advance. `term`: in which this server leads."""
        self._commands, self._delivered, self._term = commands, delivered, ("--term", str(term))
        self._running: dict[str, tuple[Supervisor, asyncio.Task[None]]] = {}
        self._level = ""
        """The log level that they were told; empty: that of their command lines."""
        self._told: dict[str, int] = {}
        """The process ids that know it."""

    def start_host(self, heard: Callable[[bytes], None], lost: Lost) -> None:
        c = self._commands
        argv = python("tidemill.server.host.process", "--data-dir", str(c.data_dir), *self._term, *c.host, *c.common)
        rule = Lasting("delivery host", self._delivered, lost)
        self._keep(ChildProcess("delivery", argv, secrets={LOG_VARIABLE: c.log}, rule=rule, heard=heard))

    def start_capture(self, start_ts: int | None, progress: Callable[[], int], rules: Path | None) -> None:
        c = self._commands
        at = ("--start-ts", str(start_ts)) if start_ts is not None else ()
        only = ("--capture-config", str(rules)) if rules is not None else ()
        where = ("--pd", c.pd, "--data-dir", str(c.capture_folder), *at, *only)
        argv = python("tidemill.cli.main", "capture", *where, *self._term, *c.capture, *c.common)
        rule = Lasting("capture", progress, lambda why, crashed: None)
        self._keep(ChildProcess("capture", argv, secrets={LOG_VARIABLE: c.log}, rule=rule))

    def _keep(self, child: ChildProcess) -> None:
        supervisor = Supervisor([child], until="", on_change=lambda: self._tell_level(child))
        self._running[child.name] = supervisor, asyncio.create_task(supervisor.run(), name=child.name)

    def _tell_level(self, child: ChildProcess) -> None:
        process = child.process
        if self._level and process is not None and self._told.get(child.name) != process.pid and process.tell(log_level(self._level)):
            self._told[child.name] = process.pid

    def set_log_level(self, level: str) -> None:
        self._level = level
        self._told.clear()
        for supervisor, _ in self._running.values():
            self._tell_level(supervisor.children[0])

    def _child(self, name: str) -> ChildProcess | None:
        found = self._running.get(name)
        return found[0].children[0] if found is not None else None

    def tell_host(self, line: bytes) -> bool:
        child = self._child("delivery")
        return child is not None and child.process is not None and child.process.tell(line)

    def restart_host(self) -> None:
        child = self._child("delivery")
        if child is not None and child.process is not None:
            child.process.kill()

    def restart_capture(self) -> None:
        child = self._child("capture")
        if child is not None and child.process is not None:
            child.process.terminate()

    def trouble(self) -> str | None:
        for name in ("capture", "delivery"):
            child = self._child(name)
            if child is not None and child.pid is None:
                return f"the {name} process does not run: {child.last_error[1] if child.last_error else 'it is being started'}"
        return None

    def seen(self) -> Sequence[Mapping[str, object]]:
        children = [found[0].children[0] for found in self._running.values()]
        return [{"name": c.name, "pid": c.pid, "restarts": c.restarts, "last_error": c.last_error} for c in children]

    async def stop(self) -> None:
        for supervisor, _ in self._running.values():
            supervisor.stop()
        await asyncio.gather(*(task for _, task in self._running.values()), return_exceptions=True)

    async def kill(self) -> None:
        for supervisor, _ in self._running.values():
            supervisor.stop()
            for child in supervisor.children:
                if child.process is not None:
                    child.process.kill()
        await self.stop()
