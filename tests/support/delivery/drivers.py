"""Drivers of a changefeed as processes, for tests: on any Spark, with the state apart, killed and frozen with all that they started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.support.changelog.steps import freeze, thaw
from tests.support.delivery.feeds import Delivered
from tidemill.changefeed.replay import replay
from tidemill.changefeed.runner_options import Options
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.process.orders import begin

PATIENCE_S = 400.0
FAST = ("spark.network.timeout=10s", "spark.network.timeoutInterval=5s", "spark.executor.heartbeatInterval=2s")
"""An executor that is not heard of is given up after ten seconds instead of two minutes."""


class Driver:
    """The runner of changefeed f, with all batches by Spark: its log and state lie in `folder`, its data in one of its own.

    `at`: a function that makes URLs of the names `log` and `state`, where these lie elsewhere. `hidden`: nobody else sees the data folder,
    as if the driver were on another machine (needs root). `more`: fields of its options.
    """

    def __init__(
        self, folder: Path, name: str, *, sink: str | None = None, at: Callable[[str], str] | None = None, hidden: bool = False, **more: Any
    ) -> None:
        self.folder, self.data = folder, folder / name
        log, state = (at(name) if at is not None else str(folder / name) for name in ("log", "state"))
        self._log, self._state = open_storage(log), open_storage(state)
        uri = sink or f"messages://{folder}/out?protocol=open-protocol"
        config = parse_config("")
        self._order = Options("f", log, self.data, uri, config, tz="UTC", trigger_ms=0, state=state, **more)
        self.arguments = [sys.executable, "-m", "tests.support.delivery.by_spark"]
        if hidden:
            self.data.mkdir()
            mount = f'mount -t tmpfs none {self.data} && exec "$@"'
            self.arguments = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", *self.arguments]
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with open(self.folder / f"{self.data.name}.log", "w") as log:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.PIPE, stdout=log, stderr=log)
        assert self.process.stdin is not None
        self.process.stdin.write(begin(self._order))
        self.process.stdin.flush()  # and left open: the process ends when it does
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self.process is not None
        everybody = self.tree()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        for process in everybody:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    @property
    def said(self) -> str:
        """What it wrote."""
        return (self.folder / f"{self.data.name}.log").read_text()

    def state(self, name: str) -> dict[str, Any]:
        return _json(self._state, f"changefeeds/f/{name}")

    @property
    def checkpoint(self) -> int:
        return int(self.state("checkpoint.json").get("checkpoint_ts", 0))

    def fence(self) -> dict[str, Any]:
        return _json(self._log, "fences/f.json")

    def until(self, condition: Callable[[], bool], what: str, every_s: float = 0.02) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.said[-3000:]}"
            time.sleep(every_s)

    def past(self, ts: int) -> None:
        """Return when the checkpoint has reached ts."""
        self.until(lambda: self.checkpoint >= ts, f"checkpoint {ts}")

    def end(self) -> int:
        """Wait until it ends by itself, and return its exit code."""
        assert self.process is not None
        return self.process.wait(PATIENCE_S)

    def tree(self) -> list[psutil.Process]:
        """Return the driver and all processes that it started, the driver first."""
        assert self.process is not None
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(self.process.pid)
            return [top, *top.children(recursive=True)]
        return []

    def executors(self) -> list[psutil.Process]:
        """Java processes of a local-cluster's executors."""
        return [p for p in self.tree() if is_executor(p)]

    def freeze_in_a_batch(self) -> list[psutil.Process]:
        """Stop all processes (SIGSTOP) while a batch is under way, and return them.

        Not while one is in a step on a file of the log.
        """
        while True:
            epoch = self.fence().get("epoch")
            self.until(lambda before=epoch: self.fence().get("epoch") != before, "the next attempt", every_s=0.001)  # type: ignore[misc]
            everybody = self.tree()
            if freeze(everybody, Path(self._log.location) if self._log.local else self._log.location):
                if self.fence()["to_ts"] > self.checkpoint:
                    return everybody
                thaw(everybody)


def _json(storage: Storage, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(storage.read(name) or b"{}")
    return found


def is_executor(process: psutil.Process) -> bool:
    """Return whether a process is the Java of an executor."""
    with suppress(psutil.NoSuchProcess):
        return any("CoarseGrainedExecutorBackend" in part for part in process.cmdline())
    return False


def can_hide() -> bool:
    """Return whether a driver can have a folder that no other process sees."""
    if os.geteuid() or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def stops(log: Path) -> list[int]:
    """The DDL barriers of a log: ends of batches."""
    history = load_history(LogReader(log))
    return history.barriers(history.start_ts, history.resolved_ts)


def first_deliveries(path: Path) -> list[tuple[bytes, bytes]]:
    """Row events of partition 0, each where it came first."""
    events = Delivered.read(path).events[0]
    return [e for table in sorted(events) for e in dict.fromkeys(events[table])]


def assert_as_replayed(folder: Path, target: int) -> None:
    """Check that the messages file holds what one replay of the log delivers: rows and DDLs in order, and resolved events."""
    config = parse_config("")
    settings = Settings("r", config.sink_uri(f"messages://{folder}/want?protocol=open-protocol"), config, UTC)
    replay(str(folder / "log"), settings, target_ts=target)
    assert first_deliveries(folder / "out") == first_deliveries(folder / "want")
    got, want = Delivered.read(folder / "out"), Delivered.read(folder / "want")
    once = list({json.dumps(d): d["q"] for d in got.ddls[0]}.values())
    assert once == [d["q"] for d in want.ddls[0]]
    assert set(want.resolved[0]) <= set(got.resolved[0])
    assert max(got.resolved[0]) == target
