"""A cluster, and a log, of very many tables."""

from __future__ import annotations

import json

from tidemill.changelog import initial_load
from tidemill.changelog.initial_load import Plan, PlannedTable
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import open_storage
from tidemill.playground.server import Playground
from tidemill.playground.store.cluster import Cluster
from tidemill.tidb import keys
from tidemill.tidb.schema.metakeys import name_of

FIRST_ID = 100_000


def create_tables(playground: Playground, count: int) -> None:
    """Tables d.t0, d.t1, …, each a region of its own, of all stores in turn. Written as TiDB describes them: a statement for each would
    take hours."""
    playground.execute("create database d; create table d.t (id int primary key, v int)")
    cluster = playground.cluster
    key, value = _description(cluster)
    name = name_of(key)
    assert name is not None
    info = json.loads(value)
    for first in range(0, count, 1000):
        ids = range(FIRST_ID + first, FIRST_ID + min(count, first + 1000))
        tables = [(i, info | {"id": i, "name": {"O": f"t{i - FIRST_ID}", "L": f"t{i - FIRST_ID}"}}) for i in ids]
        cluster.commit(cluster.prewrite([(keys.table_key(name.schema_id, i), json.dumps(table).encode()) for i, table in tables]))
        cluster.split([keys.table_prefix(i) for i in ids])
    for i, region in enumerate(list(cluster.regions)):
        cluster.transfer_leader(region.id, region.peers[i % len(region.peers)].store_id)


def _description(cluster: Cluster) -> tuple[bytes, bytes]:
    found = cluster.mvcc.scan(b"m", b"n", cluster.oracle.next())
    return next((k, v) for k, v in found if isinstance(v, bytes) and b'"O":"t"' in v and b"cols" in v)


def load_tables(log: str, count: int) -> Plan:
    """Write a finished initial load of `count` tables: all parts are there."""
    storage = open_storage(log)
    start_ts = LogReader(storage).start_ts
    plan = Plan(start_ts, tuple(PlannedTable(FIRST_ID + i, f"d.t{i}", ((b"a", b"z"),)) for i in range(count)))
    initial_load.write_plan(storage, plan)
    for part in plan.parts():
        storage.replace(f"{part.folder}/{part.name}", b"rows")
    return plan
