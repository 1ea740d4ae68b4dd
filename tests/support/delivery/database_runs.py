"""Logs of what SQL statements do, delivered into a database in this process, and the upstream's tables beside what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.consumer.upstreams import truth
from tests.support.delivery.mysql_tables import differences
from tests.support.servers.mariadb import MariaDb
from tidemill.changefeed.replay import Delivered, replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.sinks.mysql import driver, lanes
from tidemill.sinks.mysql.bookkeeping import Books

FORCED = "force-replicate = true\n"


def hurried(patch: pytest.MonkeyPatch, *, plain: bool = True) -> None:
    """Let pauses between attempts be short. `plain`: rows are written as if none of them could have been written before, as in a changefeed
    that has run for a while."""
    patch.setattr(lanes, "FIRST_WAIT_S", 0.001)
    patch.setattr(lanes, "LONGEST_WAIT_S", 0.004)
    patch.setattr("tidemill.changefeed.replay.RETRY", RetryPolicy(first_s=0.001, longest_s=0.002, total_s=600))
    if plain:
        patch.setattr(driver, "Books", lambda connection, feed, lanes, _, **given: Books(connection, feed, lanes, 1, **given))


def delivered(log: str, uri: str, toml: str = FORCED, target_ts: int | None = None) -> Delivered:
    """Deliver a log."""
    config = parse_config(toml)
    return replay(log, Settings("test", config.sink_uri(uri), config, UTC), target_ts=target_ts)


def wrong(db: MariaDb, sql: SqlLog, schema: str = "", ts: int | None = None, *, keyless: bool = True) -> Iterator[str]:
    """What differs between the tables upstream and downstream, of one database or of all."""
    tables = sql.tables_at(ts if ts is not None else sql.run())
    expected = {name: table for name, table in truth(tables, keyless=keyless).items() if schema in ("", name[0])}
    assert any(rows for _, rows in expected.values()), "nothing to compare"
    yield from map(str, differences(db, expected))
