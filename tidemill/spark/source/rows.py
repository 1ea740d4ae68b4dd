"""Rows of `format("tidemill")` without a Spark session: for tests, and for looking at a log from Python."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict

from tidemill.spark.source.source import TidemillSource


def read_rows(log: str, **options: str) -> list[dict[str, Any]]:
    """The rows that `spark.read.format("tidemill")` gives with these options, as dicts in the order of their commits, deletes first in
    each. All are held in memory. Raises what the source raises."""
    source = TidemillSource(CaseInsensitiveDict({"log": log, **options}))
    schema = source.schema()
    reader = source.reader(schema)
    found = [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]
    if "_commit_ts" in schema.names:
        return sorted(found, key=lambda row: (row["_commit_ts"], row["_change_type"] != "delete"))
    return sorted(found, key=lambda row: row["commit_ts"])
