"""Logs with real tables for tests of the delivery path, and what a delivery of them has to be, by the plain references.

world = World.make(seed=1)                tables t1 (plain), t2 (unique key), t3 (partitioned), t4 (no usable key)
log = world.log(folder, partitions=2)     a change log of its rows
expected(world, "table", partitions=3)    the events of each message partition, in order
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.support.changelog.logs import START, Change, build_log
from tidemill.protocols.open.encode import OpenTable
from tidemill.protocols.options import EncodingOptions
from tidemill.rules.dispatch import DispatchMode, DispatchRule, partition
from tidemill.tidb.keys import SCHEMA_VERSION_KEY, db_key, record_key, table_key
from tidemill.tidb.rows.write import encode_row_v2
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

SCHEMA_ID = 500
PLAIN, UNIQUE, PARTITIONED, KEYLESS = 601, 602, 603, 604
PARTITION_IDS = (611, 612)
MODES = {"default": DispatchMode.TABLE, "table": DispatchMode.TABLE, "ts": DispatchMode.TS, "index-value": DispatchMode.INDEX_VALUE}
LONG, VARCHAR = 3, 15
PRIMARY, NOT_NULL, UNIQUE_FLAG = 2, 1, 4


def _name(text: str) -> dict[str, str]:
    return {"O": text, "L": text.lower()}


def _column(number: int, name: str, tp: int, flag: int = 0) -> dict[str, Any]:
    charset = "binary" if tp == LONG else "utf8mb4"
    kind = {"Tp": tp, "Flag": flag, "Flen": 64, "Decimal": 0, "Charset": charset, "Collate": charset, "Elems": None}
    return {"id": number, "name": _name(name), "offset": number - 1, "type": kind, "state": 5}


def _index(number: int, name: str, column: int, offset: int, *, unique: bool) -> dict[str, Any]:
    return {
        "id": number,
        "idx_name": _name(name),
        "idx_cols": [{"name": _name("c"), "offset": offset, "length": -1}],
        "is_unique": unique,
        "is_primary": False,
        "state": 5,
    }


def table_json(table_id: int, name: str, *, extra_column: bool = False) -> dict[str, Any]:
    """TiDB's description of one of the tables; columns id, u, text (and more)."""
    keyless = table_id == KEYLESS
    flag = 0 if keyless else PRIMARY | NOT_NULL
    columns = [_column(1, "id", LONG, flag), _column(2, "u", LONG), _column(3, "text", VARCHAR)]
    if extra_column:
        columns.append(_column(4, "more", VARCHAR))
    info: dict[str, Any] = {
        "id": table_id,
        "name": _name(name),
        "charset": "utf8mb4",
        "collate": "utf8mb4_bin",
        "state": 5,
        "pk_is_handle": not keyless,
        "cols": columns,
        "index_info": [_index(1, "u", 2, 1, unique=True)] if table_id == UNIQUE else [],
    }
    if table_id == PARTITIONED:
        definitions = [{"id": i, "name": _name(f"p{i}"), "less_than": None} for i in PARTITION_IDS]
        info["partition"] = {"type": 2, "enable": True, "expr": "`id`", "definitions": definitions, "num": 2}
    return info


NAMES = {PLAIN: "t1", UNIQUE: "t2", PARTITIONED: "t3", KEYLESS: "t4"}


def meta_snapshot(infos: Iterable[dict[str, Any]]) -> dict[bytes, bytes]:
    """Meta key-values of a database `app` with these tables."""
    database = {"id": SCHEMA_ID, "db_name": _name("app"), "charset": "utf8mb4", "collate": "utf8mb4_bin", "state": 5}
    pairs = {SCHEMA_VERSION_KEY: b"7", db_key(SCHEMA_ID): json.dumps(database).encode()}
    return pairs | {table_key(SCHEMA_ID, info["id"]): json.dumps(info).encode() for info in infos}


@dataclass
class World:
    """Rows of the tables in the order of commit, with the values that keys have at each moment."""

    rows: list[Change] = field(default_factory=list)
    schema: list[Change] = field(default_factory=list)
    infos: dict[int, dict[str, Any]] = field(default_factory=lambda: {i: table_json(i, n) for i, n in NAMES.items()})
    _now: dict[bytes, bytes] = field(default_factory=dict)

    @classmethod
    def make(cls, seed: int = 1, transactions: int = 120, largest: int = 6, *, huge: int = 0) -> World:
        """Random transactions; `huge`: one of so many rows in the middle. Some share a commit ts."""
        rng = random.Random(seed)
        world = cls()
        commit = START
        for number in range(transactions):
            commit += rng.choice((0, 2, 5)) if number else 5
            size = huge if huge and number == transactions // 2 else rng.randint(1, largest)
            world._transaction(rng, commit - 1000 + number, commit, size)
        world.rows.sort(key=lambda c: (c.commit_ts, c.start_ts, c.table_id, c.key))
        return world

    def _transaction(self, rng: random.Random, start: int, commit: int, size: int) -> None:
        used = {c.key for c in self.rows[-400:] if c.commit_ts == commit}
        for _ in range(size):
            table = rng.choice((PLAIN, UNIQUE, UNIQUE, PARTITIONED, KEYLESS))
            handle = rng.randrange(1, 40 + 3 * size)
            key = record_key(physical_id(table, handle), handle)
            if key not in used:
                used.add(key)
                self._write(rng, table, handle, key, start, commit)

    def _write(self, rng: random.Random, table: int, handle: int, key: bytes, start: int, commit: int) -> None:
        old = self._now.get(key)
        value = None
        if old is None or rng.random() < 0.7:
            cells = [handle, rng.choice((None, rng.randrange(5))), rng.choice(("", "x" * rng.randrange(30), "é<&>")).encode()]
            value = encode_row_v2(cells, TableInfo.from_json(self.infos[table]))
        self.rows.append(Change(physical_id(table, handle), 1 if value is not None else 2, start, commit, key, value, old))
        if value is None:
            del self._now[key]
        else:
            self._now[key] = value

    @property
    def end(self) -> int:
        return max(c.commit_ts for c in [*self.rows, *self.schema])

    def add_column(self, table: int, ts: int) -> None:
        """The schema stream gets a new description of the table at `ts`: rows past it have one column more."""
        new = table_json(table, NAMES[table], extra_column=True)
        key = table_key(SCHEMA_ID, table)
        self.schema.append(Change(0, 1, ts - 1, ts, key, json.dumps(new).encode(), None))

    def log(self, folder: Path, *, partitions: int = 1, segments: int = 1, affinity: str = "table") -> str:
        """The change log of it all."""
        commits = sorted({c.commit_ts for c in [*self.rows, *self.schema]})
        ends = sorted({commits[len(commits) * (i + 1) // segments - 1] for i in range(segments)})
        return str(
            build_log(
                folder,
                self.rows,
                ends=ends,
                head=self.end + 1,
                partitions=partitions,
                partition_of=(lambda c: logical_id(c.table_id)) if affinity == "table" else (lambda c: c.key[-1]),
                schema_changes=self.schema,
                snapshot=meta_snapshot(self.infos.values()),
                affinity=affinity,
            )
        )


def physical_id(table: int, handle: int) -> int:
    return PARTITION_IDS[handle % 2] if table == PARTITIONED else table


def logical_id(physical: int) -> int:
    return PARTITIONED if physical in PARTITION_IDS else physical


Event = tuple[bytes, bytes]
"""Key and value JSON."""


def expected(
    world: World,
    mode: str,
    partitions: int,
    *,
    from_ts: int = START,
    to_ts: int | None = None,
    options: EncodingOptions = EncodingOptions(),  # noqa: B008 – frozen
) -> dict[int, dict[int, list[Event]]]:
    """By message partition and logical table, the events in the order in which they have to come."""
    rule = DispatchRule(MODES[mode])
    versions = {t: TableVersion("app", SCHEMA_ID, TableInfo.from_json(i), (), 0) for t, i in world.infos.items() if t != KEYLESS}
    tables = {t: OpenTable("app", NAMES[t], v.info, UTC, options) for t, v in versions.items()}
    out: dict[int, dict[int, list[Event]]] = {}
    last = world.end if to_ts is None else to_ts
    inside = [c for c in world.rows if from_ts < c.commit_ts <= last and logical_id(c.table_id) in tables]
    for _, transaction in groupby(inside, key=lambda c: (c.commit_ts, c.start_ts)):
        changes = [half for c in transaction for half in _halves(c, tables[logical_id(c.table_id)], raw=options.output_raw_change_event)]
        for c in sorted(changes, key=lambda c: (_kind(c), c.key)):
            table = logical_id(c.table_id)
            reader = tables[table].reader
            before = reader.read(c.key, c.old_value) if c.old_value is not None else None
            after = reader.read(c.key, c.value) if c.value is not None else None
            place = partition(rule, versions[table], before, after, c.commit_ts, partitions)
            out.setdefault(place, {}).setdefault(table, []).append(tables[table].row(c.key, c.value, c.old_value, c.commit_ts))
    return out


def _kind(change: Change) -> int:
    if change.value is None:
        return 0
    return 2 if change.old_value is None else 1


def _halves(change: Change, table: OpenTable, *, raw: bool) -> list[Change]:
    """An update of the unique column `u` (and a change of nothing) as what is delivered of it."""
    if change.value is None and change.old_value is None:
        return []
    if not raw and change.table_id == UNIQUE and change.value is not None and change.old_value is not None:
        after, before = table.reader.read(change.key, change.value), table.reader.read(change.key, change.old_value)
        if after[1] != before[1]:
            return [change._replace(op=2, value=None), change._replace(old_value=None)]
    return [change]


# ---- what was delivered


@dataclass
class Delivered:
    """The lines of a messages file."""

    events: dict[int, dict[int, list[Event]]] = field(default_factory=dict)
    resolved: dict[int, list[int]] = field(default_factory=dict)
    ddls: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    batch_sizes: list[int] = field(default_factory=list)
    late: int = 0  # rows at or below a resolved ts that came before them

    @classmethod
    def read(cls, path: Path) -> Delivered:
        import base64

        found = cls()
        names = {name: table for table, name in NAMES.items()}
        for line in path.read_text().splitlines():
            message = json.loads(line)
            part = message["partition"]
            key, value = base64.b64decode(message["key"]), base64.b64decode(message["value"])
            assert key[:8] == (1).to_bytes(8, "big")
            events = list(zip(_frames(key[8:]), _frames(value), strict=True))
            found.batch_sizes.append(len(events))
            for event_key, event_value in events:
                head = json.loads(event_key)
                if head["t"] == 3:
                    found.resolved.setdefault(part, []).append(head["ts"])
                elif head["t"] == 2:
                    found.ddls.setdefault(part, []).append(head | json.loads(event_value))
                else:
                    found.late += head["ts"] <= max(found.resolved.get(part, [0]))
                    table = names.get(head["tbl"], 0)
                    found.events.setdefault(part, {}).setdefault(table, []).append((event_key, event_value))
        return found


def _frames(data: bytes) -> list[bytes]:
    out = []
    while data:
        size = int.from_bytes(data[:8], "big")
        out.append(data[8 : 8 + size])
        data = data[8 + size :]
    return out


def in_batches(seed: int) -> World:
    """Three batches: two tables change on the way."""
    world = World.make(seed=seed)
    for number, ts in enumerate(sorted({c.commit_ts for c in world.rows})[10:50:10]):
        if number < 2:
            world.add_column((PLAIN, UNIQUE)[number], ts)
    return world
