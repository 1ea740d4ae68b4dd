"""`initialSnapshot` of a cluster in a session of Spark's: the process that reads the tables has a Spark of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark.owners import captures_in
from tidemill.playground.server import PlaygroundThread
from tidemill.process.children import environment

SPARK_IS_ELSEWHERE = True
pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import json, sys
from pathlib import Path
from tidemill.spark.session import start_session, stop_spark
from tidemill.spark.settings import LOCAL_FRAMES

pd, folder = sys.argv[1:]
spark = start_session(Path(folder, "spark.log"), master="local[1]")
assert LOCAL_FRAMES.items() <= dict(spark.sparkContext.getConf().getAll()).items()
given = {"pd": pd, "table": "app.t", "initialSnapshot": "true"}
frame = spark.readStream.format("tidemill").options(**given).load().select("id", "_change_type")
query = frame.writeStream.format("parquet").option("path", folder + "/out").option("checkpointLocation", folder + "/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
print(json.dumps([[*row] for row in spark.read.parquet(folder + "/out").orderBy("id").collect()]))
stop_spark(spark)
"""


@pytest.mark.thorough(
    "test_captures.py has the rows that come first; what a process takes from a Spark around it: tests/process/test_children.py"
)
def test_a_stream_in_a_session_with_unix_sockets_has_the_tables_rows(tmp_path: Path) -> None:
    """Its first run waits for them: a query that takes what is there now must not end without."""
    with captures_in(tmp_path / "captures"), PlaygroundThread(11) as cluster:
        cluster.execute("CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY); INSERT INTO app.t VALUES (1), (2), (3)")
        argv = [sys.executable, "-c", PROGRAM, cluster.pd_address, str(tmp_path)]
        done = subprocess.run(argv, env=environment({"TMPDIR": "/tmp"}), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [[1, "insert"], [2, "insert"], [3, "insert"]]
