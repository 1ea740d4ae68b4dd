"""What the merge of changed rows into a table of the lake costs: changed rows per CPU second of the driver, for Delta and Iceberg.

    python -m bench.bench_lake delta iceberg --rows 2000000 --changed 100000

    python -m bench.bench_lake delta --rows 2000000 --merge

`clustered`: the newest keys, a tenth of them new. `spread`: keys at random over the table. A tenth of the changes are deletes. CPU is
user + system of this process, with the library's threads. How many data files are written again is told too. `--merge`: delta-spark's
MERGE of the same changes into a copy of the same table, in the same run; its CPU is that of Java, after a MERGE that warms it up.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench.report.figures import Figure, note
from tidemill.config.lake import LakeOptions
from tidemill.sinks.base import no_fence_check
from tidemill.sinks.lake.base import Stamp, Tables
from tidemill.sinks.lake.delta import DeltaTables
from tidemill.sinks.lake.iceberg import IcebergTables
from tidemill.sinks.lake.shapes import OP, LakeTable, field
from tidemill.sinks.storage.store import LocalStore

STAGE = "Lakes: one commit of changed rows"
FIELDS = pa.schema(
    [
        field("id", pa.int64(), 1),
        field("name", pa.string(), 2),
        field("price", pa.decimal128(12, 2), 3),
        field("at", pa.timestamp("us"), 4),
        field("stock", pa.int64(), 5),
    ]
)
TABLE = LakeTable("shop", "items", 1, pa.RecordBatch.from_arrays([pa.nulls(1, one.type) for one in FIELDS], schema=FIELDS), ("id",))
FILE_BYTES = 16 << 20
LOADED = 250_000


def rows_of(ids: npt.NDArray[np.int64]) -> pa.Table:
    """Rows with these keys."""
    columns = [
        pa.array(ids),
        pa.array(np.char.add("name ", (ids % 1000).astype(str))),
        pa.array(ids % 10_000).cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
        pa.array(ids * 1000).cast(pa.timestamp("us")),
        pa.array(ids * 7),
    ]
    return pa.table(columns, schema=FIELDS)


def stamp(ts: int) -> Stamp:
    return Stamp("bench", ts, 1, no_fence_check)


def measure(name: str, rows: int, changed: int, folder: Path, *, merge: bool = False) -> None:
    """Load a table, then merge changes of both kinds. `merge`: then delta-spark does the same."""
    tables: Tables
    if name == "delta":
        tables = DeltaTables(str(folder), LocalStore(folder), None, FILE_BYTES)
    else:
        place = f"file://{folder}"
        options = LakeOptions(catalog="bench", catalog_uri=f"sqlite:///{folder}/c.db", warehouse=place, target_file_size=FILE_BYTES)
        tables = IcebergTables(options, None)
    place = tables.place("shop", "items")
    tables.shape(place, TABLE, stamp(1))
    for at in range(0, rows, LOADED):
        tables.append(place, TABLE, rows_of(np.arange(at, min(rows, at + LOADED))), stamp(2 + at))
    if merge:
        shutil.copytree(folder, folder.with_name("copy"), dirs_exist_ok=True)
    random = np.random.default_rng(1)
    kinds = {
        "clustered": np.arange(rows - changed * 9 // 10, rows + changed // 10),
        "spread": np.sort(random.choice(rows, changed, replace=False)),
    }
    for ts, (kind, ids) in enumerate(kinds.items(), start=rows + 10):
        changes = changes_of(ids)
        before = tables.files(tables.version("shop", "items", 1, place))
        cpu, wall = time.process_time(), time.perf_counter()
        tables.merge(place, TABLE, changes, stamp(ts))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        after = tables.files(tables.version("shop", "items", 1, place))
        replaced = sorted(before.sizes.keys() - after.sizes.keys())
        aim = 60_000 if (name, kind) == ("delta", "clustered") else None
        note(Figure(STAGE, f"{name}, {kind}, {rows:,} rows", changed / cpu, "changed rows a CPU s", aim=aim, most=False))
        print(
            f"{name:8} {kind:10} {changed / cpu:10,.0f} changed rows per CPU s   {cpu:.2f} CPU s, {wall:.2f} s; "
            f"{len(replaced)} of {len(before.paths)} files written again",
            flush=True,
        )
    if merge:
        by_spark({kind: changes_of(ids) for kind, ids in kinds.items()}, folder.with_name("copy") / place, folder.parent)


def changes_of(ids: npt.NDArray[np.int64]) -> pa.Table:
    """Rows with these keys, a tenth of them deleted."""
    return rows_of(ids).append_column(OP, pa.array((ids % 10 == 0).astype(np.int8)))


def by_spark(kinds: dict[str, pa.Table], table: Path, folder: Path) -> None:
    """delta-spark's MERGE of the changes into a table."""
    from bench.processes import Cpu
    from bench.spark_jars import spark_jars
    from tidemill.spark.session import start_session

    extra = {
        "spark.jars": spark_jars(),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    spark = start_session(folder / "spark.log", master="local[2]", extra=extra, defaults={"spark.driver.memory": "4g"})
    first = next(iter(kinds.values()))
    for kind, changes in {"warm-up": first.slice(0, 1000), **kinds}.items():
        file = folder / f"{kind}.parquet"
        pq.write_table(changes, file)
        spark.read.parquet(str(file)).createOrReplaceTempView("changes")
        begin, wall = Cpu.now(), time.perf_counter()
        spark.sql(
            f"MERGE INTO delta.`{table}` t USING changes s ON t.id = s.id WHEN MATCHED AND s.{OP} = 1 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in FIELDS.names)} "
            f"WHEN NOT MATCHED AND s.{OP} = 0 THEN INSERT ({', '.join(FIELDS.names)}) VALUES ({', '.join(f's.{n}' for n in FIELDS.names)})"
        )
        cpu, wall = Cpu.now().since(begin).total, time.perf_counter() - wall
        print(f"MERGE    {kind:10} {len(changes) / cpu:10,.0f} changed rows per CPU s   {cpu:.2f} CPU s, {wall:.2f} s", flush=True)
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="+", choices=("delta", "iceberg"))
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--changed", type=int, default=100_000)
    parser.add_argument("--merge", action="store_true", help="delta-spark's MERGE of the same changes beside Delta")
    args = parser.parse_args()
    for name in args.formats:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, args.rows, args.changed, Path(folder, "table"), merge=args.merge and name == "delta")


if __name__ == "__main__":
    main()
