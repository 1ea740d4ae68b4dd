"""What reading changes as DataFrames costs, beside Spark's own parquet scan of the same rows in the same run: rows per CPU second.

    python -m bench.bench_source narrow mixed --rows 2000000

CPU is user + system of Java, the Python workers and this process. Rows are those of the DataFrame: an update has two. A first pass over
the log warms everything up and does not count; of the passes after it the best counts, in turn with those over the parquet files and with
those of a Python source that has its Arrow batches ready (`batches made before`): that is all that Spark can take from any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.make_log import DATABASE, Shape, make_log, table_name
from bench.processes import Cpu
from bench.report.figures import Figure, note
from tidemill.spark import register
from tidemill.spark.session import start_session
from tidemill.spark.source.frame import schema_of
from tidemill.spark.source.options import parse_options
from tidemill.spark.source.planner import Planner
from tidemill.spark.source.reading import read_slice
from tidemill.spark.source.source import frame_of, manner_of, spark_schema
from tidemill.spark.source.versions import arrow_schema_in_utc

STAGE = "DataFrames of a change log"
PASSES = 4
READY_BATCHES = 64


class ReadySource(DataSource):
    """Yields the batches of an Arrow file again and again: `rows` in all, in `tasks` tasks."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        with pa.ipc.open_file(self.options["file"]) as found:
            return spark_schema(found.schema)

    def reader(self, schema: StructType) -> ReadyReader:
        return ReadyReader(self.options["file"], int(self.options["rows"]), int(self.options["tasks"]))


class ReadyReader(DataSourceReader):
    def __init__(self, file: str, rows: int, tasks: int) -> None:
        self._file, self._rows, self._tasks = file, rows, tasks

    def partitions(self) -> list[InputPartition]:
        shares = [self._rows * i // self._tasks for i in range(self._tasks + 1)]
        return [InputPartition(end - begin) for begin, end in pairwise(shares)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self._file) as opened:
            found = pa.ipc.open_file(opened)
            left = int(partition.value)
            for number in cycle(range(found.num_record_batches)):
                batch = found.get_batch(number).slice(0, left)
                left -= batch.num_rows
                yield batch
                if not left:
                    return


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds."""
    begin, then = Cpu.now(), time.perf_counter()
    work()
    cpu = Cpu.now().since(begin)
    return cpu.total, time.perf_counter() - then


def alone(log: str, table: str, ready: Path) -> tuple[int, int, float]:
    """Rows, slices, and CPU seconds of reading them into Arrow batches in this process; the second of two passes. The first batches are
    written into the file `ready`."""
    options = parse_options({"log": log, "table": table})
    planner = Planner(options)
    end = planner.last_ts()
    schema = arrow_schema_in_utc(spark_schema(schema_of(options, planner.base_version(end))))
    slices = list(planner.slices(planner.first_ts(), end, frame_of(planner, schema, end)))
    manner = manner_of(options, schema)
    with pa.ipc.new_file(ready, schema) as file:
        for batch in islice((batch for one in slices for batch in read_slice(one, manner)), READY_BATCHES):
            file.write(batch)
    rows = 0
    for _ in range(2):
        rows, began = 0, time.process_time()
        for one in slices:
            rows += sum(batch.num_rows for batch in read_slice(one, manner))
        cpu = time.process_time() - began
    return rows, len(slices), cpu


def to_nothing(frame: DataFrame) -> None:
    """Compute all rows and columns."""
    frame.write.format("noop").mode("overwrite").save()


def stream_to_nothing(spark: SparkSession, options: dict[str, str], folder: Path) -> None:
    """Read the whole log as a stream of a few batches."""
    frame = spark.readStream.format("tidemill").options(**options).load()
    begun = frame.writeStream.format("noop").option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    begun.awaitTermination()


def measure(corpus: str, rows: int, corpora: Path | None, folder: Path, spark: SparkSession) -> None:
    log = str(folder / corpus)
    shape = Shape(corpus, rows, segment_seconds=150.0)
    make_log(log, shape, corpora)
    table = f"{DATABASE}.{table_name(shape, 0)}"
    ready = folder / f"{corpus}.arrow"
    images, slices, cpu = alone(log, table, ready)
    note(Figure(STAGE, f"{corpus}, into Arrow, in one process", images / cpu / 1e6, "million rows a CPU s", most=False))
    print(f"{corpus}: {rows:,} changes, {images:,} rows; into Arrow, in one process: {cpu / images * 1e9:.0f} ns a row", flush=True)
    options = {"log": log, "table": table}
    frame = spark.read.format("tidemill").options(**options).load()
    parquet = str(folder / f"{corpus}.parquet")
    frame.write.option("compression", "none").parquet(parquet)
    made = {"file": str(ready), "rows": str(images), "tasks": str(slices)}
    ways: dict[str, Callable[[int], Any]] = {
        "batch": lambda _: to_nothing(spark.read.format("tidemill").options(**options).load()),
        "stream": lambda number: stream_to_nothing(spark, options, folder / f"{corpus}-checkpoint-{number}"),
        "batch, rows as JSON": lambda _: to_nothing(spark.read.format("tidemill").options(log=log, tables=table).load()),
        "batches made before": lambda _: to_nothing(spark.read.format("ready").options(**made).load()),
        "parquet": lambda _: to_nothing(spark.read.parquet(parquet)),
    }
    best: dict[str, tuple[float, float]] = {}
    for number in range(PASSES):
        for way, work in ways.items():
            found = spent(partial(work, number))
            if number:
                best[way] = min(found, best.get(way, found))
    for way, (cpu, wall) in best.items():
        count = rows if "JSON" in way else images
        aim = 1.0 if (corpus, way) == ("narrow", "stream") else None
        note(Figure(STAGE, f"{corpus}, {way}", count / cpu / 1e6, "million rows a CPU s", aim=aim, most=False))
        print(f"  {way}: {count / cpu / 1e6:.2f} M rows per CPU s, {count / wall / 1e6:.2f} M rows/s", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", metavar="CORPUS", help="narrow, mixed, wide")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--corpus", type=Path, dest="folder", help="folder with recorded corpora; without it they are made up")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-source-") as text:
        folder = Path(text)
        spark = start_session(folder / "spark.log", master="local[2]", defaults={"spark.driver.memory": "2g"})
        try:
            register(spark).dataSource.register(ReadySource)
            for corpus in given.corpora:
                measure(corpus, given.rows, given.folder, folder, spark)
        finally:
            spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
