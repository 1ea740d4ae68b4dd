"""Keeps the child processes of a changefeed alive: the capture and the Spark driver, each in a process of its own.

When a child ends, its rule decides what follows: the child is started again after a pause, it stays down until a person resumes it, or the
run ends. The capture's rule is `Restarts`, the changefeed's is in `changefeed.restart_rule`. When the supervisor ends, for whatever reason,
the children end too: see `lifeline`.

A child's stderr is passed on, except the `Error CODE: …` at its end: the supervisor reports that, once.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidemill import logs
from tidemill.errors import EXIT_FATAL, EXIT_RETRY, TidemillError
from tidemill.process import children
from tidemill.process.lifeline import SUPERVISED

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
CRASHES_IN_A_ROW = 20
STOP_WITHIN_S = 25.0
"""How long children may take to stop before they are killed: below the 30 s promised to users."""

_ERROR_LINE = re.compile(r"Error (TM:\w+): (.*)")
_HINT = "  "  # how `errors` indents the second line of an error
_LONGEST_LINE = 1 << 20


class ChildFailed(TidemillError):
    """A child process ended in a way that a restart does not fix; `code` is the child's own."""

    def __init__(self, child: str, code: str, message: str) -> None:
        super().__init__(f"{child}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended. `error`: code and text of the error that it printed. `raised`: without one, the last line of its traceback."""

    status: int
    pid: int
    error: tuple[str, str] | None = None
    raised: str | None = None

    @property
    def how(self) -> str:
        return f"signal {signal.Signals(-self.status).name}" if self.status < 0 else f"exit code {self.status}"

    @property
    def why(self) -> str:
        """The error with its code; else how it ended."""
        if self.error is not None:
            return ": ".join(self.error)
        return self.how if self.raised is None else f"{self.how}: {self.raised}"


class Then(enum.Enum):
    """What to do after the end of a child."""

    AGAIN = "again"  # start it again
    REST = "rest"  # do not start it until somebody resumes it
    OVER = "over"  # it has done its work: the run is over
    GIVE_UP = "give up"  # end the run with its error


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision of a rule. `pause_s`: the pause before the next start."""

    then: Then
    pause_s: float = 0.0


class Rule(Protocol):
    """Decides what follows the end of a child."""

    def begins(self) -> None:
        """Called before each start."""

    def ended(self, end: End) -> Answer:
        """Decide what follows an unexpected end."""

    def note(self) -> None:
        """Called in a thread after `ended`, to write down what takes long to write."""

    def resumed(self) -> bool:
        """Handle a request to resume the child. Return whether there was anything to resume."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a child is treated that ends. `gives_up`: at an error that a restart does not fix, and after CRASHES_IN_A_ROW crashes without
    progress. `makes_way`: codes of errors after which it has done its work."""

    gives_up: bool = True
    makes_way: frozenset[str] = frozenset()


NEEDED = Manner()
"""The run depends on it."""
LASTING = Manner(gives_up=False)
"""It is started again whatever happens, as long as its server leads."""


class Restarts:
    """The rule of a child that is started again. `progress` returns a number that grows as the child advances.

    The pauses grow while it does not advance. An error that may pass is waited out without limit.
    """

    def __init__(
        self, name: str, progress: Callable[[], int], manner: Manner = NEEDED, lost: Callable[[End], None] = lambda end: None
    ) -> None:
        """`lost`: called with each end."""
        self._name, self._progress, self._manner, self._lost = name, progress, manner, lost
        self._at = progress()
        self._ends = self._crashes = 0

    def begins(self) -> None:
        pass

    def ended(self, end: End) -> Answer:
        self._lost(end)
        if end.error is not None and end.error[0] in self._manner.makes_way:
            return Answer(Then.OVER)
        at = self._progress()
        if at > self._at:
            self._ends = self._crashes = 0
        self._at = at
        self._ends += 1
        self._crashes += end.error is None or end.status != EXIT_RETRY
        if self._manner.gives_up and (end.status == EXIT_FATAL or self._crashes > CRASHES_IN_A_ROW):
            return Answer(Then.GIVE_UP)
        pause = LONGEST_PAUSE_S if end.status == EXIT_FATAL else pause_after(self._ends)
        log.warning("%s ended and starts again in %.0f s: %s", self._name, pause, end.why)
        return Answer(Then.AGAIN, pause)

    def note(self) -> None:
        pass

    def resumed(self) -> bool:
        return False


@dataclass
class ChildProcess:
    """One supervised process: its name, its command line, and its state.

    `order`: makes the line that it is started with, see `orders`. `rule`: what follows its end, by default `Restarts`. `heard`: called with
    each line of its stdout, which is passed on otherwise. `writes`: to sinks, see `children.environment`.
    """

    name: str
    argv: Sequence[str]
    progress: Callable[[], int] = lambda: 0
    order: Callable[[], bytes] = field(default=lambda: b"", repr=False)
    rule: Rule | None = field(default=None, repr=False)
    heard: Callable[[bytes], None] | None = field(default=None, repr=False)
    writes: bool = False
    restarts: int = 0
    pid: int | None = None
    last_error: tuple[str, str] | None = None
    raised: str | None = None
    process: children.Child | None = field(default=None, repr=False)
    wake: asyncio.Event = field(default_factory=asyncio.Event, repr=False)


def pause_after(crashes: int) -> float:
    """Return the seconds to wait before the next start after this many crashes in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** max(0, crashes - 1))


class Supervisor:
    """Runs children until the one named `until` exits with 0, a stop is requested, or one fails for good."""

    def __init__(self, children: Sequence[ChildProcess], *, until: str, on_change: Callable[[], None] = lambda: None) -> None:
        self.children = list(children)
        self.until = until
        self.on_change = on_change
        self._stop = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Whether the end has begun."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop: the children get SIGTERM and time to finish their work."""
        self._stop.set()

    def resume(self) -> bool:
        """Start children that rest, or wait for their next start, at once. Return whether there was any."""
        found = [child for child in self.children if child.rule is not None and child.rule.resumed()]
        for child in found:
            child.wake.set()
        self.on_change()
        return bool(found)

    async def run(self) -> None:
        """Run until the end. Raises ChildFailed."""
        tasks = [asyncio.create_task(self._keep(child), name=child.name) for child in self.children]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._stop.set()
            await asyncio.gather(*(self._end(child) for child in self.children))
            stopping.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, child: ChildProcess) -> None:
        """Start one child as often as its rule says. Return when it is over."""
        child.rule = child.rule or Restarts(child.name, child.progress)
        while not self._stop.is_set():
            child.rule.begins()
            end = await self._once(child)
            rule = child.rule  # a process that stood by has another one since it began
            if self._stop.is_set() or (end.status == 0 and child.name == self.until):
                return
            child.wake.clear()
            answer = rule.ended(end)
            if answer.then is Then.OVER:
                return
            if answer.then is Then.GIVE_UP:
                raise ChildFailed(child.name, *(end.error or ("TM:ErrProcessCrashed", f"ended with {end.why}")))
            self.on_change()
            await asyncio.to_thread(rule.note)
            await self._pause(child, None if answer.then is Then.REST else answer.pause_s)
            child.restarts += 1

    async def _once(self, child: ChildProcess) -> End:
        child.last_error = child.raised = None
        variables = children.environment({SUPERVISED: "1"}, writes=child.writes)
        # its stdin is held open: see `lifeline`
        process = await children.start(child.argv, variables, keeps_stderr=True, keeps_stdout=child.heard is not None)
        child.process, child.pid = process, process.pid
        process.tell(child.order())
        log.info("%s started (pid %d)", child.name, process.pid)
        self.on_change()
        relays = [asyncio.create_task(_relay(child, process.stderr))]
        if child.heard is not None:
            relays.append(asyncio.create_task(_hear(child.heard, process.stdout)))
        status = await process.wait()
        # A grandchild may live on for a moment and hold the pipe open: its output is not waited for.
        await asyncio.wait(relays, timeout=1.0)
        for relay in relays:
            relay.cancel()
        process.close()
        child.process, child.pid = None, None
        self.on_change()
        return End(status, process.pid, child.last_error, child.raised)

    async def _pause(self, child: ChildProcess, seconds: float | None) -> None:
        """Wait for some seconds (None: forever), for a stop, or until the child is resumed."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._stop, child.wake)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()

    @staticmethod
    async def _end(child: ChildProcess) -> None:
        """Send SIGTERM to a child that still runs, then wait."""
        process = child.process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_WITHIN_S)
        except TimeoutError:
            log.warning("%s did not end within %.0f s and is killed; it resumes from its checkpoint", child.name, STOP_WITHIN_S)
            process.kill()
            await process.wait()


class ErrorFilter:
    """Filters a child's stderr: returns the lines to pass on, and keeps the error at its end. That is `Error CODE: …` with its hint, or the
    last line of a traceback, which is also passed on."""

    def __init__(self) -> None:
        self.last_error: tuple[str, str] | None = None
        self.raised: str | None = None
        self._within = self._traced = False

    def lines(self, lines: Sequence[str]) -> Iterator[str]:
        """Filter lines, given without line ends."""
        for line in lines:
            match = _ERROR_LINE.match(line)
            if match:
                self.last_error, self._within = (match[1], match[2]), True
            elif self._within and self.last_error is not None and line.startswith(_HINT):
                self.last_error = (self.last_error[0], f"{self.last_error[1]}\n{line}")
            else:
                self._within = False
                self._look_for_traceback(line)
                yield line

    def _look_for_traceback(self, line: str) -> None:
        if line.startswith("Traceback (most recent call last)"):
            self._traced = True
        elif self._traced and line and not line[0].isspace():
            self.raised, self._traced = line, False


async def _relay(child: ChildProcess, stderr: asyncio.StreamReader) -> None:
    """Pass a child's stderr on, and keep the error at its end."""
    errors, rest = ErrorFilter(), b""
    while True:
        data = await stderr.read(1 << 16)
        *whole, rest = (rest + data).split(b"\n")
        if rest and (not data or len(rest) > _LONGEST_LINE):
            whole, rest = [*whole, rest], b""
        logs.relay([*errors.lines([raw.decode(errors="replace") for raw in whole])])
        child.last_error, child.raised = errors.last_error, errors.raised
        if not data:
            return


async def _hear(heard: Callable[[bytes], None], stdout: asyncio.StreamReader) -> None:
    while line := await stdout.readline():
        heard(line)
