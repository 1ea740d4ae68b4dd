"""A consumer that trusts nothing: it reads Open Protocol messages, holds them against the guarantees, and rebuilds the tables.

What is checked, for the messages of one topic partition in their order:
- rows come in commit order for their table, repeats aside;
- no row, except a repeat, comes at or below a resolved ts that was sent before;
- resolved events that go back belong to repeats;
and over all partitions: each row's key stays in one partition, every DDL and every last resolved ts is in all of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.demo.delivered import Delivered
from tidemill.demo.replica import Name, Replica, RowChange, Value, plain
from tidemill.errors import MalformedMessage
from tidemill.events import DdlEvent
from tidemill.protocols.open.codes import TEXT_BLOBS, VERSION, ColumnFlag, EventType

Event = tuple[dict[str, Any], dict[str, Any], bytes]
"""Key and value of one event, and a digest of both."""


def events_of(message: Delivered) -> Iterator[Event]:
    """The events of one message. Raises MalformedMessage."""
    key, value = message.key or b"", message.value or b""
    if len(key) < 16 or struct.unpack_from(">Q", key)[0] != VERSION:
        raise MalformedMessage(f"topic {message.topic}, partition {message.partition}: the key has no version {VERSION}")
    at_key, at_value = 8, 0
    while at_key < len(key):
        key_text, at_key = _part(key, at_key, message)
        value_text, at_value = _part(value, at_value, message)
        digest = hashlib.blake2b(key_text + b"\0" + value_text, digest_size=16).digest()
        yield json.loads(key_text), json.loads(value_text) if value_text else {}, digest


def _part(data: bytes, at: int, message: Delivered) -> tuple[bytes, int]:
    end = at + 8 + int.from_bytes(data[at : at + 8], "big")
    if at + 8 > len(data) or end > len(data):
        raise MalformedMessage(f"topic {message.topic}, partition {message.partition}: an event is cut short at offset {at}")
    return data[at + 8 : end], end


@dataclass
class Partition:
    """What has been seen in one topic partition."""

    seen: set[bytes] = field(default_factory=set)
    newest: dict[Name, int] = field(default_factory=dict)  # commit_ts of the last first delivery, by table
    resolved: int = 0
    ddls: list[bytes] = field(default_factory=list)


@dataclass
class Audit:
    """Takes messages; afterwards holds rows in an order to apply, DDLs, and what was wrong."""

    problems: list[str] = field(default_factory=list)
    rows: list[RowChange] = field(default_factory=list)
    repeats: int = 0
    resolved_events: int = 0
    messages: int = 0
    ddls: dict[bytes, tuple[int, int, str, str, str]] = field(default_factory=dict)  # ts, type, schema, table, query
    partitions: dict[tuple[str, int], Partition] = field(default_factory=lambda: defaultdict(Partition))
    homes: dict[tuple[str, Name, tuple[Value, ...]], int] = field(default_factory=dict)
    check_homes: bool = True

    def take(self, messages: Iterable[Delivered]) -> None:
        """Read messages, those of one partition in their order."""
        for message in messages:
            self.messages += 1
            partition = self.partitions[message.topic, message.partition]
            for key, value, digest in events_of(message):
                match key["t"]:
                    case EventType.ROW:
                        self._row(message, partition, key, value, digest)
                    case EventType.DDL:
                        self._ddl(partition, key, value, digest)
                    case EventType.RESOLVED:
                        self.resolved_events += 1
                        partition.resolved = max(partition.resolved, key["ts"])

    def _row(self, message: Delivered, partition: Partition, key: Mapping[str, Any], value: Mapping[str, Any], digest: bytes) -> None:
        if digest in partition.seen:
            self.repeats += 1
            return
        partition.seen.add(digest)
        where, name, ts = f"{message.topic}[{message.partition}]", (key["scm"], key["tbl"]), key["ts"]
        if ts <= partition.resolved:
            self._problem(f"{where}: a row of {'.'.join(name)} at {ts} came after resolved {partition.resolved}")
        if ts < partition.newest.get(name, 0):
            self._problem(f"{where}: a row of {'.'.join(name)} at {ts} came after one at {partition.newest[name]}")
        partition.newest[name] = max(ts, partition.newest.get(name, 0))
        change = row_change(key, value)
        self.rows.append(change)
        image = change.after if change.after is not None else change.before
        if self.check_homes and change.handle and image is not None:
            home = message.topic, name, tuple(image.get(n) for n in change.handle)
            if self.homes.setdefault(home, message.partition) != message.partition:
                self._problem(f"{where}: row {home[2]} of {'.'.join(name)} was in partition {self.homes[home]} before")

    def _ddl(self, partition: Partition, key: Mapping[str, Any], value: Mapping[str, Any], digest: bytes) -> None:
        if digest not in partition.ddls:
            partition.ddls.append(digest)
        self.ddls[digest] = key["ts"], value["t"], key.get("scm", ""), key.get("tbl", ""), value["q"]

    def _problem(self, text: str) -> None:
        if len(self.problems) < 100:
            self.problems.append(text)

    def finish(self) -> None:
        """Checks over all partitions."""
        for topic in {t for t, _ in self.partitions}:
            mine = {p: state for (t, p), state in self.partitions.items() if t == topic}
            if len({tuple(sorted(p.ddls)) for p in mine.values()}) > 1:
                self._problem(f"{topic}: not every DDL is in every partition")
            if len({p.resolved for p in mine.values()}) > 1:
                self._problem(f"{topic}: the partitions end at different resolved ts: { {n: p.resolved for n, p in mine.items()} }")

    def rebuild(self, replica: Replica, history: Sequence[DdlEvent]) -> None:
        """Apply rows and the DDLs' effects in order of ts, rows first. A DDL that was not delivered has no effect, and that shows."""
        delivered = {(ts, query) for ts, _, _, _, query in self.ddls.values()}
        effects = [event for event in history if (event.ts, event.query) in delivered]
        rows = sorted(self.rows, key=lambda row: row.ts)
        at = 0
        for event in effects:
            while at < len(rows) and rows[at].ts <= event.ts:
                replica.apply_row(rows[at])
                at += 1
            replica.apply_ddl(event)
        for row in rows[at:]:
            replica.apply_row(row)


def row_change(key: Mapping[str, Any], value: Mapping[str, Any]) -> RowChange:
    """A row event in the form that replicas take."""
    columns = value.get("u") or value.get("d") or {}
    handle = tuple(sorted(name for name, column in columns.items() if column.get("h")))
    before = value.get("p") or value.get("d")
    return RowChange(
        ts=key["ts"],
        name=(key["scm"], key["tbl"]),
        partition_id=key.get("ptn"),
        handle=handle,
        before=None if before is None else {name: column_value(column) for name, column in before.items()},
        after=None if value.get("u") is None else {name: column_value(column) for name, column in value["u"].items()},
    )


def column_value(column: Mapping[str, Any]) -> Value:
    """A column's value as `plain` gives it for the upstream's."""
    value = column["v"]
    if value is not None and column["t"] in TEXT_BLOBS:
        return plain(base64.b64decode(value))
    if isinstance(value, str) and column["f"] & ColumnFlag.BINARY and column["t"] in (15, 254):
        return plain(unquote(value))
    return plain(value)


_ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34}


def unquote(text: str) -> bytes:
    r"""The bytes that Go's strconv.Quote wrote: \xNN, \uNNNN, \UNNNNNNNN and the short escapes."""
    out, at = bytearray(), 0
    widths = {"x": 2, "u": 4, "U": 8}
    while at < len(text):
        if text[at] != "\\":
            out += text[at].encode()
            at += 1
        elif text[at + 1] in widths:
            width = widths[text[at + 1]]
            number = int(text[at + 2 : at + 2 + width], 16)
            out += bytes([number]) if width == 2 else chr(number).encode()
            at += 2 + width
        else:
            out.append(_ESCAPES[text[at + 1]])
            at += 2
    return bytes(out)
