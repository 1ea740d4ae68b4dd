"""`Upstream`: a TiDB cluster and a capture of it, in threads of this process."""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidemill.capture.capture import Capture
from tidemill.capture.config import CaptureConfig
from tidemill.playground.server import PlaygroundThread

PATIENCE_S = 60.0
"""Seconds that a log may take to catch up with a statement. It takes one or two."""


class Upstream:
    """A small TiDB whose changes are captured into `log`. A context manager.

        with Upstream() as upstream:
            upstream.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
            upstream.sql("INSERT INTO shop.t VALUES (1, 10)")
            upstream.changes("shop.t")

    The SQL is the playground's: what it has is on the page about it. Nothing is shared between two of them, and nothing stays afterwards
    unless a folder is given.
    """

    def __init__(self, folder: Path | str | None = None, *, seed: int = 1) -> None:
        """`folder`: for the change log; without it, a temporary one. `seed`: of what the cluster does at random, such as ids."""
        self._held = ExitStack()
        if folder is None:
            folder = self._held.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-upstream-"))
        self.log = str(Path(folder) / "log")
        self._cluster = PlaygroundThread(seed)
        self._capture: Capture | None = None
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        try:
            self._capture, self._running = self._cluster.start(self._begin)
            self.sql()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _begin(self) -> tuple[Capture, Any]:
        capture = Capture(CaptureConfig(pd=(self._cluster.pd_address,), log=self.log))
        return capture, capture.run()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._capture is not None and self._running is not None:
            self._cluster.call(self._capture.stop)
            self._running.exception()
        self._cluster.__exit__(kind, error, trace)
        self._held.close()

    @property
    def pd(self) -> str:
        """PD's address, for `tidemill run --pd` and others that take a cluster."""
        return self._cluster.pd_address

    def sql(self, *statements: str) -> int:
        """Run statements, each a transaction of its own unless it stands between BEGIN and COMMIT. Returns a TSO past them, and waits until
        the log has all changes up to it.

        Raises SqlError for a statement that the playground cannot run, TimeoutError, and what ended the capture.
        """
        for statement in statements:
            self._cluster.execute(statement)
        ts: int = self._cluster.call(self._cluster.playground.cluster.oracle.next)
        self.wait(ts)
        return ts

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a SELECT."""
        return [tuple(row) for row in self._cluster.execute(query).rows]

    def wait(self, ts: int) -> None:
        """Wait until the log has all changes up to a TSO."""
        try:
            self._cluster.run(self._caught_up(ts))
        except TimeoutError:
            raise TimeoutError(f"the change log has not reached {ts} within {PATIENCE_S:g} s") from None

    async def _caught_up(self, ts: int) -> None:
        capture, running = self._capture, self._running
        assert capture is not None
        assert running is not None
        async with asyncio.timeout(PATIENCE_S):
            while not (hasattr(capture, "writer") and capture.writer.resolved_ts >= ts):
                if running.done():
                    running.result()
                    raise RuntimeError("the capture has ended")
                await asyncio.sleep(0.02)

    def changes(self, table: str, **options: str) -> list[dict[str, Any]]:
        """The changes of a table (`db.name`) as `spark.read.format("tidemill")` gives them, without Spark: a dict a row, in the order of
        their commits. `options`: those of the format."""
        from tidemill.spark.source.rows import read_rows  # pyspark, which not every test needs

        return read_rows(self.log, table=table, **options)
