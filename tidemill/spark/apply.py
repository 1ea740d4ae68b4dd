"""`apply_changes`: changes in a DataFrame → a Delta or Iceberg table that has the rows as they are now.

A batch of a stream becomes one commit: of each key the last change counts, deletes delete. The commit notes the batch's number under the
query's id, so a batch that Spark runs again after a crash is recognised.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tidemill.errors import ConfigError
from tidemill.rules.names import did_you_mean
from tidemill.sinks.base import no_fence_check
from tidemill.sinks.lake.base import Stamp, Tables
from tidemill.sinks.lake.net import last_of_each
from tidemill.sinks.lake.open import lake_uri, store_of, tables_of
from tidemill.sinks.lake.shapes import OP, LakeTable, field
from tidemill.spark.messages.column_functions import table_name
from tidemill.spark.source.frame import META, TRUNCATE
from tidemill.spark.source.versions import arrow_schema_in_utc

GONE = ("delete", "update_preimage")
THERE = ("insert", "update_postimage", "update")
"""Words of `_change_type`."""

_TYPE, _TS = "_change_type", "_commit_ts"


@dataclass(frozen=True)
class Target:
    """The table that changes are applied to. `uri`: of the lake, which may hold a password; never shown."""

    uri: str
    schema: str
    table: str
    keys: tuple[str, ...]

    def open(self) -> Tables:
        """The lake's tables. Raises ConfigError, ExtraMissing, SinkError."""
        uri = lake_uri(self.uri)
        return tables_of(uri, store_of(uri))


def apply_changes(
    changes: DataFrame,
    target: str,
    *,
    table: str,
    keys: Sequence[str] | str,
    checkpoint: str | None = None,
    trigger: dict[str, Any] | None = None,
) -> StreamingQuery | None:
    """Apply changes to the table `table` ("schema.name") of the lake `target`, and make it if it is not there.

    `changes` has columns `_change_type` (insert, update, update_preimage, update_postimage, delete, truncate) and `_commit_ts`, as
    DataFrames of a log have, and the table's own. `_commit_timestamp`, `_start_ts`, `_database` and `_table` are left out. A row of kind
    truncate, which the option onDdl=rows gives, empties the table. `target`: a folder, or a `delta://` or `iceberg://` URI, as of the lake
    sink. `keys`: columns that tell rows apart.

    A stream needs `checkpoint`, and starts a query, which is returned; `trigger`: arguments of its trigger, as {"availableNow": True}.
    Changes of a batch DataFrame are applied at once; None is returned. Doing it again does no harm.

    Raises ConfigError, ExtraMissing, SinkError, SinkUnavailable.
    """
    schema, name = _named(table)
    wanted = (keys,) if isinstance(keys, str) else tuple(keys)
    _check(changes.columns, wanted)
    to = Target(target, schema, name, wanted)
    lake_uri(target)  # raises what is wrong with it
    if not changes.isStreaming:
        apply_rows(to, to.open(), _arrow(changes), None)
        return None
    if checkpoint is None:
        raise ConfigError("apply_changes of a stream needs a checkpoint", hint="As in checkpoint='/data/orders-checkpoint'")
    known: Future[str] = Future()

    def batch(frame: DataFrame, number: int) -> None:
        apply_rows(to, to.open(), _arrow(frame), Stamp(known.result(), number + 1, 0, no_fence_check))

    writer = changes.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    query = (writer.trigger(**trigger) if trigger is not None else writer).start()
    known.set_result(f"apply_changes/{query.id}")  # the id stays with the checkpoint
    return query


def _named(table: str) -> tuple[str, str]:
    try:
        found = table_name(table)
    except ValueError as error:
        raise ConfigError(f"apply_changes: {error}") from None
    assert found is not None, "a name was given"
    return found


def _check(columns: Sequence[str], keys: Sequence[str]) -> None:
    if not keys:
        raise ConfigError("apply_changes needs the columns that tell rows apart", hint="As in keys=['id']")
    for name in (_TYPE, _TS, *keys):
        if name not in columns:
            raise ConfigError(f"apply_changes: the DataFrame has no column {name}{did_you_mean(name, columns)}")


def _arrow(frame: DataFrame) -> pa.Table:
    return frame.toArrow().cast(arrow_schema_in_utc(frame.schema))


def apply_rows(to: Target, tables: Tables, changes: pa.Table, stamp: Stamp | None) -> None:
    """Apply the changes of a batch in one commit. `stamp`: the query and the batch's number; a batch that was applied before is left out.

    Raises ConfigError, SinkError, SinkUnavailable.
    """
    place = tables.place(to.schema, to.table)
    if stamp is not None and tables.delivered(place, stamp.changefeed) >= stamp.resolved_ts:
        return
    rows = last_changes(changes, to.keys)
    if _emptied(changes) and tables.exists(place):
        rows = last_of_each(pa.concat_tables([_deletes(tables, place, rows.schema, to.keys), rows]), to.keys)
    if not len(rows):
        return
    want = _lake_table(to, rows.schema.remove(rows.schema.get_field_index(OP)))
    given = stamp or Stamp("apply_changes", 0, 0, no_fence_check)
    tables.shape(place, want, given)
    tables.merge(place, want, rows, given)


def _deletes(tables: Tables, place: str, schema: pa.Schema, keys: Sequence[str]) -> pa.Table:
    """Return what deletes the rows that are there. So a table is emptied in the commit that fills it again."""
    there = [pa.Table.from_batches([batch]).select(list(keys)) for batch in tables.read(place)]
    found = pa.concat_tables(there) if there else schema.empty_table()
    columns = [found[one.name].cast(one.type) if one.name in keys else pa.nulls(len(found), one.type) for one in schema]
    return pa.table([*columns[:-1], pa.repeat(pa.scalar(1, pa.int8()), len(found))], schema=schema)


def _emptied(changes: pa.Table) -> int | None:
    """Return the ts of the last DDL by which all rows went, None without one."""
    found: int | None = pc.max(changes.filter(pc.equal(changes[_TYPE], TRUNCATE))[_TS]).as_py()
    return found


def last_changes(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the last change of each key, with OP in place of the columns about the change. Those before a truncate do not count. At the
    same commit ts deletes come before inserts: a row may take over the key of another one. Raises ConfigError for a kind of change that is
    not known."""
    kinds = changes[_TYPE]
    for kind in pc.unique(kinds).to_pylist():
        if kind not in (*GONE, *THERE, TRUNCATE):
            raise ConfigError(f"apply_changes: {kind!r} is not a _change_type", hint=f"There are {', '.join((*THERE, *GONE, TRUNCATE))}.")
    if (emptied := _emptied(changes)) is not None:
        changes = changes.filter(pc.greater(changes[_TS], emptied))
        kinds = changes[_TYPE]
    gone = pc.is_in(kinds, pa.array(GONE)).cast(pa.int8())
    ordered = changes.append_column(OP, gone).sort_by([(_TS, "ascending"), (OP, "descending")])
    return last_of_each(ordered.drop_columns([name for name in META.names if name in changes.column_names]), keys)


def _lake_table(to: Target, fields: pa.Schema) -> LakeTable:
    """A column is known by its name: there is nothing here that tells a renamed one from a new one."""
    named = pa.schema([field(one.name, one.type, zlib.crc32(one.name.encode()) or 1) for one in fields])
    first = pa.RecordBatch.from_arrays([pa.nulls(1, one.type) for one in named], schema=named)
    return LakeTable(to.schema, to.table, 0, first, to.keys)
