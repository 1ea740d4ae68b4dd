"""Starts processes: Python programs of Tidemill, and any program from an event loop without holding it up.

A fork copies the page tables of the whole process, and the parent waits until the child has loaded its program. On a busy machine that
takes a capture 100 ms and more, in which its event loop does nothing. So a thread starts the process, and then waits for its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from tidemill.process import threads

LONGEST_LINE = 1 << 24
"""Bytes of a line that a child writes to its stdout for this process."""
MOST_WAITING = 1 << 20
"""Bytes that may wait for a child to read its stdin, before more is refused."""

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""For the environment of a Python: it, and every Python that it starts, takes no module from its working directory. A file `http.py` or
`json.py` in the folder where somebody calls `tidemill run` would be imported in place of Python's own."""


_OF_WORKERS = frozenset(
    {
        *("PYTHON_UNIX_DOMAIN_ENABLED", "PYTHON_UDF_BATCH_SIZE", "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE", "PYTHON_FAULTHANDLER_DIR"),
        *("SPARK_PYTHON_RUNTIME", "SPARK_REUSE_WORKER", "SPARK_SIMPLIFIED_TRACEBACK", "SPARK_HIDE_TRACEBACK", "SPARK_JOB_ARTIFACT_UUID"),
        *("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_CONNECT_MODE", "SPARK_ENV_LOADED", "SPARK_SCALA_VERSION"),
        *("PYSPARK_EXECUTOR_MEMORY_MB", "PYSPARK_PLANNER_MEMORY_MB", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"),
        "_PYSPARK_DRIVER_CONN_INFO_PATH",
    }
)
SECRETS = frozenset(
    {
        *("TIDEMILL_SINK_URI", "TIDEMILL_LOG", "TIDEMILL_CANAL_STORE", "TIDEMILL_SCHEMA_REGISTRY"),
        "TIDEMILL_TOKEN",
    }
)
"""Variables that may hold secrets, each for the process that it was set for. A child is told what it needs: see `orders`."""
SECRET_PREFIX = "TIDEMILL_SECRET_"
"""How variables begin that sink URIs name: for processes that write to sinks."""
_OF_FACTORY = "PYTHON_WORKER_FACTORY_"
_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
"""What Spark's Java and its scripts put into the environment of a Python worker, about this worker and this Java. A child with a Spark of
its own would take it for its own: a daemon that opens a Unix socket while Java waits for a TCP port, another driver's gateway, a folder
that goes when the other Spark ends. Source: PythonWorkerFactory and PythonRunner of Spark, daemon.py and worker.py of PySpark."""


def python(module: str, *arguments: str) -> list[str]:
    """The command line of a module of Tidemill as a program."""
    return [sys.executable, "-P", "-m", module, *arguments]


def program(module: str, *arguments: str) -> list[str]:
    """The command line of a module that has a `main` and is only ever run as a program: it is loaded quicker, see `process.program`."""
    return python("tidemill.process.program", module, *arguments)


def environment(*more: Mapping[str, str], writes: bool = False) -> dict[str, str]:
    """This process's environment for a child, with more variables, without this process's secrets, and without what concerns only this
    process where it is a Python worker of Spark. `writes`: the child writes to sinks, whose URIs name variables."""
    is_worker = any(name.startswith(_OF_FACTORY) for name in os.environ)
    found = {name: value for name, value in os.environ.items() if name not in _OF_WORKERS and not name.startswith(_OF_FACTORY)}
    if is_worker:  # there it is the folder of that Spark's blocks; elsewhere the user's choice
        found.pop(_LOCAL_DIRS, None)
    found = {name: value for name, value in found.items() if name not in SECRETS and (writes or not name.startswith(SECRET_PREFIX))}
    found.update(SAFE_PATH)
    for one in more:
        found.update(one)
    return found


async def start(
    argv: Sequence[str],
    variables: Mapping[str, str],
    *,
    new_session: bool = False,
    keeps_stderr: bool = False,
    keeps_stdout: bool = False,
) -> Child:
    """Start a process with this environment. Its stdin is a pipe that this process holds open. `keeps_stderr`, `keeps_stdout`: these are
    read here. Raises OSError."""
    child = Child(asyncio.get_running_loop())

    def popen() -> subprocess.Popen[bytes]:
        out, err = (subprocess.PIPE if kept else None for kept in (keeps_stdout, keeps_stderr))
        return subprocess.Popen(
            argv, bufsize=0, stdin=subprocess.PIPE, stdout=out, stderr=err, env=dict(variables), start_new_session=new_session
        )

    def work() -> None:
        """In the thread."""
        try:
            process = popen()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            failure = error if isinstance(error, OSError) else OSError(str(error))
            child.call(child.begun.set_exception, failure)
            return
        child.call(child.begin, process)
        # It is reaped when the loop's thread sends it no more signals: then somebody else may get its number. Reaping takes the kernel
        # hundreds of milliseconds on a busy machine.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if child.call(child.dies):
            child.dead.wait()
        process.wait()
        child.call(child.end)

    threads.begin(work)
    try:
        await asyncio.shield(child.begun)
    except asyncio.CancelledError:
        child.begun.add_done_callback(lambda begun: None if begun.cancelled() or begun.exception() else child.kill())
        raise
    if keeps_stderr:
        await child.open_stderr()
    if keeps_stdout:
        await child.open_stdout()
    return child


class Child:
    """A process that was started from an event loop. All calls are for the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._process: subprocess.Popen[bytes] | None = None
        self._over = asyncio.Event()
        self.dead = threading.Event()
        """The process has ended, and the loop's thread knows."""
        self._pipes: list[asyncio.BaseTransport] = []
        self._waiting = b""
        """What its stdin has not taken yet."""
        self.begun: asyncio.Future[None] = loop.create_future()
        self.stderr = asyncio.StreamReader()
        self.stdout = asyncio.StreamReader(limit=LONGEST_LINE)

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it runs."""
        return self._running.returncode

    async def wait(self) -> int:
        """Wait for its end. Returns its exit code, or minus the number of the signal that ended it."""
        await self._over.wait()
        status = self._running.returncode
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        if not self.dead.is_set():
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def tell(self, line: bytes) -> bool:
        """Write a line to its stdin; what its pipe does not take yet is written as it reads. False: it has ended, or does not read."""
        if self._stdin.closed or len(self._waiting) > MOST_WAITING:
            return False
        if not self._waiting:
            try:
                line = line[self._stdin.write(line) or 0 :]
            except OSError:
                return False
            if line:
                self._loop.add_writer(self._stdin.fileno(), self._write_on)
        self._waiting += line
        return True

    @property
    def unsent(self) -> int:
        """How many bytes its pipe has not taken yet."""
        return len(self._waiting)

    def _write_on(self) -> None:
        try:
            self._waiting = self._waiting[self._stdin.write(self._waiting) or 0 :]
        except OSError:  # it reads no more
            self._waiting = b""
        if not self._waiting:
            self._loop.remove_writer(self._stdin.fileno())

    def close(self) -> None:
        """Close what is left of its pipes."""
        while self._pipes:
            self._pipes.pop().close()
        self.close_stdin()

    def close_stdin(self) -> None:
        """End its stdin. What it has not taken yet is dropped."""
        if self._waiting:
            self._waiting = b""
            self._loop.remove_writer(self._stdin.fileno())
        with contextlib.suppress(OSError):
            self._stdin.close()

    # ---- for `start`

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def _stdin(self) -> IO[bytes]:
        stdin = self._running.stdin
        assert stdin is not None
        return stdin

    def call(self, what: Callable[..., object], *arguments: object) -> bool:
        """Call something on the loop's thread, from another thread. False: the loop is closed, and needs nothing any more."""
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:
            return False
        return True

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """The process is there."""
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._process = process
        self.begun.set_result(None)

    def dies(self) -> None:
        """The process has ended, and is reaped next."""
        self.dead.set()

    def end(self) -> None:
        """The process is reaped."""
        self._over.set()
        self.close_stdin()

    async def open_stderr(self) -> None:
        """Read its stderr into `stderr`."""
        await self._open(self.stderr, self._running.stderr)

    async def open_stdout(self) -> None:
        """Read its stdout into `stdout`."""
        await self._open(self.stdout, self._running.stdout)

    async def _open(self, reader: asyncio.StreamReader, pipe: IO[bytes] | None) -> None:
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_read_pipe(lambda: protocol, pipe)
        self._pipes.append(transport)
