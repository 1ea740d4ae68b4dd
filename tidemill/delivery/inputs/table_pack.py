"""Packs: what tasks need to know of schemas and routing, an immutable file a schema version.

A DDL is a barrier between batches, so one batch never needs two versions of a table. The driver writes a pack, workers load it by its
path (executors on other machines get it with the job) and keep what they built. A pack is whole, or names a base pack and what differs
from it. Tables are kept packed until the first row of each comes by: neither thousands of tables nor hundreds of DDLs cost much.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidemill.changelog.storage import durable
from tidemill.errors import ConfigError
from tidemill.protocols.all import spec_of
from tidemill.protocols.options import EncodingOptions
from tidemill.rules.dispatch import DispatchMode, DispatchRule
from tidemill.rules.event_filter import RowFilter
from tidemill.rules.selectors import without
from tidemill.rules.skip import SkipRow
from tidemill.rules.table_routes import TableRouteConflict
from tidemill.tidb.schema.tracking.history import SchemaSnapshot, TableVersion
from tidemill.tidb.types.jsonstyle import JsonStyle

log = logging.getLogger(__name__)

Target = tuple[str, int]
"""(topic, partition)."""
Stamp = tuple[int, int]
"""Of a table version: from_ts, and when its description was written."""


@dataclass(frozen=True, slots=True)
class Output:
    """How rows become messages: the same for all tables of a changefeed."""

    encoding: EncodingOptions
    zone: tzinfo  # of TIMESTAMP text
    split_on_dispatch_key: bool = False  # updates that change a dispatched column are split
    ignored_start_ts: frozenset[int] = frozenset()  # transactions that are left out
    skip_rows: tuple[SkipRow, ...] = ()
    encoder: str = ""  # of a sink without a protocol, see `SinkSpec`
    as_statements: bool = False  # rows become statements of a database
    json: JsonStyle = JsonStyle.GO  # how documents are printed: as the upstream's version does it


@dataclass(frozen=True, slots=True)
class PackedTable:
    """A table whose rows are delivered, and where they go."""

    version: TableVersion
    topic: str
    rule: DispatchRule
    schema_ids: tuple[int, int] | None = None  # of key (-1: none) and value in a schema registry; None: not registered
    row_filter: RowFilter | None = None  # what is left out of its changes
    dropped: frozenset[int] = frozenset()  # ids of the columns that its messages do not have
    target: tuple[str, str] | None = None  # schema and name that its messages show, if table routing gives it others
    fault: str = ""  # why its rows cannot be delivered as asked for: the first of them ends the delivery

    @property
    def shown(self) -> TableVersion:
        """The table as its messages show it."""
        shown = replace(self.version, info=without(self.version.info, self.dropped)) if self.dropped else self.version
        return shown.named(self.target_name)

    @property
    def target_name(self) -> tuple[str, str]:
        """Schema and name that its messages show."""
        return self.target or self.version.name


@dataclass(frozen=True, slots=True)
class _Entry:
    """A table in a file: found by physical id, unpacked when it is used."""

    name: tuple[str, str]
    target: tuple[str, str]  # its name downstream
    topic: str
    physical_ids: tuple[int, ...]
    stamp: Stamp
    packed: bytes


@dataclass(frozen=True, slots=True)
class _Content:
    """A file. With a base: only what differs from it."""

    output: Output
    topics: tuple[tuple[str, int], ...]  # and how many partitions each has
    limits: Mapping[str, int]  # bytes of the largest message, of topics that have a limit
    base: str | None  # its name
    tables: Mapping[int, _Entry]  # by logical id
    removed: frozenset[int]
    known_ids: npt.NDArray[np.int64]  # physical ids that are known at all, wanted or not


@dataclass
class Pack:
    """A loaded pack."""

    output: Output
    topics: tuple[tuple[str, int], ...]
    limits: Mapping[str, int]  # bytes of the largest message, of topics that have a limit
    tables: Mapping[int, _Entry]
    known_ids: tuple[npt.NDArray[np.int64], ...]
    made: dict[str, Any] = field(default_factory=dict)  # what the process built of this pack

    @functools.cached_property
    def targets(self) -> tuple[Target, ...]:
        """All (topic, partition)s by number."""
        return tuple((topic, p) for topic, partitions in self.topics for p in range(partitions))

    @functools.cached_property
    def first_target(self) -> dict[str, int]:
        """The number of each topic's partition 0."""
        ends = np.cumsum([0, *(partitions for _, partitions in self.topics)]).tolist()
        return {topic: at for (topic, _), at in zip(self.topics, ends, strict=False)}

    @functools.cached_property
    def partitions(self) -> dict[str, int]:
        """How many partitions each topic has."""
        return dict(self.topics)

    @functools.cached_property
    def _by_physical(self) -> dict[int, _Entry]:
        return {physical: entry for entry in self.tables.values() for physical in entry.physical_ids}

    def table(self, physical_id: int) -> PackedTable | None:
        """The table whose rows are stored under this id, if they are delivered."""
        entry = self._by_physical.get(physical_id)
        return unpack(entry.packed) if entry else None

    def knows(self, physical_id: int) -> bool:
        """Whether the id is that of any table, now or at another time, delivered or not."""
        return any(
            at < len(ids) and ids[at] == physical_id for ids in self.known_ids for at in (int(np.searchsorted(ids, np.int64(physical_id))),)
        )


@functools.lru_cache(maxsize=4096)
def unpack(packed: bytes) -> PackedTable:
    """A table's description; the same object for the same bytes, so that what is compiled from it can be kept with it."""
    table: PackedTable = pickle.loads(packed)
    return table


_supplied: dict[str, Callable[[], bytes]] = {}


def supply(packs: Mapping[str, Callable[[], bytes]]) -> None:
    """Files that came with the job, by name: `load` takes these instead of files at a path."""
    _supplied.clear()
    _supplied.update(packs)


def name_of(path: str) -> str:
    """The name of a pack, the same on every machine: the hash of its content."""
    return path.rpartition("/")[2]


def files(path: str) -> list[Path]:
    """The files that a pack consists of, on the driver's machine."""
    base = _read(path).base
    return [Path(path), *([Path(path).with_name(base)] if base is not None else [])]


@functools.lru_cache(maxsize=4)
def _read(path: str) -> _Content:
    supplied = _supplied.get(name_of(path))
    content: _Content = pickle.loads(supplied() if supplied is not None else Path(path).read_bytes())
    return content


@functools.lru_cache(maxsize=4)
def load(path: str) -> Pack:
    """A pack by its path, or by its name where it was supplied. Kept for the life of the process: a name never changes its content."""
    content = _read(path)
    if content.base is None:
        return Pack(content.output, content.topics, content.limits, content.tables, (content.known_ids,))
    base = _read(f"{path.removesuffix(name_of(path))}{content.base}")
    tables = {**base.tables, **content.tables}
    for table_id in content.removed:
        del tables[table_id]
    return Pack(content.output, content.topics, content.limits, tables, (base.known_ids, content.known_ids))


Choose = Callable[[TableVersion], "PackedTable | None"]
"""A table whose rows are delivered; None for one whose rows are not."""
CountPartitions = Callable[[Set[str]], Mapping[str, int]]
"""Makes sure that topics exist; how many partitions each has."""
FindLimits = Callable[[Set[str]], Mapping[str, int]]
"""Bytes of the largest message that topics take; those without a limit are left out."""


class Schemas(Protocol):
    """What a protocol whose messages name schema ids asks for."""

    def register(self, version: TableVersion, topic: str) -> tuple[int, int]:
        """Make sure that the schema registry knows a table's schemas, for a topic; ids of key (-1: none) and value."""

    def check(self, ts: int, tables: Iterable[tuple[tuple[str, str], str]]) -> None:
        """Refuse the names and topics of the tables that are delivered past ts, if they do not go together."""


SMALL_DELTA = 64
"""Tables that a pack may have beside its base, whatever the size of that."""


class PackStore:
    """The driver's side: writes the packs of a changefeed into a folder, which it empties first."""

    def __init__(
        self,
        folder: Path,
        output: Output,
        choose: Choose,
        count_partitions: CountPartitions,
        topics: Iterable[str] = (),
        schemas: Schemas | None = None,
        find_limits: FindLimits = lambda topics: {},
        lenient: bool = False,
    ) -> None:
        """`lenient`: a fault of a table is not raised with the first pack.

        Later ones never are: a table may be made before it is as the settings expect it.
        """
        self._lenient = lenient
        self._find_limits = find_limits
        self._folder, self._output, self._choose, self._count, self._schemas = folder, output, choose, count_partitions, schemas
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.pack"):
            old.unlink()
        self._topics: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self._placed: dict[int, str] = {}  # topics that are one table's alone, and go with its version
        self._tables: dict[int, _Entry] = {}  # wanted ones now
        self._chosen: dict[int, tuple[Stamp, _Entry | None]] = {}  # stamp and entry of each table, wanted or not
        self._unregistered: set[int] = set()  # wanted tables without schema ids
        self._changed = False  # the wanted tables differ from those of the newest pack
        self._wanted_topics: set[str] = set()  # of tables that are new
        self._base: _Content | None = None
        self._base_path = ""
        self._delta_path = ""
        self._known = 0  # ids that the newest pack knows
        self._add_topics(set(topics))

    @property
    def targets(self) -> list[Target]:
        """Every (topic, partition) there is now."""
        return [(topic, p) for topic, partitions in self._topics.items() for p in range(partitions)]

    def wanted(self) -> Iterator[PackedTable]:
        """The tables whose rows are delivered now."""
        for entry in self._tables.values():
            yield unpack(entry.packed)

    @property
    def names_versions(self) -> bool:
        """Whether messages name the description that they were written by: then each new one counts, also if rows look the same."""
        protocol = self._output.encoding.protocol
        return protocol is not None and spec_of(protocol).describes_tables

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; it is made if it is new."""
        self._add_topics({topic})
        return self._topics[topic]

    def pack(
        self,
        snapshot: SchemaSnapshot,
        with_rows: Callable[[Set[int]], Set[int]] = frozenset,
        json: JsonStyle = JsonStyle.GO,
    ) -> str:
        """Path of a pack that is valid for rows just past the snapshot's ts, whose documents are printed as `json` says.

        `with_rows`: those of the given physical ids whose rows it will be used for. Only their tables are registered. Raises what the
        registry answers; what was registered until then counts.
        """
        topics_before = len(self._topics)
        if self._output.json is not json:
            self._output = replace(self._output, json=json)
            self._changed = True
        self.follow(snapshot)
        if self._schemas is not None and self._unregistered:
            self._register_tables(self._schemas, with_rows)
        known = len(snapshot.known_ids)
        if self._base is not None and not self._changed and (len(self._topics), known) == (topics_before, self._known):
            return self._delta_path
        self._known = known
        delta = self._delta(snapshot) if self._base is not None else None
        if delta is None or len(delta.tables) + len(delta.removed) > max(SMALL_DELTA, len(self._tables) // 4):
            path = self._write_base(snapshot)
        else:
            path = self._write_delta(delta)
        self._changed = False
        return path

    def follow(self, snapshot: SchemaSnapshot) -> None:
        """Learn the tables of a snapshot and make their topics. Raises what is against them, before a topic is made."""
        for table_id, version in snapshot.tables.items():
            known = self._chosen.get(table_id)
            stamp = version.from_ts, version.info.update_ts
            if known is None or known[0] != stamp:
                self._enter(table_id, stamp, self._entry(version))
        for table_id in self._chosen.keys() - snapshot.tables.keys():
            self._enter(table_id, (0, 0), None)
            del self._chosen[table_id]
        if self._changed:
            self._check_targets()
        if self._schemas is not None and self._changed:
            self._schemas.check(snapshot.ts, ((entry.name, entry.topic) for entry in self._tables.values()))
        self._add_topics(self._wanted_topics)
        self._wanted_topics.clear()

    def _check_targets(self) -> None:
        """Raise TableRouteConflict if two tables have one target: rows of both would be mixed there, in no order."""
        sources: dict[tuple[str, str], tuple[str, str]] = {}
        for entry in self._tables.values():
            other = sources.setdefault(entry.target, entry.name)
            if other != entry.name:
                raise TableRouteConflict(
                    f"table routing gives {'.'.join(other)} and {'.'.join(entry.name)} the same target {'.'.join(entry.target)}",
                    hint="Let target-table have {schema} or another part that tells the tables apart, or filter one of them out.",
                )

    def _enter(self, table_id: int, stamp: Stamp, entry: _Entry | None) -> None:
        """From now on the table is this; None: it is not wanted."""
        self._chosen[table_id] = stamp, entry
        if entry is None:
            self._topics.pop(self._placed.pop(table_id, ""), None)
        self._unregistered.discard(table_id)
        if entry is not None:
            self._tables[table_id] = entry
            self._unregistered.add(table_id)
            self._wanted_topics.add(entry.topic)
        if entry is not None or self._tables.pop(table_id, None) is not None:
            self._changed = True

    def _register_tables(self, schemas: Schemas, with_rows: Callable[[Set[int]], Set[int]]) -> None:
        """Give ids to the tables that are about to have rows and have none."""
        tables = {physical: table_id for table_id in self._unregistered for physical in self._tables[table_id].physical_ids}
        for table_id in sorted({tables[physical] for physical in with_rows(tables.keys())}):
            entry = self._tables[table_id]
            table = unpack(entry.packed)
            packed = pickle.dumps(replace(table, schema_ids=schemas.register(table.shown, table.topic)))
            self._enter(table_id, entry.stamp, replace(entry, packed=packed))
            self._unregistered.discard(table_id)

    def _entry(self, version: TableVersion) -> _Entry | None:
        chosen = self._choose(version) if version.physical_ids else None
        if chosen is None:
            return None
        if chosen.fault:
            self._blame(chosen)
        if chosen.rule.mode is DispatchMode.PHYSICAL and (before := self._placed.get(version.table_id)) != chosen.topic:
            self._topics.pop(before or "", None)
            self._placed[version.table_id] = chosen.topic
        stamp = version.from_ts, version.info.update_ts
        return _Entry(version.name, chosen.target_name, chosen.topic, version.physical_ids, stamp, pickle.dumps(chosen))

    def _blame(self, chosen: PackedTable) -> None:
        """Raises ConfigError at the start, while somebody is looking."""
        if self._base is None and not self._lenient:
            raise ConfigError(chosen.fault)
        log.warning("%s; the next row of the table ends the delivery", chosen.fault)

    def _add_topics(self, topics: set[str]) -> None:
        new = topics - self._topics.keys()
        if new:
            counts = self._count(new)
            self._limits |= self._find_limits(new)
            self._topics.update((topic, counts[topic]) for topic in sorted(new))

    def refresh_topics(self) -> bool:
        """Ask the sink for all topics again: made if they are gone, with new partitions, other limits. Did anything change?"""
        if not self._topics:
            return False
        counts, limits = self._count(set(self._topics)), dict(self._find_limits(set(self._topics)))
        found = {topic: counts[topic] for topic in self._topics}
        changed = (found, limits) != (self._topics, self._limits)
        self._topics, self._limits = found, limits
        self._changed |= changed
        return changed

    def _delta(self, snapshot: SchemaSnapshot) -> _Content:
        assert self._base is not None
        base = self._base.tables
        tables = {t: e for t, e in self._tables.items() if base.get(t) != e}
        more = snapshot.known_ids - set(self._base.known_ids.tolist())
        return self._content(name_of(self._base_path), tables, frozenset(base.keys() - self._tables.keys()), more)

    def _content(self, base: str | None, tables: Mapping[int, _Entry], removed: frozenset[int], known: Set[int]) -> _Content:
        ids = np.sort(np.fromiter(known, np.int64, len(known)))
        return _Content(self._output, tuple(self._topics.items()), dict(self._limits), base, tables, removed, ids)

    def _write_base(self, snapshot: SchemaSnapshot) -> str:
        old = [self._base_path, self._delta_path]
        self._base = self._content(None, dict(self._tables), frozenset(), snapshot.known_ids)
        self._base_path = self._delta_path = self._write(self._base)
        self._remove(*old)
        return self._base_path

    def _write_delta(self, delta: _Content) -> str:
        old, self._delta_path = self._delta_path, self._write(delta)
        if old != self._base_path:
            self._remove(old)
        return self._delta_path

    def _write(self, content: _Content) -> str:
        data = pickle.dumps(content)
        # Workers keep what they loaded by this name, over batches and drivers.
        path = self._folder / f"{hashlib.sha256(data).hexdigest()[:32]}.pack"
        durable.write(path, data, sync=False, mode=0o600)  # its settings have the passwords of a claim check's store and of a registry
        return str(path)

    def _remove(self, *paths: str) -> None:
        """Files that no batch will name again. A task that is late finds its pack gone, and the fence would have stopped it."""
        for path in {p for p in paths if p} - {self._base_path, self._delta_path}:
            Path(path).unlink(missing_ok=True)
