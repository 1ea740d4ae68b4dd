"""What the merge of changed rows into a table of the lake costs: changed rows per CPU second of the driver, for Delta and Iceberg.

    python -m bench.bench_lake delta iceberg --rows 2000000 --changed 100000

`clustered`: the newest keys, a tenth of them new. `spread`: keys at random over the table. A tenth of the changes are deletes. CPU is
user + system of this process, with the library's threads. How many data files are written again is told too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.config.lake import LakeOptions
from tidemill.sinks.base import no_fence_check
from tidemill.sinks.lake.base import Stamp, Tables
from tidemill.sinks.lake.delta import DeltaTables
from tidemill.sinks.lake.iceberg import IcebergTables
from tidemill.sinks.lake.shapes import OP, LakeTable, field
from tidemill.sinks.storage.store import LocalStore

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


def measure(name: str, rows: int, changed: int, folder: Path) -> None:
    """Load a table, then merge changes of both kinds."""
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
    random = np.random.default_rng(1)
    kinds = {
        "clustered": np.arange(rows - changed * 9 // 10, rows + changed // 10),
        "spread": np.sort(random.choice(rows, changed, replace=False)),
    }
    for ts, (kind, ids) in enumerate(kinds.items(), start=rows + 10):
        changes = rows_of(ids).append_column(OP, pa.array((ids % 10 == 0).astype(np.int8)))
        before = tables.files(tables.version("shop", "items", 1, place))
        cpu, wall = time.process_time(), time.perf_counter()
        tables.merge(place, TABLE, changes, stamp(ts))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        after = tables.files(tables.version("shop", "items", 1, place))
        replaced = sorted(before.sizes.keys() - after.sizes.keys())
        print(
            f"{name:8} {kind:10} {changed / cpu:10,.0f} changed rows per CPU s   {cpu:.2f} CPU s, {wall:.2f} s; "
            f"{len(replaced)} of {len(before.paths)} files written again",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="+", choices=("delta", "iceberg"))
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--changed", type=int, default=100_000)
    args = parser.parse_args()
    for name in args.formats:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, args.rows, args.changed, Path(folder))


if __name__ == "__main__":
    main()
