"""Plays a recording again on the playground: its SQL is run, its requests are sent, and what comes back is compared with what TiKV sent.

Ids of tables and regions, epochs and timestamps are translated by what the recording notes about them; resolved timestamps are sent
when the recording has one. Content, order and errors must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support.capture.eventfeeds import recording
from tidemill import tso
from tidemill.errors import MalformedBytes, SqlError
from tidemill.playground.server import Playground
from tidemill.playground.sql.parse.ast import TableName
from tidemill.playground.store.cluster import Pending
from tidemill.playground.store.feed import FeedStream
from tidemill.playground.store.mvcc import Lock, LockKind
from tidemill.tidb import keys
from tidemill.tidb.codec import decode_bytes, decode_uvarint, encode_bytes, encode_int
from tidemill.wire import cdcpb_pb2 as cdcpb

CLUSTER_ID = 7710568214723362125
UNSUPPORTED = ("admin", "show", "analyze", "select")


@dataclass
class Feed:
    """One stream of both sides."""

    stream: FeedStream
    recorded: list[cdcpb.ChangeDataEvent] = field(default_factory=list)
    played: list[cdcpb.ChangeDataEvent] = field(default_factory=list)


class Replay:
    """A recording being played. `feeds` are the streams by their recorded number.

    `lag`: seconds by which the timestamps that the recorder asked PD for lie behind its clock (up to 0.05).
    """

    def __init__(self, name: str, *, stores: int = 1, lag: float = 0.0) -> None:
        self.name = name
        self._lag = lag
        self.playground = Playground(cluster_id=CLUSTER_ID, stores=stores)
        self.cluster = self.playground.cluster
        self.feeds: dict[Any, Feed] = {}
        self.refused: list[str] = []
        self._sessions: dict[str, Any] = {}
        self._tables: dict[int, int] = {}  # recorded id → ours
        self._regions: dict[int, int] = {}
        self._versions: dict[int, int] = {}  # recorded version of a recorded region, as noted last
        self._commits: list[tuple[int, int]] = [(0, self.cluster.oracle.next())]  # recorded commit_ts, ours
        self._moments: list[tuple[float, int]] = []  # recorded Unix time of a line, our timestamp after it
        self._resolved: dict[int, int] = {}
        self._last_commit = 0
        self._started = 0.0
        self._locks: dict[int, Pending] = {}  # recorded start_ts
        self._committed: dict[int, int] = {}  # recorded commit_ts of these, ours

    def run(self) -> Replay:
        """Play all lines."""
        for line in recording(self.name):
            handler = getattr(self, f"_on_{line['kind']}", None)
            if handler is not None:
                handler(line)
            self._moments.append((self._started + line["t"], self.cluster.oracle.last))
            self.drain()
        return self

    # lines

    def _on_meta(self, line: dict[str, Any]) -> None:
        self._started = line["started"]

    def _on_sql(self, line: dict[str, Any]) -> None:
        sql = line["sql"]
        if sql.lower().startswith(UNSUPPORTED):
            return
        session = self._sessions.setdefault(line["conn"], self.playground.database.session())
        try:
            self._last_commit = session.execute(sql).commit_ts
        except SqlError as error:
            self.refused.append(f"{sql}: {error}")

    def _on_txn_info(self, line: dict[str, Any]) -> None:
        text = line["info"]
        commit = int(text.split('"commit_ts":')[1].split(",")[0])
        if self._last_commit:
            self._commits.append((commit, self._last_commit))

    def _on_note(self, line: dict[str, Any]) -> None:
        if line["text"] == "table id":
            table = self.playground.database.catalog.table(TableName(line["db"], line["table"]), "")
            self._tables[line["table_id"]] = table.id
        elif line["text"] == "regions":
            self._note_regions(line)
        elif line["text"] == "subscribe" and "partition" in line:
            table = self.playground.database.catalog.table(TableName("cdc_part", line["table"]), "")
            definitions = {d["name"]["O"]: d["id"] for d in table.info["partition"]["definitions"]}
            self._tables[line["physical_id"]] = definitions[line["partition"]]
        elif line["text"] == "PD operator merge-region":
            self.cluster.merge(self._regions[line["source"]], self._regions[line["target"]])
        else:
            self.on_note(line)

    def _on_partition_ids(self, line: dict[str, Any]) -> None:
        for name, partition, recorded in line["rows"]:
            table = self.playground.database.catalog.table(TableName("cdc_part", name), "")
            definitions = {d["name"]["O"]: d["id"] for d in table.info["partition"]["definitions"]}
            self._tables[int(recorded)] = definitions[partition]

    def on_note(self, line: dict[str, Any]) -> None:
        """For what only one recording notes."""

    def know_region(self, recorded: int, version: int, table: int) -> None:
        """Tell that a recorded region is the last one of ours that holds rows of a recorded table."""
        self._regions[recorded] = self.regions_of(table)[-1].id
        self._versions[recorded] = version

    def _note_regions(self, line: dict[str, Any]) -> None:
        ours = self.regions_of(line["table_id"])
        assert len(ours) == len(line["regions"]), "the table is cut alike"
        for recorded, region in zip(line["regions"], ours, strict=True):
            self._regions[recorded["id"]] = region.id
            self._versions[recorded["id"]] = recorded["version"]

    def regions_of(self, recorded_table: int) -> list[Any]:
        """Our regions that hold rows of a table, in key order."""
        start, end = keys.record_range(self._tables.get(recorded_table, recorded_table))
        return [r for r in self.cluster.regions if r.start < end and (not r.end or r.end > start)]

    def _on_open(self, line: dict[str, Any]) -> None:
        if "EventFeed" in line["rpc"]:
            features = dict(line["metadata"] or [])
            stream = FeedStream(self.store_of(line), features.get("features") == "stream-multiplexing", lambda: None)
            self.feeds[line["stream"]] = Feed(stream)
            self.cluster.feeds.open(stream)

    def store_of(self, line: dict[str, Any]) -> int:
        """The store that a stream goes to."""
        return 1

    def _on_req(self, line: dict[str, Any]) -> None:
        if line["type"] != "cdcpb.ChangeDataRequest":
            self._raw_kv(line)
            return
        request = self._translated(cdcpb.ChangeDataRequest.FromString(line["bytes"]))
        scan = self.cluster.feeds.request(self.feeds[line["stream"]].stream, request)
        if scan is not None:
            for events in scan.batches():
                for event in events:
                    self.feeds[line["stream"]].stream.send_event(event)

    def _raw_kv(self, line: dict[str, Any]) -> None:
        """Prewrites, commits and rollbacks that the recorder sent itself."""
        call = line["rpc"].rpartition("/")[2]
        if call == "KvPrewrite":
            self._prewrite(line["bytes"])
        elif call in ("KvCommit", "KvBatchRollback"):
            values = wire_fields(line["bytes"])
            keys_ = [self._raw_key(k) for k in values[3]]
            pending = self._locks.get(values[2][0])
            if pending is None:
                pending = Pending(self._committed.get(values[2][0]) or self.cluster.oracle.next(), tuple(keys_))
            if call == "KvCommit":
                self._committed[values[4][0]] = self.cluster.commit(pending, keys=keys_)
            else:
                self.cluster.rollback(pending, keys=keys_)
        elif call == "KvResolveLock":
            values = wire_fields(line["bytes"])
            for start, commit in [(values[2][0], values.get(3, [0])[0])]:
                held = [k for k in self._locks[start].keys if k in self.cluster.mvcc.locks]
                if commit:
                    self.cluster.commit(self._locks[start], keys=held)
                else:
                    self.cluster.rollback(self._locks[start], keys=held)

    def _prewrite(self, request: bytes) -> None:
        values = wire_fields(request)
        start = values[4][0]
        if start in self._locks:
            return  # a retry changes nothing
        mutations, locks = [], []
        for mutation in map(wire_fields, values[2]):
            key, op = self._raw_key(mutation[2][0]), mutation.get(1, [0])[0]
            if op == 2:
                locks.append((key, None))
            else:
                mutations.append((key, None if op == 1 else mutation[3][0]))
        pending = self.cluster.prewrite(mutations or locks, kind=None if mutations else LockKind.LOCK)
        if mutations:
            for key, _ in locks:
                self.cluster.mvcc.prewrite(Lock(key, pending.keys[0], pending.start_ts, LockKind.LOCK))
        self._locks[start] = Pending(pending.start_ts, tuple(key for key, _ in mutations + locks))

    def _raw_key(self, key: bytes) -> bytes:
        table = keys.physical_table_id(key)
        return b"t" + encode_int(self._tables.get(table, table)) + key[9:]

    def _on_resp(self, line: dict[str, Any]) -> None:
        if line["type"] != "cdcpb.ChangeDataEvent":
            return
        message = cdcpb.ChangeDataEvent.FromString(line["bytes"])
        feed = self.feeds[line["stream"]]
        feed.recorded.append(message)
        resolved = message.resolved_ts.ts or next((e.resolved_ts for e in message.events if e.resolved_ts), 0)
        if resolved:
            self.cluster.tick()
            self._resolved[resolved] = self.cluster.oracle.last

    def _on_status(self, line: dict[str, Any]) -> None:
        if "EventFeed" in line.get("rpc", "") and line.get("stream") in self.feeds:
            self.cluster.feeds.close(self.feeds[line["stream"]].stream)

    def drain(self) -> None:
        """Take what was sent."""
        for feed in self.feeds.values():
            while (message := feed.stream.take_message(1)) is not None:
                feed.played.append(cdcpb.ChangeDataEvent.FromString(message))

    # translation

    def _translated(self, request: cdcpb.ChangeDataRequest) -> cdcpb.ChangeDataRequest:
        recorded = request.region_id
        if recorded in self._regions:
            request.region_id = self._regions[recorded]
            region = self.cluster.regions.get(request.region_id)
            behind = request.region_epoch.version - self._versions[recorded]
            if region is not None and request.region_epoch.version:
                request.region_epoch.version = region.version + behind
        request.checkpoint_ts = self._ts(request.checkpoint_ts)
        request.start_key, request.end_key = self._key(request.start_key), self._key(request.end_key)
        return request

    def _ts(self, recorded: int) -> int:
        """Our timestamp for a recorded one: that of the last commit at or below it."""
        if not recorded:
            return 0
        if recorded in self._resolved:
            return self._resolved[recorded]
        if len(self._commits) > 1:
            return max(commit for commit in self._commits if commit[0] <= recorded)[1]
        when = tso.physical_ms(recorded) / 1000 + self._lag
        return next((ts for moment, ts in reversed(self._moments) if moment <= when), self._moments[0][1])

    def _key(self, key: bytes) -> bytes:
        try:
            raw = decode_bytes(key)[0]
        except MalformedBytes:
            return key
        if raw[:1] != b"t" or len(raw) < 9:
            return key
        table = keys.physical_table_id(raw)
        return encode_bytes(b"t" + encode_int(self._tables.get(table, table)) + raw[9:])

    # comparison

    def compare(self, stream: Any) -> tuple[Comparable, Comparable]:
        """What was recorded and what was played on a stream, in comparable form."""
        feed = self.feeds[stream]
        ours = {ours: recorded for recorded, ours in self._regions.items()}
        tables = {ours: recorded for recorded, ours in self._tables.items()}
        return _comparable(feed.recorded, {}, {}), _comparable(feed.played, ours, tables)


class Comparable(NamedTuple):
    """Messages in a form that both sides share: events by (region, request), and the sets of regions that were resolved by request."""

    events: dict[tuple[int, int], list[Any]]
    resolved: dict[int, list[tuple[int, ...]]]


def wire_fields(message: bytes) -> dict[int, list[Any]]:
    """The fields of a protobuf message by number, for messages that Tidemill has no classes of."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = decode_uvarint(message, at)
        value: Any
        value, at = decode_uvarint(message, at)
        if tag & 7 == 2:
            value, at = message[at : at + value], at + value
        found.setdefault(tag >> 3, []).append(value)
    return found


def _comparable(messages: list[cdcpb.ChangeDataEvent], regions: dict[int, int], tables: dict[int, int]) -> Comparable:
    ranks = _Ranks(messages)
    found = Comparable({}, {})
    for message in messages:
        if message.HasField("resolved_ts"):
            seen = found.resolved.setdefault(message.resolved_ts.request_id, [])
            listed = tuple(sorted(regions.get(r, r) for r in message.resolved_ts.regions))
            if seen[-1:] != [listed]:
                seen.append(listed)
        for event in message.events:
            items = found.events.setdefault((regions.get(event.region_id, event.region_id), event.request_id), [])
            item = _comparable_event(event, tables, ranks)
            if items[-1:] != [item]:  # a PREWRITE may be repeated, a resolved ts is
                items.append(item)
    return found


def _comparable_event(event: cdcpb.Event, tables: dict[int, int], ranks: _Ranks) -> Any:
    kind = event.WhichOneof("event")
    if kind == "error":
        return _error(event.error)
    if kind == "resolved_ts":
        return "resolved"
    rows = [_row(r, tables, ranks) for r in event.entries.entries]
    one_write = len({r.start_ts for r in event.entries.entries}) == 1  # not a scan: its rows come in no order
    return tuple(sorted(rows, key=repr) if one_write else rows)


def _row(row: cdcpb.Event.Row, tables: dict[int, int], ranks: _Ranks) -> Any:
    key = row.key
    if key[:1] == b"t":
        table = keys.physical_table_id(key)
        key = b"t" + encode_int(tables.get(table, table)) + key[9:]
    start, commit = ranks.starts.get(row.start_ts), ranks.commits.get(row.commit_ts)
    return (row.type, row.op_type, key, row.value, row.old_value, start, commit, row.txn_source)


class _Ranks:
    """Timestamps of rows as numbers of transactions, in the order of their start_ts. A commit_ts may equal another's start_ts."""

    def __init__(self, messages: list[cdcpb.ChangeDataEvent]) -> None:
        rows = [r for m in messages for e in m.events for r in e.entries.entries if r.start_ts]
        self.starts = {ts: rank for rank, ts in enumerate(sorted({r.start_ts for r in rows}))}
        self.commits = {r.commit_ts: self.starts[r.start_ts] for r in rows if r.commit_ts}


def _error(error: cdcpb.Error) -> Any:
    kind = next(field.name for field, _ in error.ListFields())
    if kind == "epoch_not_match":
        return kind, len(error.epoch_not_match.current_regions)
    if kind in ("cluster_id_mismatch", "compatibility"):
        return kind, str(error)
    return (kind,)
