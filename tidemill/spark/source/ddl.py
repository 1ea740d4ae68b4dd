"""`format("tidemill.ddl")`: the DDLs of a change log as rows, for `spark.read` and `spark.readStream`.

The driver's Python process reads them with the schemas, so a batch has one task, which is given its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidemill.spark.source.frame import moments
from tidemill.spark.source.lease import StreamLease
from tidemill.spark.source.options import Options, parse_options
from tidemill.spark.source.planner import LOST, Planner
from tidemill.spark.source.source import spark_schema
from tidemill.spark.source.versions import ReadLimit, SupportsTriggerAvailableNow, require_streams
from tidemill.tidb.columns.forms import TIMESTAMP
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent

SCHEMA = pa.schema(
    [
        ("_commit_ts", pa.int64()),
        ("_commit_timestamp", TIMESTAMP),
        ("_database", pa.string()),
        ("_table", pa.string()),
        ("query", pa.string()),
        ("type", pa.string()),
        ("job_id", pa.int64()),
        ("schema_version", pa.int64()),
        ("previous_database", pa.string()),
        ("previous_table", pa.string()),
    ]
)
"""Rows at or below `_commit_ts` have the table as it was before the DDL, later ones as it is afterwards."""


Row = tuple[Any, ...]


class DdlSource(DataSource):
    """`spark.read.format("tidemill.ddl")`. Options: log or logFile; table or tables; where it starts and ends."""

    @classmethod
    def name(cls) -> str:
        return "tidemill.ddl"

    def schema(self) -> StructType:
        parse_options(self.options, ddl=True)
        return spark_schema(SCHEMA)

    def reader(self, schema: StructType) -> DdlBatchReader:
        return DdlBatchReader(parse_options(self.options, ddl=True))

    def streamReader(self, schema: StructType) -> DdlStreamReader:
        require_streams(self.name())
        return DdlStreamReader(parse_options(self.options, ddl=True))


class DdlBatchReader(DataSourceReader):
    """The DDLs of an interval of the log."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        planner = Planner(self._options)
        return [InputPartition(ddls(planner, planner.first_ts(), planner.last_ts()))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition.value)


class DdlStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The DDLs from a ts on. Offsets are resolved ts; there is a batch where there is a DDL."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._live: Planner | None = None
        self._held: StreamLease | None = None
        self._target: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None, "_held": None}

    @property
    def _planner(self) -> Planner:
        if self._live is None:
            self._live = Planner(self._options)
        return self._live

    @property
    def _lease(self) -> StreamLease:
        if self._held is None:
            self._held = StreamLease(self._planner.reader, self._options.lease_s)
        return self._held

    def initialOffset(self) -> dict[str, Any]:
        return self._lease.offset({"ts": self._planner.first_ts()})

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._planner.reader.schema_head()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self._planner.capture is not None:
            self._planner.capture.check()
        ends = (self._planner.reader.schema_head(), self._target, self._options.end)
        end = min(one for one in ends if one is not None)
        if end <= start["ts"]:
            self._lease.hold(start)
            return start
        self._planner.check_covered(start["ts"], LOST)
        self._lease.hold(start)
        end = self._planner.readable_to(start["ts"], end, lambda begin, end: bool(ddls(self._planner, begin, end)))
        return self._lease.offset({"ts": end}, start) if ddls(self._planner, start["ts"], end) else start

    def commit(self, end: dict[str, Any]) -> None:
        self._lease.hold(end)

    def stop(self) -> None:
        self._lease.stop()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        found = ddls(self._planner, start["ts"], end["ts"])
        return [InputPartition(found)] if found else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition.value)


def ddls(planner: Planner, from_ts: int, to_ts: int) -> list[Row]:
    """Return the rows of the DDLs in (from_ts, to_ts] that are about the wanted tables."""
    history = planner.history(to_ts)
    events = history.ddl_events(max(from_ts, history.start_ts), to_ts, lambda event: _wanted(planner, event))
    return [_row(event) for event in events]


def _wanted(planner: Planner, event: DdlEvent) -> bool:
    names = ((event.schema, event.table), (event.pre_schema, event.pre_table))
    return not is_system_schema(event.schema) and any(planner.wants_name(*name) for name in names if name[0])


def _row(event: DdlEvent) -> Row:
    kind = Action(event.type).name.replace("_", " ") if event.type in {int(action) for action in Action} else str(event.type)
    named = (event.schema or None, event.table or None, event.query, kind, event.job_id, event.schema_version)
    return (event.ts, event.ts, *named, event.pre_schema or None, event.pre_table or None)


def batches(rows: list[Row] | None) -> Iterator[pa.RecordBatch]:
    """Yield rows as a batch, if there are any."""
    if rows:
        columns = list(zip(*rows, strict=True))
        columns[1] = moments(np.array(columns[1], np.uint64))
        yield pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
