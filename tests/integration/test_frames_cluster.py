"""DataFrames, lakes and views on a standalone Spark whose workers have folders of their own, with the log on an object store.

Its executors have no Tidemill but what `spark.submit.pyFiles` sends. One of them is killed in the middle of a stream.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow.fs import LocalFileSystem, copy_files

from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.read_delta import rows_of
from tests.support.servers.s3 import filesystem, make_bucket, s3_server
from tests.support.spark.packed import packed
from tests.support.spark.sessions import ROOT
from tests.support.spark.standalone import Standalone
from tidemill.functions import apply_changes
from tidemill.spark import as_of, register
from tidemill.spark.session import start_session
from tidemill.spark.source.rows import read_rows
from tidemill.views import View, Views, create

__all__ = ["s3_server"]

pytestmark = [
    *(pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)),
    pytest.mark.skipif("CLUSTER" not in os.environ, reason="make cluster"),
]
ROWS = 400


@pytest.fixture
def log(tmp_path: Path, s3_server: str) -> str:
    """A log on an object store: orders that are inserted, changed and deleted."""
    sql = SqlLog()
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    for first in range(0, ROWS, 20):
        sql.run(f"INSERT INTO t VALUES {', '.join(f'({i}, {i})' for i in range(first, first + 20))}")
    sql.run("UPDATE t SET n = n + 1 WHERE id < 50", "DELETE FROM t WHERE id >= 350")
    sql.write(tmp_path / "log", partitions=2)
    make_bucket(s3_server, "frames")
    copy_files(str(tmp_path / "log"), "frames/log", source_filesystem=LocalFileSystem(), destination_filesystem=filesystem(s3_server))
    return f"s3://test:test@frames/log?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    with Standalone(tmp_path / "spark", workers=2, cores=1) as made:
        yield made


@pytest.fixture
def spark(tmp_path: Path, cluster: Standalone) -> Iterator[Any]:
    """A session whose executors see the packages of this environment, without the editable Tidemill."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    packages = str(Path(pyarrow.__file__).parents[1])
    extra = {
        "spark.submit.pyFiles": str(packed(tmp_path / "tidemill.zip")),
        "spark.executorEnv.PYTHONPATH": packages,
        "spark.python.daemon.module": "pyspark.daemon",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "8",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(python))
        patch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{packages}")  # of Spark's Python processes beside the driver
        session = start_session(tmp_path / "spark.log", master=cluster.master, extra=extra, host="127.0.0.1")
        yield register(session)
        session.stop()


def test_frames_lakes_and_views(spark: Any, cluster: Standalone, log: str, tmp_path: Path) -> None:
    (tmp_path / "address").write_text(log)
    given = {"logFile": str(tmp_path / "address"), "table": "app.t"}
    want = read_rows(log, table="app.t")
    batch = spark.read.format("tidemill").options(**given).load()
    assert batch.rdd.map(lambda row: __import__("tidemill").__file__).first().count("tidemill.zip"), "executors have what was sent"
    assert sorted((row._commit_ts, row.id, row._change_type) for row in batch.collect()) == sorted(
        (row["_commit_ts"], row["id"], row["_change_type"]) for row in want
    )
    _killed_in_a_stream(spark, cluster, given, tmp_path)
    truth = [{"id": i, "n": i + (i < 50)} for i in range(350)]
    assert sorted(rows_of(tmp_path / "lake/app/t"), key=lambda row: row["id"]) == truth
    views = Views(tmp_path / "views")
    create(views, "total", log, "SELECT count(*) c, sum(n) s FROM app.t", f"delta://{tmp_path}/view")
    with View(views, "total") as view:
        view.catch_up()
        (row,) = as_of(spark, str(tmp_path / "view"))["views.total"].collect()
        assert (row.c, row.s) == (350, sum(one["n"] for one in truth))


def _killed_in_a_stream(spark: Any, cluster: Standalone, given: dict[str, str], place: Path) -> None:
    """A stream into a Delta table, one of whose executors dies after the first batch."""
    changes = spark.readStream.format("tidemill").options(**given, maxRowsPerTrigger="40").load()
    query = apply_changes(
        changes, str(place / "lake"), table="app.t", keys="id", checkpoint=str(place / "checkpoint"), trigger={"availableNow": True}
    )
    assert query is not None
    while query.isActive and not (place / "checkpoint/commits/0").exists():
        query.awaitTermination(0.1)
    assert query.isActive
    cluster.executors()[0].kill()
    query.awaitTermination()
    assert query.exception() is None
