"""Delta tables, with the library deltalake: one table for each folder ROOT/<schema>/<table>.

A commit is made on the version that was read, and never tried on a later one: of two drivers the second gets a conflict. The commit of an
interval's rows also is an application transaction of Delta, with the changefeed as the application and the resolved ts as its version.
By it a repeated interval is recognised, and Delta itself refuses two such commits that do not know of each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from tidemill import credentials
from tidemill.config.storage import S3Options
from tidemill.errors import SinkError, SinkUnavailable
from tidemill.extras import extra
from tidemill.sinks.lake.base import Move, Stamp, TableFiles
from tidemill.sinks.lake.evolution import Evolution, Step, converted, evolution
from tidemill.sinks.lake.manifest import FOLDER, TableAt
from tidemill.sinks.lake.shapes import COLUMN_ID, OP, LakeTable, column_id
from tidemill.sinks.storage import paths as layout
from tidemill.sinks.storage.store import Store

with extra("lake"):
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
    from deltalake import Schema as DeltaSchema
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

_APP = "tidemill/"
_PASSES = ("Generic S3 error", "Generic HTTP", "error sending request", "timed out", "503", "SlowDown", "Connection")
_OTHER_NAME = "Filter it out, or give it another name by table routing (target-schema, target-table)."
_MOST_KEPT = 1000
"""Tables whose newest version is kept in memory."""


def storage_options(s3: S3Options | None) -> dict[str, str]:
    """Return the library's options for a bucket; none for a folder."""
    if s3 is None:
        return {}
    given = {
        "AWS_ACCESS_KEY_ID": credentials.read(s3.access_key),
        "AWS_SECRET_ACCESS_KEY": credentials.read(s3.secret_access_key),
        "AWS_SESSION_TOKEN": credentials.read(s3.session_token),
        "AWS_REGION": s3.region,
        "AWS_ENDPOINT_URL": s3.endpoint if "://" in s3.endpoint or not s3.endpoint else f"https://{s3.endpoint}",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "" if s3.force_path_style else "true",
        "AWS_ALLOW_HTTP": "true" if s3.endpoint.startswith("http://") else "",
        "AWS_CONDITIONAL_PUT": "etag",
    }
    return {name: value for name, value in given.items() if value}


@contextmanager
def delta_errors(what: str) -> Iterator[None]:
    """Turn the library's errors into sink errors. A conflict may be tried again: then it is seen what the other driver did."""
    try:
        yield
    except CommitFailedError as error:
        raise SinkUnavailable(f"{what}: another writer has changed the table meanwhile: {error}") from None
    except (DeltaError, OSError) as error:
        text = str(error).splitlines()[0][:500] if str(error) else type(error).__name__
        if "already exists" in text:
            raise SinkUnavailable(f"{what}: another writer has made the table meanwhile: {text}") from None
        passing = any(sign in text for sign in _PASSES) or (isinstance(error, OSError) and not isinstance(error, PermissionError))
        raise (SinkUnavailable if passing else SinkError)(f"{what}: {text}") from None


def quoted(name: str) -> str:
    """Return a column's name as an expression."""
    return '"' + name.replace('"', '""') + '"'


def _apart(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what an iterator over a table yields, read in a thread of its own: the library cannot read while it writes in this one."""
    with ThreadPoolExecutor(1, thread_name_prefix="delta-reader") as pool:
        while (batch := pool.submit(next, batches, None).result()) is not None:
            yield batch


class DeltaTables:
    """See `Tables`. Not safe for several calls for one place at a time."""

    def __init__(self, root: str, store: Store, s3: S3Options | None, file_size: int) -> None:
        """`root`: path or URL."""
        self._root, self._store, self._options, self._file_size = root, store, storage_options(s3), file_size
        self._settings = {"delta.targetFileSize": str(file_size)}
        self._open: dict[str, DeltaTable] = {}

    def __str__(self) -> str:
        return str(self._store)

    def place(self, schema: str, table: str) -> str:
        layout.check_names(schema, table, _OTHER_NAME)
        if schema == FOLDER or "%" in schema + table:
            raise SinkError(f"{schema}.{table} cannot be a folder of {self}: the name is the sink's own, or has a % sign", hint=_OTHER_NAME)
        return f"{schema}/{table}"

    def uri(self, place: str) -> str:
        """Return the table's path or URL."""
        return f"{self._root}/{place}"

    def _table(self, place: str) -> DeltaTable | None:
        """Return a table at its newest version, None if there is none."""
        with delta_errors(self.uri(place)):
            known = self._open.get(place)
            if known is not None:
                known.update_incremental()
                return known
            try:
                found = DeltaTable(self.uri(place), storage_options=self._options)
            except TableNotFoundError:
                return None
            if len(self._open) >= _MOST_KEPT:
                self._open.clear()
            self._open[place] = found
            return found

    def _known(self, place: str) -> DeltaTable:
        table = self._table(place)
        if table is None:
            raise SinkError(f"{self.uri(place)} is gone", hint="Give the changefeed an empty place: it cannot go on without its tables.")
        return table

    def exists(self, place: str) -> bool:
        return self._table(place) is not None

    def delivered(self, place: str, changefeed: str) -> int:
        table = self._table(place)
        return int(table.transaction_version(_APP + changefeed) or 0) if table is not None else 0

    @contextmanager
    def _commit(self, place: str, stamp: Stamp, *, rows: bool = False) -> Iterator[dict[str, Any]]:
        """The arguments of a commit. `rows`: the interval's, so it is noted that they are there."""
        stamp.check_fence(now=True)
        transactions = [Transaction(_APP + stamp.changefeed, stamp.resolved_ts)] if rows else []
        with delta_errors(self.uri(place)):
            try:
                yield {
                    "commit_properties": CommitProperties(stamp.metadata, max_commit_retries=0, app_transactions=transactions),
                    "post_commithook_properties": PostCommitHookProperties(cleanup_expired_logs=False),
                }
            except BaseException:
                self._open.pop(place, None)  # it may be at a version that was not committed
                raise

    def shape(self, place: str, want: LakeTable, stamp: Stamp) -> None:
        table = self._table(place)
        if table is None:
            with self._commit(place, stamp) as given:
                more: Any = {"name": str(want), "configuration": self._settings, "storage_options": self._options}
                DeltaTable.create(self.uri(place), want.fields, **more, **given)
            return
        have = pa.schema(table.schema().to_arrow())
        found = evolution(have, want)
        if found.renumbered and found.step is not Step.REWRITE:
            self._renumber(place, table, have, found, stamp)
        if found.step is Step.ADD:
            with self._commit(place, stamp) as given:
                table.alter.add_columns(DeltaSchema.from_arrow(pa.schema(found.added)).fields, **given)
        elif found.step is Step.REWRITE:
            self._rewrite(place, table, found, want, stamp)

    def _renumber(self, place: str, table: DeltaTable, have: pa.Schema, found: Evolution, stamp: Stamp) -> None:
        """Give columns their ids. Each is a commit; after a crash the others follow."""
        for source, one in zip(found.sources, found.target, strict=True):
            if source is not None and (number := column_id(one)) != column_id(have.field(source)):
                with self._commit(place, stamp) as given:
                    table.alter.set_column_metadata(source, {COLUMN_ID.decode(): str(number)}, **given)

    def _rewrite(self, place: str, table: DeltaTable, found: Evolution, want: LakeTable, stamp: Stamp) -> None:
        """Write the table again with other columns. The library hides what its reader of rows raises."""
        failed: list[SinkError] = []
        there = _apart(table.to_pyarrow_dataset().to_batches())

        def rows() -> Iterator[pa.RecordBatch]:
            try:
                for batch in there:
                    if len(batch):
                        yield converted(batch, found, want)
            except SinkError as error:
                failed.append(error)
                raise

        try:
            self._replace(place, table, pa.RecordBatchReader.from_batches(found.target, rows()), stamp)
        except SinkError:
            if failed:
                raise failed[0] from None
            raise

    def _replace(self, place: str, table: DeltaTable, rows: pa.RecordBatchReader, stamp: Stamp) -> None:
        with self._commit(place, stamp) as given:
            write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", target_file_size=self._file_size, **given)
        self._open.pop(place, None)

    def begin(self, place: str, want: LakeTable, stamp: Stamp) -> None:
        table = self._table(place)
        if table is None:
            self.shape(place, want, stamp)
        else:
            self._replace(place, table, pa.RecordBatchReader.from_batches(want.fields, iter(())), stamp)

    def merge(self, place: str, want: LakeTable, rows: pa.Table, stamp: Stamp, *, of_interval: bool = True) -> None:
        table = self._known(place)
        if not table.get_add_actions().num_rows:
            kept = rows.filter(pc.equal(rows[OP], 0)).drop_columns([OP])
            self._append(place, table, want, kept, stamp, of_interval=of_interval)
            return
        on = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in want.keys)
        values = {quoted(name): f"s.{quoted(name)}" for name in want.fields.names}
        with self._commit(place, stamp, rows=of_interval) as given:
            merging = table.merge(rows, on, source_alias="s", target_alias="t", streamed_exec=False, **given)
            merging = merging.when_matched_update(values, predicate=f"s.{OP} = 0").when_matched_delete(f"s.{OP} = 1")
            merging.when_not_matched_insert(values, predicate=f"s.{OP} = 0").execute()

    def append(self, place: str, want: LakeTable, rows: pa.Table, stamp: Stamp) -> None:
        self._append(place, self._known(place), want, rows, stamp)

    def _append(self, place: str, table: DeltaTable, want: LakeTable, rows: pa.Table, stamp: Stamp, *, of_interval: bool = True) -> None:
        have = pa.schema(table.schema().to_arrow())
        columns = {name: rows[name] for name in rows.column_names}
        whole = pa.table([columns[one.name] if one.name in columns else pa.nulls(len(rows), one.type) for one in have], have.names)
        with self._commit(place, stamp, rows=of_interval) as given:
            write_deltalake(table, whole, mode="append", target_file_size=self._file_size, **given)

    def read(self, place: str, at: TableAt | None = None) -> Iterator[pa.RecordBatch]:
        table = self._known(place) if at is None else self.at(place, at.version)
        with delta_errors(self.uri(place)):
            yield from table.to_pyarrow_dataset().to_batches()

    def empty(self, place: str, stamp: Stamp) -> None:
        table = self._known(place)
        if table.get_add_actions().num_rows:
            with self._commit(place, stamp) as given:
                table.delete(**given)

    def rename(self, moves: Sequence[Move], stamp: Stamp) -> None:
        """The rows are copied: a folder cannot be moved everywhere, and older manifests know it by its name. They are read at the versions
        that tables had before, so places may be exchanged, and an interrupted rename be done again."""
        for move in moves:
            self._take_over(move, stamp)
        for place in {move.at.place for move in moves} - {move.place for move in moves}:
            self.empty(place, stamp)

    def _take_over(self, move: Move, stamp: Stamp) -> None:
        source, known = self.at(move.at.place, move.at.version), self._table(move.place)
        if known is not None or source.get_add_actions().num_rows:
            have = pa.schema(source.schema().to_arrow())
            there = _apart(source.to_pyarrow_dataset().to_batches())
            rows = pa.RecordBatchReader.from_batches(have, (one.cast(have) for one in there))
            with self._commit(move.place, stamp) as given:
                if known is not None:
                    given |= {"mode": "overwrite", "schema_mode": "overwrite"}
                else:
                    more = {"name": str(move.table), "configuration": self._settings, "storage_options": self._options}
                    given |= {"mode": "error", **more}
                write_deltalake(known or self.uri(move.place), rows, target_file_size=self._file_size, **given)
            self._open.pop(move.place, None)
        self.shape(move.place, move.table, stamp)

    def drop(self, at: TableAt, stamp: Stamp) -> None:
        """The folder stays, without rows: older versions are read from it."""
        if self.exists(at.place):
            self.empty(at.place, stamp)

    def compact(self, place: str, stamp: Stamp) -> None:
        table = self._known(place)
        with self._commit(place, stamp) as given:
            table.optimize.compact(target_size=self._file_size, **given)

    def version(self, schema: str, table: str, table_id: int, place: str) -> TableAt:
        return TableAt(schema, table, table_id, place, self._known(place).version())

    def clear(self, place: str) -> None:
        self._open.pop(place, None)
        self._store.clear(place)

    def files(self, at: TableAt) -> TableFiles:
        table = self.at(at.place, at.version)
        actions = table.get_add_actions(flatten=True)
        columns = {name: actions[name].to_pylist() for name in ("path", "size_bytes", "num_records")} if actions.num_rows else {}
        sizes = {unquote(path): size for path, size in zip(columns.get("path", ()), columns.get("size_bytes", ()), strict=True)}
        paths = tuple(f"{self.uri(at.place)}/{path}" for path in sizes)
        schema = json.loads(table.schema().to_json())
        return TableFiles(schema, paths, sum(columns.get("num_records", ())), sum(sizes.values()), sizes)

    def newest(self, place: str) -> DeltaTable:
        """Return a table at its newest version. Raises SinkError."""
        return self._known(place)

    def at(self, place: str, version: int) -> DeltaTable:
        """Return a table at a version. Raises SinkError."""
        with delta_errors(self.uri(place)):
            return DeltaTable(self.uri(place), version=version, storage_options=self._options)
