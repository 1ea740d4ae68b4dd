"""Tables in chosen partitions of a log, for tests of progress per table."""

from __future__ import annotations

from tidemill.changelog.spread import partition_of
from tidemill.playground.server import Playground
from tidemill.tidb.keys import record_key
from tidemill.tidb.schema.tracking.history import SchemaHistory


def tables_apart(playground: Playground, *wanted: tuple[str, int], partitions: int = 2, columns: str = "id int primary key") -> list[int]:
    """Tables of these names in these partitions of a log; their ids. Tables between are made and dropped until an id fits."""
    found = []
    for name, partition in wanted:
        while True:
            playground.execute(f"create table {name} ({columns})")
            table_id = id_of(playground, name)
            if partition_of(table_id, partitions) == partition:
                found.append(table_id)
                break
            playground.execute(f"drop table {name}")
    return found


def id_of(playground: Playground, name: str) -> int:
    (table,) = [t for t in playground.database.catalog.tables.values() if t.name == name]
    return int(table.model.id)


def key_of(table_id: int) -> bytes:
    """A key inside of the table's rows."""
    return record_key(table_id, 1)


def physical_ids(playground: Playground, schema: str, table: str) -> tuple[int, ...]:
    """Return the physical ids of a table, as a capture finds them in the store."""
    mvcc, now = playground.cluster.mvcc, playground.cluster.oracle.next()
    pairs = [(k, v) for k, v in mvcc.scan(b"m", b"n", now) if isinstance(v, bytes)]
    return SchemaHistory.bootstrap(now, pairs).snapshot(now).by_name[schema, table].physical_ids


def playground_table(playground: Playground) -> bytes:
    """The encoded id of test.t, as keys have it."""
    (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
    return record_key(table.model.id, 0)[1:9]
