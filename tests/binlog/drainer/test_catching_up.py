"""The relay log where PD or a Pump cannot be reached, with a real MariaDB."""

from __future__ import annotations

import asyncio
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.binlog.effects import differing, entries, rows_of, upstream
from tests.support.binlog.made import MADE, ddl, inserted
from tests.support.binlog.pumps import free_address
from tests.support.servers.mariadb import MariaDb
from tidemill.binlog.drainer.catching_up import catch_up, catch_up_without_pumps
from tidemill.binlog.drainer.destination import Forms
from tidemill.binlog.drainer.drainer import Drainer
from tidemill.binlog.drainer.outlets import open_outlet
from tidemill.binlog.drainer.records.relay import RelayLog
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.drainer.settings import Downstream, DrainerSettings
from tidemill.binlog.nodes import Node, NodeKind, NodeState
from tidemill.binlog.outputs.transactions import Entry
from tidemill.binlog.registry.client import Registry
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.errors import UpstreamUnavailable
from tidemill.playground.server import Playground

CLUSTER = 7


def settings(db: MariaDb, folder: Path, **more: Any) -> DrainerSettings:
    to = Downstream(host="127.0.0.1", port=db.port)
    data, relay = str(folder / "data"), str(folder / "relay")
    return DrainerSettings(db_type="mysql", data_dir=data, to=to, relay_dir=relay, **more).checked()


def some(taken: set[int]) -> list[Entry]:
    """Recorded entries, in order."""
    return [entries()[1][ts] for ts in sorted(taken)]


def crashed(
    db: MariaDb, folder: Path, found: list[Entry], at: int, *, consistent: bool = False, zone: timezone = UTC, cluster_id: int = CLUSTER
) -> None:
    """What a crash leaves: everything in the relay log, what lies up to an entry applied, with the position there."""
    made = open_outlet(settings(db, folder), cluster_id, zone)
    made.write(found[:at])
    made.save(Position(found[at - 1].commit_ts, 5, consistent))
    made.close()
    relay = RelayLog(folder / "relay", 1 << 20, zone)
    relay.append(found[at:])
    relay.close()


@pytest.mark.slow
@pytest.mark.parametrize("hours", [0, 8])
def test_the_relay_log_is_applied_from_the_position_on(mariadb: MariaDb, tmp_path: Path, hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    want, taken = upstream(mariadb)
    found = some(taken)
    crashed(mariadb, tmp_path, found, 120, zone=zone)
    assert catch_up(settings(mariadb, tmp_path, worker_count=4), CLUSTER, zone) == Position(found[-1].commit_ts, 5, consistent=True)
    assert differing(want, rows_of(mariadb)) == set()


def small(db: MariaDb, folder: Path, cluster_id: int = CLUSTER, **more: Any) -> list[Entry]:
    """A crash behind the fourth of a few entries. Returns them."""
    db.clear()
    found = [
        *MADE,
        *(inserted(ts, ts) for ts in (10, 20, 30)),
        ddl(40, "ALTER TABLE t DROP COLUMN more"),
        ddl(50, "ALTER TABLE t ADD w INT"),
    ]
    crashed(db, folder, found, 4, cluster_id=cluster_id, **more)
    return found


def position(db: MariaDb, folder: Path, cluster_id: int = CLUSTER) -> Position | None:
    made = open_outlet(settings(db, folder), cluster_id, UTC)
    try:
        return made.load()
    finally:
        made.close()


def test_without_pd_the_cluster_is_that_of_the_only_position(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = small(mariadb, tmp_path)

    async def no_pd(*given: object, **more: object) -> PdClient:
        raise UpstreamUnavailable("PD does not answer")

    monkeypatch.setattr(PdClient, "connect", no_pd)
    chosen = settings(mariadb, tmp_path)
    with pytest.raises(UpstreamUnavailable):
        asyncio.run(Drainer(chosen, Forms(chosen)).run())
    assert position(mariadb, tmp_path) == Position(found[-1].commit_ts, 5, consistent=True)


def test_a_pump_that_takes_no_connection_is_not_waited_for(mariadb: MariaDb, tmp_path: Path) -> None:
    async def test() -> None:
        playground = Playground()
        await playground.start()
        pd = await PdClient.connect(playground.pd_address)
        found = small(mariadb, tmp_path, pd.cluster_id)
        nodes = Registry(pd)
        try:
            chosen = settings(mariadb, tmp_path)
            await nodes.put(NodeKind.PUMP, Node("gone", free_address(), NodeState.OFFLINE))
            await catch_up_without_pumps(chosen, pd.cluster_id, nodes, UTC)
            assert position(mariadb, tmp_path, pd.cluster_id) == Position(20, 5)
            await nodes.put(NodeKind.PUMP, Node("dead", free_address(), NodeState.ONLINE))
            await catch_up_without_pumps(chosen, pd.cluster_id, nodes, UTC)
            assert position(mariadb, tmp_path, pd.cluster_id) == Position(found[-1].commit_ts, 5, consistent=True)
        finally:
            await pd.close()
            await playground.stop()

    asyncio.run(test())


def lose_the_beginning(relay: Path) -> None:
    for path in sorted(relay.iterdir())[:-1]:
        path.unlink()
    (path,) = relay.iterdir()
    path.write_bytes(b"")


def tear_the_end(relay: Path) -> None:
    path = max(relay.iterdir())
    path.write_bytes(path.read_bytes()[:-5])


def test_after_a_stop_in_order_or_without_the_beginning_nothing_is_applied(mariadb: MariaDb, tmp_path: Path) -> None:
    small(mariadb, tmp_path, consistent=True)
    assert catch_up(settings(mariadb, tmp_path), CLUSTER, UTC) is None
    assert position(mariadb, tmp_path) == Position(20, 5, consistent=True)
    small(mariadb, tmp_path / "other")
    lose_the_beginning(tmp_path / "other" / "relay")
    assert catch_up(settings(mariadb, tmp_path / "other"), CLUSTER, UTC) is None
    assert position(mariadb, tmp_path / "other") == Position(20, 5)
    assert mariadb.rows("SELECT id FROM d.t") == [(10,), (20,)]


def test_a_record_that_the_crash_tore_is_left_out(mariadb: MariaDb, tmp_path: Path) -> None:
    found = small(mariadb, tmp_path)
    tear_the_end(tmp_path / "relay")
    assert catch_up(settings(mariadb, tmp_path), CLUSTER, UTC) == Position(found[-2].commit_ts, 5, consistent=True)


def test_what_a_later_ddl_removed_before_the_crash_is_left_out(mariadb: MariaDb, tmp_path: Path) -> None:
    """The column is gone already, then the table too."""
    small(mariadb, tmp_path)
    mariadb.run("ALTER TABLE d.t DROP COLUMN more")
    assert catch_up(settings(mariadb, tmp_path), CLUSTER, UTC) == Position(50, 5, consistent=True)
    assert mariadb.rows("SELECT id, v, w FROM d.t ORDER BY id") == [(10, 10, None), (20, 20, None), (30, 30, None)]
    small(mariadb, tmp_path / "other")
    mariadb.run("DROP TABLE d.t")
    assert catch_up(settings(mariadb, tmp_path / "other"), CLUSTER, UTC) == Position(50, 5, consistent=True)
