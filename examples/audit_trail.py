"""Who changed what: the changes of a table as an audit trail, one line for each column that an update changed.

    python examples/audit_trail.py LOG db.table FOLDER

Each run reads what has come into the change log since the last one, and adds it to the Parquet files in FOLDER/trail.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidemill.spark


def trail(changes: DataFrame) -> DataFrame:
    """Changes as JSON → when, table, what happened, column, its value before and after. Unchanged columns are left out."""
    image = "map<string,string>"
    before, after = (F.coalesce(F.from_json(name, image), F.create_map().cast(image)) for name in ("before", "after"))
    names = F.explode(F.array_union(F.map_keys(before), F.map_keys(after)))
    lines = changes.select(
        *("_commit_timestamp", "_commit_ts", "_database", "_table", "_change_type"),
        *(before.alias("b"), after.alias("a"), names.alias("column")),
    )
    told = lines.withColumns({"before": F.col("b")[F.col("column")], "after": F.col("a")[F.col("column")]}).drop("a", "b")
    return told.filter(~F.col("before").eqNullSafe(F.col("after")))


def run(spark: SparkSession, log: str, table: str, folder: str) -> None:
    """Add what is new to the trail."""
    changes = spark.readStream.format("tidemill").option("log", log).option("tables", table).load()
    written = trail(changes).writeStream.format("parquet").option("path", f"{folder}/trail")
    query = written.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = tidemill.spark.register(SparkSession.builder.master("local[2]").appName("audit trail").getOrCreate())
    _, log, table, folder = sys.argv
    run(spark, log, table, folder)
    spark.read.parquet(f"{folder}/trail").orderBy("_commit_ts").show(100, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
