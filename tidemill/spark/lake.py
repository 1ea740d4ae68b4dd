"""The tables of a lake as DataFrames, all of them at one resolved ts.

    lake = as_of(spark, "/lake")                     the newest resolved ts
    lake["shop.orders"].join(lake["shop.users"], …)
    lake.create_views()                              `orders` and so on in temporary views, by SCHEMA_TABLE

Spark reads the data files itself; it needs no connector for the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidemill import tso
from tidemill.errors import SinkError
from tidemill.rules.names import did_you_mean
from tidemill.sinks.lake.base import TableFiles
from tidemill.sinks.lake.manifest import Manifest, TableAt, manifest_at
from tidemill.sinks.lake.open import lake_uri, store_of, tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LATEST = "latest"


class LakeAt(Mapping[str, "DataFrame"]):
    """DataFrames by `schema.table`. `resolved_ts`: the moment of all of them."""

    def __init__(self, spark: SparkSession, manifest: Manifest, found: Mapping[str, TableAt], read: _Reader) -> None:
        self.resolved_ts = manifest.resolved_ts
        self._spark, self._found, self._read = spark, found, read

    def __getitem__(self, name: str) -> DataFrame:
        at = self._found.get(name)
        if at is None:
            raise SinkError(f"there is no table {name} at {tso.describe(self.resolved_ts)}{did_you_mean(name, self._found)}")
        return _frame(self._spark, self._read(at))

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def create_views(self) -> list[str]:
        """Make a temporary view `schema_table` for each table. Returns their names."""
        names = []
        for name, at in self._found.items():
            view = f"{at.schema}_{at.table}"
            self[name].createOrReplaceTempView(f"`{view}`")
            names.append(view)
        return names


class _Reader:
    """Looks a table's files up."""

    def __init__(self, root: str) -> None:
        self._uri = lake_uri(root)
        self.store = store_of(self._uri)
        self._tables = tables_of(self._uri, self.store)

    def __call__(self, at: TableAt) -> TableFiles:
        return self._tables.files(at)


def as_of(spark: SparkSession, root: str, ts: int | str = LATEST) -> LakeAt:
    """Return the tables of a lake as of one ts: a TSO, a time that `tidemill tso` takes, or "latest".

    `root`: a folder, or a delta:// or iceberg:// URI. Raises SinkError if the tables are not that far, or if nothing is known of that time.
    """
    read = _Reader(root)
    manifest = manifest_at(read.store, None if ts == LATEST else ts if isinstance(ts, int) else tso.parse(ts))
    found = {f"{at.schema}.{at.table}": at for at in manifest.tables.values()}
    return LakeAt(spark, manifest, found, read)


def _frame(spark: SparkSession, files: TableFiles) -> DataFrame:
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(files.schema)
    if not files.paths:
        return spark.createDataFrame([], schema)
    if any("parquet.field.id" in one.metadata for one in schema):
        spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")  # Iceberg finds columns by id: their names in files may be older
    return spark.read.schema(schema).parquet(*files.paths)
