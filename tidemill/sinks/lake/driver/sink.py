"""The driver half: merges what tasks staged into the tables, does the DDLs, writes the manifest.

A batch commits in this order:

    each table with rows, one commit: columns first where they differ, then the rows
    the DDLs at the batch's end, one after the other; how many are done is noted (`.tidemill/ddls.json`)
    the manifest of to_ts, if a table has changed
    the head

After a crash the batch is run again over the same interval. Tables whose newest rows are those of to_ts are passed over, and so are DDLs
that are done. Each commit is made on the version that was read, after a look at the fence: of two drivers one fails.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tidemill import statefile
from tidemill.config.lake import LakeMode
from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.sinks import owner
from tidemill.sinks.base import BatchContext, Target
from tidemill.sinks.lake.base import Stamp
from tidemill.sinks.lake.control import Do, LakeDdl
from tidemill.sinks.lake.driver.dropped import DroppedTables
from tidemill.sinks.lake.driver.partitions import PartitionMoves
from tidemill.sinks.lake.manifest import FOLDER, Head, Manifest, Name, TableAt, read_head, read_manifest, write_head, write_manifest
from tidemill.sinks.lake.net import last_of_each
from tidemill.sinks.lake.open import store_of, tables_of
from tidemill.sinks.lake.shapes import LakeTable, lake_table
from tidemill.sinks.storage import parts, paths
from tidemill.tidb.schema.tracking.lineage import origins
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import describe

log = logging.getLogger(__name__)

_DDLS = f"{paths.FOLDER}/ddls.json"
_AT_ONCE = 4
"""Tables that are merged at the same time."""


def _unless_later(data: bytes, where: str, known: bytes | None) -> bytes | None:
    """Return the note of DDLs that are done, unless the one that is there is further."""
    if known is not None and _further(known, where) >= _further(data, where):
        return None
    return data


def _further(data: bytes, where: str) -> tuple[int, int]:
    fields = statefile.read(data, where, owner.NOTE)
    return fields.integer("ts"), fields.integer("done")


class LakeDriverSink:
    """See `DriverSink`."""

    def __init__(self, uri: SinkUri, *, fresh: bool) -> None:
        assert uri.lake is not None
        self._uri, self._lake, self._fresh = uri, uri.lake, fresh
        self._store = store_of(uri)
        self._tables = tables_of(uri, self._store)
        self._moves, self._dropped = PartitionMoves(self._store, self._tables), DroppedTables(self._store, self._tables)
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
        mark = f"{self._uri.scheme.value}, {self._lake.mode.value}"
        if not owner.check(self._store.read(owner.TABLES_NOTE), str(self._store), ctx.feed, mark):
            self._store.create(owner.TABLES_NOTE, owner.note(ctx.feed, mark))
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
        self._moves.forget()
        self._dropped.forget()
        self._store.delete(_DDLS)

    def ddl(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        """Take a DDL. It is done at the end of the batch."""
        self._ddls.append(LakeDdl.parse(value or b""))

    def resolved(self, targets: Sequence[Target], key: bytes | None, value: bytes | None) -> None:
        """Do nothing. The head is written at the end of the batch."""

    def finish_batch(self, ctx: BatchContext) -> None:
        head = self._head
        assert head is not None, "begin_batch comes first"
        if ctx.to_ts > head.resolved_ts:
            stamp = Stamp(ctx.feed, ctx.to_ts, ctx.epoch, ctx.check_fence)
            changed = self._bring_back(stamp)
            changed = self._commit_rows(ctx, stamp) or changed
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
        done = self._done(stamp.resolved_ts) if self._ddls else 0
        for number, ddl in enumerate(self._ddls, start=1):
            self._do(ddl, stamp, again=number <= done)
            if number > done:
                done_now = json.dumps({"format": 1, "ts": stamp.resolved_ts, "done": number}).encode()
                self._store.change(_DDLS, partial(_unless_later, done_now, f"{self._store}/{_DDLS}"))
                if ddl.do is Do.EXCHANGE:
                    self._moves.forget()
        return bool(self._ddls)

    def _done(self, ts: int) -> int:
        text = self._store.read(_DDLS)
        if text is None:
            return 0
        found = statefile.read(text, f"{self._store}/{_DDLS}", owner.NOTE)
        return found.integer("done") if found.integer("ts") == ts else 0

    def _do(self, ddl: LakeDdl, stamp: Stamp, *, again: bool) -> None:
        """Do a DDL, or only note what it did before."""
        if ddl.do is Do.DROP_SCHEMA:
            for name in [name for name in self._now if name[0] == ddl.old[0]]:
                self._drop(name, stamp, again=again)
            return
        if ddl.do is Do.DROP:
            self._drop(ddl.old, stamp, again=again)
            return
        assert ddl.table is not None
        table = self._with_origins(ddl.table, renamed=ddl.do is Do.RENAME)
        before = self._now.get(ddl.old)
        place = self._tables.place(*table.name) if ddl.do is Do.RENAME else self._place_of(table)
        if not again:
            match ddl.do:
                case Do.REMOVE:
                    self._tables.shape(place, table, stamp)
                    self._moves.remove(place, table, ddl.gone, stamp)
                case Do.EXCHANGE:
                    self._exchange(place, ddl, stamp)
                case Do.RECOVER:
                    self._dropped.restore(place, table, stamp)
                case Do.BEGIN if not table.history:
                    self._tables.begin(place, table, stamp)
                case Do.RENAME if before is not None:
                    self._tables.rename(before.place, place, table, stamp)
                case Do.EMPTY:
                    if before is not None:
                        self._dropped.note(before, stamp)
                    self._tables.shape(place, table, stamp)
                    self._tables.empty(place, stamp)
                case _:
                    self._tables.shape(place, table, stamp)
        if ddl.do is Do.RENAME:
            self._now.pop(ddl.old, None)
        for one, at in ((table, place), *([(ddl.other, self._place_of(ddl.other))] if ddl.other is not None else [])):
            self._now[one.name] = self._tables.version(*one.name, one.table_id, at)

    def _exchange(self, place: str, ddl: LakeDdl, stamp: Stamp) -> None:
        table, other = ddl.table, ddl.other
        assert table is not None
        assert other is not None
        if other.name not in self._now:
            raise SinkError(
                f"{table} exchanges a partition with {other}, which is not in {self._store}",
                hint="Deliver both tables, or let an event filter ignore the DDL and load the table again into an empty place.",
            )
        self._moves.exchange((place, table), (self._place_of(other), other), ddl.gone, stamp)

    def _drop(self, name: Name, stamp: Stamp, *, again: bool) -> None:
        known = self._now.get(name)
        if known is None or self._history:
            return
        if not again:
            self._dropped.note(known, stamp)
            self._tables.drop(known.place, stamp)
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
