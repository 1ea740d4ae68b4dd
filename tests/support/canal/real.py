"""Canal's own server (1.1.7, from Maven Central) as a process: entries are given to it instead of a binlog."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tidemill.canal.scramble import stored
from tidemill.playground.programs.maven import installed, java
from tidemill.process.ports import free_ports

HERE = Path(__file__).parent
PASSWORD = "Canal@123"


def jars() -> Path:
    """The folder with the server and what it needs."""
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    return installed("real-canal", HERE / "real_canal_pom.xml", "TIDEMILL_REAL_CANAL", goal, "canal.server-*.jar")


class RealCanal:
    """A server with destination d, user canal and PASSWORD."""

    def __init__(self, entries: Iterable[bytes], port: int | None = None) -> None:
        self.port = port if port is not None else free_ports(1)[0]
        command = [java(), "-cp", f"{jars()}/*", str(HERE / "RealCanal.java"), str(self.port), stored(PASSWORD)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:  # its log may be among the lines
            if line == "ready\n":
                break
        else:
            raise AssertionError("Canal's server has ended")
        self.put(entries)

    def put(self, entries: Iterable[bytes]) -> None:
        """More entries."""
        assert self._process.stdin is not None
        for entry in entries:
            self._process.stdin.write(base64.b64encode(entry).decode() + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.communicate()
