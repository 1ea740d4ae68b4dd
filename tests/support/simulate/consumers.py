"""Consumers of a topic in memory: what a changefeed sent of a history, over partitions, parts of it again, as drivers that follow each
other do."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from tests.support.consumer.upstreams import messages
from tests.support.simulate.actors import Actor
from tests.support.simulate.databases import Rows, Server
from tests.support.simulate.drivers import History
from tests.support.simulate.schedule import HOLDING
from tidemill.consumer.kafka import Found, KafkaTopics, Record
from tidemill.consumer.order.progress import Progress, TopicPartition
from tidemill.consumer.reading import reader
from tidemill.consumer.run import Consumer, Options
from tidemill.consumer.targets import ConsumerTarget
from tidemill.demo.compare import plain
from tidemill.errors import SinkUnavailable
from tidemill.protocols.open import decode, resolved_message
from tidemill.protocols.open.events import DdlMessage
from tidemill.protocols.options import MessageFormat

T = TypeVar("T")
PARTITIONS = 2
POLLED = 5
"""Messages of a poll."""
SHOWN = 100
Sent = Mapping[TopicPartition, list[tuple[bytes, bytes]]]


def sent(history: History) -> Sent:
    """What a changefeed sends of a history: to each partition its rows, all DDLs, and a resolved ts at each cut. Every other interval comes
    twice, first without its resolved ts: its first driver died."""
    happened = messages(history.sql.playground, keyless=True)
    topic: dict[TopicPartition, list[tuple[bytes, bytes]]] = {("topic", number): [] for number in range(PARTITIONS)}
    for turn, (begin, end) in enumerate(pairwise((0, history.start_ts, *history.cuts))):
        interval = [(key, value) for ts, key, value in happened if begin < ts <= end]
        for key, value in interval * (1 + turn % 2):
            for partition in topic if _is_ddl(key, value) else [("topic", crc32(value) % PARTITIONS)]:
                topic[partition].append((key, value))
        for messages_of in topic.values():
            messages_of.append(resolved_message(end))
    return topic


def _is_ddl(key: bytes, value: bytes) -> bool:
    return isinstance(decode(key, value)[0], DdlMessage)


class MemoryTopics(KafkaTopics):
    """A topic that nobody writes to any more. Partitions are read in turn."""

    def __init__(self, topic: Sent) -> None:
        self._topic, self._trouble = topic, ""
        self._next: dict[TopicPartition, int] = {}

    def discover(self) -> Found:
        return Found("cluster", sorted(self._topic))

    def bounds(self, source: TopicPartition) -> tuple[int, int]:
        return 0, len(self._topic[source])

    def follow(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._next |= offsets

    def forget(self, sources: Iterable[TopicPartition]) -> None:
        for source in sources:
            del self._next[source]

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        del most, timeout_s
        unread = [source for source, at in self._next.items() if at < len(self._topic[source])]
        if not unread:
            return []
        least = min(unread, key=lambda source: self._next[source])
        begin = self._next[least]
        found = self._topic[least][begin : begin + POLLED]
        self._next[least] += len(found)
        return [Record(*least, begin + number, *message) for number, message in enumerate(found)]

    def commit(self, done: Progress) -> None:
        """Keep no offsets of a group."""


def consume(topics: KafkaTopics, target: ConsumerTarget) -> None:
    """Consume topics to their end."""
    try:
        Consumer(topics, target, reader(MessageFormat.OPEN), Options(flush_s=0, stop_at_end=True)).run(threading.Event())
    finally:
        target.close()


class GatedFile(sqlite3.Connection):
    """An SQLite file each of whose statements is an effect of the actor that opened it; a fault is a lock that somebody else has."""

    actor: Actor

    def _gated(self, statement: str, act: Callable[[], T]) -> T:
        text = " ".join(statement.split())[:SHOWN]
        effect = f"read: {text}" if text.startswith(("SELECT", "PRAGMA")) else text
        try:
            return self.actor.gate(f"{HOLDING}{effect}" if self.in_transaction else effect, act)
        except SinkUnavailable as error:
            raise sqlite3.OperationalError(f"database is locked: {error}") from error

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._gated(statement, lambda: sqlite3.Connection.execute(self, statement, *values))

    def executemany(self, statement: str, values: Iterable[Any]) -> sqlite3.Cursor:
        listed = list(values)
        if not listed:
            return sqlite3.Connection.executemany(self, statement, listed)
        return self._gated(statement, lambda: sqlite3.Connection.executemany(self, statement, listed))

    def executescript(self, script: str) -> sqlite3.Cursor:
        return self._gated(script, lambda: sqlite3.Connection.executescript(self, script))

    def close(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # it is closed already
            self.rollback()  # cursors of an actor that has died would keep its locks
        super().close()


class Files:
    """Opens SQLite files for actors, and closes those of one that has ended, as its process would."""

    def __init__(self) -> None:
        self._connect = sqlite3.connect
        self._opened: dict[Actor, list[sqlite3.Connection]] = {}

    def connect(self, path: str, **given: Any) -> sqlite3.Connection:
        actor = threading.current_thread()
        if not isinstance(actor, Actor):
            return self._connect(path, **given)
        opened = self._connect(path, factory=GatedFile, **{**given, "timeout": 0})
        opened.actor = actor
        self._opened.setdefault(actor, []).append(opened)
        return opened

    def close(self, actor: Actor) -> None:
        for opened in self._opened.pop(actor, ()):
            opened.close()


class Upstream:
    """The upstream's tables at any ts of a history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.resolved = {history.start_ts, *history.cuts}
        self._known: dict[int, Rows] = {}

    def at(self, ts: int) -> Rows:
        if ts not in self._known:
            self._known[ts] = {
                name: sorted(repr(sorted((column, plain(cell)) for column, cell in row.items())) for row in table.rows)
                for name, table in self._history.sql.tables_at(ts).items()
            }
        return self._known[ts]


class FileReader:
    """`flushed_ts` never goes back, and the tables are the upstream's at it."""

    def __init__(self, path: Path, upstream: Upstream) -> None:
        self._path, self._upstream = path, upstream
        self._flushed = 0

    def check(self) -> None:
        if not self._path.exists():
            return
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", timeout=0, uri=True)) as file:
            if _is_locked(file):
                return
            if not file.execute("SELECT 1 FROM sqlite_master WHERE name = '_tidemill_state'").fetchone():
                return
            found = file.execute("SELECT value FROM _tidemill_state WHERE name = 'progress'").fetchone()
            now = Progress.from_json(found[0]).flushed_ts if found else 0
            assert now >= self._flushed, f"flushed_ts went back from {self._flushed} to {now}"
            self._flushed = now
            if now:
                seen, wanted = _tables(file), self._upstream.at(now)
                for name in seen.keys() | wanted.keys():
                    assert seen.get(name, []) == wanted.get(name, []), f"{name} at {now}: {seen.get(name)}, not {wanted.get(name)}"

    def seen(self) -> Rows:
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as file:
            return _tables(file)


def _is_locked(file: sqlite3.Connection) -> bool:
    """A frozen reader of the file keeps a commit waiting, and SQLite lets no other reader in behind it."""
    try:
        file.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        return True
    return False


def _tables(file: sqlite3.Connection) -> Rows:
    found: Rows = {}
    for stored, schema, name in file.execute("SELECT stored, schema, name FROM _tidemill_tables WHERE dropped_ts IS NULL").fetchall():
        cursor = file.execute(f'SELECT * FROM "{stored}"')
        columns = [column[0] for column in cursor.description]
        found[schema, name] = sorted(repr(sorted(zip(columns, row, strict=True))) for row in cursor)
    return found


class DatabaseReader:
    """`flushed_ts` never goes back, and the tables are the upstream's at it unless a DDL is under way. What is committed just before a DDL
    is not compared: a table that is being dropped has left the upstream's view by then."""

    def __init__(self, server: Server, upstream: Upstream) -> None:
        self._server, self._upstream = server, upstream
        self._flushed = 0

    def seen(self) -> Rows:
        return self._server.tables()

    def check(self) -> None:
        if not self._server.rows("SELECT 1 FROM information_schema.tables WHERE table_name = 'tidemill_consumer_v1'"):
            return
        known = self._server.rows("SELECT progress, ddl_ts FROM tidb_cdc.tidemill_consumer_v1")
        if not known or not known[0][0]:
            return
        ((progress, ddl_ts),) = known
        now = Progress.from_json(progress).flushed_ts
        assert now >= self._flushed, f"flushed_ts went back from {self._flushed} to {now}"
        self._flushed = now
        if ddl_ts <= now and now in self._upstream.resolved:
            seen, wanted = self.seen(), self._upstream.at(now)
            for name in seen.keys() | wanted.keys():
                assert seen.get(name) == wanted.get(name), f"{name} at {now}: {seen.get(name)}, not {wanted.get(name)}"
