"""Keeps the halves of a running changefeed alive: the capture and the Spark driver, each a process of its own.

A half that dies is started again, from its own durable state, after a pause that doubles up to 30 s and starts over once a
half has lived for a minute. A half that ends with EXIT_FATAL cannot be helped by that: everything ends. The end of the
supervisor, however it comes, ends the halves: the kernel sends them a signal.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidemill.errors import EXIT_FATAL, TidemillError

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
CRASHES_IN_A_ROW = 20
_PR_SET_PDEATHSIG = 1
_ERROR_LINE = re.compile(r"Error (TM:\w+): (.*)")


class HalfFailed(TidemillError):
    """A half of the changefeed ended in a way that a restart cannot mend; `code` is the half's own."""

    def __init__(self, half: str, code: str, message: str) -> None:
        super().__init__(f"{half}: {message}")
        self.code = code


@dataclass
class Half:
    """One supervised process: its name, its command line, and what is known of it."""

    name: str
    argv: Sequence[str]
    restarts: int = 0
    pid: int | None = None
    last_error: tuple[str, str] | None = None
    process: asyncio.subprocess.Process | None = field(default=None, repr=False)


def pause_after(crashes: int) -> float:
    """Seconds to wait before start number crashes + 1 in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** max(0, crashes - 1))


class Supervisor:
    """Runs halves until one that is named `until` ends with 0, a stop is asked for, or one fails for good."""

    def __init__(
        self, halves: Sequence[Half], *, until: str, stop_within_s: float = 30.0, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.halves = list(halves)
        self.until = until
        self.stop_within_s = stop_within_s
        self.on_change = on_change
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask for the end: the halves get SIGTERM and time to finish what they are at."""
        self._stop.set()

    async def run(self) -> None:
        """Returns when all has ended well. Raises HalfFailed."""
        tasks = [asyncio.create_task(self._keep(half), name=half.name) for half in self.halves]
        stopping = asyncio.create_task(self._stop.wait())
        watched = {stopping, *tasks}
        try:
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task is not stopping:
                    task.result()
        finally:
            self._stop.set()
            await self._end()
            stopping.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, half: Half) -> None:
        """One half, started again as often as it helps. Returns when it is over."""
        crashes = 0
        while not self._stop.is_set():
            began = time.monotonic()
            status = await self._once(half)
            if self._stop.is_set() or (status == 0 and half.name == self.until):
                return
            code, message = half.last_error or ("TM:ErrHalfCrashed", f"ended with {_status_text(status)}")
            crashes = 1 if time.monotonic() - began > STEADY_S else crashes + 1
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
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_die_with_parent(os.getpid()),
            env={**os.environ, "TIDEMILL_SUPERVISED": "1"},
        )
        half.process, half.pid = process, process.pid
        log.info("%s started (pid %d)", half.name, process.pid)
        self.on_change()
        await self._relay(half, process)
        status = await process.wait()
        half.process, half.pid = None, None
        self.on_change()
        return status

    @staticmethod
    async def _relay(half: Half, process: asyncio.subprocess.Process) -> None:
        """Pass a half's stderr on, and remember the error it ends with."""
        assert process.stderr is not None
        async for raw in process.stderr:
            text = raw.decode(errors="replace")
            sys.stderr.write(text)
            sys.stderr.flush()
            match = _ERROR_LINE.match(text)
            if match:
                half.last_error = (match[1], match[2])

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    async def _end(self) -> None:
        """SIGTERM to what still runs, in order: the half that delivers first, so that the log it reads from is still kept."""
        order = sorted((h for h in self.halves if h.process), key=lambda h: h.name != self.until)
        deadline = time.monotonic() + self.stop_within_s
        for half in order:
            process = half.process
            if process is None or process.returncode is not None:
                continue
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), max(1.0, deadline - time.monotonic()))
            except TimeoutError:
                log.warning("%s did not end within %.0f s and is killed; it resumes from its checkpoint", half.name, self.stop_within_s)
                process.kill()
                await process.wait()


def _die_with_parent(parent: int) -> Callable[[], None]:
    """For a child before its program starts: SIGTERM when the parent ends; and none if the parent has ended already."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(EXIT_FATAL)

    return prepare


def _status_text(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
