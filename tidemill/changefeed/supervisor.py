"""Keeps the halves of a running changefeed alive: the capture and the Spark driver, each a process of its own.

A half that dies is started again, from its own durable state, after a pause that doubles up to 30 s and starts over once the half
has got further. A half that ends with EXIT_FATAL cannot be helped by that: everything ends. The end of the supervisor, however it
comes, ends the halves: see `lifeline`.

What a half writes to stderr is passed on, except the `Error CODE: …` that it ends with: that is the supervisor's to tell, once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidemill.errors import EXIT_FATAL, TidemillError

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
CRASHES_IN_A_ROW = 20
STOP_WITHIN_S = 25.0
"""What a stop may take before halves are killed: below the 30 s that a person was promised."""

_ERROR_LINE = re.compile(r"Error (TM:\w+): (.*)")
_HINT = "  "  # what `errors` puts before the second line of an error
_LONGEST_LINE = 1 << 20


class HalfFailed(TidemillError):
    """A half of the changefeed ended in a way that a restart cannot mend; `code` is the half's own."""

    def __init__(self, half: str, code: str, message: str) -> None:
        super().__init__(f"{half}: {message}")
        self.code = code


@dataclass
class Half:
    """One supervised process: its name, its command line, and what is known of it.

    `secrets`: what goes by the environment because command lines are seen by everybody. `progress`: a number that grows as the half
    gets further; a half that dies without it growing counts as crashed in a row.
    """

    name: str
    argv: Sequence[str]
    progress: Callable[[], int] = lambda: 0
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    restarts: int = 0
    pid: int | None = None
    last_error: tuple[str, str] | None = None
    process: asyncio.subprocess.Process | None = field(default=None, repr=False)


def pause_after(crashes: int) -> float:
    """Seconds to wait before start number crashes + 1 in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** max(0, crashes - 1))


class Supervisor:
    """Runs halves until one that is named `until` ends with 0, a stop is asked for, or one fails for good."""

    def __init__(self, halves: Sequence[Half], *, until: str, on_change: Callable[[], None] = lambda: None) -> None:
        self.halves = list(halves)
        self.until = until
        self.on_change = on_change
        self._stop = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Whether the end has begun."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask for the end: the halves get SIGTERM and time to finish what they are at."""
        self._stop.set()

    async def run(self) -> None:
        """Returns when all has ended well. Raises HalfFailed."""
        tasks = [asyncio.create_task(self._keep(half), name=half.name) for half in self.halves]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._stop.set()
            await asyncio.gather(*(self._end(half) for half in self.halves))
            stopping.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, half: Half) -> None:
        """One half, started again as often as it helps. Returns when it is over."""
        crashes = 0
        while not self._stop.is_set():
            before = half.progress()
            status = await self._once(half)
            if self._stop.is_set() or (status == 0 and half.name == self.until):
                return
            code, message = half.last_error or ("TM:ErrHalfCrashed", f"ended with {_status_text(status)}")
            crashes = 1 if half.progress() > before else crashes + 1
            if status == EXIT_FATAL or crashes > CRASHES_IN_A_ROW:
                raise HalfFailed(half.name, code, message)
            pause = pause_after(crashes)
            log.warning("%s ended with %s; it starts again in %.0f s (%s)", half.name, _status_text(status), pause, message)
            half.restarts += 1
            self.on_change()
            await self._pause(pause)

    async def _once(self, half: Half) -> int:
        half.last_error = None
        process = await asyncio.create_subprocess_exec(
            *half.argv,
            stdin=asyncio.subprocess.PIPE,  # held open and never written to: see `lifeline`
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **half.secrets, "TIDEMILL_SUPERVISED": "1"},
        )
        half.process, half.pid = process, process.pid
        log.info("%s started (pid %d)", half.name, process.pid)
        self.on_change()
        assert process.stderr is not None
        relay = asyncio.create_task(_relay(half, process.stderr))
        status = await process.wait()
        # A child of the half may live on for a moment and hold the pipe: what it says is not waited for.
        await asyncio.wait([relay], timeout=1.0)
        relay.cancel()
        half.process, half.pid = None, None
        self.on_change()
        return status

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    @staticmethod
    async def _end(half: Half) -> None:
        """SIGTERM to what still runs, then time."""
        process = half.process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_WITHIN_S)
        except TimeoutError:
            log.warning("%s did not end within %.0f s and is killed; it resumes from its checkpoint", half.name, STOP_WITHIN_S)
            process.kill()
            await process.wait()


class ErrorFilter:
    """Takes a half's lines, gives back those to pass on, and keeps the error it ends with: `Error CODE: …` and its hint."""

    def __init__(self) -> None:
        self.last_error: tuple[str, str] | None = None
        self._within = False

    def lines(self, lines: Sequence[str]) -> Iterator[str]:
        """Lines without their ends."""
        for line in lines:
            match = _ERROR_LINE.match(line)
            if match:
                self.last_error, self._within = (match[1], match[2]), True
            elif self._within and self.last_error is not None and line.startswith(_HINT):
                self.last_error = (self.last_error[0], f"{self.last_error[1]}\n{line}")
            else:
                self._within = False
                yield line


async def _relay(half: Half, stderr: asyncio.StreamReader) -> None:
    """Pass a half's stderr on, and remember the error it ends with."""
    errors, rest = ErrorFilter(), b""
    while True:
        data = await stderr.read(1 << 16)
        *whole, rest = (rest + data).split(b"\n")
        if rest and (not data or len(rest) > _LONGEST_LINE):
            whole, rest = [*whole, rest], b""
        for line in errors.lines([raw.decode(errors="replace") for raw in whole]):
            sys.stderr.write(line + "\n")
        sys.stderr.flush()
        half.last_error = errors.last_error
        if not data:
            return


def _status_text(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
