"""bdr-mode: rows that another change data capture wrote are not captured, and only the primary cluster's DDLs are delivered."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from tests.support.capture.captures import caught_up, config, running
from tests.support.schema import schemas
from tests.support.schema.tables import column, ddl_event, table, table_version
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings, TableRouter
from tidemill.playground.server import Playground
from tidemill.tidb.keys import record_key
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.job import DdlJob


@pytest.mark.parametrize("filter_loop", [True, False])
def test_what_came_from_the_other_cluster_is_not_captured(tmp_path: Path, filter_loop: bool) -> None:
    log = tmp_path / "log"

    async def main() -> None:
        async with Playground(5, resolved_interval=0.1) as playground:
            playground.execute("create database d; create table d.t (id int primary key, v int); insert into d.t values (1, 1)")
            (table_id,) = (t.model.id for t in playground.database.catalog.tables.values() if t.name == "t")
            mvcc, oracle = playground.cluster.mvcc, playground.cluster.oracle
            ((_, value),) = mvcc.scan(record_key(table_id, 1), record_key(table_id, 2), oracle.next())
            async with running(replace(config(playground, log), filter_loop=filter_loop)) as capture:
                playground.cluster.transact([(record_key(table_id, 2), value)], source=1)
                playground.execute("insert into d.t values (3, 3); alter table d.t add column w int; insert into d.t values (4, 4, 4)")
                await caught_up(capture, oracle.next())

    asyncio.run(main())
    feed = parse_config(f"bdr-mode = {str(filter_loop).lower()}")
    settings = Settings("t", feed.sink_uri(f"messages://{tmp_path}/out?protocol=open-protocol"), feed, UTC)
    done = replay(str(log), settings)
    assert (done.rows, done.ddls) == ((2, 0) if filter_loop else (3, 1))


@pytest.mark.parametrize(
    ("job", "delivered"),
    [
        ({"bdr_role": "primary"}, True),
        ({"bdr_role": "secondary"}, False),
        ({"bdr_role": ""}, False),
        ({}, False),
        ({"bdr_role": "primary", "cdc_write_source": 1}, False),
    ],
)
def test_only_the_primarys_own_ddls_are_delivered(job: dict[str, object], delivered: bool) -> None:
    made = DdlJob.from_json(schemas.job(1, 3, 4, **job))
    version = replace(table_version("s", "t"), info=table([column(MySQLType.LONGLONG)], pk_is_handle=True))
    event = replace(ddl_event(version, 9), bdr_role="" if made.by_cdc else made.bdr_role)
    for mode, expected in ((True, delivered), (False, True)):
        feed = parse_config(f"bdr-mode = {str(mode).lower()}")
        router = TableRouter(Settings("t", feed.sink_uri("mysql://h/"), feed, UTC), lambda version: None)
        assert router.ddl(event) is expected
