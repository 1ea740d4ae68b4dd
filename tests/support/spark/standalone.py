"""A Spark standalone cluster for tests: a master and workers, each a Java process of its own, on free ports of this machine."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from tests.support.delivery.drivers import is_executor
from tidemill.spark.session import find_java

UP_S = 120.0


class Standalone:
    """`with Standalone(folder) as cluster`: `master` is its URL. Everything it started ends with the block."""

    def __init__(self, folder: Path, *, workers: int, cores: int) -> None:
        self.folder, self.cores = folder, cores
        self._wanted = workers
        self.master = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            arguments = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self._master = self._java("master", "org.apache.spark.deploy.master.Master", *arguments)
            self.master = self._said("master", self._master, r"Starting Spark master at (spark://\S+)")
            for _ in range(self._wanted):
                self.add_worker()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def add_worker(self) -> None:
        """One more, up when it is registered."""
        name = f"worker-{len(self.workers)}"
        options = ("--host", "127.0.0.1", "--webui-port", "0", "-c", str(self.cores), "-m", "1g", "-d", str(self.folder / name))
        process = self._java(name, "org.apache.spark.deploy.worker.Worker", *options, self.master)
        self.workers.append(process)
        self._said(name, process, r"Successfully registered with master (\S+)")

    def kill_worker(self, number: int) -> None:
        """kill -9; its executors notice and end."""
        self.workers[number].kill()
        self.workers[number].wait()

    def executors(self) -> list[psutil.Process]:
        """The Java processes that run tasks."""
        found = []
        for worker in self.workers:
            if worker.poll() is None:
                found += [p for p in psutil.Process(worker.pid).children(recursive=True) if is_executor(p)]
        return found

    def _java(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        environment = {**os.environ, "JAVA_HOME": str(find_java()), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
        with open(self.folder / f"{name}.log", "wb") as log:
            return subprocess.Popen(
                [str(home / "bin" / "spark-class"), program, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )

    def _said(self, name: str, process: subprocess.Popen[bytes], pattern: str) -> str:
        deadline = time.monotonic() + UP_S
        while time.monotonic() < deadline and process.poll() is None:
            found = re.search(pattern, (self.folder / f"{name}.log").read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.2)
        raise AssertionError(
            f"{name} of the Spark cluster did not come up: {(self.folder / f'{name}.log').read_text(errors='replace')[-2000:]}"
        )

    def _end(self) -> None:
        everyone = [p for p in (*self.workers, self._master) if p is not None and p.poll() is None]
        children = [child for p in everyone for child in psutil.Process(p.pid).children(recursive=True)]
        for process in everyone:
            process.kill()
            process.wait()
        for child in children:
            if child.is_running():
                child.kill()
