"""DataFrames of a change log without Spark: what its Python processes call, called here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, Filter
from pyspark.sql.types import StructType

from tidemill.spark.source.source import StreamReader, TidemillSource
from tidemill.spark.source.versions import HAS_STREAMS, ReadAllAvailable, arrow_schema_in_utc

Row = dict[str, Any]
NO_STREAMS = "Spark 4.1 does not say where a batch of a Python source starts"
needs_streams = pytest.mark.skipif(not HAS_STREAMS, reason=NO_STREAMS)


def source(log: str, **options: str) -> TidemillSource:
    """The format's source; an empty `log` leaves the option out."""
    given: Any = CaseInsensitiveDict({"log": log, **options} if log else options)
    return TidemillSource(given)


def rows_of(batches: Iterator[pa.RecordBatch], schema: StructType) -> list[Row]:
    """The rows of a task. Spark takes the first batch only if it has exactly its schema."""
    found: list[Row] = []
    for batch in batches:
        assert batch.schema == arrow_schema_in_utc(schema)
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def read(log: str, *filters: Filter, schema: StructType | None = None, **options: str) -> list[Row]:
    """The rows of `spark.read`, task by task. The filters have to be taken over."""
    one = source(log, **options)
    wanted = one.schema() if schema is None else schema
    reader = one.reader(wanted)
    assert list(reader.pushFilters(list(filters))) == []
    return [row for partition in reader.partitions() for row in rows_of(reader.read(partition), wanted)]


class Stream:
    """`spark.readStream`: batches one after the other, as Spark asks for them. A restarted one goes on at an offset."""

    def __init__(self, log: str, start: Mapping[str, Any] | None = None, *, available_now: bool = False, **options: str) -> None:
        if not HAS_STREAMS:
            pytest.skip(NO_STREAMS)
        one = source(log, **options)
        self.schema = one.schema()
        self.reader: StreamReader = one.streamReader(self.schema)
        self.at: dict[str, Any] = dict(start) if start is not None else self.reader.initialOffset()
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def batch(self) -> list[Row] | None:
        """The rows of the next batch; None if there is none."""
        limit = self.reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self.reader.latestOffset(self.at, limit)))
        if end == self.at:
            return None
        begin, self.at = self.at, end
        return self.rows(begin, end)

    def rows(self, begin: dict[str, Any], end: dict[str, Any]) -> list[Row]:
        partitions = self.reader.partitions(begin, end)
        return [row for partition in partitions for row in rows_of(self.reader.read(partition), self.schema)]

    def batches(self) -> list[list[Row]]:
        """All batches that there are."""
        found = []
        while (batch := self.batch()) is not None:
            found.append(batch)
        return found

    def everything(self) -> list[Row] | None:
        """What a trigger without limits reads."""
        end = self.reader.latestOffset(self.at, ReadAllAvailable())
        return None if end == self.at else self.rows(self.at, end)
