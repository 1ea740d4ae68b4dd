"""Iceberg tables, with the library pyiceberg: one table CATALOG.[NAMESPACE.]<schema>.<table>.

A commit demands that the table's newest snapshot is the one that was read, and is not tried again: of two drivers the second fails. In the
same commit the table's property `tidemill.delivered.<changefeed>` becomes the resolved ts, by which a repeated interval is recognised.
Data files that have a changed row are written again without it. Files whose statistics exclude all keys are not read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill import credentials
from tidemill.config.lake import LakeOptions
from tidemill.config.storage import S3Options
from tidemill.errors import Fenced, SinkError, SinkUnavailable, redact
from tidemill.extras import extra
from tidemill.sinks.lake.base import Move, Stamp, TableFiles
from tidemill.sinks.lake.catalog import drop_exactly, find_table, rename_exactly
from tidemill.sinks.lake.evolution import Evolution, Step, converted, evolution
from tidemill.sinks.lake.foreign import open_catalog, static_table
from tidemill.sinks.lake.manifest import TableAt
from tidemill.sinks.lake.shapes import OP, LakeTable, column_id, field

with extra("lake"):
    from pyiceberg import expressions
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, TableAlreadyExistsError
    from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
    from pyiceberg.schema import Schema
    from pyiceberg.table.refs import MAIN_BRANCH
    from pyiceberg.table.update import AssertRefSnapshotId
    from sqlalchemy.exc import SQLAlchemyError

FILTERS: Any = expressions  # its classes take a column's name, which their types do not say
_COLUMNS = "tidemill.columns"
"""The property with the ids of TiDB's columns, by name, as JSON."""
_DELIVERED = "tidemill.delivered."
_NO_SNAPSHOT = -1
_SPARK_TYPES = {
    "int32": "integer", "int64": "long", "float": "float", "double": "double", "string": "string", "binary": "binary",
    "date32[day]": "date", "timestamp[us]": "timestamp_ntz", "timestamp[us, tz=UTC]": "timestamp",
}  # fmt: skip


@contextmanager
def iceberg_errors(what: str) -> Iterator[None]:
    """Turn the library's errors into sink errors."""
    try:
        yield
    except CommitFailedException as error:
        raise SinkUnavailable(f"{what}: another writer has changed the table meanwhile: {redact(str(error))[:500]}") from None
    except (SQLAlchemyError, RESTError, ConnectionError, TimeoutError) as error:
        raise SinkUnavailable(f"{what}: the catalog does not answer: {redact(str(error)).splitlines()[0][:500]}") from None
    except TableAlreadyExistsError:
        raise SinkUnavailable(
            f"{what}: a table of its new name is in the catalog already",
            hint="If no other driver has just made it, it is not the changefeed's: drop or rename it.",
        ) from None
    except NoSuchTableError:
        raise SinkError(f"{what} is gone", hint="Give the changefeed an empty place: it cannot go on without its tables.") from None
    except PermissionError as error:
        raise SinkError(f"{what}: {redact(str(error))[:500]}") from None
    except OSError as error:
        raise SinkUnavailable(f"{what}: {redact(str(error))[:500]}") from None
    except (ValueError, pa.ArrowException) as error:
        raise SinkError(f"{what}: {redact(str(error))[:500]}") from None


def catalog_properties(options: LakeOptions, s3: S3Options | None) -> dict[str, str]:
    """Return the properties of the catalog that the URI gives. The others are pyiceberg's own configuration."""
    given = {"warehouse": options.warehouse, "uri": options.catalog_uri}
    if s3 is not None:
        endpoint = s3.endpoint if "://" in s3.endpoint or not s3.endpoint else f"https://{s3.endpoint}"
        given |= {
            "s3.endpoint": endpoint,
            "s3.access-key-id": credentials.read(s3.access_key),
            "s3.secret-access-key": credentials.read(s3.secret_access_key),
            "s3.session-token": credentials.read(s3.session_token),
            "s3.region": s3.region,
        }
    return {name: value for name, value in given.items() if value}


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type that Iceberg has for a type of ours: its smallest integer has 32 bits."""
    return pa.int32() if pa.types.is_int8(kind) or pa.types.is_int16(kind) else kind


def _mapped(want: LakeTable) -> LakeTable:
    fields = pa.schema([one.with_type(_stored(one.type)) for one in want.fields])
    first = pa.RecordBatch.from_arrays([want.first.column(i).cast(one.type) for i, one in enumerate(fields)], schema=fields)
    return replace(want, first=first)


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether a column can get a type in place."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    widened = (pa.types.is_int32(old) and pa.types.is_int64(new)) or (pa.types.is_float32(old) and pa.types.is_float64(new))
    return bool(old == new or widened)


def without(rows: pa.Table, gone: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows whose keys are not among those of `gone`."""
    if len(keys) == 1:
        key = keys[0]
        return rows.filter(pc.invert(pc.is_in(rows[key], gone[key].combine_chunks().cast(rows[key].type))))
    at = rows.select(list(keys)).append_column("__at", pa.array(range(len(rows)), pa.int64()))
    types = [at[key].type for key in keys]
    others = pa.table([gone[key].cast(kind) for key, kind in zip(keys, types, strict=True)], list(keys))
    kept = at.join(others, list(keys), join_type="left anti")["__at"]
    return rows.take(kept.take(pc.sort_indices(kept)))


class IcebergTables:
    """See `Tables`."""

    def __init__(self, options: LakeOptions, s3: S3Options | None) -> None:
        self._options = options
        self._making = threading.Lock()
        with iceberg_errors(f"iceberg://{options.catalog}"):
            self._catalog = open_catalog(options.catalog, catalog_properties(options, s3), remote=s3 is not None)

    def __str__(self) -> str:
        return f"iceberg://{self._options.catalog}"

    def _what(self, place: str) -> str:
        return f"{self}/{place}"

    def place(self, schema: str, table: str) -> str:
        if "." in schema or "." in table:
            raise SinkError(
                f"{schema}.{table} cannot be a table of {self}: a name has a dot",
                hint="Filter it out, or give it another name by table routing (target-schema, target-table).",
            )
        return ".".join(filter(None, (self._options.namespace, schema, table)))

    def _table(self, place: str) -> Any:
        with iceberg_errors(self._what(place)):
            return self._catalog.load_table(place)

    def exists(self, place: str) -> bool:
        with iceberg_errors(self._what(place)):
            return bool(self._catalog.table_exists(place))

    def delivered(self, place: str, changefeed: str) -> int:
        return int(self._table(place).properties.get(_DELIVERED + changefeed, 0)) if self.exists(place) else 0

    @contextmanager
    def _commit(self, place: str, table: Any, stamp: Stamp, *, rows: bool = False) -> Iterator[Any]:
        """A transaction. `rows`: of the interval's rows, so it is noted that they are there."""
        with iceberg_errors(self._what(place)), table.transaction() as transaction:
            snapshot = table.current_snapshot()
            number = snapshot.snapshot_id if snapshot is not None else None
            latest = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": number})
            transaction._apply((), (latest,))  # also where nothing but properties and columns change
            if rows:
                transaction.set_properties({_DELIVERED + stamp.changefeed: str(stamp.resolved_ts)})
            yield transaction
            stamp.check_fence(now=True)

    def shape(self, place: str, want: LakeTable, stamp: Stamp) -> None:
        want = _mapped(want)
        if not self.exists(place):
            self._create(place, want, stamp)
            return
        table = self._table(place)
        have = self._have(table)
        found = evolution(have, want)
        if found.step is Step.NOTHING and not found.renumbered:
            return
        kept = [(have.field(old), one) for old, one in zip(found.sources, found.target, strict=True) if old is not None]
        added_null = all(not want.first.column(one.name)[0].is_valid for one in found.added if one.name in want.fields.names)
        in_place = added_null and not found.rounded and all(_widens(old.type, new.type) for old, new in kept)
        rows = None if in_place else self._rows(table, self._tasks(table))
        with self._commit(place, table, stamp) as transaction:
            _reshape(transaction, have, found)
            transaction.set_properties({_COLUMNS: _ids(found.target)})
            if rows is not None and len(rows):
                changed = pa.Table.from_batches([converted(one, found, want) for one in rows.to_batches()], found.target)
                self._overwrite(transaction, table, self._tasks(table), changed, stamp)

    def _create(self, place: str, want: LakeTable, stamp: Stamp) -> None:
        stamp.check_fence(now=True)
        properties = {
            _COLUMNS: _ids(want.fields),
            "commit.retry.num-retries": "0",
            "write.target-file-size-bytes": str(self._options.target_file_size),
        }
        with iceberg_errors(self._what(place)):
            self._make_namespace(place)
            made = self._catalog.create_table(place, want.fields.remove_metadata(), properties=properties)
            try:
                stamp.check_fence(now=True)
            except Fenced:  # it may have been dropped since by a later driver: nobody would drop it again
                drop_exactly(self._catalog, place, made.metadata_location)
                raise

    def _make_namespace(self, place: str) -> None:
        """Make what a table lies in. Several tables may begin at the same time."""
        parts = place.split(".")[:-1]
        with self._making:
            for depth in range(1, len(parts) + 1):
                self._catalog.create_namespace_if_not_exists(".".join(parts[:depth]))

    def _have(self, table: Any) -> pa.Schema:
        ids = json.loads(table.properties.get(_COLUMNS, "{}"))
        return pa.schema([field(one.name, one.type, ids.get(one.name, 0)) for one in table.schema().as_arrow()])

    def begin(self, place: str, want: LakeTable, stamp: Stamp) -> None:
        with iceberg_errors(self._what(place)):
            table = find_table(self._catalog, place)
            if table is not None:
                self._drop(place, table, stamp)
        self._create(place, _mapped(want), stamp)

    @staticmethod
    def _tasks(table: Any, row_filter: Any = None) -> list[Any]:
        return [*table.scan(row_filter=FILTERS.AlwaysTrue() if row_filter is None else row_filter).plan_files()]

    @staticmethod
    def _rows(table: Any, tasks: Iterable[Any]) -> pa.Table:
        return ArrowScan(table.metadata, table.io, table.schema(), FILTERS.AlwaysTrue()).to_table(tasks)

    @staticmethod
    def _overwrite(transaction: Any, table: Any, gone: Iterable[Any], rows: pa.Table, stamp: Stamp) -> None:
        """Replace data files by rows."""
        with transaction.update_snapshot(snapshot_properties=stamp.metadata).overwrite() as update:
            for one in gone:
                update.delete_data_file(one.file)
            if len(rows):
                files = _dataframe_to_data_files(
                    table_metadata=transaction.table_metadata, df=rows, io=table.io, write_uuid=update.commit_uuid
                )
                for file in files:
                    update.append_data_file(file)

    def merge(self, place: str, want: LakeTable, rows: pa.Table, stamp: Stamp, *, of_interval: bool = True) -> None:
        table = self._table(place)
        fresh = self._fitted(table, rows.filter(pc.equal(rows[OP], 0)).drop_columns([OP]))
        touched, kept = [], []
        for task in self._tasks(table, self._around(table, want.keys[0], rows)):
            before = self._rows(table, [task])
            after = without(before, rows, want.keys)
            if len(after) < len(before):
                touched.append(task)
                kept.append(self._fitted(table, after))
        if not touched and not len(fresh):
            return  # without a snapshot nothing would refuse a late note of an earlier interval; doing it again changes nothing
        with self._commit(place, table, stamp, rows=of_interval) as transaction:
            self._overwrite(transaction, table, touched, pa.concat_tables([*kept, fresh]), stamp)

    @staticmethod
    def _around(table: Any, key: str, rows: pa.Table) -> Any:
        """Return a filter for files that may have one of the keys; all files where the type has no literal in a filter."""
        kind = rows[key].type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
            return FILTERS.AlwaysTrue()
        bounds = pc.min_max(rows[key]).as_py()
        return FILTERS.And(FILTERS.GreaterThanOrEqual(key, bounds["min"]), FILTERS.LessThanOrEqual(key, bounds["max"]))

    @staticmethod
    def _fitted(table: Any, rows: pa.Table) -> pa.Table:
        """Return rows with the table's columns and types."""
        wanted = table.schema().as_arrow()
        columns = [rows[one.name].cast(one.type) if one.name in rows.column_names else pa.nulls(len(rows), one.type) for one in wanted]
        return pa.table(columns, schema=wanted)

    def append(self, place: str, want: LakeTable, rows: pa.Table, stamp: Stamp) -> None:
        table = self._table(place)
        if len(rows):
            with self._commit(place, table, stamp, rows=True) as transaction:
                transaction.append(self._fitted(table, rows), snapshot_properties=stamp.metadata)

    def read(self, place: str, at: TableAt | None = None) -> Iterator[pa.RecordBatch]:
        with iceberg_errors(self._what(place)):
            table = self._table(place) if at is None else self._static(at)
            for task in self._tasks(table) if at is None or at.version != _NO_SNAPSHOT else ():
                yield from self._rows(table, [task]).to_batches()

    def _static(self, at: TableAt) -> Any:
        return static_table(at.metadata, self._catalog.properties)

    def empty(self, place: str, stamp: Stamp) -> None:
        table = self._table(place)
        tasks = self._tasks(table)
        if tasks:
            with self._commit(place, table, stamp) as transaction:
                self._overwrite(transaction, table, tasks, table.schema().as_arrow().empty_table(), stamp)

    def rename(self, moves: Sequence[Move], stamp: Stamp) -> None:
        """In the catalog. Tables that take each other's places get other names meanwhile; each is found by its uuid."""
        places = {move.at.place for move in moves}
        for move in moves if any(move.place in places for move in moves) else ():
            self._move(move, move.at.place, _aside(move), stamp)
        for move in moves:
            for place in (move.at.place, _aside(move)):
                self._move(move, place, move.place, stamp)
            self.shape(move.place, move.table, stamp)

    def _move(self, move: Move, old: str, new: str, stamp: Stamp) -> None:
        """Rename the table if it is at `old`."""
        with iceberg_errors(self._what(old)):
            table = find_table(self._catalog, old)
            if table is None or not self._is_version_of(table, move.at):
                return
            self._make_namespace(new)
            stamp.check_fence(now=True)
            if not rename_exactly(self._catalog, old, new, table.metadata_location):
                raise SinkUnavailable(f"{self._what(old)}: another writer has changed the table meanwhile")

    def drop(self, at: TableAt, stamp: Stamp) -> None:
        """The files stay: older versions are read by their metadata file."""
        with iceberg_errors(self._what(at.place)):
            table = find_table(self._catalog, at.place)
            if table is not None and self._is_version_of(table, at):
                self._drop(at.place, table, stamp)

    def _drop(self, place: str, table: Any, stamp: Stamp) -> None:
        stamp.check_fence(now=True)
        if not drop_exactly(self._catalog, place, table.metadata_location):
            raise SinkUnavailable(f"{self._what(place)}: another writer has changed the table meanwhile")

    def _is_version_of(self, table: Any, at: TableAt) -> bool:
        """Return whether a table of the catalog is the one of a manifest. Manifests of older releases have no uuid."""
        return str(table.metadata.table_uuid) == (at.uuid or str(self._static(at).metadata.table_uuid))

    def compact(self, place: str, stamp: Stamp) -> None:
        table = self._table(place)
        small, size = [], 0
        for task in self._tasks(table):
            if task.file.file_size_in_bytes < self._options.target_file_size // 2 and size < 4 * self._options.target_file_size:
                small.append(task)
                size += task.file.file_size_in_bytes
        if len(small) > 1:
            rows = self._rows(table, small)
            with self._commit(place, table, stamp) as transaction:
                self._overwrite(transaction, table, small, rows, stamp)

    def version(self, schema: str, table: str, table_id: int, place: str) -> TableAt:
        found = self._table(place)
        snapshot = found.current_snapshot()
        number = snapshot.snapshot_id if snapshot is not None else _NO_SNAPSHOT
        return TableAt(schema, table, table_id, place, number, found.metadata_location, str(found.metadata.table_uuid))

    def clear(self, place: str) -> None:
        if self.exists(place):
            with iceberg_errors(self._what(place)):
                self._catalog.purge_table(place)

    def files(self, at: TableAt) -> TableFiles:
        with iceberg_errors(self._what(at.place)):
            table = self._static(at)
            tasks = [] if at.version == _NO_SNAPSHOT else [*table.scan(snapshot_id=at.version).plan_files()]
            sizes = {task.file.file_path: task.file.file_size_in_bytes for task in tasks}
            rows = sum(task.file.record_count for task in tasks)
            return TableFiles(_spark_schema(table.schema()), tuple(sizes), rows, sum(sizes.values()), sizes)


def _aside(move: Move) -> str:
    """Return where a table is while others take its places."""
    return f"{move.place}__moving_{move.table.table_id}"


def _ids(fields: pa.Schema) -> str:
    return json.dumps({one.name: column_id(one) for one in fields})


def _reshape(transaction: Any, have: pa.Schema, found: Evolution) -> None:
    """Change the columns. One whose type cannot change in place is another column afterwards."""
    replaced = {
        old for old, one in zip(found.sources, found.target, strict=True) if old is not None and not _widens(have.field(old).type, one.type)
    }
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for name in have.names:
            if name not in found.sources or name in replaced:
                update.delete_column(name)
    kept = [(old, one) for old, one in zip(found.sources, found.target, strict=True) if old is not None and old not in replaced]
    names = {one.name for one in found.target}
    aside = {old: f"{old}__{number}__" for number, (old, one) in enumerate(kept) if old != one.name and old in names}
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for old, spare in aside.items():
            update.rename_column(old, spare)  # another column has its name afterwards
    kinds = {one.name: one.field_type for one in _iceberg_fields(found.target)}
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for old, one in kept:
            name = aside.get(old, old)
            if have.field(old).type != one.type and not pa.types.is_list(one.type):
                update.update_column(name, kinds[one.name])
            if name != one.name:
                update.rename_column(name, one.name)
        for source, one in zip(found.sources, found.target, strict=True):
            if source is None or source in replaced:
                update.add_column(one.name, kinds[one.name])


def _iceberg_fields(fields: pa.Schema) -> Sequence[Any]:
    from pyiceberg.catalog import Catalog

    found: Schema = Catalog._convert_schema_if_needed(fields.remove_metadata())
    return found.fields


def _spark_schema(schema: Any) -> dict[str, Any]:
    """Return a schema as Spark writes it, with the ids by which Spark finds columns in data files of older names."""
    fields = []
    for one, arrow in zip(schema.fields, schema.as_arrow(), strict=True):
        fields.append({"name": one.name, "type": _spark_type(arrow.type), "nullable": True, "metadata": {"parquet.field.id": one.field_id}})
    return {"type": "struct", "fields": fields}


def _spark_type(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "elementType": _spark_type(kind.value_type), "containsNull": True}
    if pa.types.is_large_string(kind):
        return "string"
    return "binary" if pa.types.is_large_binary(kind) else _SPARK_TYPES[str(kind)]
