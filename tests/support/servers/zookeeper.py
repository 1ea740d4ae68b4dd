"""A real ZooKeeper for tests: the one among Spark's jars, as a process of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pyspark

START_S = 240.0
TICK_MS = 200
"""Sessions last between 2 and 20 ticks."""


class ZooKeeper:
    """One server without replicas, as long as the block lasts. `restart` keeps its data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
        self.address = f"127.0.0.1:{port}"
        folder.mkdir(parents=True)
        config = {
            "dataDir": folder / "data",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": TICK_MS,
            "admin.enableServer": "false",
            "maxSessionTimeout": 60_000,
            "4lw.commands.whitelist": "ruok",
        }
        (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        (folder / "log4j2.properties").write_text("rootLogger.level = error\n")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ZooKeeper:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        java = shutil.which("java")
        assert java is not None
        jars = Path(pyspark.__file__).parent / "jars"
        options = [
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties",
        ]
        with (self._folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [java, *options, "-cp", f"{jars}/*", "org.apache.zookeeper.server.ZooKeeperServerMain", str(self._folder / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "output.txt").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _answers(self) -> bool:
        host, _, port = self.address.partition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
