"""Start and stop one MariaDB of this machine's package, with little memory, in a temporary folder."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

from tidemill.errors import TidemillError
from tidemill.extras import extra
from tidemill.process.ports import free_ports

with extra("mysql"):
    import pymysql

_SMALL = (
    *("--innodb-log-file-size=32M", "--key-buffer-size=1M", "--performance-schema=OFF", "--table-open-cache=400"),
    *("--max-connections=80", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=1"),
)
_START_S = 60.0


class MariaDbError(TidemillError):
    """MariaDB is not installed, or does not start."""

    code = "TM:ErrMariaDbProcess"


class MariaDbServer:
    """A server. It may be killed and started again: its data and its port stay. A context manager."""

    def __init__(self, *options: str, memory: str = "64M") -> None:
        """Raises MariaDbError."""
        self._program = self._found()
        self.folder = Path(tempfile.mkdtemp(prefix="tidemill-mariadb-"))
        (self.port,) = free_ports(1)
        self.data = self.folder / "data"
        # A server that starts removes every temporary table of its `tmpdir`, those of other servers too: each has its own.
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self._memory, self._options = memory, options
        self._process: subprocess.Popen[bytes] | None = None
        self._install()

    def _found(self) -> str:
        """Return the program. Raises MariaDbError."""
        program = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
        if program is None:
            raise MariaDbError("MariaDB is not installed", hint="apt-get install mariadb-server-core mariadb-client-core")
        return program

    def _install(self) -> None:
        """Make the data of a new server. Raises MariaDbError."""
        directories = (f"--datadir={self.data}", f"--tmpdir={self.temporary}")
        self._run("mariadb-install-db", "--no-defaults", *directories, "--auth-root-authentication-method=normal", "--skip-test-db")

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise MariaDbError(f"{command[0]} ends with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")

    def _command(self) -> list[str]:
        """Return what starts the server."""
        common = (f"--datadir={self.data}", f"--port={self.port}", f"--socket={self.folder}/sock", f"--pid-file={self.folder}/pid")
        address = ("--user=root", "--bind-address=127.0.0.1", "--skip-name-resolve")
        memory = (f"--tmpdir={self.temporary}", f"--innodb-buffer-pool-size={self._memory}")
        return [self._program, "--no-defaults", *common, *address, *_SMALL, *memory, *self._options]

    @property
    def uri(self) -> str:
        """A sink URI."""
        return f"mysql://root@127.0.0.1:{self.port}/"

    @property
    def pid(self) -> int:
        """The process. It has to run."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it takes connections. Raises MariaDbError with the end of its log."""
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.connect().close()
                return
            except pymysql.err.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    break
                threading.Event().wait(0.1)
        raise MariaDbError(f"{Path(self._program).name} does not start: {(self.folder / 'server.log').read_text()[-1000:]}")

    def connect(self, **given: Any) -> Any:
        """A connection for the caller, without TLS: PyMySQL would read the system's certificates each time."""
        asked = {"host": "127.0.0.1", "port": self.port, "user": "root", "charset": "utf8mb4", "autocommit": True, "ssl_disabled": True}
        return pymysql.connect(**asked | given)

    def kill(self) -> None:
        """`kill -9`."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it as a service manager does."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(60)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
