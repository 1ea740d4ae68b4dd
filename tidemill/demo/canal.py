"""What Canal's Java client read of a server: its entries are checked, and applied to tables as they come.

What is checked, repeats aside:
- entries come in commit order over all tables, DDLs among them;
- each row stands between the begin and the end of its transaction, each DDL outside of transactions.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tidemill.consumer.canal import open_events
from tidemill.consumer.order.progress import Progress
from tidemill.consumer.tables.sqlite import SqliteTables
from tidemill.demo.audit import SHOWN
from tidemill.errors import TidemillError
from tidemill.playground.programs.canal_client import ClientRefused, JavaClient
from tidemill.protocols import canal_json
from tidemill.protocols.canal.codes import EntryType
from tidemill.protocols.canal.decode import events_of
from tidemill.protocols.canal.events import DdlMessage, Entry, EntryColumn, Event, Header, RowChange, RowData, RowEvent
from tidemill.protocols.open import events as open_protocol

BATCH_KIB, WAIT_MS, RETRY_S = 256, 300, 0.3


def entry_of(told: Mapping[str, Any]) -> Entry:
    """An entry from what the Java client's getters say about it."""
    header = Header(execute_time=told["execute_time"], schema=told["schema"], table=told["table"], props=tuple(map(tuple, told["props"])))
    kind = EntryType[told["type"]]
    if kind is not EntryType.ROWDATA:
        return Entry(kind, header)
    rows = tuple(RowData(_columns(before), _columns(after)) for before, after in told["rows"])
    return Entry(kind, header, RowChange(told["kind"], told["ddl"], told["sql"], told["ddl_schema"], rows))


def _columns(told: Iterable[list[Any]]) -> tuple[EntryColumn, ...]:
    return tuple(
        EntryColumn(index, sql_type, name, key, updated, None if value is None else value.encode(), mysql_type)
        for index, sql_type, name, key, updated, value, mysql_type in told
    )


def _open(event: Event) -> open_protocol.Event:
    """An event of a row or a DDL as the tables take it."""
    if isinstance(event, RowEvent):
        images = event.after, event.before
        after, before = (tuple(canal_json.Column(c.name, c.mysql_type, c.sql_type, c.key, c.value) for c in image) for image in images)
        row = canal_json.RowEvent(
            event.es, event.commit_ts, event.schema, event.table, event.kind, after, before, only_handle_key=False, claim_check=None
        )
        return open_events([row])[0]
    assert isinstance(event, DdlMessage)
    return open_events([canal_json.DdlMessage(event.es, event.commit_ts, event.schema, event.table, event.query, event.type)])[0]


@dataclass
class EntryAudit:
    """Takes entries, applies them to tables, and keeps the problems found."""

    tables: SqliteTables
    problems: list[str] = field(default_factory=list)
    entries: int = 0
    rows: int = 0
    ddls: int = 0
    transactions: int = 0
    newest: int = 0
    _rows: list[open_protocol.RowEvent] | None = None  # of the transaction that has begun

    def take(self, entries: Iterable[Entry]) -> None:
        """Apply entries in their order."""
        for entry in entries:
            self.entries += 1
            ts = int(entry.header.prop("commit_ts") or 0)
            if ts < self.newest:
                self._problem(f"{entry.type.name} at {ts} came after {self.newest}")
            self.newest = max(ts, self.newest)
            match entry.type:
                case EntryType.TRANSACTIONBEGIN:
                    if self._rows is not None:
                        self._problem(f"the transaction at {ts} begins inside of another")
                    self._rows = []
                case EntryType.TRANSACTIONEND:
                    if self._rows is None:
                        self._problem(f"the transaction at {ts} ends, but has not begun")
                    self.tables.rows(self._rows or [])
                    self.transactions += 1
                    self._rows = None
                case EntryType.ROWDATA:
                    self._change(entry, ts)

    def _change(self, entry: Entry, ts: int) -> None:
        name = f"{entry.header.schema}.{entry.header.table}"
        for event in map(_open, events_of(entry)):
            if isinstance(event, open_protocol.RowEvent):
                self.rows += 1
                if self._rows is None:
                    self._problem(f"a row of {name} at {ts} stands outside of a transaction")
                else:
                    self._rows.append(event)
            elif isinstance(event, open_protocol.DdlMessage):
                self.ddls += 1
                if self._rows is not None:
                    self._problem(f"the DDL at {ts} ({event.query}) stands inside of a transaction")
                self.tables.ddl(event)

    def finish(self) -> None:
        """All has come."""
        if self._rows is not None:
            self._problem(f"the last transaction, at {self.newest}, has no end")
        self.tables.commit(Progress())

    def _problem(self, text: str) -> None:
        if len(self.problems) < SHOWN:
            self.problems.append(text)


class JavaReader:
    """Reads a destination with the Java client in a thread, as long as the block lasts, and acknowledges each batch.

    `end` waits until there is nothing more.
    """

    def __init__(self, address: str, destination: str) -> None:
        self._address, self._destination = address, destination
        self.uri = f"canal://{address}/{destination}?get.wait=any"
        self._client = JavaClient()
        self._batches: queue.SimpleQueue[list[dict[str, Any]]] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._error: TidemillError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.kill()

    def _connect(self) -> None:
        """The server may not listen yet."""
        while True:
            try:
                return self._client.connect(self._address, self._destination, filter_="")
            except ClientRefused as error:
                if "Connection refused" not in error.message or self._ending.wait(RETRY_S):
                    raise

    def _run(self) -> None:
        try:
            self._connect()
            while True:
                last = self._ending.is_set()
                number, entries = self._client.get(BATCH_KIB, WAIT_MS)
                if entries:
                    self._batches.put(entries)
                    self._client.ack(number)
                elif last:
                    return
        except TidemillError as error:
            self._error = error

    def end(self) -> Iterable[Entry]:
        """All entries, when there are no more to come. Raises the error that ended the reading."""
        self._ending.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        while not self._batches.empty():
            yield from map(entry_of, self._batches.get())
