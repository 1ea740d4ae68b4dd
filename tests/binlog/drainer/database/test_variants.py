"""Configurations of a real Drainer: ours, with the same file, leaves the tables that the recorded statements leave.

The recorded Drainers read one stretch of binlogs, of which the cases hold a part. Some tables have rows by other binlogs too: of these only
whether they are there is compared.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.support.binlog.binlogs import lines
from tests.support.binlog.drained import drained, statements_of
from tests.support.binlog.effects import Rows, blocks, entries, rows_of, upstream
from tests.support.binlog.made import CLUSTER
from tests.support.servers.mariadb import MariaDb
from tidemill.binlog.drainer.outlets import open_outlet
from tidemill.binlog.drainer.picking.picking import Tables
from tidemill.binlog.drainer.settings import DrainerSettings, read_file

VARIANTS: dict[str, dict[str, Any]] = {line["variant"]: line for line in lines("drainer_variants")}
MORE_ROWS = {"t1", "cc", "u2"}
"""Tables with rows that are in no case."""
NOT_THERE = {"sh", "t_cmt", "t_Case"}
"""A table of which no case has the CREATE TABLE, one whose DROP TABLE was undone in the recording, and one that a DROP TABLE names in other
letters, which the real Drainer leaves."""
KEPT: dict[str, set[str]] = {"replicate_do_table_regex": set()}
"""Of a configuration that delivers that last table alone nothing is left."""


def _settings(folder: Path, variant: dict[str, Any]) -> DrainerSettings:
    path = folder / "drainer.toml"
    path.write_text(variant["config_toml"])
    return DrainerSettings(**read_file(path)).checked()


def _theirs(db: MariaDb, variant: dict[str, Any]) -> Rows:
    """The rows that the recorded statements leave."""
    db.clear()
    with contextlib.closing(db.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00', foreign_key_checks = 0")
        if variant["pre_sql"]:
            cursor.execute(variant["pre_sql"])
        for transaction in blocks(statements_of(variant["statements"]) or ()):
            with contextlib.suppress(pymysql.err.MySQLError):  # as it was recorded, with a server of its own settings
                for statement in transaction:
                    cursor.execute(statement)
    return rows_of(db)


def _ours(db: MariaDb, folder: Path, variant: dict[str, Any], taken: set[int]) -> Rows:
    """The rows that an outlet with the variant's file leaves of the cases."""
    db.clear()
    settings = _settings(folder, variant)
    own = DrainerSettings().to
    settings = replace(settings, to=replace(settings.to, host="127.0.0.1", port=db.port, user=own.user))
    found = asyncio.run(drained(entries()[0], fillers_too=True, tables=Tables(settings)))
    stretch = [found[ts] for ts in sorted(found) if ts in taken and variant["initial_commit_ts"] < ts <= variant["last_commit_ts"]]
    if variant["pre_sql"]:
        with contextlib.closing(db.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(variant["pre_sql"])
    outlet = open_outlet(settings, CLUSTER, UTC)
    outlet.write(stretch)
    outlet.close()
    return rows_of(db)


@pytest.mark.slow
def test_each_configuration_leaves_the_rows_that_the_real_drainer_left(mariadb: MariaDb, tmp_path: Path) -> None:
    taken = upstream(mariadb)[1]
    for name, variant in VARIANTS.items():
        want, got = _theirs(mariadb, variant), _ours(mariadb, tmp_path, variant, taken)
        assert {table for _, table in want.keys() ^ got.keys()} <= NOT_THERE, name
        assert {table for _, table in want.keys() & got.keys() if want["gold7", table] != got["gold7", table]} <= MORE_ROWS, name
        assert {table for _, table in got} >= KEPT.get(name, {"de", "mv"}), name
