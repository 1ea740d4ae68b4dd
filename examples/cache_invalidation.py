"""Cache invalidation: entries of rows that have changed leave a cache, however they were changed.

    python examples/cache_invalidation.py PD:2379 'shop.*' CHECKPOINT

An entry is named `database.table:key`. A batch that runs again removes the same entries again, which does no harm. Here the cache is a
dict; one of Redis or Memcached has a `pop` or a `delete`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import tidemill.spark


def names(changes: DataFrame, key: str = "id") -> DataFrame:
    """Changes as JSON → the names of the entries that are not valid any more. An update may move a row to another key: then both."""

    def of(image: str) -> Column:
        return F.concat_ws(":", F.concat_ws(".", "_database", "_table"), F.get_json_object(image, f"$.{key}"))

    images = F.array_compact(F.array(*(F.when(F.col(image).isNotNull(), of(image)) for image in ("before", "after"))))
    return changes.select(F.explode(images).alias("name")).distinct()


def follow(spark: SparkSession, cache: MutableMapping[str, Any], tables: str, checkpoint: str, **source: str) -> StreamingQuery:
    """Keep a cache of these tables valid. `source`: options that say where changes come from, `pd` or `log`."""

    def batch(frame: DataFrame, number: int) -> None:
        gone: Iterator[Any] = names(frame).toLocalIterator()
        for row in gone:
            cache.pop(row.name, None)

    changes = spark.readStream.format("tidemill").options(tables=tables, **source).load()
    return changes.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint).start()


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = tidemill.spark.register(SparkSession.builder.master("local[2]").appName("cache").getOrCreate())
    _, pd, tables, checkpoint = sys.argv
    follow(spark, {}, tables, checkpoint, pd=pd).awaitTermination()


if __name__ == "__main__":
    main()
