"""`format("tidemill")`: the data source as Spark sees it. docs/spark/source.md explains its options and columns.

Spark makes these objects in several processes, and pickles readers into its tasks. So they keep options and schemas only; what looks at the
log is made where it is used.
"""

from __future__ import annotations

import functools
import gc
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidemill.delivery.inputs.log_heads import REMOTE_POLL_S, Pace
from tidemill.errors import ConfigError, LogUnavailable, RowsChanged, SchemaChanged
from tidemill.spark.source.filters import Pushed, Pushing, push
from tidemill.spark.source.frame import TRUNCATE, TableFrame, digest, moments, schema_of
from tidemill.spark.source.lease import StreamLease
from tidemill.spark.source.options import Kind, OnDdl, Options, Policy, parse_options
from tidemill.spark.source.planner import LOST, Planner, changed_at
from tidemill.spark.source.row_ddls import Effect, RowDdl
from tidemill.spark.source.slices import Manner, Slice
from tidemill.spark.source.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    arrow_schema_in_utc,
    require_streams,
)
from tidemill.tidb.columns.forms import ALL_IMAGES
from tidemill.tso import describe, physical_ms

QUIET_MS = 60_000
"""A stream without rows has a batch so often, by the time of the log: then its checkpoint moves on."""

_log = logging.getLogger(__name__)


class TidemillSource(DataSource):
    """`spark.read.format("tidemill")` and `spark.readStream.format("tidemill")`."""

    @classmethod
    def name(cls) -> str:
        return "tidemill"

    def schema(self) -> StructType:
        options = parse_options(self.options)
        version = None
        if options.kind is Kind.TABLE:
            planner = Planner(options)
            version = planner.base_version(planner.last_ts())
        return spark_schema(schema_of(options, version))

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(parse_options(self.options), arrow_schema_in_utc(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        require_streams(self.name())
        return StreamReader(parse_options(self.options), arrow_schema_in_utc(schema))


def spark_schema(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def manner_of(options: Options, schema: pa.Schema, images: int = ALL_IMAGES) -> Manner:
    """Return how tasks read. Raises ConfigError for columns that a DataFrame of this kind does not have."""
    if options.kind is not Kind.TABLE:
        whole = schema_of(options, None)
        for field in schema:
            at = whole.get_field_index(field.name)
            if at < 0 or whole.field(at).type != field.type:
                raise ConfigError(f"column {field.name} {field.type}: such a DataFrame has the columns {', '.join(map(str, whole))}")
    return Manner(options.kind, schema, options.time_as, options.strict, images)


def frame_of(planner: Planner, schema: pa.Schema, upto_ts: int) -> TableFrame | None:
    """Return the typed columns of a DataFrame, if it has such."""
    if planner.options.kind is not Kind.TABLE:
        return None
    return planner.frame(planner.base_version(upto_ts), schema)


class BatchReader(DataSourceReader):
    """The changes of an interval of the log."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._pushed = Pushed()

    @property
    def pushFilters(self) -> Pushing:
        return Pushing(self._push)

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        if self._options.kind is Kind.RAW:
            return filters
        by_image = self._options.kind is Kind.TABLE and self._options.on_ddl is not OnDdl.ROWS
        self._pushed, left = push(filters, self._pushed, typed=by_image)
        return left

    def partitions(self) -> list[InputPartition]:
        """One for each slice of the log."""
        planner = Planner(self._options)
        to_ts = planner.last_ts()
        if planner.capture is not None and self._options.initial_snapshot:
            planner.capture.loaded(planner.reader, planner.reader.start_ts)
        from_ts, pushed = planner.first_ts(), self._pushed
        frame = frame_of(planner, self._schema, to_ts)
        begin = from_ts if pushed.from_ts is None else max(from_ts, pushed.from_ts)
        end = to_ts if pushed.to_ts is None else min(to_ts, pushed.to_ts)
        if begin >= end or not pushed.images:
            return [InputPartition(None)]
        if frame is not None and (changed := planner.next_change(frame, begin, end)) is not None:
            raise changed
        if frame is not None and self._options.on_ddl not in (None, OnDdl.IGNORE):
            ddl = first_stop(planner.row_ddls(frame, begin, end), self._options.on_ddl)
            if ddl is not None:
                raise rows_changed(self._options, ddl)
        planner.keep_only(pushed.databases, pushed.tables)
        found = [InputPartition(one) for one in planner.slices(begin, end, frame)]
        ddls = truncated(planner, frame, begin, end)
        return [*found, InputPartition(ddls)] if ddls else found or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        manner = manner_of(self._options, self._schema, self._pushed.images)
        return read_partition(partition, manner)


def read_partition(partition: InputPartition, manner: Manner) -> Iterator[pa.RecordBatch]:
    """Read what `partitions` planned."""
    one = partition.value
    if isinstance(one, tuple):
        return iter([truncations(one, manner.schema)])
    if not isinstance(one, Slice):
        return iter(())
    from tidemill.spark.source.reading import read_slice  # kernels take a second to load, and only tasks need them

    _freeze_loaded()
    return read_slice(one, manner)


def first_stop(ddls: Sequence[RowDdl], on_ddl: OnDdl | None) -> RowDdl | None:
    """The first of some DDLs at which a query ends."""
    return next((ddl for ddl in ddls if on_ddl is not OnDdl.ROWS or ddl.effect is not Effect.EMPTIED), None)


def truncated(planner: Planner, frame: TableFrame | None, from_ts: int, to_ts: int) -> tuple[RowDdl, ...]:
    """The DDLs in (from_ts, to_ts] that are rows of kind `truncate`."""
    if frame is None or planner.options.on_ddl is not OnDdl.ROWS:
        return ()
    ddls = planner.row_ddls(frame, from_ts, to_ts)
    return tuple(ddl for ddl in ddls if ddl.effect is Effect.EMPTIED and planner.kept_names(ddl.name))


def truncations(ddls: Sequence[RowDdl], schema: pa.Schema) -> pa.RecordBatch:
    """DDLs as rows of kind `truncate`."""
    ts = np.array([ddl.ts for ddl in ddls], np.uint64)
    heads = {
        "_change_type": pa.array([TRUNCATE] * len(ddls), pa.string()),
        "_commit_ts": pa.array(ts.view(np.int64)),
        "_commit_version": pa.array(ts.view(np.int64)),
        "_commit_timestamp": moments(ts),
        "_start_ts": pa.array(ts.view(np.int64)),
        "_database": pa.array([ddl.name[0] for ddl in ddls], pa.string()),
        "_table": pa.array([ddl.name[1] for ddl in ddls], pa.string()),
    }
    columns = [heads[field.name] if field.name in heads else pa.nulls(len(ddls), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_changed(options: Options, ddl: RowDdl) -> RowsChanged:
    """The error that ends a query at a DDL."""
    rows = " With onDdl=rows it is a row of kind truncate." if ddl.effect is Effect.EMPTIED else ""
    return RowsChanged(
        f"{options.what}: {ddl.why}, by a DDL at {describe(ddl.ts)}, and no change says so: {ddl.query}",
        hint="All changes before it were read. Do the same to what follows these changes, or load it again; then start the query again "
        f"with onDdl=ignore once.{rows}",
    )


@functools.cache
def _freeze_loaded() -> None:
    """Leave what is loaded by now out of garbage collection: Spark collects after every task, and over the kernels that takes 40 ms."""
    gc.collect()
    gc.freeze()


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The changes from a ts on. Offsets are resolved ts: `{"ts": …, "columns": …, "base": …, "query": …}`, where `columns` tells the names
    and types of the table's columns by a number, `base` from which ts on the table has them, and `query` which stream it is (`lease.py`).

    A batch has all changes of (start, end], so it has whole transactions. Whatever Spark asks for again, it gets the same rows again.
    """

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._manner = manner_of(options, schema)
        self._target: int | None = None
        self._live: _Live | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None}

    @property
    def _stream(self) -> _Live:
        if self._live is None:
            self._live = _Live(self._options, self._schema)
        return self._live

    def initialOffset(self) -> dict[str, Any]:
        return self._stream.offset(self._stream.planner.first_ts(), {})

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows:
            return ReadMaxRows(self._options.max_rows)
        return ReadMaxBytes(self._options.max_bytes) if self._options.max_bytes else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._stream.planner.reader.resolved_ts()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        limited = self._target is not None or not isinstance(limit, ReadAllAvailable)
        return self._stream.latest(start, self._target, limited=limited)

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._stream.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start["ts"] == end["ts"]:
            return []
        stream = self._stream
        stream.planner.check_covered(start["ts"], LOST)
        stream.lease.hold(start)
        found = [InputPartition(one) for one in stream.planner.slices(start["ts"], end["ts"], stream.frame)]
        ddls = truncated(stream.planner, stream.frame, start["ts"], end["ts"])
        return [*found, InputPartition(ddls)] if ddls else found

    def commit(self, end: dict[str, Any]) -> None:
        self._stream.lease.hold(end)

    def stop(self) -> None:
        if self._live is not None:
            self._live.lease.stop()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._manner)


class _Live:
    """What a stream knows of its log, in the one process that plans it."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self.planner = Planner(options)
        self.lease = StreamLease(self.planner.reader, options.lease_s)
        self._options = options
        self.resolved = self.planner.reader.resolved_ts()
        self.frame = frame_of(self.planner, schema, self.resolved)
        self._columns = digest(schema) if self._is_natural(schema) else 0
        self._pace = Pace(0.0 if self.planner.reader.storage.local else REMOTE_POLL_S)
        self._warned: set[tuple[int, int]] = set()
        self._end_of_last, self._bytes = 0, 0

    def report(self) -> dict[str, Any]:
        """What Spark shows in a query's progress as `latestOffset`: the log's resolved ts, and of the batch its lag behind the wall clock
        in milliseconds and the bytes of its files."""
        read_to = self._end_of_last or self.resolved
        lag = max(0, time.time_ns() // 1_000_000 - physical_ms(read_to))
        return {"ts": self.resolved, "lagMs": lag, "batchBytes": self._bytes}

    def _is_natural(self, schema: pa.Schema) -> bool:
        """Whether the columns are those that the table gives, not those that a user chose."""
        return self.frame is not None and spark_schema(schema) == spark_schema(schema_of(self._options, self.frame.base))

    def offset(self, ts: int, start: dict[str, Any]) -> dict[str, Any]:
        """The offset at a ts, which comes after `start`."""
        return self.lease.offset({"ts": ts, **({"columns": self._columns, "base": self._base} if self._columns else {})}, start)

    def latest(self, start: dict[str, Any], target: int | None, *, limited: bool) -> dict[str, Any]:
        """The end of the batch after `start`; `start` if there is nothing to read yet, also while the log's storage is away."""
        if self.planner.capture is not None:
            self.planner.capture.check()
        if time.monotonic() < self._pace.next_poll:
            return start
        try:
            end = self._end(start, target, limited=limited)
        except LogUnavailable as error:
            self._pace.failed()
            _log.warning("%s", error.message)
            return start
        self.lease.hold(start)
        begins = end > start["ts"]
        self._end_of_last = end
        self._bytes = self.planner.bytes_in(start["ts"], end) if begins else 0
        self._pace.polled(moved=begins, begins=begins)
        return self.offset(end, start) if begins else start

    def _end(self, start: dict[str, Any], target: int | None, *, limited: bool) -> int:
        begin: int = start["ts"]
        self._check_columns(start)
        resolved = self.planner.reader.resolved_ts_if_above(begin)
        self.resolved = max(self.resolved, resolved)
        end = min(resolved, *(one for one in (target, self._options.end) if one is not None), resolved)
        if end <= begin:
            if self._options.end is None or begin < self._options.end:
                self.planner.check_goes_on(begin)
            return begin
        self.planner.check_covered(begin, LOST)
        end = self.planner.readable_to(begin, end, self.planner.holds_rows)
        changed = self.planner.next_change(self.frame, begin, end) if self.frame is not None else None
        ddl = self._stops(begin, end)
        if ddl is not None and (changed is None or ddl.ts <= changed_at(changed)):
            end = ddl.ts - 1
            if end <= begin or not self._holds_rows(begin, end):
                raise rows_changed(self._options, ddl)
        elif changed is not None:
            end = changed_at(changed)
            if end <= begin or not self._holds_rows(begin, end):
                raise changed
        if target is not None:  # the query ends when it has read all that is there now: it must not end without the tables
            self.planner.require_snapshots(begin, end)
        max_rows, max_bytes = (self._options.max_rows, self._options.max_bytes) if limited else (0, 0)
        end = self.planner.end_of_batch(begin, end, max_rows=max_rows, max_bytes=max_bytes)
        if end <= begin:
            return begin
        if not self._holds_rows(begin, end) and physical_ms(end - begin) < QUIET_MS:
            return begin
        return end

    @property
    def _on_ddl(self) -> OnDdl:
        return self._options.on_ddl or OnDdl.ERROR

    def _stops(self, begin: int, end: int) -> RowDdl | None:
        """The first DDL in (begin, end] at which the query ends."""
        if self.frame is None or self._on_ddl is OnDdl.IGNORE:
            return None
        return first_stop(self.planner.row_ddls(self.frame, begin, end), self._on_ddl)

    def _holds_rows(self, begin: int, end: int) -> bool:
        return self.planner.holds_rows(begin, end) or bool(truncated(self.planner, self.frame, begin, end))

    def _check_columns(self, start: dict[str, Any]) -> None:
        """Raises SchemaChanged if the columns are others than those of the last batch, and nobody has accepted that."""
        before, policy = (start.get("columns", 0), start.get("base", 0)), self._options.policy
        if not before[0] or self.frame is None or not self._columns or before in self._warned or not self._differ(*before):
            return
        base = self.frame.base
        accepted = policy is Policy.RESTART or self._options.schema_ts is not None
        if not accepted and (policy is Policy.FAIL or self.planner.is_hurt(base, start["ts"] - 1)):
            ddls = "; ".join(self.planner.ddls_of(base, start["ts"] - 1)) or f"they changed at ts {base.from_ts}"
            raise SchemaChanged(
                f"the columns of {self._options.what} are others than when this query ran last, up to ts {start['ts']}: {ddls}",
                hint="To go on with the new columns, give schemaTs=latest once, or schemaChangePolicy=restart.",
            )
        if self._on_ddl is not OnDdl.IGNORE and before[1]:
            for ddl in self.planner.row_ddls(self.frame, before[1], start["ts"]):
                if ddl.effect is Effect.ADDED:  # the query did not have the column
                    raise rows_changed(self._options, ddl)
        self._warned.add(before)

    def _differ(self, columns: int, base: int) -> bool:
        """Whether the columns are others than those of the last batch: by name, by type, or because one of the name has taken its place."""
        assert self.frame is not None
        return columns != self._columns or (base not in (0, self._base) and self.planner.is_hurt(self.frame.base, base))

    @property
    def _base(self) -> int:
        return self.frame.base.from_ts if self.frame is not None else 0
