"""Schema files beside those that TiCDC wrote for the same DDLs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.capture.eventfeeds import recording
from tests.support.golden.ticdc_files import ticdc_files
from tests.support.schema.recorded_schemas import recorded_history
from tidemill.errors import SqlError
from tidemill.playground.server import Playground
from tidemill.playground.sql.parse.ast import TableName
from tidemill.sinks.storage import tables
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion


def schema_files(prefix: str) -> dict[str, bytes]:
    return {name: data for name, data in ticdc_files("csv").items() if name.startswith(prefix) and "/meta/schema_" in name}


def test_every_ddl_of_a_recorded_session_gives_ticdcs_files() -> None:
    """TiCDC names a DDL by the ts at which its job ended, Tidemill by the ts at which it takes effect: told apart by done_ts alone."""
    history, first, last = recorded_history()
    events = [event for event in history.ddl_events(first, last) if event.schema.startswith("cdc_ddl")]
    made = {d.path: d.text() for event in events for d in tables.of_ddl(replace(event, ts=event.done_ts))}
    assert made == schema_files("cdc_ddl")
    assert len(made) == 39


@pytest.mark.parametrize("name", ["all_types", "partitions", "scan_past"])
def test_tables_of_all_types(name: str) -> None:
    playground, sessions = Playground(cluster_id=1), {}
    for line in recording(name):
        if line["kind"] == "sql" and line["sql"].lower().startswith(("create", "use")):
            sessions.setdefault(line["conn"], playground.database.session()).execute(line["sql"])
    compared = 0
    for path, data in schema_files("cdc_").items():
        schema, table = path.split("/")[:2]
        told = json.loads(data)
        try:
            info = TableInfo.from_json(playground.database.catalog.table(TableName(schema, table), "").info)
        except SqlError:
            continue  # of another recording
        version = TableVersion(schema, 1, info, (), told["TableVersion"])
        made = tables.of_table(version, query=told["Query"], type_code=told["Type"])
        assert (made.path, made.text()) == (path, data)
        compared += 1
    assert compared >= {"all_types": 7, "partitions": 3, "scan_past": 1}[name]
