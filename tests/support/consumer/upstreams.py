"""What an upstream delivers, as decoded Open Protocol messages in order of ts: for tests of what consumes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC

from tidemill.demo.compare import Value, plain
from tidemill.playground.server import Playground
from tidemill.playground.store.truth import TruthTable
from tidemill.protocols.open import OpenTable, ddl_message, decode
from tidemill.protocols.open.encode import framed
from tidemill.protocols.open.events import DdlMessage, RowEvent
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.schema.metakeys import meta_filter
from tidemill.tidb.schema.tracking.history import SchemaHistory


def history_of(playground: Playground) -> SchemaHistory:
    """The schema history of everything the playground did."""
    mvcc, begin = playground.cluster.mvcc, playground.began_ts
    history = SchemaHistory.bootstrap(begin, [(k, v) for k, v in mvcc.scan(b"m", b"n", begin) if isinstance(v, bytes)])
    changes = [
        (0, 2 if value is None else 1, start_ts, commit_ts, key, value)
        for key, versions in mvcc.items(b"m", b"n")
        if meta_filter(key)
        for commit_ts, start_ts, value in versions
        if commit_ts > begin
    ]
    for table in history.job_table_ids:
        prefix = b"t" + (table ^ (1 << 63)).to_bytes(8, "big")
        changes += [
            (table, 2 if value is None else 1, start_ts, commit_ts, key, value)
            for key, versions in mvcc.items(prefix + b"_r", prefix + b"_s")
            for commit_ts, start_ts, value in versions
        ]
    history.advance(changes, playground.cluster.oracle.next())
    return history


def row_messages(playground: Playground, history: SchemaHistory, *, keyless: bool = False) -> Iterator[tuple[int, bytes, bytes]]:
    """(commit_ts, key, value) of every row change, read with the version in force. `keyless`: as force-replicate does."""
    for key, versions in playground.cluster.mvcc.items(b"t", b"u"):
        if key[9:11] != b"_r":
            continue
        record, old = parse_record_key(key), None
        for commit_ts, _, value in sorted(versions):
            version = history.snapshot(commit_ts - 1).by_physical.get(record.table_id)
            if version is not None and (keyless or version.info.has_usable_key) and (value or old):
                table = OpenTable(version.schema, version.table, version.info, UTC)
                yield commit_ts, *framed(*table.row(key, value, old, commit_ts))
            old = value


def messages(playground: Playground, *, keyless: bool = False) -> list[tuple[int, bytes, bytes]]:
    """All messages in the order in which they apply: by ts, rows before DDLs."""
    history = history_of(playground)
    rows = [(ts, 0, key, value) for ts, key, value in row_messages(playground, history, keyless=keyless)]
    ddls = [(event.ts, 1, *ddl_message(event)) for event in history.ddl_events(history.start_ts, history.resolved_ts)]
    return [(ts, key, value) for ts, _, key, value in sorted(rows + ddls, key=lambda m: m[:2])]


def events(playground: Playground, *, keyless: bool = False) -> list[RowEvent | DdlMessage]:
    """The same, decoded."""
    return [event for _, key, value in messages(playground, keyless=keyless) for event in decode(key, value)]  # type: ignore[misc]


def truth(
    tables: Mapping[tuple[str, str], TruthTable], *, keyless: bool = False
) -> dict[tuple[str, str], tuple[object, list[dict[str, Value]]]]:
    """The playground's tables as `compare` takes them."""
    return {
        name: (table.info, [{column: plain(cell) for column, cell in row.items()} for row in table.rows])
        for name, table in tables.items()
        if keyless or table.info.has_usable_key
    }


def playground_with(sql: str, seed: int = 1) -> Playground:
    """A playground that has run some statements."""
    playground = Playground(seed)
    for statement in sql.split(";"):
        if statement.strip():
            playground.execute(statement)
    return playground
