"""The files of a storage sink (`protocol=csv` or `canal-json`), of Tidemill or TiCDC → rows and DDLs in the order of their ts.

The layout is that of `tidemill.sinks.storage`. Only what is at or below the sink's checkpoint is read: above it files may be missing.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from tidemill.budget import STATE, Budget
from tidemill.config.uri import SinkUri
from tidemill.consumer.canal import open_events, type_of
from tidemill.consumer.targets import ConsumerTarget
from tidemill.errors import ConfigError, MalformedMessage, SinkError
from tidemill.protocols import canal_json
from tidemill.protocols.csv.decode import CsvLine, CsvReader
from tidemill.protocols.open.codes import ColumnFlag
from tidemill.protocols.open.events import Column, DdlMessage, RowEvent, RowKind, Value
from tidemill.protocols.options import MessageFormat
from tidemill.sinks.storage.open import store_of
from tidemill.sinks.storage.paths import METADATA
from tidemill.sinks.storage.store import Store

_DATA = re.compile(
    r"(?P<base>[^/]+/[^/]+|\d+)/(?P<version>\d+)(?:/(?P<partition>\d+))?(?:/(?P<date>\d{4}(?:-\d\d){0,2}))?/CDC(?P<number>\d+)\.\w+"
)
_SCHEMA = re.compile(r"(?P<base>[^/]+(?:/[^/]+)?)/meta/schema_(?P<version>\d+)_\d{10}\.json")
_ROWS, _DDL = 0, 1

NAMED = "="
"""Begins the value of an ENUM or SET of a CSV file, which is by the names of elements: schema files do not say their numbers."""

Step = tuple[int, int, list[RowEvent] | DdlMessage]
"""A ts, whether it is a DDL, which comes after the rows of its ts, and what happened."""


@dataclass(frozen=True, slots=True)
class _Described:
    """A schema file: the columns of its table with their types, in order, and which are of the primary key."""

    columns: tuple[tuple[str, str], ...]
    key: frozenset[str]
    ddl: DdlMessage | None


class StoredTables:
    """One sink's files. Raises SinkError, SinkUnavailable; MalformedMessage that names file and place."""

    def __init__(self, uri: SinkUri, *, to_show: bool = False) -> None:
        """Raises ConfigError for a sink of other files. `to_show`: steps are for people, not for tables: see `open_events`, and updates of
        CSV stay updates, though their old rows are not known."""
        if uri.protocol not in (MessageFormat.CSV, MessageFormat.CANAL_JSON) or uri.storage is None:
            raise ConfigError(f"{uri}: only files of tables can be read", hint="Give the sink's own URI, with protocol=csv or canal-json.")
        self._store: Store = store_of(uri)
        self._to_show = to_show
        self._csv = uri.encoding.csv if uri.protocol is MessageFormat.CSV else None
        self._terminator = uri.encoding.csv.terminator.encode()
        self._files: dict[tuple[str, int], dict[str, list[tuple[str, int, str]]]] = defaultdict(lambda: defaultdict(list))
        self._schemas: dict[tuple[str, int], str] = {}
        for name in self._store.walk():
            self._note(name)

    def _note(self, name: str) -> None:
        if name.startswith("."):
            return
        if (found := _SCHEMA.fullmatch(name)) is not None:
            self._schemas[found["base"], int(found["version"])] = name
        elif (found := _DATA.fullmatch(name)) is not None:
            place = found["base"], int(found["version"])
            self._files[place][found["partition"] or ""].append((found["date"] or "", int(found["number"]), name))

    @property
    def has_times(self) -> bool:
        """Whether rows say when they were committed. Lines of CSV do with include-commit-ts; else they get the ts of their table's
        version."""
        return self._csv is None or self._csv.include_commit_ts

    @property
    def checkpoint_ts(self) -> int:
        """Everything up to here is in the files. Raises SinkError without a checkpoint."""
        data = self._store.read(METADATA)
        try:
            found = Budget(STATE).json(data or b"{}").get("checkpoint-ts")
        except (ValueError, AttributeError, RecursionError):
            found = None
        if not isinstance(found, int) or isinstance(found, bool):
            raise SinkError(f"{self._store}/{METADATA} has no checkpoint-ts", hint="Is this the folder of a changefeed's sink?")
        return found

    def steps(self, upto: int) -> Iterator[Step]:
        """Yield rows and DDLs up to a ts, in order. Raises SinkError for a ts above the checkpoint, or below it where rows have no ts."""
        checkpoint = self.checkpoint_ts
        if upto > checkpoint:
            raise SinkError(f"{self._store} holds everything up to {checkpoint}, not up to {upto}")
        if not self.has_times and upto < checkpoint:
            raise SinkError(
                f"the CSV files of {self._store} have no commit ts: they can be compared as of {checkpoint} only",
                hint="Let the changefeed set include-commit-ts=true for that.",
            )
        described = {place: self._described(place) for place in self._schemas if place[1] <= upto}
        ddls = sorted(((ts, _DDL, one.ddl) for (_, ts), one in described.items() if one.ddl is not None), key=itemgetter(0))
        tables = [
            self._rows(place, described.get(place), files, upto)
            for place, partitions in self._files.items()
            if place[1] <= upto
            for files in partitions.values()
        ]
        yield from heapq.merge(iter(ddls), *tables, key=itemgetter(0, 1))

    # ---- schema files

    def _described(self, place: tuple[str, int]) -> _Described:
        name = self._schemas[place]
        try:
            found = Budget(STATE).json(self._store.read(name) or b"")
            columns = found["TableColumns"] or ()
            types = tuple((one["ColumnName"], one["ColumnType"].lower()) for one in columns)
            key = frozenset(one["ColumnName"] for one in columns if one.get("ColumnIsPk") == "true")
            query = found["Query"]
            ddl = DdlMessage(found["TableVersion"], found["Schema"], found["Table"], query, found["Type"]) if query else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise MalformedMessage(f"{self._store}/{name} is not a schema file of a storage sink: {error!r}") from None
        return _Described(types, key, ddl)

    # ---- data files

    def _rows(self, place: tuple[str, int], described: _Described | None, files: list[tuple[str, int, str]], upto: int) -> Iterator[Step]:
        """Yield the rows of one folder of a table version, the rows of one ts at a time."""
        for _, _, name in sorted(files):
            data = self._store.read(name) or b""
            events = self._csv_events(name, place, described, data) if self._csv is not None else self._json_events(name, data)
            for ts, some in groupby(events, key=lambda event: event.ts):
                if ts > upto:
                    return
                yield ts, _ROWS, list(some)

    def _json_events(self, name: str, data: bytes) -> Iterator[RowEvent]:
        for number, line in enumerate(data.split(self._terminator), 1):
            if not line:
                continue
            try:
                events = open_events(canal_json.decode(line), to_show=self._to_show)
            except MalformedMessage as error:
                raise MalformedMessage(f"{self._store}/{name}, line {number}: {error.message}", hint=error.hint) from None
            yield from (event for event in events if isinstance(event, RowEvent))

    def _csv_events(self, name: str, place: tuple[str, int], described: _Described | None, data: bytes) -> Iterator[RowEvent]:
        if described is None:
            raise SinkError(f"{self._store}/{name} has no schema file in {place[0]}/meta: its columns are not known")
        assert self._csv is not None
        shape = _Shape(described, place[1] + 1, updates=self._to_show)
        try:
            lines = CsvReader(self._csv, described.columns).decode(data)
        except MalformedMessage as error:
            raise MalformedMessage(f"{self._store}/{name}: {error.message}", hint=error.hint) from None
        yield from shape.events(lines)


class _Shape:
    """Makes events of the lines of one table version. `version_ts`: the ts of rows that have none in their lines. `updates`: an update
    without its old row is told as one, and not as an insert, which replaces the row."""

    def __init__(self, described: _Described, version_ts: int, *, updates: bool) -> None:
        self._updates = updates
        self._columns = described.columns
        self._key, self._ts = described.key, version_ts
        self._types = [type_of(kind) for _, kind in described.columns]

    def events(self, lines: Iterable[CsvLine]) -> Iterator[RowEvent]:
        """Yield the event of each line."""
        for line in lines:
            columns = tuple(self._column(number, value) for number, value in enumerate(line.values))
            gone = line.kind is RowKind.DELETE
            replaces = RowKind.UPDATE if self._updates and line.kind is RowKind.UPDATE else RowKind.INSERT
            yield RowEvent(
                ts=self._ts if line.commit_ts is None else line.commit_ts,
                schema=line.schema,
                table=line.table,
                row_id=None,
                partition=None,
                kind=RowKind.DELETE if gone else replaces,
                after=() if gone else columns,
                before=columns if gone else (),
                only_handle_key=False,
                claim_check=None,
            )

    def _column(self, number: int, value: Value) -> Column:
        name, kind = self._columns[number]
        tp, flags = self._types[number]
        key = name in self._key
        if key:
            flags = (flags | ColumnFlag.PRIMARY_KEY | ColumnFlag.HANDLE_KEY) & ~ColumnFlag.NULLABLE
        if isinstance(value, str) and kind in ("enum", "set"):
            value = NAMED + value
        return Column(name, tp, flags, key, value)


def apply(tables: ConsumerTarget, stored: StoredTables, upto: int) -> None:
    """Apply all steps up to a ts to a consumer's target, without committing. Raises what both raise."""
    for _, _, step in stored.steps(upto):
        if isinstance(step, DdlMessage):
            tables.ddl(step)
        else:
            for event in step:  # one by one: lines of one ts stand in the order in which they apply
                tables.rows((event,))
