"""A Spark application with a stream of a cluster is killed: its capture ends with it; the next run goes on, nothing twice or left out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import pytest

from tests.support.spark.frames import Stream, needs_streams
from tests.support.spark.owners import captures_in, next_batch, owners, until
from tests.support.spark.sessions import ROOT
from tidemill.playground.server import PlaygroundThread

SPARK_IS_ELSEWHERE = True
pytestmark = [pytest.mark.spark, pytest.mark.slow]

TABLE = "CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY)"
APPLICATION = """
import sys
from pathlib import Path
from tests.support.spark.sessions import QUICK
from tidemill.spark import register
from tidemill.spark.session import start_session

pd, place = sys.argv[1], Path(sys.argv[2])
spark = register(start_session(place / "spark.log", master="local[2]", extra={}, defaults=QUICK))
changes = spark.readStream.format("tidemill").option("pd", pd).option("table", "app.t").load()
query = changes.select("id").writeStream.foreachBatch(
    lambda frame, number: (place / f"batch-{number}").write_text(" ".join(str(row.id) for row in frame.collect()))
)
query.option("checkpointLocation", str(place / "checkpoint")).start().awaitTermination()
"""


def _rows(place: Path) -> list[int]:
    return sorted(int(word) for file in place.glob("batch-*") for word in file.read_text().split())


def _has_rows(place: Path, n: int) -> bool:
    return len(_rows(place)) >= n


class _Application:
    """A Spark application of its own. The block's end kills it and its Java."""

    def __init__(self, pd: str, place: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen([sys.executable, "-c", APPLICATION, pd, str(place)], env=environment, stdin=subprocess.DEVNULL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        below = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
        for process in below:  # the owner has a session of its own, and is not touched
            with suppress(psutil.NoSuchProcess):
                if process.name() == "java":
                    process.kill()
        self._process.kill()
        self._process.wait()

    def until(self, condition: Callable[[], Any]) -> None:
        until(lambda: condition() or self._process.poll() is not None)


def _killed(cluster: PlaygroundThread, place: Path, folder: Path, number: int) -> None:
    """Run an application until it has a row of this number. When it is killed, its capture ends."""
    with _Application(cluster.pd_address, place) as application:
        application.until(lambda: owners(folder) and [*folder.glob("*/log/log.json")])
        cluster.execute(f"INSERT INTO app.t VALUES ({number})")
        application.until(partial(_has_rows, place, number + 1))
        (owner,) = owners(folder)
        (capture,) = owner.children()
    psutil.wait_procs([owner, capture])
    assert owners(folder) == []
    cluster.execute(f"INSERT INTO app.t VALUES ({number + 1})")


@needs_streams
def test_a_killed_application(tmp_path: Path) -> None:
    """A stream that begins where its checkpoint says, as that of the next application does, has the rows that came meanwhile."""
    with PlaygroundThread(5) as cluster, captures_in(tmp_path / "captures") as folder:
        cluster.execute(TABLE)
        _killed(cluster, tmp_path, folder, 0)
        last = max((tmp_path / "checkpoint/offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        at = json.loads(last.read_text().splitlines()[-1])
        stream = Stream("", at, pd=cluster.pd_address, table="app.t")
        assert [row["id"] for row in next_batch(stream)] == [1]
        assert len(owners(folder)) == 1
    assert _rows(tmp_path) == [0]


@pytest.mark.thorough("test_a_killed_application goes on at the same offset, without the next one's Spark")
def test_an_application_and_the_next_are_killed(tmp_path: Path) -> None:
    with PlaygroundThread(5) as cluster, captures_in(tmp_path / "captures") as folder:
        cluster.execute(TABLE)
        for number in (0, 2):
            _killed(cluster, tmp_path, folder, number)
        assert _rows(tmp_path) == [0, 1, 2], "each row is in one batch"
