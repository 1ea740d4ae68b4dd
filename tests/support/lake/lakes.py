"""Logs delivered into lakes in this process, and what their tables have to hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from tests.support.changelog.sqllogs import SqlLog
from tests.support.consumer.upstreams import history_of
from tests.support.lake.read_delta import rows_of
from tidemill.changefeed.replay import Delivered, replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.playground.store.truth import TruthTable
from tidemill.playground.workload.mixed import Options
from tidemill.sinks.lake.driver import LakeDriverSink
from tidemill.sinks.lake.manifest import TableAt, manifest_at, read_head, read_manifest
from tidemill.sinks.lake.shapes import ROW_ID
from tidemill.sinks.storage.store import LocalStore
from tidemill.tidb.columns.forms import column_type
from tidemill.tidb.columns.values import Unfit, typed_value
from tidemill.tidb.schema.tracking.versions import TableVersion

TYPES = """CREATE TABLE app.types (id BIGINT UNSIGNED, s VARCHAR(20), d DECIMAL(20,4), b VARBINARY(10), f FLOAT, g DOUBLE, da DATE,
 dt DATETIME(6), ts TIMESTAMP(3) NULL, j JSON, e ENUM('a','b'), st SET('x','y'), t TIME, y YEAR, bi BIT(5), n INT,
 PRIMARY KEY (id, s))"""

FORCED = "force-replicate = true\n"


def deliver(log: str, uri: str, target_ts: int | None = None, toml: str = FORCED) -> Delivered:
    """Deliver a log."""
    config = parse_config(toml)
    return replay(log, Settings("test", config.sink_uri(uri), config, UTC), target_ts=target_ts)


def resume(log: str, uri: str) -> None:
    """Deliver all of a log again, into what is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LakeDriverSink, "_clear", lambda self: None)
        deliver(log, uri)


def rows_at(lake: Path, at: TableAt) -> list[dict[str, Any]]:
    """The rows of a table at a version, by a reader that is not the writer."""
    if not at.metadata:
        return rows_of(lake / at.place, at.version)
    rows: list[dict[str, Any]] = []
    if at.version >= 0:
        rows = StaticTable.from_metadata(at.metadata).scan(snapshot_id=at.version).to_arrow().to_pylist()
    return rows


def assert_equal(lake: Path, sql: SqlLog, ts: int) -> int:
    """The tables that a manifest names are the upstream's at its ts. Returns how many there are."""
    truth = sql.tables_at(ts)
    manifest = read_manifest(LocalStore(lake), ts)
    for name, at in manifest.tables.items():
        assert shown(rows_at(lake, at)) == expected(truth[name]), (name, ts)
    assert all(name in manifest.tables for name, table in truth.items() if table.rows)
    return len(manifest.tables)


def assert_newest_equal(lake: Path, sql: SqlLog) -> None:
    """The tables of the newest manifest are the upstream's at the lake's head."""
    end = read_head(LocalStore(lake)).resolved_ts
    for name, at in manifest_at(LocalStore(lake), None).tables.items():
        assert shown(rows_at(lake, at)) == expected(sql.tables_at(end)[name])


def eventful() -> SqlLog:
    """A log of all types, all kinds of keys, and the DDLs that a lake follows."""
    sql = SqlLog()
    sql.work("mixed", 40, Options(ddl_every=0))
    sql.run(
        TYPES,
        """INSERT INTO app.types VALUES (18446744073709551615, 'ü', 1.5, x'00ff', 1.5, 2.5, '2024-02-29', '2024-01-01 00:00:00.123456',
 '2024-01-01 00:00:00.5', '{"a": [1]}', 'b', 'x,y', '-12:00:00', 2024, 5, 1), (1, 'a', NULL, NULL, NULL, NULL, '0000-00-00', NULL, NULL,
 NULL, NULL, NULL, NULL, NULL, NULL, NULL)""",
        "CREATE TABLE app.k (a INT, b VARCHAR(10))",
        "INSERT INTO app.k VALUES (1,'x'), (1,'x'), (2,'y')",
        "DELETE FROM app.k WHERE a = 2",
        "CREATE TABLE app.u (a INT NOT NULL, b INT, UNIQUE KEY (a))",
        "INSERT INTO app.u VALUES (1, 1), (2, 2)",
        "ALTER TABLE app.types ADD COLUMN c INT NOT NULL DEFAULT 5",
        "UPDATE app.types SET n = 7, s = 'b' WHERE id = 1",
        "UPDATE app.u SET a = 3 WHERE a = 1",
        "ALTER TABLE app.types RENAME COLUMN n TO m",
        "ALTER TABLE app.types MODIFY COLUMN m BIGINT",
        "ALTER TABLE app.types DROP COLUMN e",
        "INSERT INTO app.u VALUES (7, 7)",
        "TRUNCATE TABLE app.u",
        "RENAME TABLE app.k TO app.k2, app.u TO app.k",
        "INSERT INTO app.k VALUES (9, 9)",
        "DROP TABLE app.k2",
        "CREATE TABLE app.k2 (z INT PRIMARY KEY)",
    )
    sql.work("bank", 40, Options(ddl_every=0))
    return sql


def version_of(sql: SqlLog, table: str) -> TableVersion:
    """What a table is at the end."""
    history = history_of(sql._playground)
    return next(one for one in history.snapshot(history.resolved_ts).tables.values() if one.table == table)


def expected(table: TruthTable) -> list[str]:
    """The rows of an upstream's table as the lake has them, in an order of their own."""
    kinds = {column.name: (column, column_type(column)) for column in table.info.output_columns}

    def value(name: str, cell: Any) -> Any:
        try:
            found = typed_value(*kinds[name], cell)
            return found.decode() if isinstance(found, bytes) and not kinds[name][0].is_binary else found
        except Unfit:
            return None

    return shown({name: value(name, cell) for name, cell in row.items() if name in kinds} for row in table.rows)


def shown(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows that can be compared: without the hidden handle, columns by name, in order."""
    return sorted(str(sorted((name, _plain(value)) for name, value in row.items() if name != ROW_ID)) for row in rows)


def _plain(value: Any) -> str:
    return value.astimezone(UTC).isoformat() if getattr(value, "tzinfo", None) is not None else repr(value)


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_at(patch: pytest.MonkeyPatch, step: int, methods: Iterable[tuple[type, str]]) -> None:
    """Let the process end before the n-th call, from 1 on, of all these methods together."""
    steps = itertools.count(1)

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            if next(steps) == step:
                raise Killed
            return real(*given, **more)

        return call

    for owner, name in methods:
        patch.setattr(owner, name, dying(getattr(owner, name)))
