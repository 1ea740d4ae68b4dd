"""The driver half: merges what tasks staged into the tables, does the DDLs, writes the manifest.

A batch commits in this order:

    each table with rows, one commit: columns first where they differ, then the rows
    the DDLs at the batch's end, one after the other; that the rows are there, and how many are done, is noted (`progress`)
    the manifest of to_ts, if a table has changed
    the head

After a crash the batch is run again over the same interval. Tables whose newest rows are those of to_ts are passed over, and with the note
all rows, and the DDLs that it counts. Each commit is made on the version that was read, and the fence is checked between the two: of two
drivers one fails, see `Tables`. Manifests are created once, the head moves ahead only.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.config.lake import LakeMode
from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.sinks import owner
from tidemill.sinks.base import BatchContext
from tidemill.sinks.lake.base import Move, Stamp
from tidemill.sinks.lake.control import Do, LakeDdl, lake_ddl
from tidemill.sinks.lake.driver.dropped import DroppedTables
from tidemill.sinks.lake.driver.partitions import PartitionMoves
from tidemill.sinks.lake.driver.progress import BatchProgress
from tidemill.sinks.lake.manifest import FOLDER, Head, Manifest, Name, TableAt, read_head, read_manifest, write_head, write_manifest
from tidemill.sinks.lake.net import last_of_each
from tidemill.sinks.lake.open import store_of, tables_of
from tidemill.sinks.lake.shapes import LakeTable, lake_table
from tidemill.sinks.storage import parts, paths
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.lineage import origins
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import describe

log = logging.getLogger(__name__)

_AT_ONCE = 4
"""Tables that are merged at the same time."""


class LakeDriverSink:
    """See `DriverSink`."""

    def __init__(self, uri: SinkUri, *, fresh: bool) -> None:
        assert uri.lake is not None
        self._uri, self._lake, self._fresh = uri, uri.lake, fresh
        self._store = store_of(uri)
        self._tables = tables_of(uri, self._store)
        self._moves, self._dropped = PartitionMoves(self._tables), DroppedTables(self._store, self._tables)
        self._progress = BatchProgress(self._store)
        self._history = uri.lake.mode is LakeMode.CHANGES
        self._placed: dict[str, LakeTable] = {}  # by topic
        self._new: list[LakeTable] = []  # placed since the last batch
        self._newest: dict[int, str] = {}  # topic by table id
        self._versions: dict[int, TableVersion] = {}  # the one that was placed last, by table id
        self._origins: defaultdict[int, dict[int, int]] = defaultdict(dict)  # of columns, by table id: see `lineage.origins`
        self._now: dict[Name, TableAt] = {}
        self._head: Head | None = None
        self._commits: defaultdict[str, int] = defaultdict(int)  # of a place, since its files were joined
        self._ddls: list[LakeDdl] = []
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="lake")

    def place(self, version: TableVersion) -> str:
        """Return the topic of a table's rows. Only the newest version of a table is kept."""
        table = lake_table(version, history=self._history)
        topic = paths.topic_of(version)
        old = self._newest.get(version.table_id)
        if old != topic:
            self._note_origins(version)
            self._placed.pop(old or "", None)
            self._newest[version.table_id] = topic
            self._placed[topic] = table
            self._new.append(table)
        return topic

    def _note_origins(self, version: TableVersion) -> None:
        """Note which columns are new, also where an event filter keeps the DDL back."""
        before = self._versions.get(version.table_id)
        self._versions[version.table_id] = version
        if before is not None:
            known = self._origins[version.table_id]
            known |= {column: origin for column, origin in origins(before, version).items() if column not in known}

    def _with_origins(self, table: LakeTable, *, renamed: bool = False) -> LakeTable:
        """Return a table with what is known of its columns, for the table that has its name, or, `renamed`, had another one."""
        known = self._now.get(table.name)
        self._origins[table.table_id] |= dict(table.origins)
        by_name = not renamed and known is not None and known.table_id != table.table_id
        return replace(table, origins=tuple(self._origins[table.table_id].items()), by_name=by_name)

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    def message_limits(self, topics: Set[str]) -> Mapping[str, int]:
        """Return no limits."""
        return {}

    def begin_batch(self, ctx: BatchContext) -> None:
        self._ddls.clear()
        if self._head is None:
            self._head = self._open(ctx)
        parts.begin(self._store, ctx, self._head.resolved_ts)

    def _open(self, ctx: BatchContext) -> Head:
        mark = f"{self._uri.scheme}, {self._lake.mode.value}"
        if not owner.check(self._store.read(owner.TABLES_NOTE), str(self._store), ctx.feed, mark):
            self._store.create(owner.TABLES_NOTE, owner.note(ctx.feed, mark))
        self._progress.claim(ctx.epoch, ctx.check_fence)
        if self._fresh:
            self._clear()
            self._fresh = False
        parts.drop_old(self._store, ctx.epoch)
        head = read_head(self._store)
        self._now = dict(read_manifest(self._store, head.manifest).tables)
        return head

    def _clear(self) -> None:
        """Remove the tables of an earlier replay."""
        for table in read_manifest(self._store, read_head(self._store).manifest).tables.values():
            self._tables.clear(table.place)
        self._store.clear(FOLDER)
        self._dropped.forget()
        self._progress.forget()

    def ddl(self, event: DdlEvent, topic: str) -> bool:
        """Take a DDL. It is done at the end of the batch."""
        ddl = lake_ddl(event, history=self._history)
        if ddl is not None:
            self._ddls.append(ddl)
        return ddl is not None

    def resolved(self, ts: int) -> None:
        """Do nothing. The head is written at the end of the batch."""

    def finish_batch(self, ctx: BatchContext) -> None:
        head = self._head
        assert head is not None, "begin_batch comes first"
        if ctx.to_ts > head.resolved_ts:
            stamp = Stamp(ctx.feed, ctx.to_ts, ctx.epoch, ctx.check_fence)
            changed = self._do_rows(ctx, stamp)
            changed = self._do_ddls(stamp) or changed
            self._head = self._publish(head, changed, stamp)
        self._ddls.clear()
        self._store.clear(parts.folder_of(ctx))

    def _publish(self, head: Head, changed: bool, stamp: Stamp) -> Head:
        stamp.check_fence(now=True)
        manifest = head.manifest
        if changed:
            manifest = stamp.resolved_ts
            if not write_manifest(self._store, Manifest(manifest, stamp.epoch, stamp.changefeed, self._now)):
                log.info("%s: the manifest of %s is there already", self._store, describe(manifest))
        found = Head(max(stamp.resolved_ts, head.resolved_ts), manifest, stamp.epoch)
        write_head(self._store, found)
        return found

    def _do_rows(self, ctx: BatchContext, stamp: Stamp) -> bool:
        """See that the batch's rows are in the tables. Returns whether there were any."""
        known = self._progress.begin(stamp.resolved_ts, self._now)
        if known is not None:
            log.info("%s: the rows up to %s are in the tables already", self._store, describe(stamp.resolved_ts))
            self._now = known
            self._new.clear()
            return True
        changed = self._bring_back(stamp)
        changed = self._commit_rows(ctx, stamp) or changed
        if self._ddls:
            self._progress.note(stamp, 0, self._now)
        return changed

    def _bring_back(self, stamp: Stamp) -> bool:
        """Restore the tables that FLASHBACK DATABASE brought back: no DDL tells of them. Returns whether there were any."""
        there = {at.table_id for at in self._now.values()}
        back = [table for table in self._new if not table.history and table.table_id not in there and self._dropped.has(table.table_id)]
        for table in back:
            place = self._place_of(table)
            if self._tables.delivered(place, stamp.changefeed) < stamp.resolved_ts:  # else an attempt before this one has done it
                self._dropped.restore(place, table, stamp)
            self._now[table.name] = self._tables.version(*table.name, table.table_id, place)
        self._new.clear()
        return bool(back)

    # Rows

    def _commit_rows(self, ctx: BatchContext, stamp: Stamp) -> bool:
        """Commit each table's staged rows. Returns whether there were any."""
        staged: dict[str, list[parts.Part]] = {}
        for part in parts.listed(self._store, ctx):
            staged.setdefault(part.topic, []).append(part)
        running = [self._pool.submit(self._commit_table, self._of(topic), found, stamp) for topic, found in staged.items()]
        errors = [error for error in (one.exception() for one in running) if error is not None]
        for error in errors:
            raise error
        for one in running:
            at = one.result()
            self._now[at.name] = at
        return bool(running)

    def _of(self, topic: str) -> LakeTable:
        table = self._placed.get(topic)
        if table is None:
            raise SinkError(f"{self._store}: rows of {topic.partition('@')[0]} came, which nobody announced")
        return self._with_origins(table)

    def _commit_table(self, table: LakeTable, found: Sequence[parts.Part], stamp: Stamp) -> TableAt:
        place = self._place_of(table)
        delivered = self._tables.delivered(place, stamp.changefeed)
        if delivered >= stamp.resolved_ts:
            log.info("%s: the rows up to %s are in the table already", table, describe(delivered))
        else:
            self._tables.shape(place, table, stamp)
            rows = self._rows(table, found, delivered)
            if table.history:
                self._tables.append(place, table, rows, stamp)
            else:
                self._tables.merge(place, table, rows, stamp)
            self._compact(place, stamp)
        return self._tables.version(*table.name, table.table_id, place)

    def _place_of(self, table: LakeTable) -> str:
        known = self._now.get(table.name)
        return known.place if known is not None else self._tables.place(*table.name)

    def _rows(self, table: LakeTable, found: Sequence[parts.Part], delivered: int) -> pa.Table:
        """Return the staged rows of a table. Of changes, those that are not delivered; else the last of each key."""
        pieces = [pa.ipc.open_file(pa.BufferReader(self._read(part.file))).read_all() for part in found]
        rows = pa.concat_tables(pieces)
        if table.history:
            return rows.filter(pc.greater(rows["_commit_ts"], delivered)) if delivered else rows
        return last_of_each(rows, table.keys) if len(pieces) > 1 else rows

    def _read(self, name: str) -> bytes:
        data = self._store.read(name)
        if data is None:
            raise SinkError(f"{self._store}/{name} was staged and is gone")
        return data

    def _compact(self, place: str, stamp: Stamp) -> None:
        every = self._lake.compact_every
        self._commits[place] += 1
        if every and self._commits[place] >= every:
            self._commits[place] = 0
            self._tables.compact(place, stamp)

    # DDLs

    def _do_ddls(self, stamp: Stamp) -> bool:
        """Do the DDLs that are not done. Returns whether there were any at all."""
        for number, step in enumerate(_steps(self._ddls), start=1):
            if number > self._progress.done:
                self._do(step, stamp)
                self._progress.note(stamp, number, self._now)
        return bool(self._ddls)

    def _do(self, step: Sequence[LakeDdl], stamp: Stamp) -> None:
        ddl = step[0]
        match ddl.do:
            case Do.RENAME:
                self._rename(step, stamp)
            case Do.DROP_SCHEMA:
                for name in [name for name in self._now if name[0] == ddl.old[0]]:
                    self._drop(name, stamp)
            case Do.DROP:
                self._drop(ddl.old, stamp)
            case Do.EXCHANGE:
                self._exchange(ddl, stamp)
            case _:
                self._do_in_place(ddl, stamp)

    def _do_in_place(self, ddl: LakeDdl, stamp: Stamp) -> None:
        assert ddl.table is not None
        table = self._with_origins(ddl.table)
        before, place = self._now.get(table.name), self._place_of(table)
        match ddl.do:
            case Do.REMOVE:
                self._tables.shape(place, table, stamp)
                self._moves.remove(place, table, ddl.gone, stamp)
            case Do.RECOVER:
                self._dropped.restore(place, table, stamp)
            case Do.BEGIN if not table.history:
                self._tables.begin(place, table, stamp)
            case Do.EMPTY:
                if before is not None:
                    self._dropped.note(before, stamp)
                self._tables.shape(place, table, stamp)
                self._tables.empty(place, stamp)
            case _:
                self._tables.shape(place, table, stamp)
        self._note(table, place)

    def _note(self, table: LakeTable, place: str) -> None:
        self._now[table.name] = self._tables.version(*table.name, table.table_id, place)

    def _rename(self, step: Sequence[LakeDdl], stamp: Stamp) -> None:
        """Rename tables, all of them at once: they may take each other's names."""
        renames: dict[int, tuple[Name, LakeTable]] = {}  # by table id: the first name and the last
        for ddl in step:
            assert ddl.table is not None
            old, _ = renames.get(ddl.table.table_id, (ddl.old, ddl.table))
            renames[ddl.table.table_id] = old, self._with_origins(ddl.table, renamed=True)
        before = {old: self._now.pop(old, None) for old, _ in renames.values()}
        for old, table in renames.values():
            if table.history and table.name in self._now:
                raise SinkError(
                    f"{'.'.join(old)} becomes {table}, whose changes stay in {self._store}",
                    hint="Let an event filter ignore the DDL: the changes that follow go on in the table of that name.",
                )
            self._drop(table.name, stamp)  # an event filter has kept back what became of it
        moves, new = [], []
        for old, table in renames.values():
            at, place = before[old], self._tables.place(*table.name)
            if at is not None:
                moves.append(Move(at, place, table))
            else:
                new.append((place, table))
        self._tables.rename(moves, stamp)
        for place, table in new:
            (self._tables.shape if table.history else self._tables.begin)(place, table, stamp)
        for _, table in renames.values():
            self._note(table, self._tables.place(*table.name))

    def _exchange(self, ddl: LakeDdl, stamp: Stamp) -> None:
        table, other = ddl.table, ddl.other
        assert table is not None
        assert other is not None
        for side, missing in ((table, other), (other, table)):
            if missing.name not in self._now:
                raise SinkError(
                    f"{side} exchanges a partition with {missing}, which is not in {self._store}",
                    hint="Deliver both tables, or let an event filter ignore the DDL and load the table again into an empty place.",
                )
        inside, outside = self._now[table.name], self._now[other.name]
        self._moves.exchange((inside, table), (outside, other), ddl.gone, stamp)
        self._note(table, inside.place)
        self._note(other, outside.place)

    def _drop(self, name: Name, stamp: Stamp) -> None:
        known = self._now.get(name)
        if known is None or self._history:
            return
        self._dropped.note(known, stamp)
        self._tables.drop(known, stamp)
        del self._now[name]

    def discard(self, ctx: BatchContext) -> None:
        """Drop a failed attempt. Tables that are committed stay so: the next attempt passes them over."""
        self._ddls.clear()
        self._head = None
        try:
            self._store.clear(parts.folder_of(ctx))
        except SinkError as error:
            log.debug("what a failed attempt left cannot be removed now: %s", error)

    def close(self) -> None:
        """Let running commits end."""
        self._pool.shutdown()


def _steps(ddls: Sequence[LakeDdl]) -> list[list[LakeDdl]]:
    """Return DDLs as steps: one each, but the renames of one statement, which have one ts, together."""
    found: list[list[LakeDdl]] = []
    for ddl in ddls:
        if ddl.do is Do.RENAME and found and found[-1][0].do is Do.RENAME and found[-1][0].ts == ddl.ts:
            found[-1].append(ddl)
        else:
            found.append([ddl])
    return found
